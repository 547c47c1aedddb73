//! `handoffd apply`, `diff` and `dump`: a broker's objects as files of a folder, over the public API.
//!
//! The core is pure: files and answers become [`object::Objects`] in one normal form, two of these a [`plan::Plan`], a step of
//! it requests. This file has the edge.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::json;

use self::carry::{CarryError, SecretsFile, carry_out, secrets};
use self::check::{Findings, check};
use self::files::Declared;
use self::held::Held;
use self::plan::{Plan, plan};
use self::requests::makes_secrets;
use super::answer::answer;
use super::client::{Client, ClientError, Reach};
use super::plain::{self, plain};
use super::{Exit, Output};
use handoffd_broker::config::Config;

mod carry;
mod check;
pub(in crate::cli) mod dump;
mod files;
mod held;
mod object;
mod plan;
mod read;
mod requests;
mod show;
#[cfg(test)]
mod tests;
mod yaml;

#[derive(Debug, ClapArgs)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    what: DiffArgs,
    /// Print the plan and change nothing
    #[arg(long)]
    dry_run: bool,
    /// A new file for the keys and secrets that the broker makes: lines of JSON, mode 0600
    #[arg(long, value_name = "FILE")]
    secrets_out: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct DiffArgs {
    /// The folder with the declared objects
    #[arg(short = 'f', long = "folder", value_name = "DIR")]
    folder: PathBuf,
    /// Take away what is not declared: agents, allowlists, caps and subscriptions
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, ClapArgs)]
pub(super) struct DumpArgs {
    /// The folder to write; new or empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    reach: Reach,
}

/// Why a command ended before its first change.
enum DeclaredError {
    /// Files or arguments are wrong: a line each.
    Wrong(Vec<String>),
    /// The plan cannot be carried out.
    Conflict,
    Api(ClientError),
}

impl From<ClientError> for DeclaredError {
    fn from(err: ClientError) -> Self {
        Self::Api(err)
    }
}

impl DeclaredError {
    /// Prints the error on standard error.
    fn tell(&self, output: Output) {
        match self {
            Self::Wrong(lines) => {
                for line in lines {
                    eprintln!("handoffd: {line}");
                }
            }
            Self::Conflict => {
                eprintln!("handoffd: nothing was changed: settle the conflicts of the plan first");
            }
            Self::Api(err) => eprintln!("{}", err.shown(output)),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Wrong(_) => Exit::Usage,
            Self::Conflict => Exit::No,
            Self::Api(err) => err.exit(),
        }
    }
}

/// A plan with all that it was made from.
struct Prepared {
    client: Client,
    declared: Declared,
    plan: Plan,
    findings: Findings,
}

impl Prepared {
    fn shown(&self, output: Output) -> String {
        match output {
            Output::Json => {
                let plan = show::value(&self.plan, &self.declared, &self.findings);
                plain::json(&json!({ "plan": plan }), false)
            }
            Output::Text => show::text(&self.plan, &self.declared, &self.findings),
        }
    }
}

fn reach(reach: &Reach, config: &Config) -> Result<Client, ClientError> {
    let key = std::env::var("HANDOFFD_API_KEY").ok().filter(|key| !key.is_empty());
    Client::new(reach, key, config)
}

/// Reads the files, asks the broker, and plans.
async fn prepare(args: &DiffArgs, config: &Config) -> Result<Prepared, DeclaredError> {
    let declared = Declared::read(&args.folder).map_err(|defects| {
        DeclaredError::Wrong(defects.iter().map(ToString::to_string).collect())
    })?;
    let client = reach(&args.reach, config)?;
    let held = Held::ask(&client).await?;
    let mut plan = plan(&held.objects, &declared.objects, args.prune);
    let mut findings = check(&held.objects, &declared.objects, &mut plan);
    for key in held.ambiguous.iter().filter(|key| declared.objects.contains_key(key)) {
        let why = "the broker has several of this name: give each a description of its own first";
        findings.faults.push((key.clone(), ("/description".to_owned(), why.to_owned())));
    }
    if findings.faults.is_empty() {
        return Ok(Prepared { client, declared, plan, findings });
    }
    let lines = findings
        .faults
        .into_iter()
        .map(|(key, (pointer, why))| declared.defect(&key, &pointer, why).to_string());
    Err(DeclaredError::Wrong(lines.collect()))
}

/// Compares; prints the plan. Every error is exit code 2, so that 1 always means drift.
pub(super) async fn diff(args: DiffArgs, config: Config, output: Output) -> Exit {
    match prepare(&args, &config).await {
        Ok(prepared) => {
            let exit = if prepared.plan.is_drift() { Exit::No } else { Exit::Success };
            match answer(&prepared.shown(output), exit) {
                Exit::Unreachable => Exit::Usage,
                exit => exit,
            }
        }
        Err(err) => {
            err.tell(output);
            Exit::Usage
        }
    }
}

/// Prints the plan and carries it out.
pub(super) async fn apply(args: ApplyArgs, config: Config, output: Output) -> Exit {
    match applied(&args, &config, output).await {
        Ok(exit) => exit,
        Err(err) => {
            err.tell(output);
            err.exit()
        }
    }
}

async fn applied(args: &ApplyArgs, config: &Config, output: Output) -> Result<Exit, DeclaredError> {
    let prepared = prepare(&args.what, config).await?;
    let Prepared { client, declared, plan, .. } = &prepared;
    let printed = answer(&prepared.shown(output), Exit::Success);
    if printed != Exit::Success {
        return Ok(printed);
    }
    if plan.conflicts().next().is_some() {
        return Err(DeclaredError::Conflict);
    }
    let kept = if plan.kept.is_empty() { Exit::Success } else { Exit::No };
    if args.dry_run || plan.steps.is_empty() {
        return Ok(kept);
    }
    let secrets = secrets(plan, declared).map_err(|faults| {
        DeclaredError::Wrong(faults.iter().map(|fault| plain(fault).into_owned()).collect())
    })?;
    let out = secrets_file(args, plan).map_err(|why| DeclaredError::Wrong(vec![why]))?;
    let told = |step: &plan::Step| {
        if output == Output::Text {
            let done = format!("{}d {}", step.action.name(), step.key());
            let _ = answer(&plain(&done), Exit::Success);
        }
    };
    let outcome = carry_out(client, plan, &secrets, out, told).await;
    let exit = match &outcome.failed {
        None => kept,
        Some((_, _, CarryError::Api(err))) => err.exit(),
        Some((_, _, CarryError::Secrets(_))) => Exit::Unreachable,
    };
    Ok(match output {
        Output::Json => {
            let result = json!({ "result": show::outcome_value(&outcome) });
            answer(&plain::json(&result, false), exit)
        }
        Output::Text => answer(&show::outcome_text(&outcome), exit),
    })
}

/// The file for new secrets, where a step makes any.
fn secrets_file(args: &ApplyArgs, plan: &Plan) -> Result<Option<SecretsFile>, String> {
    let made: Vec<String> = plan
        .steps
        .iter()
        .filter(|step| makes_secrets(step))
        .map(|step| step.key().to_string())
        .collect();
    match &args.secrets_out {
        _ if made.is_empty() => Ok(None),
        Some(path) => SecretsFile::create(path).map(Some),
        None => Err(format!(
            "the broker shows the secrets of a new object once: say --secrets-out FILE for {}",
            plain(&made.join(", "))
        )),
    }
}

/// Writes the broker's objects into a folder.
pub(super) async fn dump(args: DumpArgs, config: Config, output: Output) -> Exit {
    match dumped(&args, &config).await {
        Ok((files, variables)) => {
            let folder = args.folder.display().to_string();
            let text = match output {
                Output::Json => {
                    let value = json!({ "folder": folder, "objects": files, "secrets": variables });
                    plain::json(&value, false)
                }
                Output::Text if variables.is_empty() => format!("{folder}: {files} objects"),
                Output::Text => format!(
                    "{folder}: {files} objects\nno file has a secret; `handoffd apply` reads them from {}",
                    variables.join(", ")
                ),
            };
            answer(&text, Exit::Success)
        }
        Err(err) => {
            err.tell(output);
            err.exit()
        }
    }
}

async fn dumped(args: &DumpArgs, config: &Config) -> Result<(usize, Vec<String>), DeclaredError> {
    let held = Held::ask(&reach(&args.reach, config)?).await?;
    let wrong = |why: String| DeclaredError::Wrong(vec![plain(&why).into_owned()]);
    let files = dump::files(&held).map_err(wrong)?;
    dump::write(&args.folder, &files).map_err(wrong)?;
    let objects = files.len() - object::Kind::ALL.len();
    Ok((objects, dump::variables(&held).into_iter().collect()))
}
