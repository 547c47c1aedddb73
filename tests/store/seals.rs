//! A change of the master key seals all values under the new key, or none.

use std::sync::Arc;

use handoffd::store::requests::RequestRow;
use handoffd::store::{Sealed, StoreError, Writes};
use handoffd::vault::{AgentSecrets, SecretKind, Vault};
use handoffd_domain::ids::{Micros, TenantId};

use crate::events::subscription_row;
use crate::fixture::{agent, agent_row, write};
use crate::harness::{Bed, acme};

fn vault() -> Vault {
    Vault::from_base64(&Vault::new_master_key()).unwrap()
}

fn place(id: &[u8]) -> String {
    format!("answer/{}", hex::encode(id))
}

/// One secret, sealed for its owner.
fn secrets(vault: &Vault, owner: &str) -> (String, Vec<u8>) {
    let mut secrets = AgentSecrets::default();
    let text = secrets.rotate(vault, &acme(), &owner, SecretKind::Webhook, Micros(1)).unwrap();
    (secrets.to_text(), text.as_bytes().to_vec())
}

/// Whether the vault opens the stored text and returns the secret.
fn opens(vault: &Vault, owner: &str, stored: &str, secret: &[u8]) -> bool {
    let opened =
        AgentSecrets::parse(stored).open(vault, &acme(), &owner, SecretKind::Webhook, Micros(1));
    opened.is_ok_and(|found| found.iter().any(|one| one.to_vec() == secret))
}

/// FINDINGS O10
pub async fn what_is_sealed_is_sealed_anew_as_a_whole_or_not_at_all(bed: Arc<Bed>) {
    let (old, new) = (vault(), vault());
    let mut row = agent_row("a", 1);
    let of_agent;
    (row.secrets, of_agent) = secrets(&old, "a");
    let mut subscription = subscription_row();
    let owner = subscription.id.to_string();
    let of_subscription;
    (subscription.secrets, of_subscription) = secrets(&old, &owner);
    let mut writes = Writes::default();
    writes.agents.insert((acme(), agent("a")), Some(row));
    writes.subscriptions.insert((acme(), subscription.id), Some(subscription.clone()));
    write(&bed.store, writes).await.unwrap();
    let request = |n: u8| RequestRow {
        tenant: acme(),
        id: [n; 32],
        asked: [n; 32],
        answer: None,
        created_at: Micros(1),
    };
    for n in 1..=3 {
        bed.store.begin_request(&request(n)).await.unwrap();
    }
    // The third request has no answer yet.
    for n in 1..=2 {
        let sealed = old.seal(&place(&[n; 32]), &[n]).unwrap();
        bed.store.answer_request(&acme(), &[n; 32], &sealed).await.unwrap();
    }
    let change = |tenant: &TenantId, sealed: Sealed<'_>| {
        let text = |owner: &str, text: &str| {
            let next = AgentSecrets::parse(text).resealed((&old, &new), tenant, &owner).ok()?;
            Some(next.to_text().into_bytes())
        };
        let done = match sealed {
            Sealed::Agent(id, stored) | Sealed::Subscription(id, stored) => text(id, stored),
            Sealed::Answer(id, answer) => old.reseal(&new, &place(id), answer).ok(),
        };
        done.ok_or_else(|| StoreError::Refused("not sealed under this key".to_owned()))
    };
    let stored = async || {
        let agents = bed.store.list_agents(&acme()).await.unwrap();
        let subscriptions = bed.store.list_subscriptions(&acme()).await.unwrap();
        let answer = bed.store.begin_request(&request(2)).await.unwrap().unwrap().answer.unwrap();
        (agents[0].secrets.clone(), subscriptions[0].secrets.clone(), answer)
    };
    let opened_by = |vault: &Vault, (agent, subscription, answer): &(String, String, Vec<u8>)| {
        [
            opens(vault, "a", agent, &of_agent),
            opens(vault, &owner, subscription, &of_subscription),
            vault.open(&place(&[2; 32]), answer).is_ok_and(|text| text.to_vec() == [2]),
        ]
    };
    let facts = [("master-key-check", b"next".to_vec())];
    // The last value cannot be sealed again: the store keeps nothing of the change.
    let broken = |tenant: &TenantId, sealed: Sealed<'_>| match sealed {
        Sealed::Answer(id, _) if id == [2; 32] => Err(StoreError::Refused("broken".to_owned())),
        other => change(tenant, other),
    };
    bed.store.change_seals(&broken, &facts).await.unwrap_err();
    assert_eq!(opened_by(&old, &stored().await), [true; 3]);
    assert_eq!(bed.store.find_fact("master-key-check").await.unwrap(), None);
    assert_eq!(bed.store.change_seals(&change, &facts).await.unwrap(), 4);
    let after = stored().await;
    assert_eq!((opened_by(&new, &after), opened_by(&old, &after)), ([true; 3], [false; 3]));
    assert_eq!(bed.store.find_fact("master-key-check").await.unwrap(), Some(b"next".to_vec()));
    // No value is left under the old key, so a second change fails and changes nothing.
    bed.store.change_seals(&change, &facts).await.unwrap_err();
    assert_eq!(opened_by(&new, &stored().await), [true; 3]);
}
