//! Verdicts by query: the workflows of unfinished handoffs are asked, again and again, for what they have to say.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::super::answer::{AttemptFailure, FailureClass};
use super::super::{Endpoint, Sink, take_all};
use super::client::{CallError, Client};
use super::{signal, workflow_of};

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

/// Digests of the verdicts that were taken, by handoff: a workflow may repeat itself in every answer.
type Taken = HashMap<String, HashSet<[u8; 32]>>;

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
        let mut taken = Taken::new();
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
        taken.retain(|handoff, _| handoffs.contains(handoff));
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
            let fresh = verdicts?.into_iter().filter_map(|verdict| {
                let handoff = handoff_of(&verdict).filter(|one| handoffs.contains(one))?;
                let digest: [u8; 32] = Sha256::digest(&verdict).into();
                let known = taken.get(&handoff).is_some_and(|known| known.contains(&digest));
                (!known).then(|| ((handoff, digest), Bytes::from(verdict)))
            });
            let batch: Vec<_> = fresh.collect();
            for ((handoff, digest), ..) in take_all(sink, batch, stopping).await {
                taken.entry(handoff).or_default().insert(digest);
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
            // No connection, or nobody there who speaks HTTP: the caller pauses. A query without worker ends by time.
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

fn handoff_of(verdict: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Handoff {
        handoff_id: String,
    }
    serde_json::from_slice::<Handoff>(verdict).ok().map(|one| one.handoff_id)
}
