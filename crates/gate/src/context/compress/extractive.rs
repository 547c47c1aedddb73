//! The embedded compressor: sentences of the turns, chosen by what they say, in their order. Deterministic, without a
//! network; a text's words are never changed.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::facts::{FactKind, Statement, figures, plain, statement};
use super::sentences::sentences;
use super::{CompressionPlan, ReplacedTurn, tokens_of};

/// A sentence that may go into the summary.
struct Candidate<'t> {
    turn: &'t ReplacedTurn,
    text: &'t str,
    tokens: u64,
    /// Its worth, without a unit.
    worth: f64,
    /// Its place among all sentences.
    order: usize,
}

/// The worth of a statement.
const fn worth_of_statement(stated: Statement) -> f64 {
    match stated.rank() {
        0 => 9.0,
        1 => 8.0,
        3 => 3.0,
        4 | 5 => 2.2,
        _ => 0.8,
    }
}

/// The worth of a remark: that of a plain statement.
const REMARK: f64 = 8.0;

/// The worth of a figure of a kind.
const fn worth_of(kind: FactKind) -> f64 {
    match kind {
        FactKind::Amount | FactKind::Date => 1.5,
        FactKind::Id => 1.2,
        _ => 0.6,
    }
}

/// The summary of a plan's turns, within its room.
#[must_use]
pub fn summary(plan: &CompressionPlan) -> String {
    let mut seen = HashSet::new();
    let mut all: Vec<Candidate<'_>> = Vec::new();
    let last = plan.replaced.len().max(1) as f64;
    for (age, turn) in plan.replaced.iter().enumerate() {
        for at in sentences(&turn.text) {
            let text = &turn.text[at];
            if !seen.insert(plain(text)) {
                continue;
            }
            let tokens = tokens_of(text, plan.tokenizer) + LINE;
            // The later a turn, the more it is likely to hold still.
            let recent = 0.3 * age as f64 / last;
            let remark = if plan.remarks.contains(text) { REMARK } else { 0.0 };
            let worth = worth(text, &turn.role).max(remark) + recent;
            all.push(Candidate { turn, text, tokens, worth, order: all.len() });
        }
    }
    // By worth a token, with a bonus for length: of two that say as much the shorter goes first, but a word alone is
    // worth little.
    let density = |one: &Candidate<'_>| one.worth / (one.tokens as f64).sqrt();
    let mut by_worth: Vec<usize> = (0..all.len()).collect();
    by_worth.sort_by(|a, b| {
        density(&all[*b]).total_cmp(&density(&all[*a])).then(all[*a].order.cmp(&all[*b].order))
    });
    let mut room = plan.room;
    let mut chosen = Vec::new();
    for at in by_worth {
        if all[at].tokens <= room {
            room -= all[at].tokens;
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    written(chosen.into_iter().map(|at| &all[at]))
}

/// Tokens of a line's beginning, at most.
const LINE: u64 = 8;

fn worth(text: &str, role: &str) -> f64 {
    let stated = statement(text).map_or(0.0, worth_of_statement);
    let figures: f64 = figures(text).iter().take(4).map(|fact| worth_of(fact.kind)).sum();
    let of_role = match role {
        "tool" | "function" => 0.6,
        "user" => 0.5,
        _ => 0.2,
    };
    stated + figures + of_role
}

/// The chosen sentences: those of one turn on a line, behind its number (from 1) and its role.
fn written<'a>(chosen: impl Iterator<Item = &'a Candidate<'a>>) -> String {
    let mut text = String::new();
    let mut at = None;
    for one in chosen {
        if at == Some(one.turn.at) {
            text.push(' ');
        } else {
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = write!(text, "{} {}: ", one.turn.at + 1, one.turn.role);
            at = Some(one.turn.at);
        }
        text.push_str(one.text);
    }
    text
}
