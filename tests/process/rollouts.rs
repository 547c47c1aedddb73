//! A rollout as the chart's Deployment makes it: a Job migrates, then each of two brokers is replaced under load, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::{Broker, PATIENCE};
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, client, until};

/// `server.stop_timeout_ms` of the chart is 25 s, and the pod has 45 s with the pause before the signal.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

async fn is_ready(broker: &Broker) {
    until(PATIENCE, "the broker is ready", async || {
        let answer = client().get(format!("{}/readyz", broker.base)).send().await;
        usize::from(!answer.is_ok_and(|answer| answer.status() == 200))
    })
    .await;
}

/// `HANDOFFD_TEST_OLD_BINARY` names the build that is replaced; without it both are this one.
pub async fn each_broker_is_replaced_under_load_and_nothing_is_lost(site: Arc<Site>) {
    let old = std::env::var_os("HANDOFFD_TEST_OLD_BINARY");
    // No broker falls silent here, however busy the machine is.
    let patient = [("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "30000")];
    if old.is_some() {
        // The older one makes its own tables, and the Job brings them up to date.
        site.empty().await;
    }
    let mut brokers = Vec::new();
    for _ in 0..2 {
        brokers.push(Broker::start_of(&site, old.as_deref(), &patient).await);
    }
    let seen = Arc::new(Seen::default());
    let url = accepting(Arc::clone(&seen), Duration::from_millis(5)).await;
    let receivers = vec![("webhook", Takes::Webhook(url, 8)), ("puller", Takes::Inbox)];
    let mut world = World::new(&brokers[0], receivers).await;
    world.seen = seen;
    let world = Arc::new(world);
    let mut load = Load::start(&world, &[&brokers[0].base, &brokers[1].base], 3);
    load.pull("puller");
    load.more(60).await;

    let migrated = site.command(&patient).arg("migrate").output().await.unwrap();
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    load.more(30).await;

    for (place, broker) in brokers.iter_mut().enumerate() {
        // maxSurge 1, maxUnavailable 0: the new one is ready before the old one leaves the Service.
        let fresh = Broker::start(&site, &patient).await;
        is_ready(&fresh).await;
        load.redirect(place, &fresh.base);
        // preStop: what was begun at the old one goes on there, and the new one takes the rest.
        load.more(30).await;
        let mut replaced = std::mem::replace(broker, fresh);
        replaced.signal("TERM").await;
        assert_eq!(replaced.ended(STOPPED_WITHIN).await, Some(0));
        load.more(30).await;
    }
    for broker in &brokers {
        is_ready(broker).await;
    }

    load.finish().await;
    let tally = world.settle_up(&site, &brokers[0]).await;
    let pushed: Vec<_> =
        world.seen.all().into_iter().filter(|delivery| delivery.token > 0).collect();
    let handoffs: BTreeSet<_> = pushed.iter().map(|delivery| &delivery.handoff).collect();
    assert_eq!(pushed.len(), handoffs.len(), "a rollout repeats none: {tally:?}");
    for broker in brokers {
        broker.stop().await;
    }
    site.verify().await;
}
