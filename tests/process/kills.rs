//! SIGKILL under load.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_fraction;

use crate::broker::Broker;
use crate::load::Load;
use crate::site::Site;
use crate::world::World;

/// Kills where `HANDOFFD_TEST_ROUNDS` says nothing.
const ROUNDS: usize = 3;

/// The value of `HANDOFFD_TEST_ROUNDS`, or else `few`.
pub fn rounds(few: usize) -> usize {
    std::env::var("HANDOFFD_TEST_ROUNDS").map_or(few, |text| text.parse().unwrap())
}

pub async fn killed_under_load_nothing_acknowledged_is_lost(site: Arc<Site>) {
    let mut broker = Broker::start(&site, &[]).await;
    let world = Arc::new(World::with_backlog(&broker).await);
    let mut load = Load::start(&world, &[&broker.base], 6);
    load.pull("puller");
    for round in 0..rounds(ROUNDS) {
        // A random number of acknowledgements, then anywhere within a commit.
        load.more(5 + (random_fraction() * 60.0) as usize).await;
        tokio::time::sleep(Duration::from_secs_f64(random_fraction() * 0.03)).await;
        broker.kill().await;
        let before = world.count();
        broker = Broker::start(&site, &[]).await;
        load.redirect(0, &broker.base);
        if round % 5 == 4 {
            site.verify().await;
        }
        eprintln!("{:?}: kill {}, {before} acknowledged", site.side, round + 1);
    }
    load.more(5).await;
    load.finish().await;
    world.settle_up(&site, &broker).await;
    broker.stop().await;
    site.verify().await;
}
