//! The brokers of a case: killed, found dead at a step, and started again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handoffd::fault::Step;
use tokio::sync::watch;

use crate::broker::{Broker, Ended};
use crate::site::Site;

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(10);

/// One place for a broker.
struct Seat {
    broker: Option<Broker>,
    /// The step at which it has to end.
    step: Option<Step>,
}

/// Several brokers on one store.
pub struct Fleet {
    site: Arc<Site>,
    settings: Vec<(String, String)>,
    seats: Vec<Seat>,
    /// The address of each, now and after every move.
    pub bases: Vec<watch::Sender<String>>,
    /// SIGKILLs.
    pub kills: usize,
    /// Ends at named steps.
    pub ends: BTreeMap<&'static str, usize>,
}

impl Fleet {
    /// Starts so many.
    pub async fn start(site: &Arc<Site>, settings: Vec<(String, String)>, count: usize) -> Self {
        let mut fleet = Self {
            site: Arc::clone(site),
            settings,
            seats: Vec::new(),
            bases: Vec::new(),
            kills: 0,
            ends: BTreeMap::new(),
        };
        for seat in 0..count {
            fleet.seats.push(Seat { broker: None, step: None });
            fleet.bases.push(watch::channel(String::new()).0);
            fleet.revive(seat).await;
        }
        fleet
    }

    /// The address of the first broker.
    pub fn base(&self) -> String {
        self.bases[0].borrow().clone()
    }

    /// A broker that serves.
    pub fn first(&self) -> &Broker {
        self.seats[0].broker.as_ref().expect("no broker is dead between rounds")
    }

    /// SIGKILL; it stays dead until it is revived.
    pub async fn kill(&mut self, seat: usize) {
        if let Some(broker) = self.seats[seat].broker.take() {
            broker.kill().await;
            self.kills += 1;
        }
    }

    /// Starts it where it is dead.
    pub async fn revive(&mut self, seat: usize) {
        if self.seats[seat].broker.is_none() {
            let broker = self.launch("").await.unwrap_or_else(|ended| panic!("no start: {ended}"));
            self.seat(seat, broker, None);
        }
    }

    /// Starts a dead one that will end at `step`, the time after it has passed it `passes` times; `more`
    /// are other entries of `FAILPOINTS`.
    pub async fn arm(&mut self, seat: usize, step: Step, passes: u32, more: &str) {
        let points = format!("{}={passes}*off->return;{more}", step.name());
        match self.launch(&points).await {
            Ok(broker) => self.seat(seat, broker, Some(step)),
            Err(ended) => {
                self.count(step, &ended);
                self.revive(seat).await;
            }
        }
    }

    /// Waits for the end of an armed broker and starts it anew; whether it came to its step in time.
    pub async fn ends(&mut self, seat: usize, within: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + within;
        while self.seats[seat].step.is_some() {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            self.tend().await;
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Starts anew who came to its step.
    ///
    /// # Panics
    /// When a broker ended that was not to.
    pub async fn tend(&mut self) {
        for seat in 0..self.seats.len() {
            let Seat { broker: Some(broker), step } = &mut self.seats[seat] else { continue };
            if let Some(ended) = broker.found_dead() {
                let step = step.take().unwrap_or_else(|| panic!("a broker ended: {ended}"));
                self.count(step, &ended);
                self.seats[seat].broker = None;
                self.revive(seat).await;
            }
        }
    }

    /// SIGTERM to all.
    pub async fn stop(self) {
        for seat in self.seats {
            seat.broker.expect("no broker is dead between rounds").stop().await;
        }
    }

    async fn launch(&self, points: &str) -> Result<Broker, Ended> {
        let named = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let settings: Vec<(&str, &str)> = named.chain([("FAILPOINTS", points)]).collect();
        Broker::launch(&self.site, &settings).await
    }

    fn seat(&mut self, seat: usize, broker: Broker, step: Option<Step>) {
        self.bases[seat].send_replace(broker.base.clone());
        self.seats[seat] = Seat { broker: Some(broker), step };
    }

    fn count(&mut self, step: Step, ended: &Ended) {
        assert!(ended.at_a_step(), "it was to end at {}: {ended}", step.name());
        *self.ends.entry(step.name()).or_default() += 1;
    }
}
