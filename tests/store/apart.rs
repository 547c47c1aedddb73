//! The log in a database of its own: a fault at each step between the two, and what recovers.
//!
//! The faults are the databases' own. A trigger that waits for the commit (or, in the log's database, for the
//! prepare) raises, sleeps, or cuts the other database's connections, at the very step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use handoffd::store::{Store, StoreError};
use tokio::time::Instant;

use crate::databases::{database, on_server};
use crate::fixture::{given, handoff_id, needs, plan, submit, transact};
use crate::harness::{Bed, Side, acme, drop_database, name, open_with};
use crate::tamper::verify;

/// Nothing here waits longer for what must come.
const DEADLINE: Duration = Duration::from_secs(30);

/// Lets a database do something when a transaction that wrote to `table` commits, or is prepared.
async fn at_commit(url: &str, table: &str, what: &str) {
    use sqlx::Connection;
    let mut raw = sqlx::PgConnection::connect(url).await.unwrap();
    let sql = format!(
        "CREATE FUNCTION public.fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER fault AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION public.fault()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut raw).await.unwrap();
}

/// Lets the operations do something when a batch is decided on, and not when one is given up.
async fn at_decision(bed: &Bed, what: &str) {
    at_commit(bed.url(), "two_phase", &format!("IF NEW.committed THEN {what}; END IF")).await;
}

async fn mend(url: &str) {
    use sqlx::Connection;
    let mut raw = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql("DROP FUNCTION public.fault() CASCADE").execute(&mut raw).await.unwrap();
}

fn cut(url: &str) -> String {
    format!(
        "PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
        name(url)
    )
}

async fn submits(store: &Arc<Store>, n: u128) -> Result<(), StoreError> {
    let batch = [given(n, n)];
    transact(store, &needs(&batch), |state| plan(&batch, state)).await.map(drop)
}

/// The number of prepared transactions in the log's database.
async fn prepared(bed: &Bed) -> i64 {
    let here = "(SELECT 1 FROM pg_prepared_xacts WHERE database = current_database()) AS p";
    bed.raw_log().await.count(here).await
}

/// Another broker's look, and a second one: what is found twice is ended.
async fn recover(bed: &Bed) -> u64 {
    let other = bed.second().await;
    let mut seen = BTreeSet::new();
    let first = other.settle_in_doubt(&mut seen).await.unwrap();
    let settled = first + other.settle_in_doubt(&mut seen).await.unwrap();
    other.close().await;
    settled
}

/// The log is well, has just these submissions, and takes more.
async fn sound(bed: &Bed, records: u64, there: &[u128], gone: &[u128]) {
    assert_eq!(prepared(bed).await, 0);
    for n in there {
        let key = (acme(), handoff_id(*n));
        assert!(bed.store.find_handoff(&key).await.unwrap().is_some(), "{n} is there");
        assert!(bed.store.find_receipt(&key).await.unwrap().is_some(), "{n} has its record");
    }
    for n in gone {
        let key = (acme(), handoff_id(*n));
        assert_eq!(bed.store.find_handoff(&key).await.unwrap(), None, "{n} is not there");
        assert_eq!(bed.store.find_receipt(&key).await.unwrap(), None, "{n} has no record");
    }
    assert_eq!(bed.store.list_unrecorded(&acme()).await.unwrap(), [""; 0]);
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, records));
    submit(&bed.store, &[given(9_000, 9_000)]).await;
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, records + 1));
}

/// Waits until something is prepared, which a broker that is about to commit leaves there.
async fn wait_for_prepared(bed: &Bed) {
    let deadline = Instant::now() + DEADLINE;
    while prepared(bed).await == 0 {
        assert!(Instant::now() < deadline, "nothing was prepared");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn a_batch_is_in_both_databases_and_leaves_nothing_between(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 2)]).await;
    assert_eq!(bed.raw().await.count("handoffs").await, 2);
    assert_eq!(bed.raw_log().await.count("audit.records").await, 2);
    assert_eq!(bed.raw().await.count("audit.records").await, 0, "nothing of the log is here");
    sound(&bed, 2, &[1, 2], &[]).await;
}

pub async fn a_log_that_takes_no_batch_leaves_nothing_of_it(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    at_commit(bed.audit(), "audit.records", "RAISE EXCEPTION 'no'").await;
    submits(&bed.store, 2).await.unwrap_err();
    mend(bed.audit()).await;
    sound(&bed, 1, &[1], &[2]).await;
}

pub async fn operations_that_are_cut_once_the_log_is_prepared_leave_nothing(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    at_commit(bed.audit(), "audit.records", &cut(bed.url())).await;
    let err = submits(&bed.store, 2).await.unwrap_err();
    assert!(matches!(err, StoreError::Unavailable(_)), "{err}");
    mend(bed.audit()).await;
    recover(&bed).await;
    sound(&bed, 1, &[1], &[2]).await;
}

pub async fn operations_that_refuse_the_commit_leave_nothing(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    at_decision(&bed, "RAISE EXCEPTION 'no'").await;
    submits(&bed.store, 2).await.unwrap_err();
    assert_eq!(prepared(&bed).await, 0, "given up at once, without anybody's look");
    mend(bed.url()).await;
    sound(&bed, 1, &[1], &[2]).await;
}

/// Cuts the log off between the decision and its own commit; the broker's answer is lost then.
async fn cut_after_the_decision(bed: &Bed, n: u128) {
    let shut = format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", name(bed.audit()));
    let what = format!("EXECUTE '{shut}'; {}", cut(bed.audit()));
    at_decision(bed, &what).await;
    let err = submits(&bed.store, n).await.unwrap_err();
    assert!(matches!(err, StoreError::Unavailable(_) | StoreError::Denied(_)), "{err}");
    mend(bed.url()).await;
    on_server(format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", name(bed.audit()))).await;
    assert_eq!(prepared(bed).await, 1);
}

pub async fn a_log_that_is_cut_after_the_decision_gets_the_batch_later(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    cut_after_the_decision(&bed, 2).await;
    assert_eq!(recover(&bed).await, 1);
    sound(&bed, 2, &[1, 2], &[]).await;
}

pub async fn a_log_that_is_cut_after_the_decision_keeps_its_readers_waiting(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    cut_after_the_decision(&bed, 2).await;
    let key = (acme(), handoff_id(2));
    assert!(bed.store.find_handoff(&key).await.unwrap().is_some(), "the operations show it");
    let asked = tokio::spawn({
        let (store, key) = (bed.store.clone(), key.clone());
        async move {
            let unrecorded = store.list_unrecorded(&acme()).await.unwrap();
            (store.find_receipt(&key).await.unwrap(), unrecorded)
        }
    });
    let held = bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    assert_eq!(held.len(), 1, "the log does not show it yet");
    assert_eq!(recover(&bed).await, 1);
    let (receipt, unrecorded) = asked.await.unwrap();
    assert!(receipt.is_some(), "who asks for its record waits for it");
    assert_eq!(unrecorded, [""; 0], "and no answer says that it has none");
    sound(&bed, 2, &[1, 2], &[]).await;
}

pub async fn a_broker_that_is_slow_is_waited_for(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    at_decision(&bed, "PERFORM pg_sleep(1)").await;
    let slow = tokio::spawn({
        let store = bed.store.clone();
        async move { submits(&store, 2).await }
    });
    wait_for_prepared(&bed).await;
    recover(&bed).await;
    slow.await.unwrap().unwrap();
    mend(bed.url()).await;
    sound(&bed, 2, &[1, 2], &[]).await;
}

pub async fn a_broker_that_dies_before_it_decides_is_given_up(bed: Arc<Bed>) {
    submits(&bed.store, 1).await.unwrap();
    at_decision(&bed, "PERFORM pg_sleep(1); RAISE EXCEPTION 'no'").await;
    let dying = bed.second().await;
    let dies = tokio::spawn(async move { submits(&dying, 2).await });
    wait_for_prepared(&bed).await;
    dies.abort();
    assert!(dies.await.unwrap_err().is_cancelled(), "no task is left to give it up");
    assert_eq!(recover(&bed).await, 1);
    mend(bed.url()).await;
    sound(&bed, 1, &[1], &[2]).await;
}

/// Prepares a part of the log by hand, under a name of this installation.
async fn prepare_by_hand(bed: &Bed) -> String {
    let mut raw = bed.raw_log().await;
    let sql = "SELECT convert_to(replace(installation, '-', ''), 'UTF8') FROM audit.identity";
    let installation = String::from_utf8(raw.blob(sql).await).unwrap();
    let gid = format!("handoffd-{installation}-{}", handoffd::clock::random_id().simple());
    let lock = "SELECT 1 FROM audit.log_heads FOR UPDATE";
    raw.run(&format!("BEGIN; {lock}; PREPARE TRANSACTION '{gid}'")).await.unwrap();
    gid
}

pub async fn what_was_given_up_is_never_committed(bed: Arc<Bed>) {
    let gid = prepare_by_hand(&bed).await;
    assert_eq!(recover(&bed).await, 1);
    let late = format!("INSERT INTO two_phase (gid, committed) VALUES ('{gid}', true)");
    let err = bed.raw().await.run(&late).await.unwrap_err();
    assert_eq!(err.as_database_error().unwrap().code().as_deref(), Some("23505"), "{err}");
    sound(&bed, 0, &[], &[]).await;
}

pub async fn names_that_are_not_ours_are_left_alone(bed: Arc<Bed>) {
    let mut raw = bed.raw_log().await;
    // Names are the server's: no two tests may use the same.
    let some = handoffd::clock::random_id().simple();
    for gid in [format!("another''s {some}"), format!("handoffd-0-{some}")] {
        raw.run(&format!(
            "BEGIN; SELECT 1 FROM audit.identity FOR SHARE; PREPARE TRANSACTION '{gid}'"
        ))
        .await
        .unwrap();
    }
    let own = prepare_by_hand(&bed).await;
    raw.run(&format!("ROLLBACK PREPARED '{own}'")).await.unwrap();
    let odd = format!("{}'' or it", &own[..own.len() - 32]);
    raw.run(&format!("BEGIN; SELECT 1 FROM audit.identity FOR SHARE; PREPARE TRANSACTION '{odd}'"))
        .await
        .unwrap();
    assert_eq!(recover(&bed).await, 0);
    assert_eq!(prepared(&bed).await, 3);
    raw.run(&format!("ROLLBACK PREPARED '{odd}'")).await.unwrap();
    submit(&bed.store, &[given(1, 1)]).await;
}

pub async fn an_eager_recovery_harms_no_batch(bed: Arc<Bed>) {
    const EACH: u128 = 40;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let eager = tokio::spawn({
        let (store, done) = (bed.second().await, done.clone());
        async move {
            let (mut seen, mut met) = (BTreeSet::new(), 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                store.settle_in_doubt(&mut seen).await.unwrap();
                met += seen.len();
            }
            met
        }
    });
    let mut brokers = Vec::new();
    for broker in 0..3 {
        let store = bed.second().await;
        brokers.push(tokio::spawn(async move {
            for n in broker * EACH..(broker + 1) * EACH {
                submit(&store, &[given(n, n)]).await;
            }
        }));
    }
    for broker in brokers {
        broker.await.unwrap();
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(eager.await.unwrap() > 0, "it met batches on their way");
    let all: Vec<u128> = (0..3 * EACH).collect();
    sound(&bed, 3 * EACH as u64, &all, &[]).await;
}

pub async fn decisions_that_are_carried_out_are_let_go(bed: Arc<Bed>) {
    for n in 1..=5 {
        submits(&bed.store, n).await.unwrap();
    }
    assert!(bed.raw().await.count("two_phase").await >= 1);
    recover(&bed).await;
    assert_eq!(bed.raw().await.count("two_phase").await, 0);
    cut_after_the_decision(&bed, 6).await;
    let mut seen = BTreeSet::new();
    bed.store.settle_in_doubt(&mut seen).await.unwrap();
    assert_eq!(bed.raw().await.count("two_phase").await, 1, "this one is still needed");
    assert_eq!(recover(&bed).await, 1);
    sound(&bed, 6, &[6], &[]).await;
}

/// The store is refused, and says that.
async fn refused(url: &str, audit: Option<&str>, why: &str) {
    let outcome = match open_with(url, audit).await {
        Ok(store) => {
            let migrated = store.migrate().await;
            store.close().await;
            migrated.map(drop)
        }
        Err(err) => Err(err),
    };
    let err = outcome.unwrap_err();
    assert!(matches!(&err, StoreError::Refused(text) if text.contains(why)), "{err}");
}

pub async fn databases_that_do_not_belong_together_are_refused(bed: Arc<Bed>) {
    let other = Bed::bare(Side::Apart).await;
    other.store.migrate().await.unwrap();
    refused(bed.url(), Some(other.audit()), "do not belong together").await;
    let empty = database().await;
    refused(&empty, Some(bed.audit()), "do not belong together").await;
    refused(bed.url(), Some(bed.url()), "an operational database").await;
    refused(bed.url(), Some("postgres://::"), "audit.database_url is malformed").await;
    drop_database(&empty).await;
    other.drop_database().await;
}

pub async fn a_log_apart_is_for_good(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    refused(bed.url(), None, "audit.database_url").await;
    // And a log that began beside the operations stays there.
    let plain = Bed::bare(Side::Postgres).await;
    plain.store.migrate().await.unwrap();
    plain.store.ensure_tenant(&acme(), "log-acme", handoffd_domain::ids::Micros(1)).await.unwrap();
    let empty = database().await;
    refused(plain.url(), Some(&empty), "stays there").await;
    drop_database(&empty).await;
    plain.drop_database().await;
    let second = bed.second().await;
    assert_eq!(second.migrate().await.unwrap(), 0, "the pair that belongs together goes on");
    second.close().await;
}

/// Two sets of migrations make the log; a change of one of them needs the same change of both.
pub async fn both_kinds_of_database_have_the_same_log(bed: Arc<Bed>) {
    let described = [
        "SELECT string_agg(concat_ws(' ', table_name, column_name, data_type, is_nullable, collation_name), E'\\n' \
         ORDER BY table_name, column_name) FROM information_schema.columns \
         WHERE table_schema = 'audit' AND table_name <> 'identity'",
        "SELECT string_agg(indexdef, E'\\n' ORDER BY indexdef) FROM pg_indexes \
         WHERE schemaname = 'audit' AND tablename <> 'identity'",
        "SELECT string_agg(pg_get_triggerdef(t.oid), E'\\n' ORDER BY tgname) FROM pg_trigger t \
         JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal AND relnamespace = 'audit'::regnamespace",
        "SELECT string_agg(prosrc, '' ORDER BY proname) FROM pg_proc WHERE pronamespace = 'audit'::regnamespace",
        "SELECT string_agg(concat_ws(' ', attrelid::regclass, attname, attstorage), E'\\n' ORDER BY attrelid::regclass::text, attname) \
         FROM pg_attribute WHERE attrelid = 'audit.records'::regclass AND attnum > 0",
    ];
    for sql in described {
        let sql = format!("SELECT convert_to(({sql}), 'UTF8')");
        let here = String::from_utf8(bed.raw().await.blob(&sql).await).unwrap();
        let apart = String::from_utf8(bed.raw_log().await.blob(&sql).await).unwrap();
        assert_eq!(here, apart, "{sql}");
    }
}

/// Batches a second with the log beside the operations and with the log apart, in turn on one server, by two
/// writers as the ledger has them.
pub async fn what_two_databases_cost() {
    const ROUNDS: usize = 5;
    const SECONDS: u64 = 3;
    let mut beds = Vec::new();
    for side in [Side::Postgres, Side::Apart] {
        let bed = Bed::bare(side).await;
        bed.store.migrate().await.unwrap();
        bed.store
            .ensure_tenant(&acme(), "log-acme", handoffd_domain::ids::Micros(1))
            .await
            .unwrap();
        beds.push(bed);
    }
    let next = Arc::new(std::sync::atomic::AtomicU64::new(1));
    for size in [1, 16, 64] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (bed, rates) in beds.iter().zip(&mut rates) {
                let until = Instant::now() + Duration::from_secs(SECONDS);
                let writers = (0..2).map(|_| write_until(&bed.store, size, until, &next));
                let done: u64 = futures_util::future::join_all(writers).await.into_iter().sum();
                rates.push(done / SECONDS);
            }
        }
        for (bed, rates) in beds.iter().zip(&mut rates) {
            rates.sort_unstable();
            let (least, median, most) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
            eprintln!("{size} a batch, {:?}: {median} batches/s ({least} to {most})", bed.side);
        }
    }
    for bed in beds {
        bed.drop_database().await;
    }
}

async fn write_until(
    store: &Arc<Store>,
    size: u64,
    until: Instant,
    next: &std::sync::atomic::AtomicU64,
) -> u64 {
    let mut done = 0;
    while Instant::now() < until {
        let first = next.fetch_add(size, std::sync::atomic::Ordering::Relaxed);
        let batch: Vec<_> =
            (first..first + size).map(|n| given(u128::from(n), u128::from(n))).collect();
        submit(store, &batch).await;
        done += 1;
    }
    done
}
