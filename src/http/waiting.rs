//! The waits that requests ask for: `Prefer: wait=N, until=…`, and the parameters `wait` and `until`.

use std::time::Duration;

use axum::http::HeaderMap;

use super::extract::{preference, preferred_wait};
use super::problem::Problem;
pub(super) use handoffd_broker::intake::waiting::{POLL, Until, Wait};

/// The longest wait.
const LONGEST: Duration = Duration::from_mins(1);

fn until_of(text: Option<&str>) -> Result<Until, Problem> {
    match text {
        None | Some("verdict") => Ok(Until::Verdict),
        Some("ended") => Ok(Until::Ended),
        Some("asked") => Ok(Until::Asked),
        Some("answered") => Ok(Until::Answered),
        Some(_) => Err(Problem::invalid("until can be: verdict, ended, asked, answered")),
    }
}

/// The wait of `Prefer: wait=N, until=…` (RFC 7240).
pub(super) fn preferred(headers: &HeaderMap) -> Result<Option<Wait>, Problem> {
    of(preferred_wait(headers)?, preference(headers, "until")?)
}

/// The wait of the query's `wait` and `until`, in seconds.
pub(super) fn asked(wait: Option<u64>, until: Option<&str>) -> Result<Option<Wait>, Problem> {
    let time = wait.map(Duration::from_secs);
    if time.is_some_and(|time| time > LONGEST) {
        return Err(Problem::invalid("wait must be between 0 and 60 seconds"));
    }
    of(time, until)
}

fn of(time: Option<Duration>, until: Option<&str>) -> Result<Option<Wait>, Problem> {
    let target = until_of(until)?;
    if time.is_none() && until.is_some() {
        return Err(Problem::invalid("until takes effect with wait=SECONDS"));
    }
    Ok(time.map(|time| Wait { time, until: target }))
}

/// The value of `Preference-Applied`.
pub(super) fn applied(wait: Wait) -> String {
    let until = match wait.until {
        Until::Verdict => "",
        Until::Ended => ", until=ended",
        Until::Asked => ", until=asked",
        Until::Answered => ", until=answered",
    };
    format!("wait={}{until}", wait.time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_says_for_how_long_and_for_what_or_is_refused() {
        assert!(asked(None, None).unwrap().is_none());
        let wait = asked(Some(5), Some("ended")).unwrap().unwrap();
        assert_eq!((wait.time, wait.until), (Duration::from_secs(5), Until::Ended));
        assert_eq!(applied(wait), "wait=5, until=ended");
        assert_eq!(applied(asked(Some(0), None).unwrap().unwrap()), "wait=0");
        for (wait, until) in [(Some(61), None), (None, Some("ended")), (Some(1), Some("done"))] {
            assert!(asked(wait, until).is_err(), "{wait:?} {until:?}");
        }
    }
}
