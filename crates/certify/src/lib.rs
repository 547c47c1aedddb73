//! `certify`: a kit that drives a handoff broker from outside and prints which claims hold.
//!
//! The kit knows the broker by its HTTP API alone and shares no code with it: it brings its own agents and receivers, checks
//! signatures and Merkle trees itself, and ends the broker's process by the command that it was given. A claim is a
//! sentence that a user relies on, with the section of the specification or the seed document that states it
//! ([`claims`]). A check returns a verdict and the evidence for it; a claim that the broker does not make, or that needs a
//! command that was not given, is reported as such and never as a failure.

pub mod args;
mod broker;
mod checks;
pub mod claims;
mod clock;
mod hooks;
pub mod map;
mod message;
mod receiver;
pub mod report;

use std::fmt::Write as _;
use std::io::IsTerminal;

use tokio::time::Instant;

use crate::broker::Broker;
use crate::claims::{CLAIMS, Check, Claim};
use crate::hooks::Hooks;
use crate::map::Map;
use crate::receiver::Standing;
use crate::report::{Outcome, Report, Verdict};

pub use crate::args::Args;

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The broker did not answer, or refused the key.
    #[error("the broker at {url} cannot be driven: {why}")]
    Unreachable { url: String, why: String },
    /// A file could not be read or written.
    #[error("{file}: {why}")]
    File { file: String, why: String },
    /// The kit cannot listen where the mapping file says that the worker delivers.
    #[error("{why}")]
    Receiver { why: String },
    /// A claim was named that the kit does not know.
    #[error("no claim is called {0}; `--list` names them")]
    UnknownClaim(String),
}

/// The broker, the commands and the sizes of a run.
pub(crate) struct Bench {
    pub(crate) broker: Broker,
    pub(crate) hooks: Hooks,
    /// The receiver of a system with a worker of its own.
    pub(crate) standing: Option<Standing>,
    /// Handoffs of the checks that count.
    pub(crate) handoffs: usize,
    /// Submissions a second of the measurement.
    pub(crate) rate: u32,
}

/// Runs the claims that were asked for, one after the other; says of each when it begins.
///
/// # Errors
/// [`CertifyError`]: the broker cannot be driven at all, or the arguments name what does not exist.
pub async fn run(args: &Args, began: impl Fn(&Claim)) -> Result<Report, CertifyError> {
    let map = match &args.map {
        Some(path) => Map::read(path)?,
        None => Map::default(),
    };
    let claims = selected(&args.only)?;
    let standing = match &map.receiver {
        Some(place) => {
            let cannot = |why| CertifyError::Receiver { why };
            Some(Standing::start(place).await.map_err(cannot)?)
        }
        None => None,
    };
    let broker = Broker::connect(&args.url, args.key.as_deref().unwrap_or_default(), map).await?;
    let product = broker.product.clone();
    let hooks = Hooks::of(args);
    let bench = Bench { broker, hooks, standing, handoffs: args.handoffs, rate: args.rate };
    let mut outcomes = Vec::new();
    for claim in claims {
        began(claim);
        outcomes.push(examine(&bench, claim, args.not_claimed_too).await);
    }
    if let Some(standing) = bench.standing {
        standing.stop().await;
    }
    Ok(Report::new(&args.url, product, outcomes))
}

/// Runs the command; a terminal at standard error sees which claim is under way. Returns the report for standard output, and
/// whether nothing failed.
///
/// # Errors
/// [`CertifyError`]: the broker cannot be driven, or a file cannot be read or written.
pub async fn command(args: &Args) -> Result<(String, bool), CertifyError> {
    if args.list {
        return Ok((listed(), true));
    }
    let watched = std::io::stderr().is_terminal();
    let began = |claim: &Claim| {
        if watched {
            eprintln!("… {}", claim.promise);
        }
    };
    let report = run(args, began).await?;
    for file in &args.file {
        report.write(file)?;
    }
    Ok((report.render(args.form), report.holds()))
}

/// The claims with their sources.
fn listed() -> String {
    let mut text = String::new();
    for claim in CLAIMS {
        let _ = writeln!(text, "{:<19} {} ({})", claim.id, claim.promise, claim.source);
    }
    text
}

fn selected(only: &[String]) -> Result<Vec<&'static Claim>, CertifyError> {
    let unknown = only.iter().find(|id| !CLAIMS.iter().any(|claim| claim.id == id.as_str()));
    if let Some(id) = unknown {
        return Err(CertifyError::UnknownClaim(id.clone()));
    }
    Ok(CLAIMS
        .iter()
        .filter(|claim| only.is_empty() || only.iter().any(|id| id == claim.id))
        .collect())
}

/// Examines one claim. A check that stops early has failed, by the sentence with which it stopped. A claim that the broker does not
/// make is examined only by request, and stays one that it does not make.
async fn examine(bench: &Bench, claim: &'static Claim, not_claimed_too: bool) -> Outcome {
    let began = Instant::now();
    if let Some(why) = claim.needs.lacking(&bench.broker.map) {
        return Outcome::new(claim, Verdict::NotClaimed, why, began);
    }
    let claimed = !bench.broker.map.not_claimed.iter().any(|id| id == claim.id);
    if !claimed && !not_claimed_too {
        return Outcome::new(claim, Verdict::NotClaimed, "the mapping file says so", began);
    }
    let (verdict, evidence) = match (claim.check)(bench).await {
        Check::Holds(evidence) => (Verdict::Pass, evidence),
        Check::Broken(why) => (Verdict::Fail, why),
        Check::Unsupported(why) => (Verdict::Unsupported, why),
    };
    if claimed {
        return Outcome::new(claim, verdict, evidence, began);
    }
    let seen = format!("examined all the same: {}: {evidence}", verdict.word());
    Outcome::new(claim, Verdict::NotClaimed, seen, began)
}
