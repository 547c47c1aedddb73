//! Verdicts by query: the workflows of unfinished handoffs are asked, again and again, for what they have to say.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use reqwest::Method;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::client::{CallError, Client};
use super::{signal, workflow_of};
use crate::inbound::take_all;
use handoffd_broker::transport::{AttemptFailure, Endpoint, FailureClass, Sink};
use handoffd_gate::reply::handoff_of;

/// Bounds one query: a worker that does not run answers none.
const QUERY_LIMIT: Duration = Duration::from_secs(10);
/// Workflows that are asked side by side.
const PARALLEL: usize = 8;

/// The query of an agent's workflows.
pub struct Questions<'a> {
    pub client: &'a Client,
    pub endpoint: &'a Endpoint,
    /// The query's name.
    pub query: &'a str,
    /// The pause between two rounds.
    pub interval: Duration,
}

/// Verdicts of one handoff that are taken. A workflow that says more, and always something new, would fill the memory.
const MOST_OF_A_HANDOFF: usize = 1000;

type VerdictDigest = [u8; 32];

/// Digests of the verdicts that were taken, by handoff: a workflow may repeat itself in every answer.
#[derive(Default)]
struct Taken(HashMap<String, HashSet<VerdictDigest>>);

impl Taken {
    /// The verdicts of one answer that are for these handoffs and are new, no more of each handoff than it may still say.
    fn fresh(
        &self,
        verdicts: Vec<Vec<u8>>,
        handoffs: &HashSet<String>,
    ) -> Vec<((String, VerdictDigest), Bytes)> {
        let mut fresh = Vec::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        for verdict in verdicts {
            let Some(handoff) = handoff_of(&verdict).filter(|one| handoffs.contains(one)) else {
                continue;
            };
            let digest: VerdictDigest = Sha256::digest(&verdict).into();
            let known = self.0.get(&handoff);
            if known.is_some_and(|known| known.contains(&digest)) {
                continue;
            }
            let count =
                counts.entry(handoff.clone()).or_insert_with(|| known.map_or(0, HashSet::len));
            if *count < MOST_OF_A_HANDOFF {
                *count += 1;
                fresh.push(((handoff, digest), Bytes::from(verdict)));
            }
        }
        fresh
    }
}

impl Questions<'_> {
    /// Asks until `stopping`.
    ///
    /// # Errors
    /// The failure by which the server cannot be asked.
    pub async fn ask(
        &self,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let mut taken = Taken::default();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Ok(()),
                round = self.round(&mut taken, sink, stopping) => round?,
            }
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Ok(()),
                () = sleep(self.interval) => {}
            }
        }
    }

    async fn round(
        &self,
        taken: &mut Taken,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let Some(unfinished) = sink.unfinished(&self.endpoint.agent_id).await else {
            return Ok(());
        };
        let handoffs: HashSet<String> =
            unfinished.iter().map(|one| one.handoff_id.to_string()).collect();
        taken.0.retain(|handoff, _| handoffs.contains(handoff));
        let workflows: BTreeSet<String> = unfinished
            .iter()
            .filter_map(|one| {
                let (task, handoff) = (one.task_id.to_string(), one.handoff_id.to_string());
                workflow_of(self.endpoint, &task, &handoff).ok()
            })
            .collect();
        let mut answers = stream::iter(workflows)
            .map(|workflow| async move { self.query(&workflow).await })
            .buffer_unordered(PARALLEL);
        while let Some(verdicts) = answers.next().await {
            let batch = taken.fresh(verdicts?, &handoffs);
            for ((handoff, digest), ..) in take_all(sink, batch, stopping).await {
                taken.0.entry(handoff).or_default().insert(digest);
            }
        }
        Ok(())
    }

    /// The verdicts of one workflow. One that does not answer has none.
    async fn query(&self, workflow: &str) -> Result<Vec<Vec<u8>>, AttemptFailure> {
        let path = ["workflows", workflow, "query", self.query];
        let answer = self.client.call(Method::POST, &path, Some(&json!({})), QUERY_LIMIT).await;
        let why = match answer {
            Ok(answer) => match signal::verdicts(&answer) {
                Ok(verdicts) => return Ok(verdicts),
                Err(why) => why,
            },
            // No connection, or no HTTP server there: the caller pauses. A query without worker ends by time.
            Err(CallError::Transport(failure)) if failure.class != FailureClass::Timeout => {
                return Err(failure);
            }
            Err(CallError::Refused(refusal)) if refusal.is_general() => {
                return Err(CallError::Refused(refusal).failure());
            }
            Err(CallError::Key) => return Err(CallError::Key.failure()),
            Err(CallError::Transport(failure)) => failure.detail,
            Err(CallError::Refused(refusal)) => format!("code {}", refusal.code),
        };
        tracing::debug!(why, "a workflow did not answer the query for verdicts");
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_that_always_says_something_new_is_heard_so_often_and_no_more() {
        let handoffs: HashSet<String> = ["h".to_owned(), "other".to_owned()].into();
        let said = |handoff: &str, n: usize| {
            serde_json::to_vec(&json!({ "handoffId": handoff, "n": n })).unwrap()
        };
        let mut taken = Taken::default();
        let mut heard = 0;
        for round in 0..4 {
            let answer = (0..400).map(|n| said("h", round * 400 + n)).collect();
            for ((handoff, digest), _) in taken.fresh(answer, &handoffs) {
                heard += 1;
                taken.0.entry(handoff).or_default().insert(digest);
            }
        }
        assert_eq!(heard, MOST_OF_A_HANDOFF);
        let answer = vec![said("h", 0), said("other", 1), said("other", 1), said("unknown", 1)];
        let fresh = taken.fresh(answer, &handoffs);
        assert!(fresh.iter().all(|((handoff, _), _)| handoff == "other"));
    }
}
