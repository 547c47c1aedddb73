//! More than the receivers take at once. Polling is as good as off here: what is only delivered at
//! the next poll is late, and these cases would not end.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::Broker;
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{COMES_WITHIN, Takes, World, until};

const NO_POLL: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "1800000");

async fn pushed_through(site: Arc<Site>, settings: &[(&str, &str)], most: u32, handoffs: usize) {
    let broker = Broker::start(&site, settings).await;
    let seen = Arc::new(Seen::default());
    let url = accepting(Arc::clone(&seen), Duration::from_millis(2)).await;
    let receivers = ["a", "b", "c", "d"].map(|id| (id, Takes::Webhook(url.clone(), most)));
    let mut world = World::new(&broker, receivers.into()).await;
    world.seen = seen;
    let world = Arc::new(world);
    let mut load = Load::start(&world, &[&broker.base], 16);
    load.more(handoffs).await;
    load.finish().await;
    until(COMES_WITHIN, "nothing waits for a poll", async || {
        world.count() - world.seen.handoffs().len().min(world.count())
    })
    .await;
    let tally = world.settle_up(&site, &broker).await;
    assert_eq!(tally.deliveries, tally.acknowledged, "no faults, so none twice");
    broker.stop().await;
    site.verify().await;
}

pub async fn what_found_its_receiver_full_waits_for_no_poll(site: Arc<Site>) {
    pushed_through(site, &[NO_POLL], 1, 400).await;
}

pub async fn what_found_the_broker_full_waits_for_no_poll(site: Arc<Site>) {
    let full = ("HANDOFFD_DELIVERY__MAX_IN_FLIGHT", "2");
    pushed_through(site, &[NO_POLL, full], 8, 400).await;
}
