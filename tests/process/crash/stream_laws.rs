//! The laws of each handoff in pieces, read from its records, its chunks, and its receiver's notes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::laws::status;
use super::readers::{HeardChunk, is_open};
use super::streams::{CLOSE_REFUSED, SentStream, ToldEnd};
use handoffd_domain::handoff::HandoffStatus;

/// Everything there is of a stream, once nothing happens to it any more.
#[derive(Debug, Clone)]
pub struct StreamEvidence {
    /// The task's trace.
    pub page: Value,
    /// The chunks, as the broker lists them.
    pub items: Vec<Value>,
    /// The handoff's message, as people read it.
    pub whole: Value,
    /// The message of each attempt, as the receiver got it.
    pub messages: Vec<Value>,
    /// The chunks that the receiver took, in order.
    pub heard: Vec<HeardChunk>,
    /// Whether the receiver pulls.
    pub pulls: bool,
}

/// Whether a webhook receiver that got the opening was told the end of its stream.
pub fn is_told(messages: &[Value], heard: &[HeardChunk]) -> bool {
    let ends = |one: &HeardChunk| one.body["abort"] == true || one.body["close"] == true;
    !messages.iter().any(is_open) || heard.iter().any(ends)
}

/// The turns that chunks append, in order.
fn turns(chunks: &[Value]) -> Vec<&Value> {
    let added = chunks
        .iter()
        .filter_map(|chunk| chunk["append"]["/conversationHistoryVerbatim"].as_array());
    added.flatten().collect()
}

/// The faults of a stream.
pub fn of_a_stream(sent: &SentStream, has: &StreamEvidence) -> Vec<String> {
    let mut faults = sent.faults.clone();
    let count = has.items.len() as i64;
    let numbers: Vec<i64> = has.items.iter().filter_map(|item| item["seq"].as_i64()).collect();
    let recorded = records(&has.page, "CHUNK");
    let recorded: Vec<i64> =
        recorded.iter().filter_map(|record| record["stream"]["seq"].as_i64()).collect();
    let dense: Vec<i64> = (1..=count).collect();
    if numbers != dense || recorded != dense {
        faults.push(format!("its chunks are {numbers:?}, by its records {recorded:?}"));
    }
    if sent.acknowledged > count {
        faults.push(format!(
            "{} chunks were acknowledged, {count} are in the log",
            sent.acknowledged
        ));
    }
    for item in has.items.iter().filter(|item| item["abort"] != true) {
        let seq = item["seq"].as_u64().unwrap_or_default() as usize;
        let said = sent.chunks.get(seq.wrapping_sub(1));
        if said.is_none_or(|said| !is_same(said, item)) {
            faults.push(format!("chunk {seq} is not what was sent: {item}"));
        }
    }
    ends(sent, has, &mut faults);
    reached(has, &mut faults);
    faults
}

fn records<'v>(page: &'v Value, kind: &str) -> Vec<&'v Value> {
    let all = page["records"].as_array().unwrap().iter();
    all.filter(|record| record["kind"] == kind).collect()
}

/// Whether two chunks change the same.
fn is_same(one: &Value, other: &Value) -> bool {
    let close = |chunk: &Value| chunk["close"] == true;
    one["append"] == other["append"] && one["set"] == other["set"] && close(one) == close(other)
}

/// It ended once, at its last number, as its sender was told.
fn ends(sent: &SentStream, has: &StreamEvidence, faults: &mut Vec<String>) {
    let ends: Vec<usize> = (0..has.items.len())
        .filter(|at| has.items[*at]["close"] == true || has.items[*at]["abort"] == true)
        .collect();
    if ends.len() != 1 || ends[0] + 1 != has.items.len() {
        faults.push(format!("of {} numbers it ends at {ends:?}", has.items.len()));
        return;
    }
    let last = &has.items[ends[0]];
    let closed = last["close"] == true;
    let told = match sent.end {
        ToldEnd::Closed => closed,
        ToldEnd::CloseRefused => !closed && last["reason"] == CLOSE_REFUSED,
        ToldEnd::Aborted => !closed && last["reason"] == "STREAM_ABORTED",
        ToldEnd::None | ToldEnd::Refused => !closed && last["reason"] != "STREAM_ABORTED",
    };
    if !told {
        faults.push(format!("its sender was told {:?}; its end is {last}", sent.end));
    }
    let records = records(&has.page, "STREAM_CLOSED").len();
    if records != usize::from(closed) {
        faults.push(format!("it has {records} records of its close; its end is {last}"));
    }
    if closed {
        let made = has.whole["conversationHistoryVerbatim"].as_array().cloned().unwrap_or_default();
        if made.iter().collect::<Vec<_>>()
            != turns(&sent.chunks[..has.items.len().min(sent.chunks.len())])
        {
            faults.push(format!("the assembled message is not what was sent: {made:?}"));
        }
    }
}

/// The receiver got each number in order the first time, the same each time, and all of it if it completed.
fn reached(has: &StreamEvidence, faults: &mut Vec<String>) {
    if has.messages.windows(2).any(|two| two[0] != two[1]) {
        faults.push("its attempts have different messages".to_owned());
    }
    let mut last = 0;
    let mut known: BTreeMap<i64, &Value> = BTreeMap::new();
    for HeardChunk { seq, body } in &has.heard {
        let item = has.items.get((*seq - 1) as usize);
        let aborts = body["abort"] == true;
        if item.is_none_or(|item| !is_same(item, body) || (item["abort"] == true) != aborts) {
            faults.push(format!("the receiver's chunk {seq} is not the log's: {body}"));
        }
        if known.insert(*seq, body).is_some() {
            continue;
        }
        // A webhook whose handoff has ended is told the end alone.
        if *seq != last + 1 && (!aborts || has.pulls) {
            faults.push(format!("the receiver took {seq} after {last}"));
        }
        last = *seq;
        if aborts {
            // Chunks that another broker still sends do not count.
            break;
        }
    }
    let completed = has.page["handoffs"]
        .as_array()
        .unwrap()
        .iter()
        .any(|handoff| status(handoff) == HandoffStatus::Completed);
    let in_pieces = has.messages.iter().any(is_open);
    if completed && in_pieces && last != has.items.len() as i64 {
        faults.push(format!("it completed the handoff with {last} of {} chunks", has.items.len()));
    }
    let whole = has.messages.iter().find(|message| !is_open(message));
    if let Some(message) = whole
        && message["conversationHistoryVerbatim"] != has.whole["conversationHistoryVerbatim"]
    {
        faults.push("it got a whole message that is not the assembled one".to_owned());
    }
    if !has.pulls && !is_told(&has.messages, &has.heard) {
        faults.push("its receiver was never told the end".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn turn(seq: i64) -> Value {
        let turns = json!([{ "role": "user", "content": format!("page {seq}") }]);
        json!({ "seq": seq, "append": { "/conversationHistoryVerbatim": turns } })
    }

    fn closing(seq: i64) -> Value {
        json!({ "seq": seq, "close": true })
    }

    fn aborting(seq: i64, reason: &str) -> Value {
        json!({ "seq": seq, "abort": true, "reason": reason })
    }

    fn stream(chunks: Vec<Value>, end: ToldEnd) -> SentStream {
        let acknowledged = chunks.len() as i64;
        SentStream {
            task: "t".to_owned(),
            target: "b",
            chunks,
            acknowledged,
            end,
            faults: Vec::new(),
        }
    }

    fn evidence(items: Vec<Value>, status: &str) -> StreamEvidence {
        let mut records: Vec<Value> = (1..=items.len())
            .map(|seq| json!({ "kind": "CHUNK", "stream": { "seq": seq } }))
            .collect();
        if items.last().is_some_and(|last| last["close"] == true) {
            records.push(json!({ "kind": "STREAM_CLOSED" }));
        }
        let heard = items
            .iter()
            .map(|item| HeardChunk { seq: item["seq"].as_i64().unwrap(), body: item.clone() });
        let all: Vec<Value> = turns(&items).into_iter().cloned().collect();
        StreamEvidence {
            page: json!({ "handoffs": [{ "status": status }], "records": records }),
            whole: json!({ "conversationHistoryVerbatim": all }),
            messages: vec![json!({ "stream": { "open": true } })],
            heard: heard.collect(),
            items,
            pulls: false,
        }
    }

    fn closed() -> (SentStream, StreamEvidence) {
        let chunks = vec![turn(1), turn(2), closing(3)];
        (stream(chunks.clone(), ToldEnd::Closed), evidence(chunks, "COMPLETED"))
    }

    #[test]
    fn a_stream_that_went_well_has_no_fault() {
        let none = Vec::<String>::new();
        let (sent, mut has) = closed();
        assert_eq!(of_a_stream(&sent, &has), none);
        // A repeat, and one that came whole.
        has.heard.insert(2, has.heard[0].clone());
        assert_eq!(of_a_stream(&sent, &has), none);
        let mut message = has.whole.clone();
        message["stream"] = json!({ "open": false });
        (has.messages, has.heard) = (vec![message], Vec::new());
        assert_eq!(of_a_stream(&sent, &has), none);
        // Told to stop, without the chunks before it.
        let chunks = vec![turn(1), aborting(2, "STREAM_ABORTED")];
        let (sent, mut has) =
            (stream(chunks.clone(), ToldEnd::Aborted), evidence(chunks, "FAILED"));
        has.heard.remove(0);
        assert_eq!(of_a_stream(&sent, &has), none);
        let items = vec![turn(1), aborting(2, CLOSE_REFUSED)];
        let refused = stream(vec![turn(1), closing(2)], ToldEnd::CloseRefused);
        assert_eq!(of_a_stream(&refused, &evidence(items, "FAILED")), none);
        let items = vec![turn(1), turn(2), aborting(3, "STREAM_TIMEOUT")];
        let silent = stream(vec![turn(1), turn(2)], ToldEnd::None);
        assert_eq!(of_a_stream(&silent, &evidence(items, "FAILED")), none);
    }

    #[test]
    fn each_breach_of_a_stream_is_found() {
        type Break = fn(&mut SentStream, &mut StreamEvidence);
        let breaches: [(Break, &str); 18] = [
            (|_, has| drop(has.items.remove(1)), "its chunks are"),
            (
                |_, has| drop(has.page["records"].as_array_mut().unwrap().remove(0)),
                "by its records",
            ),
            (|sent, _| sent.acknowledged = 4, "4 chunks were acknowledged"),
            (|sent, _| sent.chunks[1] = turn(9), "chunk 2 is not what was sent"),
            (|_, has| has.items[1]["close"] = json!(true), "it ends at [1, 2]"),
            (|_, has| drop(has.items.pop()), "it ends at []"),
            (|sent, _| sent.end = ToldEnd::Refused, "its sender was told Refused"),
            (|sent, _| sent.end = ToldEnd::Aborted, "its sender was told Aborted"),
            (|sent, _| sent.end = ToldEnd::CloseRefused, "its sender was told CloseRefused"),
            (
                |_, has| drop(has.page["records"].as_array_mut().unwrap().pop()),
                "0 records of its close",
            ),
            (
                |_, has| has.whole["conversationHistoryVerbatim"] = json!([]),
                "the assembled message",
            ),
            (
                |_, has| has.messages.push(json!({ "stream": { "open": true }, "x": 1 })),
                "different messages",
            ),
            (|_, has| has.heard[1].body = turn(7), "the receiver's chunk 2 is not"),
            (|_, has| has.heard.swap(0, 1), "took 2 after 0"),
            (|_, has| drop(has.heard.remove(1)), "took 3 after 1"),
            (|_, has| drop(has.heard.pop()), "with 2 of 3 chunks"),
            (|_, has| drop(has.heard.pop()), "never told the end"),
            (
                |_, has| has.messages = vec![json!({ "stream": { "open": false } })],
                "not the assembled one",
            ),
        ];
        for (breaks, named) in breaches {
            let (mut sent, mut has) = closed();
            breaks(&mut sent, &mut has);
            let faults = of_a_stream(&sent, &has);
            assert!(faults.iter().any(|fault| fault.contains(named)), "{named}: {faults:?}");
        }
        // Who pulls reads every number, also of a stream that was aborted.
        let chunks = vec![turn(1), aborting(2, "STREAM_ABORTED")];
        let (sent, mut has) =
            (stream(chunks.clone(), ToldEnd::Aborted), evidence(chunks, "FAILED"));
        has.heard.remove(0);
        has.pulls = true;
        assert!(of_a_stream(&sent, &has)[0].contains("took 2 after 0"));
    }
}
