//! The API's stream of a task's events, read as it comes (WHATWG Server-Sent Events).

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;
use serde_json::Value;

use handoffd_domain::a2a::TaskState;
use handoffd_domain::event::EventType;

/// An event of the feed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FeedEvent {
    /// Its place in the feed.
    pub(super) cursor: String,
    kind: EventType,
    body: Value,
}

impl FeedEvent {
    /// The handoff that it is about. The first event of a handoff spells it as seed 003 does.
    pub(super) fn handoff(&self) -> Option<&str> {
        let data = &self.body["data"];
        data["handoffId"].as_str().or_else(|| data["handoff_id"].as_str())
    }

    /// The state to which it brings the handoff.
    pub(super) fn state(&self) -> Option<TaskState> {
        TaskState::after(self.kind)
    }

    pub(super) fn at(&self) -> &str {
        self.body["timestamp"].as_str().unwrap_or_default()
    }

    pub(super) fn id(&self) -> &str {
        self.body["id"].as_str().unwrap_or_default()
    }
}

/// The stream under way.
pub(super) struct FeedStream {
    body: BodyDataStream,
    read: Vec<u8>,
}

impl FeedStream {
    pub(super) fn new(body: Body) -> Self {
        Self { body: body.into_data_stream(), read: Vec::new() }
    }

    /// The next event; `None` once the API ended the stream.
    pub(super) async fn next(&mut self) -> Option<FeedEvent> {
        loop {
            while let Some(block) = take_block(&mut self.read) {
                if let Some(event) = parse(&block) {
                    return Some(event);
                }
            }
            let chunk = self.body.next().await?.ok()?;
            self.read.extend_from_slice(&chunk);
        }
    }
}

/// Takes the bytes before an empty line.
fn take_block(read: &mut Vec<u8>) -> Option<String> {
    let end = read.windows(2).position(|two| two == b"\n\n")?;
    let block: Vec<u8> = read.drain(..end + 2).collect();
    Some(String::from_utf8_lossy(&block).into_owned())
}

/// Reads an event; a comment is none.
fn parse(block: &str) -> Option<FeedEvent> {
    let (mut cursor, mut kind, mut data) = (None, None, String::new());
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => cursor = Some(value.to_owned()),
            "event" => kind = value.parse().ok(),
            "data" => {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            _ => {}
        }
    }
    Some(FeedEvent { cursor: cursor?, kind: kind?, body: serde_json::from_str(&data).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_read_across_pieces_and_comments_are_left_out() {
        let text = ": alive\n\nid: 7.0\nevent: handoff.accepted\ndata: {\"id\":\"e\",\"timestamp\":\"t\",\ndata: \"data\":{\"handoffId\":\"h\"}}\n\n:\n\nid: 8.1\nevent: agent.handoff.occurred\ndata: {\"data\":{\"handoff_id\":\"h2\"}}\n\nid: 9";
        let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
            text.as_bytes().chunks(5).map(|piece| Ok(piece.to_vec())).collect();
        let mut stream = FeedStream::new(Body::from_stream(futures_util::stream::iter(pieces)));
        let first = stream.next().await.unwrap();
        assert_eq!(
            (first.cursor.as_str(), first.handoff(), first.at(), first.id()),
            ("7.0", Some("h"), "t", "e")
        );
        assert_eq!(first.state(), Some(TaskState::Working));
        let second = stream.next().await.unwrap();
        assert_eq!((second.handoff(), second.state()), (Some("h2"), Some(TaskState::Submitted)));
        assert!(stream.next().await.is_none(), "a part of an event is not an event");
    }
}
