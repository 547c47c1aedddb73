//! A Postgres server that goes away, or will not write. SQLite has no server to lose.

use std::sync::Arc;

use handoffd::store::{Needs, StoreError, Writes};

use crate::fixture::{given, needs, plan, submit, transact};
use crate::harness::{Bed, Side, acme, run};
use crate::tamper::verify;

const CUT_ALL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_on_once_its_connections_were_cut() {
    run(Side::Postgres, goes_on).await;
}

async fn goes_on(bed: Arc<Bed>) {
    // Several connections, all idle in the pool when they are cut.
    let pings = (0..5).map(|_| bed.store.ping());
    futures_util::future::join_all(pings).await;
    bed.raw().await.run(CUT_ALL).await.unwrap();
    for n in 1..=5 {
        submit(&bed.store, &[given(n, n)]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cut_in_the_middle_is_unavailable_and_writes_nothing() {
    run(Side::Postgres, cut_in_the_middle).await;
}

async fn cut_in_the_middle(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let batch = [given(2, 1), given(3, 3)];
    let cut = transact(&bed.store, &needs(&batch), |state| {
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                bed.raw().await.run(CUT_ALL).await.unwrap();
            });
        });
        plan(&batch, state)
    })
    .await;
    assert!(matches!(cut, Err(StoreError::Unavailable(_))), "{cut:?}");
    assert_eq!(bed.store.find_handoff(&batch[0].key()).await.unwrap(), None);
    submit(&bed.store, &batch).await;
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cut_in_any_flight_writes_nothing_and_is_committed_once_when_repeated() {
    run(Side::Postgres, cut_in_flight).await;
}

/// Each lock holds one flight up: the one that reads, the one that writes and locks the head, and the last one, whose
/// `COMMIT` is on its way.
async fn cut_in_flight(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let locks =
        ["tasks IN ACCESS EXCLUSIVE", "audit.log_heads IN EXCLUSIVE", "audit.records IN SHARE"];
    for (n, lock) in (2u128..).zip(locks) {
        let mut blocker = bed.raw().await;
        blocker.run("BEGIN").await.unwrap();
        blocker.run(&format!("LOCK TABLE {lock} MODE")).await.unwrap();
        let batch = [given(n, n)];
        let (store, held) = (Arc::clone(&bed.store), batch.clone());
        let cut = tokio::spawn(async move {
            transact(&store, &needs(&held), |state| plan(&held, state)).await
        });
        let waits =
            "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while blocker.count(waits).await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        blocker.run(&format!("SELECT pg_terminate_backend(pid) FROM {waits}")).await.unwrap();
        // The first flight has written nothing, and is said again on another connection.
        let said_again = lock.starts_with("tasks");
        if said_again {
            blocker.run("ROLLBACK").await.unwrap();
        }
        let cut = cut.await.unwrap();
        drop(blocker);
        assert_eq!(cut.is_ok(), said_again, "{lock}: {cut:?}");
        assert!(said_again || matches!(cut, Err(StoreError::Unavailable(_))), "{lock}: {cut:?}");
        let found = bed.store.find_handoff(&batch[0].key()).await.unwrap();
        assert_eq!(found.is_some(), said_again, "{lock}");
        if !said_again {
            submit(&bed.store, &batch).await;
        }
    }
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_last_flight_fails_commits_nothing() {
    run(Side::Postgres, fails_at_last).await;
}

/// The connection goes on afterwards: there are so few that a lost one would be missed.
async fn fails_at_last(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let mut raw = bed.raw().await;
    let taken = "INSERT INTO audit.records (tenant, leaf_index, record_hash, kind, recorded_at, body) \
         SELECT tenant, 1, record_hash, kind, recorded_at, body FROM audit.records WHERE leaf_index = 0";
    raw.run(taken).await.unwrap();
    let backends = "pg_stat_activity WHERE datname = current_database()";
    let before = raw.count(backends).await;
    let batch = [given(2, 2)];
    for _ in 0..5 {
        let failed = transact(&bed.store, &needs(&batch), |state| plan(&batch, state)).await;
        assert!(matches!(failed, Err(StoreError::Conflict(_))), "{failed:?}");
        assert_eq!(bed.store.find_handoff(&batch[0].key()).await.unwrap(), None);
    }
    assert!(raw.count(backends).await <= before, "connections were lost");
    raw.disarm().await;
    raw.run("DELETE FROM audit.records WHERE leaf_index = 1").await.unwrap();
    submit(&bed.store, &batch).await;
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads_is_unavailable() {
    run(Side::Postgres, only_reads).await;
}

async fn only_reads(bed: Arc<Bed>) {
    let mut raw = bed.raw().await;
    let name = raw.blob("SELECT convert_to(current_database(), 'UTF8')").await;
    let name = String::from_utf8(name).unwrap();
    let only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    raw.run(&only).await.unwrap();
    raw.run(CUT_ALL).await.unwrap();
    let one = [given(1, 1)];
    let refused = transact(&bed.store, &needs(&one), |state| plan(&one, state)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let nothing = transact(&bed.store, &Needs::default(), |_| Writes::default()).await;
    assert_eq!(nothing.unwrap(), []);
}

/// A server that falls silent in the middle of an answer: an unbounded question waits for it for ever,
/// and so does its caller. `tests/process/stalls.rs` tries one such moment; this holds all of them.
#[test]
fn every_question_to_postgres_is_asked_for_a_bounded_time() {
    // Migrations may wait for another broker's, and rights are granted with them, by a command that a person
    // watches; scrubbing rewrites whole tables; closing has an end of its own; tests alone have plans explained.
    const UNBOUNDED: [&str; 6] =
        ["migrate", "grant_serving", "scrub", "close", "explain_list", "explain_waits"];
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store/src/store/postgres");
    let mut asked = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let blocks = source.split("\nimpl PostgresStore {\n").skip(1);
        let blocks = blocks.map(|block| block.split("\n}\n").next().unwrap());
        for method in
            blocks.flat_map(|block| block.split("    pub(in crate::store) async fn ").skip(1))
        {
            let name = method.split(['(', '<']).next().unwrap();
            let bounded =
                ["answered(", "batched(", "within("].iter().any(|wait| method.contains(wait));
            assert!(bounded || UNBOUNDED.contains(&name), "{name} may wait for ever");
            asked += 1;
        }
    }
    assert!(asked > 70, "only {asked} methods were found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_table_is_looked_at_once_it_has_grown() {
    run(Side::Postgres, looked_at).await;
}

async fn looked_at(bed: Arc<Bed>) {
    async fn known(bed: &Bed, rows: &str) -> bool {
        let table = format!("pg_class WHERE oid = 'handoffs'::regclass AND reltuples {rows}");
        let known = format!("(SELECT 1 FROM {table}) AS known");
        bed.raw().await.count(&known).await == 1
    }
    assert!(bed.store.tend().await.unwrap(), "there is something to look at");
    assert!(!known(&bed, "> 0").await, "empty tables tell nothing");
    let batch = |from: u128, to: u128| (from..=to).map(|n| given(n, n)).collect::<Vec<_>>();
    submit(&bed.store, &batch(1, 300)).await;
    assert!(bed.store.tend().await.unwrap(), "there is always something to look at");
    assert!(known(&bed, "= 300").await);
    submit(&bed.store, &batch(301, 1_500)).await;
    let edges = "INSERT INTO task_edges SELECT tenant, task_id, 'a', 'b', 1, 0, 0, 0, 0, 0, 0, 0 FROM tasks";
    bed.raw().await.run(edges).await.unwrap();
    bed.store.tend().await.unwrap();
    assert!(known(&bed, "= 1500").await, "it had grown by far");
    // How a batch's statements are planned, told by the database itself.
    for sql in [
        "CREATE TABLE told (mode text)",
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           INSERT INTO told VALUES (current_setting('plan_cache_mode')); RETURN NULL; END $$",
        "CREATE TRIGGER tell AFTER INSERT ON handoffs FOR EACH STATEMENT EXECUTE FUNCTION tell()",
    ] {
        bed.raw().await.run(sql).await.unwrap();
    }
    // The look before came too early to find the tables large; this one finds a backlog.
    bed.store.tend().await.unwrap();
    submit(&bed.store, &batch(1_501, 1_501)).await;
    bed.raw().await.run("DELETE FROM outbox").await.unwrap();
    bed.store.tend().await.unwrap();
    submit(&bed.store, &batch(1_502, 1_503)).await;
    submit(&bed.store, &batch(1_504, 1_568)).await;
    let told = |mode: &str| format!("told WHERE mode = '{mode}'");
    assert_eq!(bed.raw().await.count(&told("force_generic_plan")).await, 1, "two handoffs");
    assert_eq!(bed.raw().await.count(&told("auto")).await, 2, "one with a backlog, and 65");
    assert_eq!(bed.raw().await.count("handoffs").await, 1_568);
}
