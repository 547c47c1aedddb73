//! Which tenants have caps: looked up now and then, so that a batch of any other tenant does not ask.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handoffd_domain::ids::{Micros, TenantId};
use handoffd_store::store::{Needs, Result, Store};

/// How old the list may be: a tenant's first cap counts at another broker this late. Changes of a cap that
/// is known, and all that counts against it, are read under its lock.
const TTL: Duration = Duration::from_secs(1);

/// The tenants that have caps, as this broker knows.
#[derive(Default)]
pub(super) struct Capped {
    list: Mutex<CapList>,
}

#[derive(Default)]
struct CapList {
    /// As read last, and when.
    read: Option<(Micros, Arc<BTreeSet<TenantId>>)>,
    /// Caps set here so far: what was read before one of them is not kept after it.
    set: u64,
}

impl Capped {
    /// Leaves out of a batch's needs the caps of tenants that have none.
    pub(super) async fn narrow(&self, store: &Store, at: Micros, needs: &mut Needs) -> Result<()> {
        if needs.caps.is_empty() {
            return Ok(());
        }
        let (read, set) = {
            let list = self.lock();
            (list.read.clone(), list.set)
        };
        let fresh = read.filter(|(then, _)| *then <= at && at.since(*then) < TTL);
        let capped = if let Some((_, capped)) = fresh {
            capped
        } else {
            let capped = Arc::new(store.list_capped().await?.into_iter().collect());
            let mut list = self.lock();
            if list.set == set {
                list.read = Some((at, Arc::clone(&capped)));
            }
            capped
        };
        needs.caps.retain(|tenant, _| capped.contains(tenant));
        Ok(())
    }

    /// A cap was set here.
    pub(super) fn forget(&self) {
        let mut list = self.lock();
        list.read = None;
        list.set += 1;
    }

    fn lock(&self) -> MutexGuard<'_, CapList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
