//! Decisions on many by the command line: a trial names those that fit, and small calls decide on them with progress between.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::client::{Body, Client, ClientError, Request};
use super::dead_letters::RATE_UNLESS_SAID;
use super::resource::Parts;

/// Seconds between two lines of progress without a terminal.
const QUIET: Duration = Duration::from_secs(10);
/// Time of a call besides its decisions.
const MARGIN: Duration = Duration::from_mins(1);

/// The result of all calls.
struct Outcome {
    /// The answers as one.
    whole: Value,
    began: Instant,
    told: Instant,
}

impl Outcome {
    /// Adds the answer of a call.
    fn add(&mut self, answer: &Value) {
        for name in ["matched", "done", "refused", "failed"] {
            if let Some(count) = answer[name].as_u64() {
                self.whole[name] = (self.whole[name].as_u64().unwrap_or(0) + count).into();
            }
        }
        if let (Some(all), Some(items)) =
            (self.whole["items"].as_array_mut(), answer["items"].as_array())
        {
            all.extend(items.iter().cloned());
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.whole[name].as_u64().unwrap_or(0)
    }

    /// Says how far it is: on a terminal in one line, elsewhere now and then.
    fn tell(&mut self, of: usize, more: bool) {
        let decided = self.whole["items"].as_array().map_or(0, Vec::len);
        let terminal = io::stderr().is_terminal();
        if !terminal && decided < of && self.told.elapsed() < QUIET {
            return;
        }
        self.told = Instant::now();
        let rate = decided as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let at_least = if more { "at least " } else { "" };
        let bad = self.count("failed") + self.count("refused");
        let line =
            format!("handoffd: {decided} of {at_least}{of}, {rate:.0} a second, {bad} not done");
        let _ = if terminal {
            write!(io::stderr(), "\r{line}\u{1b}[K")
        } else {
            writeln!(io::stderr(), "{line}")
        };
    }
}

/// Decides on all that fit, however many: each once.
///
/// # Errors
/// The broker's refusal, or a call that failed; what was decided before stays.
pub(super) async fn all(
    client: &Client,
    request: &Request,
    parts: Parts,
) -> Result<Value, ClientError> {
    let Some(Body::Json(body)) = &request.body else { return client.call(request).await };
    let rate = body["ratePerSecond"].as_u64().unwrap_or(RATE_UNLESS_SAID).max(1);
    let size = usize::try_from(rate).unwrap_or(1);
    let now = Instant::now();
    let mut outcome = Outcome { whole: Value::Null, began: now, told: now };
    let (mut tried, mut count) = (HashSet::new(), 0);
    loop {
        let trial = client.call(&trial_of(request, body, parts)).await?;
        let fit = trial["items"].as_array().cloned().unwrap_or_default();
        let ids = fit.iter().filter_map(|item| item[parts.id].as_str().map(str::to_owned));
        let ids: Vec<String> = ids.filter(|id| tried.insert(id.clone())).collect();
        if ids.is_empty() {
            if outcome.whole.is_null() {
                // Nothing fits: the broker says so itself, or refuses the request.
                return client.call(request).await;
            }
            // All that are left were tried before.
            outcome.whole["more"] = false.into();
            break;
        }
        count += ids.len();
        let more = trial["more"] == true;
        for ids in ids.chunks(size) {
            let answer = client.call(&part_of(request, body, ids)).await?;
            let stopped = answer["more"].clone();
            if outcome.whole.is_null() {
                outcome.whole = answer;
            } else {
                outcome.add(&answer);
            }
            outcome.whole["more"] = stopped;
            outcome.tell(count, more);
            // The broker is stopping.
            if outcome.whole["more"] == true {
                return Ok(outcome.whole);
            }
        }
        if !more {
            break;
        }
    }
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr());
    }
    Ok(outcome.whole)
}

/// The dry run that names those that fit.
fn trial_of(request: &Request, body: &Value, parts: Parts) -> Request {
    let mut trial = body.clone();
    trial["dryRun"] = true.into();
    if let Some(members) = trial.as_object_mut() {
        members.remove("waive");
    }
    let path = parts.trial.split('/').map(str::to_owned).collect();
    Request { path, body: Some(Body::Json(trial)), ..request.clone() }
}

/// The call that decides on these, where they still fit.
fn part_of(request: &Request, body: &Value, ids: &[String]) -> Request {
    let mut part = body.clone();
    if let Some(filter) = part["filter"].as_object_mut() {
        // The broker takes a user or ids; the trial went by the user.
        filter.remove("userRef");
        filter.insert("ids".to_owned(), json!(ids));
    }
    let patience = Some(MARGIN + Duration::from_secs(ids.len() as u64));
    Request { body: Some(Body::Json(part)), patience, ..request.clone() }
}

#[cfg(test)]
mod tests {
    use super::super::super::client::Request;
    use super::*;
    use reqwest::Method;

    #[test]
    fn a_trial_judges_nothing_and_a_part_names_its_ids() {
        let body =
            json!({ "filter": { "userRef": "u", "from": "x" }, "waive": ["/a"], "reason": "r" });
        let request = Request {
            method: Method::POST,
            path: vec!["dead-letters".to_owned(), "release".to_owned()],
            query: Vec::new(),
            body: Some(Body::Json(body.clone())),
            patience: None,
        };
        let parts = Parts { trial: "dead-letters/discard", id: "handoffId" };
        let trial = trial_of(&request, &body, parts);
        assert_eq!(trial.path, ["dead-letters", "discard"]);
        let wanted =
            json!({ "filter": { "userRef": "u", "from": "x" }, "reason": "r", "dryRun": true });
        assert_eq!(trial.body, Some(Body::Json(wanted)));
        let part = part_of(&request, &body, &["1".to_owned()]);
        let wanted =
            json!({ "filter": { "from": "x", "ids": ["1"] }, "waive": ["/a"], "reason": "r" });
        assert_eq!(part.body, Some(Body::Json(wanted)));
        assert_eq!(part.path, request.path);
    }
}
