//! Connections that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handoffd::clock::{random_fraction, random_id};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::broker::{Broker, PATIENCE};
use crate::receiver::{Delivery, Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, message, until};

/// Handoffs of a case.
const COUNT: usize = 40;

pub async fn senders_that_go_away_lose_nothing_and_repeat_nothing(site: Arc<Site>) {
    let broker = Broker::start(&site, &[]).await;
    let seen = Arc::new(Seen::default());
    let url = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let mut world = World::new(&broker, vec![("webhook", Takes::Webhook(url, 16))]).await;
    world.seen = seen;
    let address = broker.base.strip_prefix("http://").unwrap();
    for n in 0..COUNT {
        let message = message(&random_id().to_string(), None, "webhook");
        let body = message.to_string();
        let request = format!(
            "POST /handoffs HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            world.sender_key,
            body.len()
        );
        // Every other one is cut within the request, the rest after it, before the answer is read.
        let whole = n % 2 == 0;
        let end = if whole {
            request.len()
        } else {
            ((request.len() - 1) as f64 * random_fraction()) as usize
        };
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(&request.as_bytes()[..end]).await.unwrap();
        if whole {
            tokio::time::sleep(Duration::from_secs_f64(random_fraction() * 0.01)).await;
        }
        drop(connection);
        // The sender does not know what came of it, and says the same again.
        world.submit(&broker.base, &message).await;
    }
    let tally = world.settle_up(&site, &broker).await;
    assert_eq!((tally.acknowledged, tally.deliveries), (COUNT, COUNT), "none twice");
    broker.stop().await;
    site.verify().await;
}

/// Reads a request, up to the end of its body; `None` where it breaks off.
async fn read_request(connection: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = connection.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() >= header(head, "content-length").parse().unwrap_or(0)
        {
            return Some(head.to_owned());
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(found, value)| (found == name).then_some(value))
        .unwrap_or_default()
}

/// Hangs up on the first two of three: before reading, after reading, within the answer.
async fn fickle(seen: Arc<Seen>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let turn = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let (seen, turn) = (Arc::clone(&seen), Arc::clone(&turn));
            tokio::spawn(async move {
                let mode = turn.fetch_add(1, Ordering::Relaxed) % 4;
                if mode == 0 {
                    return;
                }
                let Some(head) = read_request(&mut connection).await else { return };
                let number = |name| header(&head, name).parse().unwrap();
                if mode == 1 {
                    return;
                }
                let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 21\r\n\r\n\
                              {\"status\":\"ACCEPTED\"}";
                let end = if mode == 2 { answer.len() - 5 } else { answer.len() };
                if mode == 3 {
                    seen.add(Delivery {
                        handoff: header(&head, "handoff-id").to_owned(),
                        attempt: number("handoff-attempt"),
                        token: number("handoff-fencing-token"),
                    });
                }
                let _ = connection.write_all(&answer.as_bytes()[..end]).await;
                let _ = connection.shutdown().await;
            });
        }
    });
    url
}

pub async fn a_receiver_that_hangs_up_is_tried_again(site: Arc<Site>) {
    // The breaker would be right to open; here the retries themselves are looked at.
    let broker = Broker::start(&site, &[("HANDOFFD_DELIVERY__BREAKER_FAILURES", "1000000")]).await;
    let seen = Arc::new(Seen::default());
    let url = fickle(Arc::clone(&seen)).await;
    let mut world = World::new(&broker, vec![("fickle", Takes::Webhook(url, 8))]).await;
    world.seen = seen;
    for _ in 0..COUNT {
        world.submit(&broker.base, &message(&random_id().to_string(), None, "fickle")).await;
    }
    let tally = world.settle_up(&site, &broker).await;
    assert_eq!((tally.acknowledged, tally.deliveries), (COUNT, COUNT), "accepted once each");
    broker.stop().await;
    site.verify().await;
}

pub async fn a_slow_receiver_does_not_delay_another(site: Arc<Site>) {
    // One place for each attempt of the slow ones, and few more: they must not take them all.
    let broker = Broker::start(&site, &[("HANDOFFD_DELIVERY__POLL_MS", "60000")]).await;
    let (seen, stuck) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let slow = accepting(Arc::clone(&stuck), Duration::from_secs(3)).await;
    let quick = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let receivers = vec![("slow", Takes::Webhook(slow, 2)), ("quick", Takes::Webhook(quick, 16))];
    let mut world = World::new(&broker, receivers).await;
    world.seen = Arc::clone(&seen);
    for _ in 0..4 {
        world.submit(&broker.base, &message(&random_id().to_string(), None, "slow")).await;
    }
    let slow_ones = std::mem::take(&mut *world.acknowledged.lock().unwrap());
    let began = tokio::time::Instant::now();
    for _ in 0..COUNT {
        world.submit(&broker.base, &message(&random_id().to_string(), None, "quick")).await;
    }
    world.settle_up(&site, &broker).await;
    eprintln!("{:?}: {COUNT} past a stuck receiver in {:?}", site.side, began.elapsed());
    until(PATIENCE, "the slow one gets all of its own", async || {
        slow_ones.len() - stuck.handoffs().len()
    })
    .await;
    stuck.check_attempts();
    broker.stop().await;
    site.verify().await;
}
