//! Handoffs in pieces under load: senders that go on behind the last number that the broker has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handoffd::clock::random_id;
use serde_json::{Value, json};

use super::caller::Caller;
use super::rig::{below, one_of};
use super::together::Tally;
use crate::world::message;

/// How a sender ends its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Close,
    /// By a close that the gate refuses: nothing is completed.
    BadClose,
    Abort,
    /// It sends no more.
    Silence,
}

/// How often each: mostly by a close.
const ENDINGS: [Ending; 9] = [
    Ending::Close,
    Ending::Close,
    Ending::Close,
    Ending::Close,
    Ending::Close,
    Ending::Close,
    Ending::BadClose,
    Ending::Abort,
    Ending::Silence,
];

/// Pause between two chunks, at most, in seconds.
const BETWEEN: f64 = 0.05;

/// Why the gate refuses a bad close.
pub const CLOSE_REFUSED: &str = "INCOMPLETE_CONTEXT";

/// How a stream ended, as its sender was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldEnd {
    /// Nothing was said: the sender fell silent.
    None,
    Closed,
    /// The gate refused its close.
    CloseRefused,
    Aborted,
    /// The broker had ended it.
    Refused,
}

/// A stream, as its sender knows of it.
#[derive(Debug, Clone)]
pub struct SentStream {
    pub task: String,
    pub target: &'static str,
    /// Each number as it was sent; the same however often.
    pub chunks: Vec<Value>,
    /// The last number that the broker acknowledged.
    pub acknowledged: i64,
    pub end: ToldEnd,
    /// Answers that no sender should get.
    pub faults: Vec<String>,
}

/// The streams of a case by handoff.
pub type SentStreams = Arc<Mutex<BTreeMap<String, SentStream>>>;

/// Sends one message in pieces.
pub async fn send(caller: &Caller, sent: &SentStreams, tally: &Tally, target: &'static str) {
    let task = random_id().to_string();
    let mut opening = message(&task, None, target);
    opening["schemaVersion"] = json!("2.2");
    opening["stream"] = json!({ "open": true });
    let ending = one_of(&ENDINGS);
    if ending == Ending::BadClose {
        // Completed subtasks are asked for at the close, and no chunk brings one.
        opening["taskDescription"] = json!("Go on with the report");
    }
    let id = opening["handoffId"].as_str().unwrap().to_owned();
    let (status, answer) = caller.say("/handoffs", &opening).await;
    assert_eq!(status, 202, "{answer}");
    tally.add(1);
    let chunks = chunks(2 + below(9.0) as i64, ending);
    let end = ToldEnd::None;
    let stream = SentStream { task, target, chunks, acknowledged: 0, end, faults: Vec::new() };
    let mut sender =
        StreamSender { caller, path: format!("/handoffs/{id}"), tally, stream, ending };
    sender.through().await;
    sent.lock().unwrap().insert(id, sender.stream);
}

/// All chunks of a stream; the last one ends it, unless the sender falls silent.
fn chunks(count: i64, ending: Ending) -> Vec<Value> {
    let mut all: Vec<Value> = (1..=count)
        .map(|seq| {
            let said = format!("Page {seq} of the report: {} lines.", below(90_000.0) as u32);
            json!({
                "seq": seq,
                "append": { "/conversationHistoryVerbatim": [{ "role": "assistant", "content": said }] },
                "set": { "/currentState/pages": seq },
            })
        })
        .collect();
    match ending {
        Ending::Silence => {}
        Ending::Abort => all.push(json!({ "seq": count + 1, "abort": true, "reason": "no more" })),
        // With the last page, or behind it.
        Ending::Close | Ending::BadClose if below(1.0) < 0.5 => {
            all[count as usize - 1]["close"] = json!(true);
        }
        Ending::Close | Ending::BadClose => {
            all.push(json!({ "seq": count + 1, "close": true }));
        }
    }
    all
}

struct StreamSender<'a> {
    caller: &'a Caller,
    /// Of the handoff.
    path: String,
    tally: &'a Tally,
    stream: SentStream,
    ending: Ending,
}

impl StreamSender<'_> {
    async fn through(&mut self) {
        while (self.stream.acknowledged as usize) < self.stream.chunks.len() {
            let from = self.stream.acknowledged as usize;
            let left = self.stream.chunks.len() - from;
            let lines = self.stream.chunks[from..from + one_of(&[1, 1, 3, 8]).min(left)].to_vec();
            let path = format!("{}/chunks", self.path);
            let answer = match &lines[..] {
                [one] => self.caller.post(&path, one).await,
                many => self.caller.post_lines(&path, many).await,
            };
            let goes_on = match answer {
                Some((200, _)) => {
                    self.acknowledge((from + lines.len()) as i64);
                    true
                }
                Some((409, _)) => self.resume(true).await,
                Some((422, problem))
                    if self.ending == Ending::BadClose && problem["code"] == CLOSE_REFUSED =>
                {
                    self.acknowledge(self.stream.chunks.len() as i64);
                    true
                }
                // Said again, or read first: what was asked for may have happened.
                None if below(1.0) < 0.3 => true,
                None => self.resume(false).await,
                Some((status, answer)) => {
                    self.stream
                        .faults
                        .push(format!("a chunk was answered with {status}: {answer}"));
                    false
                }
            };
            if !goes_on {
                return;
            }
            tokio::time::sleep(Duration::from_secs_f64(below(BETWEEN))).await;
        }
        self.stream.end = match self.ending {
            Ending::Close => ToldEnd::Closed,
            Ending::BadClose => ToldEnd::CloseRefused,
            Ending::Abort => ToldEnd::Aborted,
            Ending::Silence => ToldEnd::None,
        };
    }

    fn acknowledge(&mut self, seq: i64) {
        self.tally.add((seq - self.stream.acknowledged) as usize);
        self.stream.acknowledged = seq;
    }

    /// Reads the state of the stream, and goes on behind its last number; false if the broker has ended it.
    async fn resume(&mut self, refused: bool) -> bool {
        let (status, row) = self.caller.get(&self.path).await;
        let (seq, known) = (row["stream"]["seq"].as_i64(), self.stream.acknowledged);
        let Some(seq) = seq.filter(|_| status == 200) else {
            self.stream.faults.push(format!("the handoff was answered with {status}: {row}"));
            return false;
        };
        if seq < known {
            let fault = format!("{known} was acknowledged, and the stream is at {seq}");
            self.stream.faults.push(fault);
            return false;
        }
        let (stands, why) = (&row["stream"]["status"], &row["stream"]["reason"]);
        let count = self.stream.chunks.len() as i64;
        let own = match self.ending {
            Ending::Close => stands == "CLOSED",
            Ending::BadClose => stands == "ABORTED" && why == CLOSE_REFUSED,
            Ending::Abort => stands == "ABORTED" && why == "STREAM_ABORTED",
            Ending::Silence => false,
        };
        if stands == "OPEN" || own {
            // A repeat that overtook the answer of its original is told to go on, too.
            if refused && seq == known && stands == "OPEN" {
                self.stream.faults.push(format!("{} was refused at {seq}: {row}", known + 1));
                return false;
            }
            self.acknowledge(seq.min(count));
            return true;
        }
        self.stream.end = ToldEnd::Refused;
        false
    }
}
