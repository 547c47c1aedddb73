//! A batch's part in contracts and their dedupe keys.

use super::absent::AbsentRows;
use super::batch::{Bound, Sql, bind, some};
use super::call::Call;
use crate::store::contracts::{CONTRACTS, REPEATS, RepeatRow, load, load_repeat};
use crate::store::rows::Load;
use crate::store::{Needs, Writes};

static CONTRACTS_LOAD: Sql = Sql::new(|| CONTRACTS.shape.select(Bound::Arrays));
static CONTRACTS_INSERT: Sql = Sql::new(|| CONTRACTS.shape.insert(1, Bound::Arrays));
static REPEATS_LOAD: Sql = Sql::new(|| REPEATS.shape.select_locked(Bound::Arrays));
static REPEATS_INSERT: Sql = Sql::new(|| REPEATS.shape.insert(1, Bound::Arrays));
static REPEATS_UPDATE: Sql = Sql::new(|| REPEATS.shape.update());

/// The loads of a batch's rows; existing dedupe rows are locked.
pub(super) fn loads(needs: &Needs) -> Vec<(Load, Call)> {
    let mut loads = Vec::new();
    if !needs.contracts.is_empty() {
        let call = Call::new(CONTRACTS_LOAD.as_str());
        let call =
            bind!(call, needs.contracts, |key| key.0.as_str(), key.1.as_str(), key.2.as_str());
        loads.push((load as Load, call));
    }
    if !needs.repeats.is_empty() {
        let call = Call::new(REPEATS_LOAD.as_str());
        let call = bind!(call, needs.repeats, |key| key.0.as_str(), key.1.as_str());
        loads.push((load_repeat, call));
    }
    loads
}

/// Writes a batch's changes. An unseen dedupe value could not be locked: it is inserted plainly, so that of two
/// brokers with the same value the second conflicts, and then sees the first.
pub(super) fn calls(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let mut calls = Vec::new();
    if !writes.contracts.is_empty() {
        let rows: Vec<_> = writes.contracts.iter().collect();
        calls.push(Call::new(CONTRACTS_INSERT.as_str()).rows(CONTRACTS.columns, &rows));
    }
    let (new, known): (Vec<_>, Vec<_>) =
        writes.repeats.iter().partition(|(key, _)| absent.repeats.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &RepeatRow)>)| {
        let rows: Vec<&RepeatRow> = rows.into_iter().map(|(_, row)| row).collect();
        Call::new(sql.as_str()).rows(REPEATS.columns, &rows)
    };
    calls.extend(some([(&REPEATS_INSERT, new), (&REPEATS_UPDATE, known)]).map(bound));
    calls
}
