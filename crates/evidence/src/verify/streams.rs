//! Handoffs in pieces in a log: the chunks of a stream are numbered without gaps, each once, and make the message that
//! closed it (specification §10.5).

use std::collections::HashMap;

use serde_json::Value;

use handoffd_domain::stream::{Chunk, mark_closed, opens};

/// The open streams of a log or of a task, from their records in log order. Memory grows with the messages of the streams
/// that are open at one time.
#[derive(Debug, Default)]
pub struct StreamCheck {
    open: HashMap<String, OpenStream>,
}

#[derive(Debug)]
struct OpenStream {
    /// The number of the last chunk.
    seq: i64,
    /// Whether that chunk closed the stream: the assembled message must be the next record of the handoff.
    closing: bool,
    /// The message as opening and chunks make it; none where a content is gone.
    message: Option<Value>,
}

impl StreamCheck {
    /// Takes the next record. `content` reads its content, `None` where that is gone or withheld; it is called for records of
    /// streams alone.
    ///
    /// # Errors
    /// A sentence: the record contradicts those of its stream before it.
    pub fn take(
        &mut self,
        body: &Value,
        content: impl FnOnce() -> Option<Value>,
    ) -> Result<(), String> {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let Some(id) = text("handoffId") else { return Ok(()) };
        let kind = text("kind").unwrap_or_default();
        if kind != "STREAM_CLOSED" && self.open.get(id).is_some_and(|stream| stream.closing) {
            return Err(format!(
                "the stream of handoff {id} was closed, and its assembled message is missing"
            ));
        }
        let stated = |name: &str| body.get("stream").and_then(|stream| stream.get(name));
        let seq = stated("seq").and_then(Value::as_i64);
        match kind {
            "HANDOFF" if seq.is_some() => self.opened(id, content()),
            "CHUNK" => {
                let status = stated("status").and_then(Value::as_str);
                self.chunk(id, (seq, status), content())
            }
            "STREAM_CLOSED" => self.closed(id, seq, content),
            _ => Ok(()),
        }
    }

    fn opened(&mut self, id: &str, message: Option<Value>) -> Result<(), String> {
        if message.as_ref().is_some_and(|message| !opens(message)) {
            return Err(format!("the message of handoff {id} opens no stream, its record says so"));
        }
        let stream = OpenStream { seq: 0, closing: false, message };
        if self.open.insert(id.to_owned(), stream).is_some() {
            return Err(format!("the stream of handoff {id} was opened twice"));
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        id: &str,
        (seq, status): (Option<i64>, Option<&str>),
        content: Option<Value>,
    ) -> Result<(), String> {
        let Some(stream) = self.open.get_mut(id) else {
            return Err(format!("a chunk of handoff {id}, whose stream is not open"));
        };
        let next = stream.seq + 1;
        match seq {
            Some(seq) if seq == next => {}
            Some(seq) if seq < next => {
                return Err(format!("chunk {seq} of handoff {id} is there twice"));
            }
            _ => return Err(format!("chunk {next} of handoff {id} is missing")),
        }
        stream.seq = next;
        match status {
            // The end of an aborted stream changes no message.
            Some("ABORTED") => {
                self.open.remove(id);
                return Ok(());
            }
            status => stream.closing = status == Some("CLOSED"),
        }
        stream.message = match (stream.message.take(), content) {
            (Some(message), Some(chunk)) => {
                Some(added(message, &chunk, next).ok_or_else(|| {
                    format!("chunk {next} of handoff {id} does not fit the chunks before it")
                })?)
            }
            _ => None,
        };
        Ok(())
    }

    fn closed(
        &mut self,
        id: &str,
        seq: Option<i64>,
        content: impl FnOnce() -> Option<Value>,
    ) -> Result<(), String> {
        let Some(OpenStream { seq: last, closing, message }) = self.open.remove(id) else {
            return Err(format!("the stream of handoff {id} is closed, and was not open"));
        };
        if !closing || seq != Some(last) {
            return Err(format!(
                "the stream of handoff {id} is closed, and chunk {last}, its last, does not say so"
            ));
        }
        if let (Some(mut message), Some(closed)) = (message, content()) {
            mark_closed(&mut message, last);
            if message != closed {
                return Err(format!(
                    "the assembled message of handoff {id} is not what its opening and chunks make"
                ));
            }
        }
        Ok(())
    }
}

/// The message with a chunk, where the chunk has that number and fits.
fn added(mut message: Value, chunk: &Value, seq: i64) -> Option<Value> {
    let chunk = Chunk::parse(chunk).ok().filter(|chunk| chunk.seq == seq)?;
    chunk.apply(&mut message).ok()?;
    Some(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Line = (Value, Option<Value>);

    fn record(kind: &str, status: &str, seq: i64) -> Value {
        json!({ "handoffId": "h", "kind": kind, "stream": { "status": status, "seq": seq } })
    }

    fn opening() -> Line {
        let message = json!({ "taskSummary": "a", "stream": { "open": true } });
        (record("HANDOFF", "OPEN", 0), Some(message))
    }

    fn chunk(status: &str, seq: i64, text: &str) -> Line {
        let mut content = json!({ "seq": seq, "append": { "/taskSummary": [text] } });
        if status == "CLOSED" {
            content["close"] = json!(true);
        }
        (record("CHUNK", status, seq), Some(content))
    }

    fn closed(seq: i64, summary: &str) -> Line {
        let message = json!({ "taskSummary": summary, "stream": { "open": false, "seq": seq } });
        (record("STREAM_CLOSED", "CLOSED", seq), Some(message))
    }

    fn gone((body, _): Line) -> Line {
        (body, None)
    }

    /// The first record that does not fit, and why.
    fn fault(lines: &[Line]) -> Option<(usize, String)> {
        let mut check = StreamCheck::default();
        let judged = lines.iter().map(|(body, content)| check.take(body, || content.clone()));
        judged.enumerate().find_map(|(at, judged)| Some((at, judged.err()?)))
    }

    fn named(lines: &[Line], at: usize, why: &str) {
        let found = fault(lines);
        assert!(
            found.as_ref().is_some_and(|(place, said)| *place == at && said.contains(why)),
            "{why}: {found:?}"
        );
    }

    #[test]
    fn what_opening_and_chunks_make_is_what_closed_the_stream() {
        let with = |end: Line| [opening(), chunk("OPEN", 1, "b"), chunk("CLOSED", 2, "c"), end];
        assert_eq!(fault(&with(closed(2, "abc"))), None);
        named(&with(closed(2, "ab")), 3, "not what its opening and chunks make");
        named(&with(closed(1, "abc")), 3, "does not say so");
        let again = with(closed(2, "abc")).into_iter().chain([closed(2, "abc")]);
        named(&again.collect::<Vec<_>>(), 4, "was not open");
        named(&[opening(), chunk("OPEN", 1, "b"), closed(1, "ab")], 2, "does not say so");
        let whole = (record("HANDOFF", "OPEN", 0), Some(json!({ "taskSummary": "a" })));
        named(&[whole], 0, "opens no stream");
        named(&[opening(), opening()], 1, "twice");
    }

    #[test]
    fn a_gap_and_a_chunk_that_is_there_twice_are_found_whatever_is_gone() {
        for keep in [false, true] {
            let line = |line: Line| if keep { line } else { gone(line) };
            let (first, second) = (line(chunk("OPEN", 1, "b")), line(chunk("OPEN", 2, "c")));
            let opening = line(opening());
            let third = line(chunk("OPEN", 3, "d"));
            named(&[opening.clone(), first.clone(), third], 2, "chunk 2 of handoff h is missing");
            named(
                &[opening.clone(), first.clone(), first.clone()],
                2,
                "chunk 1 of handoff h is there twice",
            );
            named(&[opening.clone(), second.clone()], 1, "chunk 1 of handoff h is missing");
            named(std::slice::from_ref(&first), 0, "not open");
            let aborted = line(chunk("ABORTED", 2, "c"));
            named(&[opening, first, aborted, line(chunk("OPEN", 3, "d"))], 3, "not open");
        }
    }

    #[test]
    fn a_chunk_of_another_number_or_place_than_its_record_is_found() {
        let (body, _) = chunk("OPEN", 1, "b");
        let other = (body.clone(), chunk("OPEN", 2, "b").1);
        named(&[opening(), other], 1, "does not fit");
        let nowhere = json!({ "seq": 1, "set": { "/currentState/a/b": 1 } });
        named(&[opening(), (body, Some(nowhere))], 1, "does not fit");
    }

    #[test]
    fn a_closed_stream_without_its_message_is_found_at_the_next_record_of_the_handoff() {
        let next = (json!({ "handoffId": "h", "kind": "COMPLETED" }), None);
        let closing = chunk("CLOSED", 1, "b");
        named(&[opening(), closing.clone(), next.clone()], 2, "is missing");
        named(&[opening(), closing.clone(), chunk("OPEN", 2, "c")], 2, "is missing");
        assert_eq!(fault(&[opening(), closing, closed(1, "ab"), next]), None);
    }

    #[test]
    fn where_a_content_is_gone_the_rest_is_still_numbered_and_nothing_is_compared() {
        let lines =
            [opening(), gone(chunk("OPEN", 1, "b")), chunk("CLOSED", 2, "c"), closed(2, "x")];
        assert_eq!(fault(&lines), None);
        let lines = [gone(opening()), chunk("CLOSED", 1, "c"), closed(1, "x")];
        assert_eq!(fault(&lines), None);
        let lines = [opening(), chunk("CLOSED", 1, "c"), gone(closed(1, "x"))];
        assert_eq!(fault(&lines), None);
    }
}
