//! The machine's work for the parts of a handoff that need no database: it sends the same bytes through a bare
//! axum server and back, hashes them, and parses them.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use axum::body::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::report::{Quantiles, Row, kilobytes};
use crate::world::{client, text};

/// Senders of the echo, each of which waits for its answer.
const SENDERS: usize = 64;

/// Measures with bodies of these sizes.
pub async fn measure(sizes: &[usize], seconds: u64) -> Vec<Row> {
    let time = Duration::from_secs(seconds);
    let mut rows = Vec::new();
    for size in sizes {
        let body = json!({ "relevantContext": [{ "excerpt": text(*size) }] }).to_string();
        let of = kilobytes(*size);
        rows.push(echo(&body, &of, time).await);
        rows.push(alone(&format!("SHA-256 of {of}"), time, || {
            black_box(Sha256::digest(black_box(&body)));
        }));
        rows.push(alone(&format!("JSON of {of} parsed"), time, || {
            black_box(serde_json::from_str::<Value>(black_box(&body)).unwrap());
        }));
    }
    rows
}

/// Only the senders, the server and the connections between them.
async fn echo(body: &str, of: &str, time: Duration) -> Row {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/", axum::routing::post(|body: Bytes| async { body }));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let (http, until) = (client(), Instant::now() + time);
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let (http, url, body) = (http.clone(), url.clone(), body.to_owned());
        senders.spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                let answer = http.post(&url).body(body.clone()).send().await.unwrap();
                assert_eq!(answer.bytes().await.unwrap().len(), body.len());
                took.push(begun.elapsed());
            }
            took
        });
    }
    let took = senders.join_all().await.concat();
    server.abort();
    Row {
        what: format!("bare echo of {of}, {SENDERS} senders"),
        rate: took.len() as f64 / time.as_secs_f64(),
        answered: Some(Quantiles::of(&took)),
        arrived: None,
        more: BTreeMap::new(),
    }
}

/// Repeats the work on one thread for the given time.
fn alone(what: &str, time: Duration, mut once: impl FnMut()) -> Row {
    let begun = Instant::now();
    let mut times = 0_u32;
    while begun.elapsed() < time {
        once();
        times += 1;
    }
    let each = begun.elapsed() / times.max(1);
    Row {
        what: format!("{what}, one thread"),
        rate: 1.0 / each.as_secs_f64(),
        answered: None,
        arrived: None,
        more: BTreeMap::from([("µs each", each.as_secs_f64() * 1e6)]),
    }
}
