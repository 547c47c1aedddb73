//! A task's budget as stored in its column: JSON, compressed where long. The budget has an entry for each open
//! handoff, and the column is rewritten on every change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::batch::Writes;
use handoffd_domain::funds::Funds;
use handoffd_domain::task::Task;
use handoffd_evidence::commitment::{Codec, MAX_UNPACKED, compress, unpack};

/// Budgets above this many bytes are compressed: some ten open handoffs. Below it, they stay readable in the
/// database.
const PACKED_FROM: usize = 2_048;

/// Prefix of a compressed budget; JSON begins with a brace.
const PACKED: &str = "zstd:";

/// A task with the text of its budget column.
pub(super) type TaskRow<'a> = (&'a Task, Option<String>);

/// A plan's task rows: new ones, changed ones, and changed ones with an unchanged budget.
#[derive(Debug, Default)]
pub(super) struct TaskRows<'a> {
    pub new: Vec<TaskRow<'a>>,
    pub changed: Vec<TaskRow<'a>>,
    pub same_budget: Vec<TaskRow<'a>>,
}

impl<'a> TaskRows<'a> {
    pub(super) fn of(writes: &'a Writes) -> Self {
        let mut rows = Self::default();
        for (key, (task, new)) in &writes.tasks {
            let budget = || task.funds.as_deref().map(text);
            match (*new, writes.same_budget.contains(key)) {
                (true, _) => rows.new.push((task, budget())),
                (false, false) => rows.changed.push((task, budget())),
                (false, true) => rows.same_budget.push((task, None)),
            }
        }
        rows
    }
}

/// Serializes a budget for its column.
pub(super) fn text(funds: &Funds) -> String {
    let json = funds.to_text();
    if !(PACKED_FROM..=MAX_UNPACKED).contains(&json.len()) {
        return json;
    }
    let packed = compress(json.as_bytes());
    let text = packed.map(|packed| format!("{PACKED}{}", BASE64.encode(packed)));
    text.filter(|text| text.len() < json.len()).unwrap_or(json)
}

/// Parses a budget column.
///
/// # Errors
/// A sentence where the text is not from [`text`].
pub(super) fn read(text: &str) -> Result<Funds, String> {
    let Some(packed) = text.strip_prefix(PACKED) else {
        return serde_json::from_str(text).map_err(|err| err.to_string());
    };
    let packed = BASE64.decode(packed).map_err(|err| err.to_string())?;
    serde_json::from_slice(&unpack(Codec::Zstd, &packed)?).map_err(|err| err.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::funds::FundsRequest;
    use handoffd_domain::handoff::Cost;
    use handoffd_domain::ids::{AgentId, HandoffId};
    use handoffd_domain::money::Usd;

    fn funds(open: u128) -> Funds {
        let agent = |name: &str| name.parse::<AgentId>().expect("an id");
        let cost = Cost { remaining: Usd(1_000_000_000), ..Cost::default() };
        let mut funds = Funds::open(&agent("a"), &cost, None, Usd(0), false);
        for n in 1..=open {
            let ask = FundsRequest { parent: None, source: &agent("a"), cost: &cost };
            funds.draw(HandoffId(uuid::Uuid::from_u128(n << 64 | n)), &agent("b"), ask);
        }
        funds
    }

    #[test]
    fn books_are_read_as_they_were_written_and_long_ones_are_packed() {
        for open in [0, 1, 9, 200] {
            let (budget, json) = (funds(open), funds(open).to_text());
            let kept = text(&budget);
            assert_eq!(read(&kept).expect("a budget"), budget);
            assert_eq!(kept == json, json.len() < PACKED_FROM, "{open}");
        }
        assert!(text(&funds(200)).len() * 3 < funds(200).to_text().len());
    }

    #[test]
    fn what_is_none_of_it_is_an_error() {
        for bad in ["", "{", "zstd:", "zstd:!", "zstd:AAAA", "[]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
