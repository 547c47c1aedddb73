//! Compares a message with its receiver's context window (specification §10.1): its tokens by part, and the resulting action.
//!
//! The receiver gets JSON, so tokens are those of each top-level member in canonical form, `"name":value`. A byte-wise
//! estimate comes first. Since no token of a byte-level BPE is shorter than a byte, a message of no more bytes than the
//! limit fits; only one whose estimate is near the limit is counted by the receiver's own tokenizer.

use serde_json::Value;

use handoffd_domain::agent::Agent;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::exchange::Exchanges;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_domain::window::{
    ContextAction, ContextFacts, ContextLimit, ContextParts, ContextRule, ContextSettings,
    Tokenizer,
};

pub mod compress;
pub mod embedded;
pub mod estimate;
pub mod tokens;

/// Members that never travel with the delivered message as its own.
const APART: [&str; 2] = ["checkpoint", "personalDataPayload"];

/// Below this share of the limit an estimate needs no exact count, by four the other way: an estimate is off by less
/// than these factors (`estimate`'s tests).
const NEAR_BELOW: u64 = 2;
const NEAR_ABOVE: u64 = 4;

/// The part that a top-level member counts to.
fn part<'a>(parts: &'a mut ContextParts, name: &str) -> &'a mut u64 {
    match name {
        "conversationHistorySummary" | "taskSummary" => &mut parts.summary,
        "conversationHistoryVerbatim" => &mut parts.turns,
        "currentState" | "completedSubtasks" | "remainingSubtasks" => &mut parts.state,
        "toolCallHistory" | "toolState" => &mut parts.tools,
        _ => &mut parts.context,
    }
}

/// The members that are delivered, each as `"name":value`.
fn members(message: &CanonicalObject) -> impl Iterator<Item = (&str, &str)> {
    let delivered = message.members().filter(|(name, _)| !APART.contains(name));
    // RFC 8785 writes UTF-8.
    delivered.filter_map(|(name, entry)| Some((name, std::str::from_utf8(entry).ok()?)))
}

#[must_use]
pub fn count(message: &CanonicalObject, tokenizer: Tokenizer) -> ContextParts {
    let mut parts = ContextParts::default();
    for (name, entry) in members(message) {
        *part(&mut parts, name) += tokens::count(entry, tokenizer);
    }
    parts
}

/// Measures a message as its receiver gets it: exactly only where the estimate is near the limit.
#[must_use]
pub fn measure(message: &CanonicalObject, limit: &ContextLimit) -> (ContextParts, Tokenizer) {
    let estimated = count(message, Tokenizer::Estimate);
    let near = limit.tokens.is_some_and(|most| {
        let bytes = members(message).map(|(_, entry)| entry.len() as u64).sum::<u64>();
        let tokens = estimated.total();
        bytes > most
            && tokens.saturating_mul(NEAR_BELOW) >= most
            && tokens <= most.saturating_mul(NEAR_ABOVE)
    });
    if near && limit.tokenizer != Tokenizer::Estimate {
        return (count(message, limit.tokenizer), limit.tokenizer);
    }
    (estimated, Tokenizer::Estimate)
}

/// A message against its receiver's limit; with the failure, which has both figures, where the policy refuses it. Its
/// action is then that of a message whose refusal a person waives.
#[must_use]
pub fn assess(
    message: &CanonicalObject,
    receiver: &Agent,
    rule: Option<&ContextRule>,
    settings: &ContextSettings,
) -> (ContextFacts, Option<Failure>) {
    let limit = ContextLimit::of(receiver, rule, settings);
    let (parts, tokenizer) = measure(message, &limit);
    let tokens = parts.total();
    let action = limit.action(tokens, settings);
    let facts = ContextFacts {
        tokens,
        window: limit.window,
        limit: limit.tokens,
        action: action.unwrap_or(ContextAction::Flag),
        tokenizer,
        parts,
    };
    (facts, action.is_none().then(|| too_large(&limit, tokens, parts)))
}

/// The refusal: at the largest part, with the message's tokens and the limit.
fn too_large(limit: &ContextLimit, tokens: u64, parts: ContextParts) -> Failure {
    let most = limit.tokens.unwrap_or_default();
    let window = limit.window.map_or_else(
        || "its contract's limit".to_owned(),
        |window| format!("a window of {window}"),
    );
    Failure::new(
        Stage::Context,
        Code::ContextTooLarge,
        largest(parts),
        format!(
            "the message has {tokens} tokens, and its receiver takes {most} (of {window}): summarise the oldest turns, or send references"
        ),
    )
}

/// The pointer of the largest part.
fn largest(parts: ContextParts) -> &'static str {
    let ContextParts { summary, turns, state, tools, context } = parts;
    let all = [
        (summary, "/conversationHistorySummary"),
        (turns, "/conversationHistoryVerbatim"),
        (state, "/currentState"),
        (tools, "/toolCallHistory"),
        (context, ""),
    ];
    all.into_iter().max_by_key(|(tokens, _)| *tokens).map_or("", |(_, pointer)| pointer)
}

/// The warning about a message that reaches its receiver over the limit: as it is, or compressed as far as it can be.
#[must_use]
pub fn over_limit(message: &Value, facts: &ContextFacts, keep_turns: usize) -> Option<Warning> {
    let most = facts.limit?;
    if facts.action == ContextAction::Compress {
        let stays = staying(message, facts, keep_turns);
        let what = format!(
            "the last {keep_turns} turns and everything that is not a turn have {stays} tokens, more than the {most} that the receiver takes: the message is delivered as small as it gets"
        );
        let warning = Warning::new(WarningCode::ContextOverLimit, largest(facts.parts), what);
        return (stays > most).then_some(warning);
    }
    if facts.action != ContextAction::Flag {
        return None;
    }
    let what = format!(
        "the message has {} tokens, more than the {most} that its receiver takes: it is delivered as it is",
        facts.tokens
    );
    Some(Warning::new(WarningCode::ContextOverLimit, largest(facts.parts), what))
}

/// The tokens that compression cannot remove: everything except the older turns and the results that tools cached.
fn staying(message: &Value, facts: &ContextFacts, keep_turns: usize) -> u64 {
    let tokens = |value: &Value| tokens::count(&value.to_string(), facts.tokenizer);
    let turns = message.get("conversationHistoryVerbatim").and_then(Value::as_array);
    let last: u64 = turns.map_or(0, |turns| {
        let place = turns.len().saturating_sub(keep_turns);
        turns[Exchanges::of(turns).cut(place)..].iter().map(tokens).sum()
    });
    let cached = message.pointer("/toolState/cached_results").map_or(0, tokens);
    let rest = facts.tokens.saturating_sub(facts.parts.turns).saturating_sub(cached);
    rest + last
}

/// The refusal of embedded binary data.
#[must_use]
pub fn embedded_failure(pointer: &str, kind: &str) -> Failure {
    let why = format!("embeds {kind}: send a reference (a URL or an id) in its place");
    Failure::new(Stage::Context, Code::ContextTooLarge, pointer, why).of_rule("embedded_binary")
}

/// The warning about embedded binary data that passes.
#[must_use]
pub fn embedded_warning(pointer: &str, kind: &str) -> Warning {
    let what = format!("embeds {kind}: a reference (a URL or an id) takes no context");
    Warning::new(WarningCode::EmbeddedBinary, pointer, what)
}

/// Whether a pointer is of a member that no receiver gets.
#[must_use]
pub fn is_apart(pointer: &str) -> bool {
    APART.iter().any(|name| {
        let rest = pointer.strip_prefix('/').and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Measures a message that is not in canonical form yet. `None` if the value is not an object.
#[must_use]
pub fn count_value(message: &Value, tokenizer: Tokenizer) -> Option<ContextParts> {
    CanonicalObject::from_value(message).map(|message| count(&message, tokenizer))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use handoffd_domain::window::ContextPolicy;

    fn message(turns: usize) -> CanonicalObject {
        let turn = json!({ "role": "user", "content": "The claim of 12 May is for EUR 4,200.00 and unpaid." });
        CanonicalObject::from_value(&json!({
            "schemaVersion": "2.2", "taskDescription": "Check the claim",
            "conversationHistorySummary": "A claim is checked.",
            "conversationHistoryVerbatim": vec![turn; turns],
            "currentState": { "claim": 17 }, "toolCallHistory": [], "relevantContext": [],
            "checkpoint": { "large": "x".repeat(10_000) },
        }))
        .unwrap()
    }

    fn reader(window: u64) -> Agent {
        Agent {
            context_window_tokens: Some(window),
            tokenizer: Some(Tokenizer::O200k),
            ..Agent::new("reader".parse().unwrap())
        }
    }

    #[test]
    fn parts_add_up_and_the_checkpoint_counts_to_none() {
        let parts = count(&message(3), Tokenizer::O200k);
        assert!(parts.turns > parts.state && parts.total() < 400, "{parts:?}");
        let without: u64 = count(&message(0), Tokenizer::O200k).turns;
        assert!(parts.turns > without);
        assert_eq!(
            parts.total(),
            parts.summary + parts.turns + parts.state + parts.tools + parts.context
        );
    }

    #[test]
    fn an_exact_count_is_made_near_the_limit_only() {
        let message = message(100);
        let exact = count(&message, Tokenizer::O200k).total();
        let at = |tokens| {
            let settings = ContextSettings::default();
            let rule = ContextRule { tokens: Some(tokens), policy: None };
            measure(&message, &ContextLimit::of(&reader(1), Some(&rule), &settings))
        };
        assert_eq!(at(exact), (count(&message, Tokenizer::O200k), Tokenizer::O200k));
        assert_eq!(at(exact * 8).1, Tokenizer::Estimate, "far below");
        assert_eq!(at(exact / 16).1, Tokenizer::Estimate, "far above");
    }

    #[test]
    fn a5_a_message_larger_than_the_window_is_flagged_compressed_or_refused_with_both_figures() {
        let message = message(100);
        let settings = ContextSettings::default();
        let tokens = count(&message, Tokenizer::O200k).total();
        let with = |policy| {
            let reader = Agent { context_policy: Some(policy), ..reader(tokens) };
            assess(&message, &reader, None, &settings)
        };
        let (flagged, none) = with(ContextPolicy::Flag);
        assert_eq!(none, None);
        assert_eq!((flagged.action, flagged.tokens), (ContextAction::Flag, tokens));
        let value: Value = serde_json::from_slice(message.as_bytes()).unwrap();
        let warned = |facts: &ContextFacts, keep| over_limit(&value, facts, keep);
        assert_eq!(warned(&flagged, 5).unwrap().pointer, "/conversationHistoryVerbatim");
        let compressed = with(ContextPolicy::Compress).0;
        assert_eq!(compressed.action, ContextAction::Compress);
        assert_eq!(warned(&compressed, 5), None);
        let all = warned(&compressed, 100).unwrap();
        assert!(all.message.contains("as small as it gets"), "{}", all.message);
        assert_eq!(warned(&ContextFacts { action: ContextAction::None, ..compressed }, 5), None);
        let failure = with(ContextPolicy::Refuse).1.unwrap();
        assert_eq!(failure.code, Code::ContextTooLarge);
        assert!(failure.message.contains(&tokens.to_string()), "{}", failure.message);
        assert!(failure.message.contains(&(tokens * 8 / 10).to_string()), "{}", failure.message);
        let (wide, _) = assess(&message, &reader(tokens * 2), None, &settings);
        assert_eq!(wide.action, ContextAction::None);
    }
}
