//! The certification kit against this broker: every claim holds, and a broker that breaks one promise fails its claim.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(unreachable_pub, reason = "a test binary, not a library")]

mod mutant;
mod queue;
mod served;

use std::path::PathBuf;

use handoffd_certify::Args;
use handoffd_certify::claims::{CLAIMS, Claim, Needs};
use handoffd_certify::report::{Report, Verdict};

use crate::mutant::{A2A_MUTANTS, MUTANTS, Mutant};
use crate::served::Served;

fn args(url: &str, key: &str) -> Args {
    Args {
        url: url.to_owned(),
        key_file: None,
        key: Some(key.to_owned()),
        map: None,
        not_claimed_too: false,
        only: Vec::new(),
        kill: None,
        start: None,
        verifier: Some(format!("'{}' verify", env!("CARGO_BIN_EXE_handoffd"))),
        receiver_host: "127.0.0.1".to_owned(),
        handoffs: 120,
        rate: 20,
        form: handoffd_certify::args::Form::Text,
        file: Vec::new(),
        list: false,
    }
}

async fn certify(args: &Args) -> Report {
    let report = handoffd_certify::run(args, |_| {}).await.unwrap();
    println!("{}", report.render(args.form));
    report
}

fn failed(report: &Report) -> Vec<&'static str> {
    report.claims.iter().filter(|one| one.verdict == Verdict::Fail).map(|one| one.claim).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_claim_holds_of_this_broker_through_a_kill() {
    let broker = Served::start().await;
    let args = Args {
        kill: Some(broker.kill_command()),
        start: Some(broker.start_command()),
        ..args(&broker.url, &broker.key)
    };
    let report = certify(&args).await;
    assert_eq!(report.passed, CLAIMS.len(), "{}\n{}", report.summary(), broker.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_without_its_command_is_unsupported_and_one_not_made_is_no_failure() {
    let broker = Served::start().await;
    let map = broker.folder.path().join("map.yaml");
    std::fs::write(&map, "not_claimed: [signed]\n").unwrap();
    let only = ["killed", "tampering", "signed"].map(str::to_owned).to_vec();
    let args = Args { map: Some(map), only, verifier: None, ..args(&broker.url, &broker.key) };
    let report = certify(&args).await;
    assert_eq!((report.unsupported, report.not_claimed, report.failed), (2, 1, 0));
    // By request it is examined, and stays one that is not made.
    let args = Args { not_claimed_too: true, only: vec!["signed".to_owned()], ..args };
    let report = certify(&args).await;
    assert_eq!((report.passed, report.not_claimed), (0, 1));
    assert!(report.claims[0].evidence.contains("pass: HMAC"), "{}", report.claims[0].evidence);
}

/// The mapping file of this broker's A2A door, as `scripts/certify-others` uses it.
fn a2a_map() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/certify_others/handoffd_a2a.yaml")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_claim_that_a2a_expresses_holds_at_the_a2a_door_through_a_kill() {
    let broker = Served::start().await;
    let args = Args {
        map: Some(a2a_map()),
        kill: Some(broker.kill_command()),
        start: Some(broker.start_command()),
        ..args(&broker.url, &broker.key)
    };
    let report = certify(&args).await;
    let expressed = CLAIMS.iter().filter(|claim| claim.needs != Needs::Canonical).count();
    assert_eq!(report.passed, expressed, "{}\n{}", report.summary(), broker.log());
    assert_eq!(report.not_claimed, CLAIMS.len() - expressed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_system_with_a_worker_of_its_own_is_driven_by_a_form_and_delivers_to_the_kit() {
    let queue = queue::start().await;
    let map = queue.folder.path().join("map.yaml");
    std::fs::write(&map, &queue.agent_map).unwrap();
    let only = ["delivered", "latency"].map(str::to_owned).to_vec();
    let of_agent = Args { map: Some(map.clone()), only, ..args(&queue.url, "") };
    // The agent's answer is a message, and the kit has no task to look at.
    assert_eq!(certify(&of_agent).await.passed, 2);
    std::fs::write(&map, &queue.map).unwrap();
    let only = ["delivered", "retried", "repeat", "latency", "contract"];
    let args = Args {
        map: Some(map.clone()),
        only: only.map(str::to_owned).to_vec(),
        ..args(&queue.url, "")
    };
    let report = certify(&args).await;
    // The queue takes a repeated submission as another job, and has no contracts.
    assert_eq!(failed(&report), ["repeat"]);
    assert_eq!((report.passed, report.not_claimed), (3, 1), "{}", report.summary());
}

#[test]
fn each_mapping_file_of_the_published_table_is_one() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/certify_others");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let maps: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|kind| kind == "yaml")).collect();
    assert!(maps.len() >= 4, "{maps:?}");
    for path in maps {
        handoffd_certify::map::Map::read(&path).unwrap();
    }
}

/// Runs the kit against a mutant; returns the claims that failed.
async fn against(
    broker: &Served,
    mutant: &'static Mutant,
    only: &[&str],
    map: Option<PathBuf>,
) -> Vec<&'static str> {
    let proxy = mutant::serve(&broker.url, &broker.key, mutant).await;
    let mut args = Args { map, ..args(&proxy.url, &broker.key) };
    args.only = only.iter().map(|&id| id.to_owned()).collect();
    if mutant.claim == "tampering" {
        args.verifier = Some("true".to_owned());
    }
    failed(&certify(&args).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_breaks_a_promise_fails_the_claim() {
    let broker = Served::start().await;
    let mut wrong = Vec::new();
    for mutant in MUTANTS {
        println!("{}", mutant.breaks);
        let failures = against(&broker, mutant, &[mutant.claim], None).await;
        if failures != [mutant.claim] {
            wrong.push(mutant.breaks);
        }
    }
    assert!(wrong.is_empty(), "not found out: {wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_breaks_a_promise_at_its_a2a_door_fails_that_claim_alone() {
    let broker = Served::start().await;
    let expressed = |claim: &&Claim| claim.needs != Needs::Canonical && claim.id != "latency";
    let all: Vec<&str> = CLAIMS.iter().filter(expressed).map(|claim| claim.id).collect();
    let mut wrong = Vec::new();
    for mutant in A2A_MUTANTS {
        println!("{}", mutant.breaks);
        let failures = against(&broker, mutant, &all, Some(a2a_map())).await;
        if failures != [mutant.claim] {
            wrong.push((mutant.breaks, failures));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Each claim that needs no kill and judges has a mutant.
#[test]
fn every_claim_that_judges_has_a_mutant() {
    for claim in CLAIMS.iter().filter(|claim| !["killed", "latency"].contains(&claim.id)) {
        assert!(
            MUTANTS.iter().any(|mutant| mutant.claim == claim.id),
            "{} has no mutant",
            claim.id
        );
    }
}

/// The whole table: every mutant against every claim. Some six minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: the table of docs/certify.md"]
async fn a_broker_that_breaks_one_promise_fails_no_other_claim() {
    let mut wrong = Vec::new();
    let all: Vec<&str> =
        CLAIMS.iter().map(|claim| claim.id).filter(|id| *id != "latency").collect();
    for mutant in MUTANTS {
        // A broker of its own: claims on the log count records from the log's beginning.
        let broker = Served::start().await;
        let failures = against(&broker, mutant, &all, None).await;
        println!("| {} | {} |", mutant.breaks, failures.join(", "));
        if failures != [mutant.claim] {
            wrong.push((mutant.breaks, failures));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
