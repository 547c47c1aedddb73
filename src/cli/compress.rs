//! `handoffd compress FILE`: what the embedded compressor would make of a message, without a broker.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::json;

use super::answer::answer;
use super::{Exit, Output};
use handoffd_domain::json;
use handoffd_domain::window::{CompressedBy, ContextSettings, Tokenizer};
use handoffd_gate::context::compress::{CompressionPlan, extractive};

/// How tokens are counted.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Count {
    /// As OpenAI's `o200k_base`
    O200k,
    /// As OpenAI's `cl100k_base`
    Cl100k,
    /// By the classes of the bytes
    Estimate,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A handoff message in JSON
    file: PathBuf,
    /// The receiver's context window, in tokens
    #[arg(long, value_name = "TOKENS")]
    window: u64,
    /// The share of the window that the message may take
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    compress_at: f64,
    /// Turns that stay verbatim
    #[arg(long, value_name = "TURNS", default_value_t = ContextSettings::default().keep_turns)]
    keep_turns: usize,
    /// The receiver's tokenizer
    #[arg(long, value_enum, default_value = "o200k")]
    tokenizer: Count,
}

/// Prints the compressed message (JSON), or what the compression comes to (text). Exit 1 where it does not fit.
pub(super) fn run(args: &Args, output: Output) -> Exit {
    if !(0.05..=1.0).contains(&args.compress_at) {
        eprintln!("handoffd: --compress-at must be from 0.05 to 1");
        return Exit::Usage;
    }
    if args.window == 0 {
        eprintln!("handoffd: --window must be 1 or more");
        return Exit::Usage;
    }
    let read = std::fs::read(&args.file).map_err(|err| err.to_string());
    let parsed =
        read.and_then(|bytes| json::parse(&bytes).map_err(|fault| fault.into_failure().message));
    let message = match parsed {
        Ok(message) => message,
        Err(why) => {
            eprintln!("handoffd: {}: {why}", args.file.display());
            return Exit::Unreachable;
        }
    };
    // Any object could be measured: one without both members of every message is none.
    if ["taskDescription", "conversationHistoryVerbatim"]
        .iter()
        .all(|name| message.get(name).is_none())
    {
        eprintln!("handoffd: {}: no handoff message", args.file.display());
        return Exit::Usage;
    }
    let tokenizer = match args.tokenizer {
        Count::O200k => Tokenizer::O200k,
        Count::Cl100k => Tokenizer::Cl100k,
        Count::Estimate => Tokenizer::Estimate,
    };
    let limit = (args.window as f64 * args.compress_at) as u64;
    let Some(plan) = CompressionPlan::new(&message, limit, args.keep_turns, tokenizer) else {
        eprintln!("handoffd: {}: no message that can be compressed", args.file.display());
        return Exit::Unreachable;
    };
    if !plan.is_over() {
        let text = match output {
            Output::Json => json!({ "compressed": false, "message": message }).to_string(),
            Output::Text => format!("fits: at most {limit} tokens"),
        };
        return answer(&text, Exit::Success);
    }
    let made = plan.apply(&extractive::summary(&plan), CompressedBy::Extractive);
    let facts = &made.facts;
    let text = match output {
        Output::Json => {
            json!({ "compressed": true, "compression": facts, "message": made.message }).to_string()
        }
        Output::Text => {
            let mut text = format!(
                "{} of {} tokens, limit {limit}: {}\n\
                 {} of {} turns stay verbatim\n\
                 {} of {} facts kept, {} of them appended by the fidelity check\n",
                facts.tokens,
                facts.original_tokens,
                if facts.fits { "fits" } else { "over the limit" },
                facts.kept_turns,
                facts.original_turns,
                facts.facts_kept,
                facts.facts,
                facts.facts_appended,
            );
            if let Some(summary) = made.message["conversationHistorySummary"].as_str() {
                text.push('\n');
                text.push_str(summary);
            }
            text
        }
    };
    answer(&text, if facts.fits { Exit::Success } else { Exit::No })
}
