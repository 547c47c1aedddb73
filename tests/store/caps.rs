//! Rolling caps: kept with their books, and charged by one at a time.

use std::sync::Arc;

use handoffd::store::{BatchState, Needs, Writes};
use handoffd_domain::cap::{Cap, CapKey, Charge, Window};
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::money::Usd;

use crate::fixture::{transact, write};
use crate::harness::{Bed, acme};

fn key(agent: Option<&str>, window: &str) -> CapKey {
    let agent: Option<AgentId> = agent.map(|id| id.parse().unwrap());
    (acme(), agent, window.parse::<Window>().unwrap())
}

fn cap(agent: Option<&str>, window: &str, usd: Option<i64>) -> Cap {
    Cap::new(key(agent, window), usd.map(Usd), 7, Micros(5))
}

fn caps(rows: &[Cap]) -> Writes {
    Writes {
        caps: rows.iter().map(|cap| (cap.key(), Some(cap.clone()))).collect(),
        ..Writes::default()
    }
}

/// The state that a batch that charges these agents reads.
fn charging(agents: &[&str]) -> Needs {
    let agents = agents.iter().map(|id| id.parse().unwrap()).collect();
    Needs { caps: [(acme(), agents)].into(), ..Needs::default() }
}

pub async fn caps_are_kept_with_their_books_and_seen_by_scope(bed: Arc<Bed>) {
    assert_eq!(bed.store.list_capped().await.unwrap(), []);
    let mut rows =
        [cap(None, "PT1H", Some(1)), cap(None, "P1D", None), cap(Some("a"), "P1D", Some(i64::MAX))];
    rows[1].enter(Charge { spent: Usd(3), reserved: Usd(4), tokens: 0 }, Micros(9));
    rows[2].set_tokens(Some(7));
    rows[2].enter(Charge { tokens: 6, ..Charge::default() }, Micros(9));
    let other = cap(Some("b"), "P1D", Some(2));
    write(&bed.store, caps(&rows)).await.unwrap();
    write(&bed.store, caps(std::slice::from_ref(&other))).await.unwrap();
    assert_eq!(bed.store.list_capped().await.unwrap(), [acme()]);
    let listed = bed.store.list_caps(&acme()).await.unwrap();
    assert_eq!(listed, [&rows[..], std::slice::from_ref(&other)].concat());
    assert_eq!(bed.store.list_caps(&"beta".parse().unwrap()).await.unwrap(), []);
    let of = async |agents: &[&str]| {
        let agents: Vec<AgentId> = agents.iter().map(|id| id.parse().unwrap()).collect();
        bed.store.list_caps_of(&acme(), &agents).await.unwrap()
    };
    assert_eq!(of(&[]).await, rows[..2], "the tenant's own");
    assert_eq!(of(&["a", "nobody"]).await, rows);

    let mut seen = BatchState::default();
    transact(&bed.store, &charging(&["a", "nobody"]), |state| {
        seen = state;
        Writes::default()
    })
    .await
    .unwrap();
    assert_eq!(
        seen.caps.into_values().collect::<Vec<_>>(),
        rows,
        "the other agent's is not asked for"
    );
    assert_eq!(seen.cap_scopes.len(), 3, "two agents, and the tenant");

    let gone = Writes { caps: [(other.key(), None)].into(), ..Writes::default() };
    write(&bed.store, gone).await.unwrap();
    assert_eq!(bed.store.list_caps(&acme()).await.unwrap(), rows);
}

/// Many at once, each adding one to what it saw, also to a cap that none of them found: nothing is lost.
pub async fn of_many_charges_at_once_none_is_lost(bed: Arc<Bed>) {
    write(&bed.store, caps(&[cap(None, "P1D", Some(100))])).await.unwrap();
    let charge = async || {
        let mut tries = 0;
        loop {
            let done = transact(&bed.store, &charging(&["a"]), |state| {
                let begin = |agent| cap(agent, "P1D", None);
                let both = [None, Some("a")].map(|agent| {
                    let known = state.caps.get(&key(agent, "P1D")).cloned();
                    let mut cap = known.unwrap_or_else(|| begin(agent));
                    cap.enter(Charge { spent: Usd(1), ..Charge::default() }, Micros(9));
                    cap
                });
                caps(&both)
            })
            .await;
            match done {
                Ok(_) => return,
                Err(err) => assert!(tries < 50, "{err}"),
            }
            tries += 1;
        }
    };
    futures_util::future::join_all((0..12).map(|_| charge())).await;
    let spent: Vec<Usd> = bed
        .store
        .list_caps(&acme())
        .await
        .unwrap()
        .iter()
        .map(|cap| cap.spent(Micros(9)))
        .collect();
    assert_eq!(spent, [Usd(12), Usd(12)]);
}
