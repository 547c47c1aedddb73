//! The brokers of a case and what befalls them: kills, ends at named steps, and a database that goes away and comes back.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_fraction;
use handoffd::fault::{Io, Step};

use super::fleet::Fleet;
use crate::proxy::Proxy;
use crate::site::{Side, Site};
use crate::world::COMES_WITHIN;

pub fn below(most: f64) -> f64 {
    random_fraction() * most
}

/// One of several.
pub fn one_of<T: Copy>(of: &[T]) -> T {
    of[(below(of.len() as f64) as usize).min(of.len() - 1)]
}

/// Brokers on one store, which can be cut off from it.
pub struct Rig {
    pub site: Arc<Site>,
    pub fleet: Fleet,
    /// Between the brokers and Postgres.
    proxy: Option<Proxy>,
    /// How often the database was cut off.
    pub cuts: usize,
}

impl Rig {
    /// Starts so many brokers with these settings besides those of every case.
    pub async fn start(site: Arc<Site>, settings: &[(&str, &str)], brokers: usize) -> Self {
        let every = [
            ("HANDOFFD_AUDIT__PUBLISH_INTERVAL_S", "1"),
            ("HANDOFFD_EVENTS__LEASE_MS", "1000"),
            ("HANDOFFD_DATABASE__MAX_CONNECTIONS", "5"),
            ("HANDOFFD_DATABASE__ACQUIRE_TIMEOUT_MS", "1000"),
        ];
        let all = every.iter().chain(settings);
        let mut settings: Vec<(String, String)> =
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let proxy = match site.side {
            Side::Sqlite => None,
            Side::Postgres | Side::Apart => {
                let (proxy, url) = site.behind_a_proxy().await;
                settings.push(("HANDOFFD_DATABASE_URL".to_owned(), url));
                Some(proxy)
            }
        };
        let fleet = Fleet::start(&site, settings, brokers).await;
        Self { site, fleet, proxy, cuts: 0 }
    }

    /// How many brokers there are.
    pub fn brokers(&self) -> usize {
        self.fleet.bases.len()
    }

    /// Kills a broker anywhere within a commit.
    pub async fn kill(&mut self, seat: usize) {
        tokio::time::sleep(Duration::from_secs_f64(below(0.03))).await;
        self.fleet.kill(seat).await;
    }

    /// Starts a dead broker that is to end at `step`, and cuts its database off for a moment.
    pub async fn arm(&mut self, seat: usize, step: Step, passes: u32) {
        let more = self.broken_disk();
        self.fleet.arm(seat, step, passes, &more).await;
        self.cut().await;
    }

    /// Waits until the armed broker has ended at its step; afterwards all live.
    pub async fn comes_to(&mut self, seat: usize, step: Step) {
        let began = tokio::time::Instant::now();
        let came = self.fleet.ends(seat, COMES_WITHIN).await;
        assert!(came, "no broker came to {} in {COMES_WITHIN:?}", step.name());
        println!("came to {} after {:.1} s", step.name(), began.elapsed().as_secs_f64());
        for other in 0..self.brokers() {
            self.fleet.revive(other).await;
        }
    }

    /// On SQLite: some of the armed broker's transactions fail for a while.
    fn broken_disk(&mut self) -> String {
        if self.proxy.is_some() {
            return String::new();
        }
        self.cuts += 1;
        let call = one_of(&Io::ALL);
        // Past what a start needs.
        let (passes, times) = (40 + below(20.0) as usize, 1 + below(6.0) as usize);
        format!("{}={passes}*off->{times}*return->off", call.name())
    }

    /// On Postgres: the server is away for a moment.
    async fn cut(&mut self) {
        if let Some(proxy) = &self.proxy {
            self.cuts += 1;
            tokio::time::sleep(Duration::from_secs_f64(below(0.3))).await;
            proxy.cut();
            tokio::time::sleep(Duration::from_secs_f64(0.05 + below(0.6))).await;
            proxy.mend();
        }
    }
}
