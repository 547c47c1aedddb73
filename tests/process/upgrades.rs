//! Stores that released versions wrote (tests/vectors/stores) open with this one, go on and verify.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::broker::Broker;
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Takes, World, client};

/// The master key of every kept store: 32 bytes of 7, no secret.
const MASTER_KEY: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// The seed of the key that signs their tree heads: 32 bytes of 9, no secret either.
const SIGNING_KEY: &str = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=";

fn unpacked(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/stores").join(name);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

async fn read(broker: &Broker, path: &str) -> Value {
    let url = format!("{}{path}", broker.base);
    let answer = client().get(url).bearer_auth(ADMIN_KEY).send().await.unwrap();
    let status = answer.status();
    let body = answer.json().await.unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// How many records commit to rows as they were found.
async fn adoptions(broker: &Broker) -> usize {
    let page = read(broker, "/audit/records?limit=500").await;
    let records = page["records"].as_array().unwrap();
    records.iter().filter(|one| one["record"]["kind"] == "STATE_ADOPTED").count()
}

pub async fn a_store_of_0_1_0_opens_goes_on_and_verifies(site: Arc<Site>) {
    opens_goes_on_and_verifies(site, "0.1.0", 19, 1).await;
}

pub async fn a_store_of_0_2_0_opens_goes_on_and_verifies(site: Arc<Site>) {
    opens_goes_on_and_verifies(site, "0.2.0", 20, 1).await;
}

pub async fn a_store_of_0_3_0_opens_goes_on_and_verifies(site: Arc<Site>) {
    opens_goes_on_and_verifies(site, "0.3.0", 20, 1).await;
}

pub async fn a_store_of_0_4_0_opens_goes_on_and_verifies(site: Arc<Site>) {
    opens_goes_on_and_verifies(site, "0.4.0", 20, 0).await;
}

/// `records` are in the log of the kept store, and the first start adds `adopted` for rows that no record committed to.
async fn opens_goes_on_and_verifies(site: Arc<Site>, release: &str, records: u64, adopted: usize) {
    match site.side {
        Side::Sqlite => {
            let file = site.data_dir().join("broker.db");
            std::fs::write(file, unpacked(&format!("{release}.sqlite.gz"))).unwrap();
        }
        Side::Postgres | Side::Apart => {
            let dump = unpacked(&format!("{release}.postgres.sql.gz"));
            let dump = String::from_utf8(dump).unwrap();
            site.empty().await;
            site.sql(&dump).await;
        }
    }
    let keys = [("HANDOFFD_MASTER_KEY", MASTER_KEY), ("HANDOFFD_AUDIT__SIGNING_KEY", SIGNING_KEY)];
    let broker = Broker::start(&site, &keys).await;

    // Finding E2 of 0.3.0: its rows are committed to once, as they stood; a second broker finds nothing to do.
    assert_eq!(adoptions(&broker).await, adopted);
    broker.stop().await;
    let broker = Broker::start(&site, &keys).await;
    assert_eq!(adoptions(&broker).await, adopted);

    // The release's data are there: the completed task, with its evidence, and the message it refused.
    let tasks = read(&broker, "/tasks?status=COMPLETED").await;
    let task = tasks["items"][0]["taskId"].as_str().unwrap_or_else(|| panic!("{tasks}"));
    let trace = read(&broker, &format!("/tasks/{task}/trace")).await;
    assert_eq!(trace["verification"]["ok"], true, "{trace}");
    assert_eq!(trace["handoffs"].as_array().map(Vec::len), Some(2), "{trace}");
    let refused = read(&broker, "/dead-letters").await;
    let codes: Vec<_> = refused["items"].as_array().unwrap().iter().map(|l| &l["reason"]).collect();
    assert!(codes.iter().any(|code| **code == "SAFETY_VIOLATION"), "{refused}");

    // And it goes on: new handoffs stand in the same log.
    let seen = Arc::new(Seen::default());
    let quick = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let mut world = World::new(&broker, vec![("quick", Takes::Webhook(quick, 4))]).await;
    world.seen = seen;
    let world = Arc::new(world);
    let mut load = Load::start(&world, &[&broker.base], 2);
    load.more(5).await;
    load.finish().await;
    world.settle_up(&site, &broker).await;
    broker.stop().await;
    assert!(site.verify_with(&keys).await >= records + 5);
}
