//! The bundle of a task of many hops: made by a broker, verified offline.

use std::time::{Duration, Instant};

use handoffd::clock::random_id;

use crate::broker::Broker;
use crate::database::{ADMIN_KEY, Database};
use crate::world::{accept, agents, client, message, spread, submit};

pub async fn run(store: &str, hops: u64, runs: usize) {
    let database = Database::new(store, env!("CARGO_BIN_EXE_handoffd").into()).await;
    // Two agents that hand a task to and fro are what the loop guard stops.
    let settings = ["MAX_HOPS", "MAX_EDGE_REPEATS"]
        .map(|setting| format!("HANDOFFD_GATE__{setting}={}", hops + 1));
    let broker = Broker::start(&database, &settings).await;
    let http = client();
    let agents = agents(&http, &broker).await;
    let task = random_id().to_string();
    let mut parent: Option<String> = None;
    for hop in 0..hops {
        let (from, to) = (&agents[(hop % 2) as usize], &agents[((hop + 1) % 2) as usize]);
        let next = message(&task, parent.as_deref(), from.id, to.id);
        let id = submit(&http, &broker, &from.key, &next).await;
        accept(&http, &broker, to, &id).await;
        parent = Some(id);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.zip");
    let (mut made, mut verified) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        let began = Instant::now();
        let ask = http.get(format!("{}/tasks/{task}/trace?format=bundle", broker.base));
        let answer = ask.bearer_auth(ADMIN_KEY).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let bytes = answer.bytes().await.unwrap();
        made.push(began.elapsed());
        std::fs::write(&path, &bytes).unwrap();
        let began = Instant::now();
        let said = database.command(&[]).arg("verify").arg(&path).output().await.unwrap();
        verified.push(began.elapsed());
        assert!(said.status.success(), "{said:?}");
    }
    let size = std::fs::metadata(&path).unwrap().len() as f64 / 1024.0 / 1024.0;
    println!("bundle of {hops} hops, {size:.1} MiB, {} runs", made.len());
    println!("  made:     {}", spread(&mut made));
    println!("  verified: {}", spread(&mut verified));
    tokio::time::timeout(Duration::from_mins(1), broker.stop()).await.unwrap();
    database.drop().await;
}
