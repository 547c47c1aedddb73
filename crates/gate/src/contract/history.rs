//! How much of a conversation a message carries, measured: turns word for word, and bytes (seed 002 §3.4
//! and §10). A strategy is held against what is carried, whatever the message says of itself.

use serde_json::Value;

use super::{Contract, HistoryStrategy};

/// Bytes that say where a conversation is.
const POINTER_BYTES: u64 = 1_024;
/// Turns that go along with a summary: as many as the message format keeps word for word (seed 000 §6.1),
/// and compression leaves.
const SUMMARY_TURNS: u64 = 5;
/// Bytes of a summary with these turns: some 4 000 tokens.
const SUMMARY_BYTES: u64 = 16 * 1_024;
/// Turns of `last_k` where the contract names no k: what seed 003 trims a history to.
const LAST_TURNS: u64 = 50;
/// Bytes of so many turns: some 32 000 tokens.
const LAST_BYTES: u64 = 128 * 1_024;

/// The measured history of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedHistory {
    /// Number of verbatim turns.
    pub turns: u64,
    /// Bytes of these turns and of the summary, as JSON.
    pub bytes: u64,
    /// The pointer to the largest part.
    pointer: &'static str,
}

impl CarriedHistory {
    #[must_use]
    pub fn by(message: &Value) -> Self {
        let summary = message.get("conversationHistorySummary").and_then(Value::as_str);
        let summary = summary.map_or(0, str::len);
        let list = message.get("conversationHistoryVerbatim").and_then(Value::as_array);
        let turns = list.map_or(0, Vec::len);
        let verbatim: usize = list.into_iter().flatten().map(bytes).sum();
        let pointer = if verbatim >= summary {
            "/conversationHistoryVerbatim"
        } else {
            "/conversationHistorySummary"
        };
        let long = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self { turns: long(turns), bytes: long(verbatim + summary), pointer }
    }
}

/// How many bytes of texts a value has, with its members' names; no copy is made.
fn bytes(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(members) => {
            members.iter().map(|(name, item)| name.len() + bytes(item) + 4).sum::<usize>() + 2
        }
    }
}

/// Largest history that a contract allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    pub strategy: HistoryStrategy,
    turns: Option<u64>,
    bytes: Option<u64>,
}

impl HistoryLimits {
    /// The limits of a contract; `None` where it states no strategy.
    #[must_use]
    pub fn of(contract: &Contract) -> Option<Self> {
        let payload = &contract.payload;
        let strategy = payload.history_strategy?;
        let (turns, bytes) = match strategy {
            HistoryStrategy::Pointer => (Some(0), Some(POINTER_BYTES)),
            HistoryStrategy::Summary => (Some(SUMMARY_TURNS), Some(SUMMARY_BYTES)),
            HistoryStrategy::LastK => (Some(LAST_TURNS), Some(LAST_BYTES)),
            HistoryStrategy::Full => (None, None),
        };
        Some(Self {
            strategy,
            turns: payload.history_turns.or(turns),
            bytes: payload.history_bytes.or(bytes),
        })
    }

    /// The strategy that a message declares.
    #[must_use]
    pub fn claimed(message: &Value) -> Option<HistoryStrategy> {
        message.get("historyStrategy").and_then(Value::as_str).and_then(HistoryStrategy::parse)
    }

    /// Pointer to the excess and its description, where a message exceeds the limits.
    #[must_use]
    pub fn exceeded(&self, carried: &CarriedHistory) -> Option<(&'static str, String)> {
        let strategy = self.strategy.as_str();
        if let Some(most) = self.turns.filter(|most| carried.turns > *most) {
            let turns = carried.turns;
            let why = format!(
                "the message carries {turns} turns word for word; `{strategy}` allows {most}"
            );
            return Some(("/conversationHistoryVerbatim", why));
        }
        let most = self.bytes.filter(|most| carried.bytes > *most)?;
        let bytes = carried.bytes;
        let why = format!(
            "the message carries {bytes} bytes of conversation; `{strategy}` allows {most}"
        );
        Some((carried.pointer, why))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f3_5_turns_and_bytes_are_measured() {
        let turns = |count: usize, text: &str| {
            let turn = json!({ "role": "user", "content": text });
            json!({ "conversationHistorySummary": "short", "conversationHistoryVerbatim": vec![turn; count] })
        };
        let exceeded = |strategy, message: &Value| {
            let mut contract = Contract::default();
            contract.payload.history_strategy = Some(strategy);
            HistoryLimits::of(&contract)
                .unwrap()
                .exceeded(&CarriedHistory::by(message))
                .map(|(at, _)| at)
        };
        let verbatim = Some("/conversationHistoryVerbatim");
        for (strategy, most) in [
            (HistoryStrategy::Pointer, 0),
            (HistoryStrategy::Summary, 5),
            (HistoryStrategy::LastK, 50),
        ] {
            assert_eq!(exceeded(strategy, &turns(most, "a")), None, "{strategy:?}");
            assert_eq!(exceeded(strategy, &turns(most + 1, "a")), verbatim, "{strategy:?}");
        }
        assert_eq!(exceeded(HistoryStrategy::Full, &turns(500, "a")), None);
        let long = "x".repeat(20_000);
        assert_eq!(exceeded(HistoryStrategy::Summary, &turns(1, &long)), verbatim);
        let summary = json!({ "conversationHistorySummary": long });
        assert_eq!(
            exceeded(HistoryStrategy::Summary, &summary),
            Some("/conversationHistorySummary")
        );
        let mut contract = Contract::default();
        contract.payload.history_strategy = Some(HistoryStrategy::LastK);
        contract.payload.history_turns = Some(2);
        let limits = HistoryLimits::of(&contract).unwrap();
        assert!(limits.exceeded(&CarriedHistory::by(&turns(3, "a"))).is_some());
    }
}
