//! Load: senders that say each thing until it is acknowledged, whatever happens to the broker.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::receiver::pulling;
use crate::world::{COMES_WITHIN, World, client, message, until};

/// Pause of a sender whose broker is away.
const AGAIN: Duration = Duration::from_millis(10);
/// Handoffs of one task, one after the other.
const HOPS: usize = 2;

/// Senders at work.
pub struct Load {
    world: Arc<World>,
    bases: Vec<watch::Sender<String>>,
    stop: CancellationToken,
    senders: JoinSet<()>,
    others: JoinSet<()>,
}

impl Load {
    /// So many senders for each broker, to all receivers in turn.
    pub fn start(world: &Arc<World>, bases: &[&str], senders: usize) -> Self {
        let bases = bases.iter().map(|base| watch::channel((*base).to_owned()).0);
        Self::at(world, bases.collect(), senders)
    }

    /// [`Load::start`] at brokers that move without [`Load::redirect`].
    pub fn at(world: &Arc<World>, bases: Vec<watch::Sender<String>>, senders: usize) -> Self {
        let mut load = Self {
            world: Arc::clone(world),
            bases,
            stop: CancellationToken::new(),
            senders: JoinSet::new(),
            others: JoinSet::new(),
        };
        for (n, base) in load.bases.iter().flat_map(|base| vec![base; senders]).enumerate() {
            let sending = send(Arc::clone(world), base.subscribe(), load.stop.clone(), n);
            load.senders.spawn(sending);
        }
        load
    }

    /// Lets a receiver pull from the first broker, now and after every move.
    pub fn pull(&mut self, id: &str) {
        let key = self.world.receivers[id].clone();
        let (base, seen) = (self.bases[0].subscribe(), Arc::clone(&self.world.seen));
        self.others.spawn(pulling(base, id.to_owned(), key, seen));
    }

    /// The senders of broker `n` go there from now on.
    pub fn redirect(&self, n: usize, base: &str) {
        self.bases[n].send_replace(base.to_owned());
    }

    /// Waits until so many more are acknowledged.
    pub async fn more(&self, count: usize) {
        let goal = self.world.count() + count;
        until(COMES_WITHIN, "the load goes on", async || goal.saturating_sub(self.world.count()))
            .await;
    }

    /// No new handoffs; what was begun is said to the end. Pulling goes on as long as the load lives.
    pub async fn finish(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.senders.join_next().await {
            ended.unwrap();
        }
    }
}

async fn send(
    world: Arc<World>,
    base: watch::Receiver<String>,
    stop: CancellationToken,
    first: usize,
) {
    let http = client();
    let targets: Vec<&String> = world.receivers.keys().collect();
    let mut turn = first;
    while !stop.is_cancelled() {
        let task = random_id().to_string();
        let mut parent: Option<String> = None;
        for _ in 0..HOPS {
            turn += 1;
            // Two in a row to one receiver, then to the next.
            let message = message(&task, parent.as_deref(), targets[turn / 2 % targets.len()]);
            say(&world, &http, &base, &message).await;
            parent = message["handoffId"].as_str().map(str::to_owned);
        }
    }
}

/// Says one thing until it is acknowledged: the same bytes, so that the broker can tell.
async fn say(
    world: &World,
    http: &reqwest::Client,
    base: &watch::Receiver<String>,
    message: &Value,
) {
    loop {
        let url = format!("{}/handoffs", base.borrow().clone());
        let asked = http.post(url).bearer_auth(&world.sender_key).json(message).send().await;
        match asked.map(|answer| answer.status()) {
            Ok(StatusCode::ACCEPTED | StatusCode::OK) => {
                world.acknowledge(message);
                return;
            }
            Ok(StatusCode::SERVICE_UNAVAILABLE) | Err(_) => tokio::time::sleep(AGAIN).await,
            Ok(status) => panic!("an answer that no sender should get: {status}"),
        }
    }
}
