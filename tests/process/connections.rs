//! Clients without a key that connect and say nothing, begin and do not end, ask and do not read: the others are served,
//! and memory stays bounded (findings S1 and S2 of 0.3.0).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::broker::{Broker, PATIENCE};
use crate::site::{ADMIN_KEY, Site};
use crate::world::{client, until};

/// The most memory that a client without a key may cost, in MiB.
const MOST_MIB: u64 = 150;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// SETTINGS: no window for answers.
fn no_window() -> Vec<u8> {
    frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])
}

/// HEADERS of a GET without a body.
fn get(stream: u32, path: &str) -> Vec<u8> {
    // :method GET, :scheme http, and the path and authority as they are (RFC 7541 §6.2.2).
    let mut head = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    head.extend(path.as_bytes());
    head.extend([0x01, 9]);
    head.extend(b"localhost");
    if path == "/metrics" {
        // `authorization` by its place in the static table (RFC 7541 appendix A: 23).
        let key = format!("Bearer {ADMIN_KEY}");
        head.extend([0x0f, 23 - 15, u8::try_from(key.len()).unwrap()]);
        head.extend(key.as_bytes());
    }
    frame(1, 0x5, stream, &head)
}

async fn connect(broker: &Broker) -> TcpStream {
    let address = broker.base.strip_prefix("http://").unwrap();
    TcpStream::connect(address).await.unwrap()
}

async fn sent(broker: &Broker, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(broker).await;
    // It may be ended at any time.
    let _ = stream.write_all(bytes).await;
    stream
}

/// The bytes that a connection still sends until it ends.
async fn said(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut said)).await;
    let _ = end.expect("the broker ends the connection");
    said
}

/// A request on a connection of its own: how long it took, and the answer.
async fn asked(broker: &Broker, path: &str) -> (Duration, String) {
    let began = Instant::now();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = said(sent(broker, request.as_bytes()).await).await;
    (began.elapsed(), String::from_utf8_lossy(&answer).into_owned())
}

/// As many files as this process may open.
fn raise_own_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn ended(broker: &Broker, reason: &str) -> f64 {
    let label = format!("reason=\"{reason}\"");
    // The broker may end the connection of this question for room, too: then the end of it is the signal to ask again.
    let poll = async {
        loop {
            if let Ok(count) =
                broker.try_counter("handoff_http_connections_ended_total", &label).await
            {
                return count;
            }
        }
    };
    timeout(PATIENCE, poll).await.expect("the broker answers")
}

pub async fn silent_connections_at_the_limit_of_files_stop_nobody(site: Arc<Site>) {
    raise_own_limit();
    let broker = Broker::start_with_files(&site, &[], 1024).await;
    let before = broker.rss_mib();
    let mut silent = Vec::new();
    let mut slowest = Duration::ZERO;
    for _ in 0..8 {
        for _ in 0..500 {
            silent.push(connect(&broker).await);
        }
        let (took, answer) = asked(&broker, "/livez").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        slowest = slowest.max(took);
        let ready = client().get(format!("{}/readyz", broker.base)).send().await.unwrap();
        assert_eq!(ready.status(), 200);
    }
    let grown = broker.rss_mib().saturating_sub(before);
    println!(
        "{} silent connections: /livez in {slowest:?} at most, {grown} MiB more",
        silent.len()
    );
    assert!(grown < MOST_MIB, "{grown} MiB");
    assert!(ended(&broker, "room").await + ended(&broker, "no_request").await >= 3_000.0);
    drop(silent);
    let lines = broker.stop_and_tell().await;
    let told = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(told("does not fit the limit of open files"), 1, "{lines:?}");
    assert_eq!(told("could not be taken"), 0, "{lines:?}");
}

pub async fn a_limit_of_files_without_room_for_connections_is_refused(site: Arc<Site>) {
    let ended =
        Broker::launch_with_files(&site, &[], 40).await.err().expect("no start").to_string();
    assert!(ended.contains("the limit of open files is 40"), "{ended}");
}

pub async fn a_connection_that_asks_for_nothing_ends(site: Arc<Site>) {
    let broker = Broker::start(&site, &[("HANDOFFD_SERVER__HEADER_TIMEOUT_MS", "400")]).await;
    let whole = [PREFACE, &no_window()].concat();
    let kinds: [&[u8]; 5] = [b"", b"GET /li", b"PRI * HTTP/2.0", PREFACE, &whole];
    let mut open = Vec::new();
    for bytes in kinds {
        open.push(sent(&broker, bytes).await);
    }
    for stream in open {
        said(stream).await;
    }
    assert!(ended(&broker, "no_request").await >= 4.0);
    broker.stop().await;
}

pub async fn while_each_connection_is_at_work_health_is_answered(site: Arc<Site>) {
    let broker = Broker::start(&site, &[("HANDOFFD_SERVER__MAX_CONNECTIONS", "8")]).await;
    let waits = format!(
        "POST /agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n"
    );
    let mut working = Vec::new();
    for _ in 0..8 {
        let mut stream = sent(&broker, waits.as_bytes()).await;
        // Its handler reads the body.
        let mut leave = [0; 25];
        timeout(PATIENCE, stream.read_exact(&mut leave)).await.unwrap().unwrap();
        assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
        working.push(stream);
    }
    // More than are kept, and silent ones among them.
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(connect(&broker).await);
        let (_, answer) = asked(&broker, "/livez").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let (_, answer) = asked(&broker, "/schemas").await;
    assert!(answer.contains("server.max_connections") && answer.contains("OVERLOADED"), "{answer}");
    // Those at work were left alone.
    for mut stream in working {
        stream.write_all(b"0123456789").await.unwrap();
        let mut answer = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400");
    }
    broker.stop().await;
}

/// A connection of HTTP/2 without a window that asks for a path so often.
async fn without_window(broker: &Broker, path: &str, streams: u32) -> TcpStream {
    let mut bytes = [PREFACE, &no_window()].concat();
    for stream in 0..streams {
        bytes.extend(get(2 * stream + 1, path));
    }
    sent(broker, &bytes).await
}

pub async fn answers_without_a_window_are_bounded_and_end(site: Arc<Site>) {
    let settings = [("HANDOFFD_SERVER__WRITE_TIMEOUT_MS", "1000")];
    let broker = Broker::start(&site, &settings).await;
    let before = broker.rss_mib();
    let mut open = Vec::new();
    for path in ["/metrics", "/openapi.json", "/docs/api/swagger-ui-bundle.js"] {
        for _ in 0..8 {
            open.push(without_window(&broker, path, 100).await);
        }
    }
    let slow = || ended(&broker, "slow");
    until(PATIENCE, "streams that are not read end", async || {
        let grown = broker.rss_mib().saturating_sub(before);
        assert!(grown < MOST_MIB, "{grown} MiB");
        usize::from(slow().await + 100.0 * ended(&broker, "unread").await < 2_000.0)
    })
    .await;
    // A stream that is not read is reset alone.
    let mut said = Vec::new();
    let mut one = without_window(&broker, "/openapi.json", 10).await;
    timeout(PATIENCE, async {
        while !said.windows(4).any(|part| part == [0, 0, 4, 3]) {
            assert!(one.read_buf(&mut said).await.unwrap() > 0);
        }
    })
    .await
    .expect("a reset");
    // HTTP/1 alike: the answers are larger than what the system buffers.
    let ended_before = slow().await;
    let asks = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(64);
    let _unread = sent(&broker, asks.as_bytes()).await;
    until(PATIENCE, "a connection that is not read ends", async || {
        usize::from(slow().await <= ended_before)
    })
    .await;
    broker.stop().await;
}

pub async fn what_connections_hold_unread_is_bounded(site: Arc<Site>) {
    let settings = [
        ("HANDOFFD_SERVER__MAX_CONNECTION_BYTES", "400000"),
        ("HANDOFFD_SERVER__MAX_CONNECTIONS_BYTES", "1500000"),
    ];
    let broker = Broker::start(&site, &settings).await;
    // One connection: more than it may hold.
    said(without_window(&broker, "/metrics", 100).await).await;
    assert!(ended(&broker, "unread").await >= 1.0);
    // All together: each holds less than it may.
    let mut open = Vec::new();
    for _ in 0..40 {
        open.push(without_window(&broker, "/metrics", 2).await);
    }
    until(PATIENCE, "the oldest end", async || usize::from(ended(&broker, "unread").await < 2.0))
        .await;
    said(open.swap_remove(0)).await;
    let (_, answer) = asked(&broker, "/livez").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    broker.stop().await;
}

pub async fn heads_that_never_end_are_bounded(site: Arc<Site>) {
    raise_own_limit();
    let settings = [("HANDOFFD_SERVER__MAX_CONNECTIONS_BYTES", "20000000")];
    let broker = Broker::start(&site, &settings).await;
    let before = broker.rss_mib();
    let long = |bytes: usize| {
        let mut head = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: ".to_vec();
        head.resize(bytes, b'x');
        head
    };
    let mut open = Vec::new();
    for _ in 0..1_000 {
        open.push(sent(&broker, &long(60_000)).await);
    }
    until(PATIENCE, "the oldest end", async || usize::from(ended(&broker, "room").await < 500.0))
        .await;
    let grown = broker.rss_mib().saturating_sub(before);
    println!("{} heads of 60 KB: {grown} MiB more", open.len());
    assert!(grown < 60, "{grown} MiB");
    let refused = said(sent(&broker, &long(100_000)).await).await;
    assert!(refused.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&refused));
    let (_, answer) = asked(&broker, "/livez").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    broker.stop().await;
}
