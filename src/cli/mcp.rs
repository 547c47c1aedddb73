//! `handoffd mcp`: the broker's MCP door for clients that speak standard input and output (specification §11.1).
//!
//! Each message of a line goes to `/mcp` as a request of its own, and what comes back goes out line by line: the broker's
//! door and this one are the same.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args as ClapArgs;
use futures_util::StreamExt;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Exit;
use super::client::{Client, Reach, bounded};
use handoffd_broker::config::Config;
use handoffd_domain::json::{JsonError, parse};

/// Longest line from the client, in bytes: the broker takes no larger body unless its settings say so.
const MAX_LINE: u64 = 64 * 1024 * 1024;
/// Lines that wait to be taken.
const LINES: usize = 16;
/// JSON-RPC's code for an error of the server.
const INTERNAL: i64 = -32603;
/// JSON-RPC's code for a line that is not JSON.
const MALFORMED: i64 = -32700;
/// JSON-RPC's code for a line that is not a message.
const INVALID: i64 = -32600;
/// The methods of which the protocol repeats a parameter in a header.
const NAMED: [(&str, &str); 6] = [
    ("tools/call", "name"),
    ("prompts/get", "name"),
    ("resources/read", "uri"),
    ("tasks/get", "taskId"),
    ("tasks/update", "taskId"),
    ("tasks/cancel", "taskId"),
];

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// The key; the admin key in auth.keys_dir or the data directory unless said
    #[arg(long, env = "HANDOFFD_API_KEY", hide_env_values = true)]
    key: Option<String>,
}

/// Carries messages between standard input and the broker until the input ends.
pub(super) async fn run(args: Args, config: Config) -> Exit {
    let client = match Client::new(&args.reach, args.key, &config) {
        Ok(client) => client,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return err.exit();
        }
    };
    let bridge =
        Arc::new(Bridge { client, version: Mutex::default(), under_way: Mutex::default() });
    let mut requests = JoinSet::new();
    let (lines, mut input) = mpsc::channel(LINES);
    tokio::task::spawn_blocking(move || read_lines(&mut io::stdin().lock(), &lines));
    while let Some(line) = input.recv().await {
        match line {
            Ok(line) if line.trim_ascii().is_empty() => {}
            Ok(line) => match message(&line) {
                Ok(message) => bridge.take(message, &mut requests).await,
                Err(refused) => bridge.tell(&refused),
            },
            Err(err) => {
                eprintln!("handoffd: standard input cannot be read: {err}");
                return Exit::Unreachable;
            }
        }
        while requests.try_join_next().is_some() {}
    }
    // The client sends no more; what it asked is still answered.
    while requests.join_next().await.is_some() {}
    Exit::Success
}

/// Hands over line by line, until the input ends, fails or has a line that is too long.
fn read_lines(input: &mut impl BufRead, lines: &mpsc::Sender<io::Result<Vec<u8>>>) {
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let read = match read {
            Ok(0) => return,
            Ok(_) if line.len() as u64 == MAX_LINE => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"))
            }
            read => read.map(|_| line),
        };
        let ends = read.is_err();
        if lines.blocking_send(read).is_err() || ends {
            return;
        }
    }
}

/// The message of a line.
///
/// # Errors
/// The error that answers a line without one: no JSON, a member twice, no object, or an id that is null.
fn message(line: &[u8]) -> Result<Value, Value> {
    let refused = |code, why: &str| Err(error(&Value::Null, code, why));
    let message = match parse(line) {
        Ok(message) => message,
        Err(JsonError::Malformed(fault)) => return refused(MALFORMED, &fault.message),
        // An integer that a double cannot hold: the broker refuses it, under the request's id.
        Err(JsonError::Unacceptable(_)) => match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(err) => return refused(MALFORMED, &err.to_string()),
        },
    };
    if !message.is_object() {
        return refused(INVALID, "a line is one message: no batch, and nothing but an object");
    }
    if message.get("id") == Some(&Value::Null) {
        return refused(INVALID, "the id of a request is not null");
    }
    Ok(message)
}

/// Requests under way, by their ids as JSON.
type UnderWay = Mutex<Vec<(String, CancellationToken)>>;

struct Bridge {
    client: Client,
    /// The version that `initialize` agreed on; later requests carry it in a header.
    version: Mutex<Option<String>>,
    under_way: UnderWay,
}

impl Bridge {
    /// Takes a message: a request is carried beside others, a notification before the next message.
    async fn take(self: &Arc<Self>, message: Value, requests: &mut JoinSet<()>) {
        if message.get("method") == Some(&json!("notifications/cancelled")) {
            let id = message.pointer("/params/requestId").map(Value::to_string);
            let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            // The broker keeps no session: the request ends with its connection.
            for (_, token) in under_way.iter().filter(|(known, _)| Some(known) == id.as_ref()) {
                token.cancel();
            }
            return;
        }
        let Some(id) = message.get("id").cloned() else {
            return self.carry(&message, &Value::Null).await;
        };
        let token = CancellationToken::new();
        let key = id.to_string();
        let initializes = message.get("method") == Some(&json!("initialize"));
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((key.clone(), token.clone()));
        let bridge = Arc::clone(self);
        let carrying = async move {
            tokio::select! {
                () = bridge.carry(&message, &id) => {}
                () = token.cancelled() => {}
            }
            let mut under_way = bridge.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            under_way.retain(|(known, _)| *known != key);
        };
        if initializes {
            // The version that it agrees on is needed by whatever follows.
            carrying.await;
        } else {
            requests.spawn(carrying);
        }
    }

    /// Sends one message and writes out what comes back.
    async fn carry(&self, message: &Value, id: &Value) {
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let headers = headers(message, version.as_deref());
        match self.client.exchange("mcp", message, &headers).await {
            Err(err) => self.fail(id, &err.to_string()),
            Ok(response) => self.answer(response, id).await,
        }
    }

    async fn answer(&self, response: Response, id: &Value) {
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        if kind.starts_with("text/event-stream") {
            return self.stream(response, id).await;
        }
        let status = response.status();
        let body = match bounded(response).await {
            Ok(body) if body.is_empty() && status.is_success() => return,
            Ok(body) => body,
            Err(err) => return self.fail(id, &err.to_string()),
        };
        match serde_json::from_slice::<Value>(&body) {
            Ok(message) if message.get("jsonrpc").is_some() => self.tell(&message),
            Ok(problem) => {
                let detail = problem["detail"].as_str().unwrap_or("the broker refused");
                let code = problem["code"].as_str().unwrap_or_default();
                self.fail(id, &format!("{code}: {detail}"));
            }
            Err(_) => self.fail(id, &format!("the broker answered {status}: is this a handoffd?")),
        }
    }

    /// The messages of an event stream, as they come.
    async fn stream(&self, response: Response, id: &Value) {
        let mut stream = response.bytes_stream();
        let mut events = Events::default();
        let mut answered = false;
        while let Some(piece) = stream.next().await {
            let Ok(piece) = piece else { break };
            if events.pending() + piece.len() > MAX_LINE as usize {
                return self.fail(id, "the broker's answer has an event without end");
            }
            for data in events.take(&piece) {
                if let Ok(message) = serde_json::from_str::<Value>(&data) {
                    answered |= message.get("id") == Some(id);
                    self.tell(&message);
                }
            }
        }
        if !answered {
            self.fail(id, "the broker's answer was cut off; ask again");
        }
    }

    /// An error in the place of an answer. A notification has none.
    fn fail(&self, id: &Value, why: &str) {
        if id.is_null() {
            eprintln!("handoffd: {why}");
        } else {
            self.tell(&error(id, INTERNAL, why));
        }
    }

    /// Writes a message as one line.
    fn tell(&self, message: &Value) {
        if let Some(agreed) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(agreed.to_owned());
        }
        let mut line = message.to_string();
        line.push('\n');
        let mut output = io::stdout().lock();
        // A client that has gone away reads nothing more; its input ends too.
        let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    }
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// The headers that repeat what a message says of itself.
fn headers(message: &Value, agreed: Option<&str>) -> Vec<(&'static str, String)> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let own = text("/params/_meta/io.modelcontextprotocol~1protocolVersion");
    let mut headers = vec![("accept", "application/json, text/event-stream".to_owned())];
    let method = text("/method").unwrap_or_default();
    if let Some(version) = own.or(agreed).filter(|_| method != "initialize") {
        headers.push(("mcp-protocol-version", version.to_owned()));
    }
    if own.is_some() {
        headers.push(("mcp-method", method.to_owned()));
        let named = NAMED.iter().find(|(known, _)| *known == method);
        if let Some(name) = named.and_then(|(_, member)| text(&format!("/params/{member}"))) {
            headers.push(("mcp-name", name.to_owned()));
        }
    }
    headers
}

/// The data of server-sent events, out of pieces as they arrive.
#[derive(Default)]
struct Events {
    rest: Vec<u8>,
    data: String,
}

impl Events {
    /// Bytes of an event that has not ended.
    fn pending(&self) -> usize {
        self.rest.len() + self.data.len()
    }

    /// The events that this piece completes.
    fn take(&mut self, piece: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(piece);
        let mut found = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                if !self.data.is_empty() {
                    found.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_message_repeats_itself_in_headers_and_an_older_one_what_was_agreed() {
        let version = "io.modelcontextprotocol/protocolVersion";
        let call = json!({ "method": "tools/call", "params": { "name": "accept", "_meta": { version: "2026-07-28" } } });
        let found = headers(&call, None);
        let expected = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "accept"),
        ];
        let expected: Vec<_> = expected.map(|(name, value)| (name, value.to_owned())).into();
        assert_eq!(found[1..], expected);
        let older = headers(&json!({ "method": "tools/list" }), Some("2025-06-18"));
        assert_eq!(older[1..], [("mcp-protocol-version", "2025-06-18".to_owned())]);
        assert_eq!(headers(&json!({ "method": "initialize" }), Some("2025-06-18")).len(), 1);
    }

    #[test]
    fn a_line_without_a_message_is_answered_with_its_code() {
        for (line, code) in [
            ("{ not json", MALFORMED),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, MALFORMED),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, INVALID),
            ("7", INVALID),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, INVALID),
        ] {
            let refused = message(line.as_bytes()).unwrap_err();
            assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(code), &Value::Null));
        }
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":9007199254740993}}"#,
        ] {
            assert!(message(line.as_bytes()).is_ok(), "{line}");
        }
    }

    #[test]
    fn events_are_found_however_they_are_cut() {
        let text = "retry: 3000\n\ndata: {\"a\":1}\n\n: keep\n\ndata: {\"b\":\ndata: 2}\r\n\r\n";
        for size in 1..text.len() {
            let mut events = Events::default();
            let found: Vec<String> =
                text.as_bytes().chunks(size).flat_map(|piece| events.take(piece)).collect();
            assert_eq!(found, ["{\"a\":1}", "{\"b\":\n2}"], "{size}");
        }
    }
}
