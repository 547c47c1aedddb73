//! Compression of a message (specification §10.2, seed 000 §6.4): the oldest turns become a summary, the last ones stay as
//! they were said. Pure: a [`CompressionPlan`] says what is replaced and how long its summary may be, a compressor
//! writes the summary, and [`CompressionPlan::apply`] compares it with the facts of the replaced turns, appends the missing
//! facts, and builds the message.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::tokens;
use handoffd_domain::exchange::Exchanges;
use handoffd_domain::message::SCHEMA_VERSIONS;
use handoffd_domain::personal;
use handoffd_domain::window::{CompressedBy, CompressionFacts, Tokenizer};

pub mod extractive;
mod fact_kind;
pub mod facts;
pub mod fidelity;
pub mod remarks;
pub mod sentences;
pub mod statements;

use fidelity::Fidelity;
use remarks::Remarks;

#[derive(Debug, Clone, PartialEq)]
pub struct CompressedMessage {
    /// The message as it is delivered.
    pub message: Value,
    /// The figures of this compression, as the delivered message reports them.
    pub facts: CompressionFacts,
}

/// A turn that a summary replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedTurn {
    /// Its place in the conversation, from 0.
    pub at: usize,
    /// The role that it claims.
    pub role: String,
    pub text: String,
}

/// The parts of a message that compression replaces, and the limits of their summary.
#[derive(Debug, Clone)]
pub struct CompressionPlan {
    /// The message without what tools had cached.
    message: Map<String, Value>,
    /// The turns that stay, in order, and their places in the conversation, from 0.
    kept: Vec<Value>,
    places: Vec<usize>,
    /// The turns that a summary replaces, oldest first.
    pub replaced: Vec<ReplacedTurn>,
    /// The sender's own summary of the turns before the history.
    pub earlier: String,
    original_turns: usize,
    original_tokens: u64,
    limit: u64,
    /// Tokens that the summary may have.
    pub room: u64,
    /// How tokens are counted.
    pub tokenizer: Tokenizer,
    /// Short sentences of talk among what is replaced.
    remarks: Remarks,
}

/// Tokens for what the broker writes about the compression itself.
const OVERHEAD: u64 = 120;

/// The share of a limit that a summary is written for at least, in percent: what does not fit then is cut by lines.
const LEAST_SHARE: u64 = 5;

impl CompressionPlan {
    /// Plans the compression of a message of the canonical form that its receiver gets, down to a limit. `None` if the message
    /// is not an object, or if its summary is a personal value, which the broker must not overwrite.
    #[must_use]
    pub fn new(
        message: &Value,
        limit: u64,
        keep_turns: usize,
        tokenizer: Tokenizer,
    ) -> Option<Self> {
        let mut members = message.as_object()?.clone();
        let original_tokens = size(&members, tokenizer);
        members.remove("signature");
        if let Some(state) = members.get_mut("toolState").and_then(Value::as_object_mut) {
            state.remove("cached_results");
        }
        let earlier = match members.get("conversationHistorySummary") {
            None => String::new(),
            Some(said) => said.as_str()?.to_owned(),
        };
        let turns = match members.insert("conversationHistoryVerbatim".to_owned(), json!([])) {
            Some(Value::Array(turns)) => turns,
            _ => Vec::new(),
        };
        let original_turns = turns.len();
        let exchanges = Exchanges::of(&turns);
        let trimmed = {
            let mut whole = members.clone();
            whole.insert("conversationHistoryVerbatim".to_owned(), json!(turns));
            size(&whole, tokenizer)
        };
        let old = first_kept(&turns, &exchanges, keep_turns, |stay| {
            let mut rest = members.clone();
            rest.insert("conversationHistoryVerbatim".to_owned(), json!(stay));
            size(&rest, tokenizer).saturating_add(OVERHEAD) <= limit / 2
        });
        // A turn with a personal value stays whole: no summary, and no model, gets to see one. With it stays the rest of its
        // exchange: the APIs of models refuse a tool's result without its call, and a call without its result.
        let mut stays: Vec<bool> = turns
            .iter()
            .enumerate()
            .map(|(at, turn)| at >= old || trimmed <= limit || has_marker(turn))
            .collect();
        exchanges.complete(&mut stays);
        let (mut kept, mut places, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
        for ((at, turn), stays) in turns.into_iter().enumerate().zip(stays) {
            if stays {
                kept.push(turn);
                places.push(at);
                continue;
            }
            let role = turn.get("role").and_then(Value::as_str).unwrap_or("unknown").to_owned();
            replaced.push(ReplacedTurn { at, role, text: text_of(&turn) });
        }
        let rest = {
            let mut rest = members.clone();
            rest.insert("conversationHistoryVerbatim".to_owned(), json!(kept));
            size(&rest, tokenizer)
        };
        let least = limit.saturating_mul(LEAST_SHARE) / 100;
        let room = limit.saturating_sub(rest.saturating_add(OVERHEAD)).max(least);
        let remarks = Remarks::of(&replaced, room, tokenizer);
        Some(Self {
            message: members,
            kept,
            places,
            replaced,
            earlier,
            original_turns,
            original_tokens,
            limit,
            room,
            tokenizer,
            remarks,
        })
    }

    /// Whether a summary is to be written at all: leaving out what tools had cached may be enough, and a message may have
    /// no turns but the last ones.
    #[must_use]
    pub fn needs_summary(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// Whether the message is over its limit, by the tokenizer's own count.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.original_tokens > self.limit
    }

    /// The turns that are replaced as a model reads them: each behind its number and role.
    #[must_use]
    pub fn replaced_turns(&self) -> String {
        let mut text = String::new();
        for turn in &self.replaced {
            let _ = writeln!(text, "{} {}: {}", turn.at + 1, turn.role, turn.text);
        }
        text
    }

    /// The text of all that is replaced, a turn a line or more.
    #[must_use]
    pub fn replaced_text(&self) -> String {
        let mut text = String::new();
        for turn in &self.replaced {
            text.push_str(&turn.text);
            text.push('\n');
        }
        text
    }

    /// Puts a summary in the place of the replaced turns and appends the facts that the summary lacks, as far as there is room.
    #[must_use]
    pub fn apply(&self, summary: &str, by: CompressedBy) -> CompressedMessage {
        let replaced = self.replaced_text();
        let mut checked =
            Fidelity::check(&replaced, &self.remarks, summary, self.room, self.tokenizer);
        let mut made = self.assemble(&checked, by, true);
        // A line costs more in the message than by itself: lines go until it fits.
        while !made.facts.fits && self.fits_without_summary() && !checked.summary.is_empty() {
            let over = made.facts.tokens - self.limit;
            checked = checked.shortened(&replaced, &self.remarks, over, self.tokenizer);
            made = self.assemble(&checked, by, true);
        }
        if made.facts.fits || !self.fits_without_summary() {
            made
        } else {
            self.assemble(&checked, by, false)
        }
    }

    /// Whether the turns that stay leave any room for what was said before them.
    fn fits_without_summary(&self) -> bool {
        let empty = Fidelity::default();
        self.assemble(&empty, CompressedBy::Extractive, false).facts.fits
    }

    /// The same without the check: for measuring what the check is worth.
    #[must_use]
    pub fn apply_unchecked(&self, summary: &str, by: CompressedBy) -> CompressedMessage {
        let replaced = self.replaced_text();
        self.assemble(&Fidelity::measure(&replaced, summary), by, true)
    }

    /// The message with a checked summary; `warned`: with a line that says how many statements it lacks, where those are many.
    fn assemble(&self, checked: &Fidelity, by: CompressedBy, warned: bool) -> CompressedMessage {
        let mut message = self.message.clone();
        message.insert("conversationHistoryVerbatim".to_owned(), json!(self.kept));
        if self.needs_summary() {
            let summary = self.summary(checked, warned);
            message.insert("conversationHistorySummary".to_owned(), json!(summary));
        }
        let by = if self.needs_summary() { by } else { CompressedBy::Trimming };
        message.insert("historyStrategy".to_owned(), json!("compressed"));
        let newest = SCHEMA_VERSIONS[SCHEMA_VERSIONS.len() - 1];
        if SCHEMA_VERSIONS[..SCHEMA_VERSIONS.len() - 1]
            .iter()
            .any(|older| is_minor(message.get("schemaVersion"), older))
        {
            message.insert("schemaVersion".to_owned(), json!(newest));
        }
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut facts = CompressionFacts {
            by,
            original_turns: count(self.original_turns),
            kept_turns: count(self.kept.len()),
            original_tokens: self.original_tokens,
            tokens: self.original_tokens,
            tokenizer: self.tokenizer,
            facts: checked.facts,
            facts_kept: checked.kept,
            facts_appended: checked.appended,
            sentences: checked.sentences.clone(),
            fits: false,
            cost: None,
            fallback: None,
            crossing: None,
        };
        // The message contains its own token count, so the second pass counts the digits that the first one wrote.
        for _ in 0..2 {
            message.insert("context".to_owned(), told(&facts, &self.places));
            facts.tokens = size(&message, self.tokenizer);
        }
        message.insert("context".to_owned(), told(&facts, &self.places));
        facts.fits = facts.tokens <= self.limit;
        CompressedMessage { message: Value::Object(message), facts }
    }

    /// The summary as delivered: what it replaces, the sender's own summary, the compressor's.
    fn summary(&self, checked: &Fidelity, warned: bool) -> String {
        let (all, replaced) = (self.original_turns, self.replaced.len());
        let mut summary = format!(
            "[Compressed: {replaced} of {all} turns are summarised below, {} follow verbatim]",
            self.kept.len()
        );
        if warned && checked.is_under_floor() {
            let (of, kept) = checked.stated();
            let _ = write!(summary, "\n[Warning: {} of {of} statements are left out]", of - kept);
        }
        let written = &checked.summary;
        for part in [self.earlier.trim(), written.trim()] {
            if !part.is_empty() {
                summary.push('\n');
                summary.push_str(part);
            }
        }
        summary
    }
}

/// The index of the first turn that stays verbatim. The configured number of last turns stays, and more if a tool's result among
/// them would lose its call. If these turns leave too little room for the summary, fewer stay, but at least one where any was
/// to stay.
fn first_kept(
    turns: &[Value],
    exchanges: &Exchanges,
    keep: usize,
    fits: impl FnOnce(&[Value]) -> bool,
) -> usize {
    let wanted = turns.len().saturating_sub(keep);
    let whole = exchanges.before(wanted);
    if whole == wanted || fits(&turns[whole..]) {
        return whole;
    }
    exchanges.cut(wanted)
}

/// The compression's figures as members of the delivered message.
fn told(facts: &CompressionFacts, kept: &[usize]) -> Value {
    json!({
        "originalTurns": facts.original_turns,
        "keptTurns": facts.kept_turns,
        "originalTokens": facts.original_tokens,
        "tokens": facts.tokens,
        "by": facts.by,
        "turns": kept,
    })
}

/// Whether a claimed version is that minor, or a patch of it.
fn is_minor(claimed: Option<&Value>, minor: &str) -> bool {
    let rest = claimed.and_then(Value::as_str).and_then(|claimed| claimed.strip_prefix(minor));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn size(message: &Map<String, Value>, tokenizer: Tokenizer) -> u64 {
    super::count(&handoffd_domain::canonical::CanonicalObject::new(message), tokenizer).total()
}

/// Whether a value has the marker of a personal value in it.
fn has_marker(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.contains_key(personal::MARKER) || members.values().any(has_marker)
        }
        Value::Array(items) => items.iter().any(has_marker),
        _ => false,
    }
}

/// The text of a turn: its content's texts, in order; of a tool its name before.
fn text_of(turn: &Value) -> String {
    let mut text = String::new();
    if let Some(name) = turn.get("name").and_then(Value::as_str) {
        text.push_str(name);
        text.push_str(": ");
    }
    collect(turn.get("content").unwrap_or(&Value::Null), &mut text);
    text
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(said) => line(said, text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, text)),
        Value::Object(members) => match members.get("text").and_then(Value::as_str) {
            // A content part of text.
            Some(said) if members.contains_key("type") => line(said, text),
            _ => line(&value.to_string(), text),
        },
        Value::Null => {}
        other => line(&other.to_string(), text),
    }
}

fn line(said: &str, text: &mut String) {
    if !text.is_empty() && !text.ends_with([' ', '\n']) {
        text.push('\n');
    }
    text.push_str(said);
}

fn tokens_of(text: &str, tokenizer: Tokenizer) -> u64 {
    tokens::count(text, tokenizer)
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
