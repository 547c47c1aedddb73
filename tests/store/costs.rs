//! Costs of a window: the same figures whether a broker reads each record or remembers sums of blocks.

use std::sync::Arc;

use handoffd::costs::{CostQuery, Costs};
use handoffd_domain::ids::Micros;
use handoffd_evidence::costs::{CostFilter, CostKey, CostLine, CostTable};

use crate::fixture::{given, submit};
use crate::harness::{Bed, acme};

/// Records are four hours apart, so that a block of seven crosses the end of a day.
const APART_US: i64 = 4 * 3_600_000_000;

/// More than either count of records in a block of these cases.
const RECORDS: u128 = 40;

fn window(from: i64, until: i64) -> CostQuery {
    CostQuery {
        from: Micros(from),
        until: Micros(until),
        task: None,
        user: None,
        of: CostFilter::default(),
    }
}

fn lines(table: &CostTable) -> Vec<(CostKey, CostLine)> {
    table.lines().map(|(key, line)| (key.clone(), *line)).collect()
}

async fn append(bed: &Bed, numbers: std::ops::RangeInclusive<u128>) {
    let batch: Vec<_> = numbers
        .map(|n| {
            let target = if n % 3 == 0 { "carol" } else { "bob" };
            given(n, n).to(target).at(i64::try_from(n).unwrap() * APART_US)
        })
        .collect();
    submit(&bed.store, &batch).await;
}

pub async fn every_window_has_the_same_costs_with_and_without_remembered_sums(bed: Arc<Bed>) {
    append(&bed, 1..=RECORDS).await;
    let remembering = Costs::new(Arc::clone(&bed.store), 7);
    // No block is ever whole.
    let reading = Costs::new(Arc::clone(&bed.store), 1_000_000);
    let last = i64::try_from(RECORDS).unwrap() + 1;
    for from in 0..=last {
        for until in [from, from + 1, from + 7, from + 8, from + 20, last, i64::MAX / APART_US] {
            // Between two records, and on one.
            for shift in [0, APART_US / 2] {
                let query = window(from * APART_US + shift, until * APART_US);
                let expected = lines(&reading.table(&acme(), &query).await.unwrap());
                let found = lines(&remembering.table(&acme(), &query).await.unwrap());
                assert_eq!(found, expected, "{query:?}");
            }
        }
    }
}

pub async fn records_after_a_remembered_block_count(bed: Arc<Bed>) {
    let costs = Costs::new(Arc::clone(&bed.store), 7);
    let all = window(i64::MIN, i64::MAX);
    for (numbers, expected) in [(1..=9, 9), (10..=15, 15), (16..=40, 40)] {
        append(&bed, numbers).await;
        let table = costs.table(&acme(), &all).await.unwrap();
        assert_eq!(table.total().handoffs, expected);
        let bob = CostFilter { target: "bob".parse().ok(), ..CostFilter::default() };
        let of_bob = CostQuery { of: bob, ..all.clone() };
        let table = costs.table(&acme(), &of_bob).await.unwrap();
        assert_eq!(table.total().handoffs, expected - expected / 3);
    }
}
