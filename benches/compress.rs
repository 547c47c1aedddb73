//! Measures the embedded compressor in time and MB/s: messages of several sizes down to a window of a quarter, with the fidelity check and
//! without it, by turns. See docs/performance.md, "Compression".
//!
//! `cargo bench --bench compress`.

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
#![allow(missing_docs, reason = "not a library")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use handoffd_domain::window::{CompressedBy, Tokenizer};
use handoffd_gate::context::compress::{CompressedMessage, CompressionPlan, extractive};
use handoffd_gate::context::count_value;
use serde_json::{Value, json};

/// Rounds of which the middle one counts.
const ROUNDS: usize = 11;

/// Sizes, in bytes of history.
const SIZES: [usize; 3] = [20_000, 200_000, 1_000_000];

/// Turns that stay verbatim, as the settings have it.
const KEEP: usize = 5;

/// Ordinary text, full of figures and names.
const PROSE: &str = concat!(
    include_str!("../docs/reliability.md"),
    include_str!("../docs/evidence.md"),
    include_str!("../docs/contracts.md"),
    include_str!("../docs/delivery.md"),
    include_str!("../docs/recovery.md"),
    include_str!("../docs/performance.md"),
    include_str!("../CHANGELOG.md"),
);

fn message(bytes: usize) -> Value {
    let texts: Vec<char> = PROSE.chars().collect();
    let turns = texts.chunks(800).cycle().enumerate().map(|(turn, text)| {
        let role = ["user", "assistant"][turn % 2];
        // No two turns are the same.
        let content = format!("{} {turn}.", text.iter().collect::<String>());
        json!({ "role": role, "content": content })
    });
    let mut used = 0;
    let kept = turns.take_while(|turn| {
        used += turn.to_string().len();
        used <= bytes
    });
    json!({
        "schemaVersion": "2.2",
        "conversationHistorySummary": "A supply contract is reviewed.",
        "conversationHistoryVerbatim": kept.collect::<Vec<_>>(),
    })
}

fn compressed(
    message: &Value,
    limit: u64,
    tokenizer: Tokenizer,
    checked: bool,
) -> CompressedMessage {
    let plan = CompressionPlan::new(message, limit, KEEP, tokenizer).unwrap();
    let summary = extractive::summary(&plan);
    if checked {
        plan.apply(&summary, CompressedBy::Extractive)
    } else {
        plan.apply_unchecked(&summary, CompressedBy::Extractive)
    }
}

fn main() {
    println!("tokenizer, bytes, tokens -> tokens; checked and unchecked: ms, MB/s; facts kept");
    for tokenizer in [Tokenizer::O200k, Tokenizer::Estimate] {
        for size in SIZES {
            let message = message(size);
            let bytes = message.to_string().len();
            let before = count_value(&message, tokenizer).unwrap().total();
            let limit = before / 5;
            let mut took = [Vec::new(), Vec::new()];
            let mut made = [None, None];
            for _ in 0..ROUNDS {
                for (place, checked) in [true, false].into_iter().enumerate() {
                    let begun = Instant::now();
                    made[place] = Some(black_box(compressed(&message, limit, tokenizer, checked)));
                    took[place].push(begun.elapsed());
                }
            }
            let facts = made[0].take().unwrap().facts;
            let speeds = took.map(|mut rounds: Vec<Duration>| {
                rounds.sort();
                let middle = rounds[rounds.len() / 2].as_secs_f64();
                format!("{:>8.1} ms {:>6.1} MB/s", middle * 1e3, bytes as f64 / 1e6 / middle)
            });
            println!(
                "{tokenizer:?} {bytes:>8} {before:>7} -> {:>6}  {}  {}  {} of {}",
                facts.tokens, speeds[0], speeds[1], facts.facts_kept, facts.facts
            );
        }
    }
}
