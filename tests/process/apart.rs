//! A broker that dies between the operations and a log in another database, at each step, again and again;
//! the next start, or another broker, ends what it left.

use std::sync::Arc;
use std::time::Duration;

use handoffd::fault::Step;

use crate::broker::{Broker, PATIENCE};
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, until};

/// Batches that pass a step before the broker ends there.
const PASSED: [u32; 2] = [3, 17];

async fn world(broker: &Broker) -> Arc<World> {
    let seen = Arc::new(Seen::default());
    let receiver = accepting(Arc::clone(&seen), Duration::from_millis(5)).await;
    let receivers = vec![("hook", Takes::Webhook(receiver, 8)), ("puller", Takes::Inbox)];
    let mut world = World::new(broker, receivers).await;
    world.seen = seen;
    Arc::new(world)
}

fn ends_at(step: Step, passed: u32) -> String {
    format!("{}={passed}*off->return", step.name())
}

/// Each round begins where all is delivered and settled, so that a start by itself commits nothing.
pub async fn killed_at_each_step_the_next_start_ends_it(site: Arc<Site>) {
    let mut broker = Broker::start(&site, &[]).await;
    let world = world(&broker).await;
    for (step, passed) in Step::APART.into_iter().flat_map(|step| PASSED.map(|n| (step, n))) {
        broker.stop().await;
        let faulty = ends_at(step, passed);
        broker = Broker::start(&site, &[("FAILPOINTS", &faulty)]).await;
        let mut load = Load::start(&world, &[&broker.base], 4);
        load.pull("puller");
        assert_eq!(broker.ended(PATIENCE).await, None, "ended by the step, not in order");
        assert_eq!(site.prepared().await, 1, "{}: left between the two", step.name());
        broker = Broker::start(&site, &[]).await;
        assert_eq!(site.prepared().await, 0, "{}: ended by the start", step.name());
        load.redirect(0, &broker.base);
        load.more(5).await;
        load.finish().await;
        world.settle_up(&site, &broker).await;
    }
    broker.stop().await;
    site.verify().await;
}

pub async fn killed_at_each_step_another_broker_ends_it(site: Arc<Site>) {
    let living = Broker::start(&site, &[]).await;
    let world = world(&living).await;
    let mut ended = 0.0;
    for step in Step::APART {
        let faulty = ends_at(step, PASSED[0]);
        let mut dying = Broker::start(&site, &[("FAILPOINTS", &faulty)]).await;
        let mut load = Load::start(&world, &[&dying.base], 4);
        load.pull("puller");
        assert_eq!(dying.ended(PATIENCE).await, None, "ended by the step, not in order");
        let left = async || site.prepared().await;
        until(PATIENCE, "what it left is ended", left).await;
        ended += 1.0;
        until(PATIENCE, "and counted", async || {
            let counted = living.counter("handoff_ledger_batches_in_doubt_ended_total", "").await;
            usize::from(counted < ended)
        })
        .await;
        load.redirect(0, &living.base);
        load.more(10).await;
        load.finish().await;
        world.settle_up(&site, &living).await;
    }
    living.stop().await;
    site.verify().await;
}
