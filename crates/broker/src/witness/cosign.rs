//! Requests a witness' cosignature: C2SP tlog-witness. The broker proves that the new tree continues the tree the
//! witness cosigned last; the witness verifies that and signs, or answers with the size it has.

use handoffd_store::store::Store;
use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::{Method, StatusCode};
use tokio::sync::Mutex;

use super::{OutgoingHead, PutError};
use crate::egress::GuardedClient;
use crate::tree;
use handoffd_evidence::cosignature::WitnessKey;
use handoffd_evidence::note::Note;

/// Timeout of one tree head at one destination.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer read, in bytes: a size, or a few signature lines.
const MAX_ANSWER: usize = 16 * 1024;

/// Attempts for one head: the first may return the witness' size, and another broker may be first with a newer head.
const TRIES: usize = 3;

/// A client of one witness.
pub struct Cosigner {
    client: GuardedClient,
    url: String,
    key: WitnessKey,
    /// The size last cosigned, by log.
    knows: Mutex<HashMap<String, u64>>,
}

impl Cosigner {
    /// A client for the witness at a submission prefix.
    pub(super) fn new(client: GuardedClient, prefix: &str, key: WitnessKey) -> Self {
        let url = format!("{}/add-checkpoint", prefix.trim_end_matches('/'));
        Self { client, url, key, knows: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        self.key.name()
    }

    /// Requests a cosignature for a head; returns the witness' signature line.
    pub(super) async fn cosign(
        &self,
        store: &Store,
        head: &OutgoingHead,
    ) -> Result<String, PutError> {
        let mut old = self.knows.lock().await.get(&head.log_id).copied().unwrap_or(0);
        for _ in 0..TRIES {
            let (status, answer) = self.ask(store, head, old).await?;
            match status {
                StatusCode::OK => {
                    let line = self.signature(head, &answer)?;
                    self.knows.lock().await.insert(head.log_id.clone(), head.size);
                    return Ok(line);
                }
                StatusCode::CONFLICT => old = Self::known(head, old, &answer)?,
                StatusCode::UNPROCESSABLE_ENTITY => {
                    return Err(PutError::Refused(format!(
                        "it finds that {} records do not continue the {old} that it cosigned",
                        head.size
                    )));
                }
                status => {
                    return Err(PutError::Away(format!(
                        "it answered {status} (404: it does not know this log; 403: nor its key)"
                    )));
                }
            }
        }
        Err(PutError::Away("its size kept moving".to_owned()))
    }

    async fn ask(
        &self,
        store: &Store,
        head: &OutgoingHead,
        old: u64,
    ) -> Result<(StatusCode, String), PutError> {
        let away = |err: &dyn std::fmt::Display| PutError::Away(err.to_string());
        let proof = if old == 0 || old == head.size {
            Vec::new()
        } else {
            tree::consistency(store, &head.tenant, old, head.size)
                .await
                .map_err(|err| away(&err))?
                .ok_or_else(|| away(&"the log is not whole: run handoffd verify"))?
        };
        let mut body = format!("old {old}\n");
        for hash in proof {
            body.push_str(&BASE64.encode(hash));
            body.push('\n');
        }
        body.push('\n');
        body.push_str(&head.note);
        let request = self.client.request(Method::POST, &self.url).map_err(|err| away(&err))?;
        let answer = request.timeout(PATIENCE).body(body).send().await;
        let mut answer = answer.map_err(|err| away(&err.without_url()))?;
        let (status, mut bytes) = (answer.status(), Vec::new());
        while let Some(chunk) = answer.chunk().await.map_err(|err| away(&err.without_url()))? {
            if bytes.len() + chunk.len() > MAX_ANSWER {
                return Err(away(&"its answer is too long"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The size in the witness' answer; accepted only below the head's size.
    fn known(head: &OutgoingHead, asked: u64, answer: &str) -> Result<u64, PutError> {
        let known: u64 = answer.trim().parse().map_err(|_| {
            PutError::Away("it answered 409 without the size that it knows".to_owned())
        })?;
        if known > head.size {
            return Err(PutError::Refused(format!(
                "it has cosigned {known} records of this log, which has {} now: it was cut, or \
                 another broker was faster",
                head.size
            )));
        }
        if known == asked {
            return Err(PutError::Refused(format!(
                "it has cosigned another history of the first {known} records"
            )));
        }
        Ok(known)
    }

    /// The witness' signature line in its answer, once verified.
    fn signature(&self, head: &OutgoingHead, answer: &str) -> Result<String, PutError> {
        let wrong = |err: &dyn std::fmt::Display| PutError::Away(format!("its answer: {err}"));
        let note = Note::parse(&format!("{}{answer}", head.note)).map_err(|err| wrong(&err))?;
        let (signature, _) = self.key.verify(&note).map_err(|err| wrong(&err))?;
        Ok(signature.to_string())
    }
}
