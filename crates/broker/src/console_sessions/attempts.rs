//! Bounds attempts to log in: by the client's address, and by the first characters of the key.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use handoffd_domain::ids::Micros;

/// Time over which attempts are counted, in microseconds.
const WINDOW_US: i64 = 60_000_000;

/// Characters of a key that count as its prefix: `hd_` and 48 random bits.
const PREFIX: usize = 11;

/// Most addresses and prefixes that are counted apart. Beyond it all further ones share one count.
const MAX_COUNTED: usize = 10_000;

/// The count of all addresses and prefixes beyond [`MAX_COUNTED`].
const SHARED: u64 = 0;

/// Attempts within the current window of one address or prefix.
#[derive(Debug, Clone, Copy)]
struct Window {
    began: Micros,
    attempts: u32,
}

/// Counts attempts of the last minute in this process.
#[derive(Debug)]
pub struct LoginAttempts {
    /// Most attempts in a minute of one address.
    by_address: u32,
    /// Most attempts in a minute with one prefix.
    by_prefix: u32,
    hashes: RandomState,
    counts: Mutex<HashMap<u64, Window>>,
}

impl LoginAttempts {
    #[must_use]
    pub fn new(by_address: u32, by_prefix: u32) -> Self {
        let (hashes, counts) = (RandomState::new(), Mutex::default());
        Self { by_address, by_prefix, hashes, counts }
    }

    /// Counts an attempt.
    ///
    /// # Errors
    /// The seconds until the next attempt is taken, at least 1.
    pub fn count(&self, address: Option<IpAddr>, key: &str, now: Micros) -> Result<(), u64> {
        let prefix: String = key.chars().take(PREFIX).collect();
        let places = [
            (self.hashes.hash_one(("address", address)), self.by_address),
            (self.hashes.hash_one(("prefix", prefix)), self.by_prefix),
        ];
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = places.map(|(place, most)| note(&mut counts, place, most, now));
        drop(counts);
        match waits.into_iter().max() {
            Some(seconds) if seconds > 0 => Err(seconds),
            _ => Ok(()),
        }
    }
}

/// Counts an attempt at a place; the seconds until the next one is taken, 0 where this one is.
fn note(counts: &mut HashMap<u64, Window>, place: u64, most: u32, now: Micros) -> u64 {
    if counts.len() >= MAX_COUNTED && !counts.contains_key(&place) {
        counts.retain(|_, window| remaining(*window, now) > 0);
    }
    let place =
        if counts.len() >= MAX_COUNTED && !counts.contains_key(&place) { SHARED } else { place };
    let window = counts.entry(place).or_insert(Window { began: now, attempts: 0 });
    if remaining(*window, now) == 0 {
        *window = Window { began: now, attempts: 0 };
    }
    window.attempts = window.attempts.saturating_add(1);
    if window.attempts <= most { 0 } else { remaining(*window, now) }
}

/// Seconds, rounded up, until a window ends. A window from a later time than `now` has ended: the clock was set back.
fn remaining(window: Window, now: Micros) -> u64 {
    let elapsed = now.0.saturating_sub(window.began.0);
    if elapsed < 0 {
        return 0;
    }
    let left = u64::try_from(WINDOW_US.saturating_sub(elapsed)).unwrap_or(0);
    left.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NOW: Micros = Micros(1_800_000_000_000_000);

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    #[test]
    fn an_address_has_its_attempts_in_a_minute_whatever_the_keys() {
        let attempts = LoginAttempts::new(2, 100);
        assert_eq!(attempts.count(Some(address(1)), "hd_first", NOW), Ok(()));
        assert_eq!(
            attempts.count(Some(address(1)), "hd_second", Micros(NOW.0 + 20_000_000)),
            Ok(())
        );
        let third = attempts.count(Some(address(1)), "hd_third", Micros(NOW.0 + 30_500_000));
        assert_eq!(third, Err(30), "the rest of the minute, rounded up");
        assert_eq!(attempts.count(Some(address(2)), "hd_third", NOW), Ok(()), "another address");
        let later = Micros(NOW.0 + 60_000_000);
        assert_eq!(attempts.count(Some(address(1)), "hd_third", later), Ok(()), "the next minute");
    }

    #[test]
    fn a_prefix_has_its_attempts_from_all_addresses() {
        let attempts = LoginAttempts::new(100, 2);
        assert_eq!(attempts.count(Some(address(1)), "hd_abcdefghX", NOW), Ok(()));
        assert_eq!(attempts.count(Some(address(2)), "hd_abcdefghY", NOW), Ok(()));
        assert_eq!(attempts.count(Some(address(3)), "hd_abcdefghZ", NOW), Err(60));
        assert_eq!(attempts.count(Some(address(3)), "hd_other", NOW), Ok(()));
    }

    #[test]
    fn the_counts_are_bounded_in_memory() {
        let attempts = LoginAttempts::new(u32::MAX, 1);
        for n in 0..MAX_COUNTED {
            let _ = attempts.count(None, &format!("{n:011}"), NOW);
        }
        assert!(attempts.counts.lock().unwrap().len() <= MAX_COUNTED + 1);
        assert!(attempts.count(None, "one more key", NOW).is_err(), "all others share a count");
        let later = Micros(NOW.0 + 61_000_000);
        assert_eq!(attempts.count(None, "one more key", later), Ok(()), "old counts are dropped");
    }
}
