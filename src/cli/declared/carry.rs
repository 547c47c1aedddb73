//! The steps of a plan, one after the other, and the secrets that the broker makes on the way.

use std::env::VarError;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::files::Declared;
use super::object::{Key, Kind, SecretRef};
use super::plan::{Plan, Step};
use super::requests::{Secrets, makes_secrets, needed, requests};
use crate::cli::client::{Client, ClientError};

/// A file for secrets that are shown once: lines of JSON, one an object.
pub(super) struct SecretsFile {
    path: PathBuf,
    file: File,
    is_empty: bool,
}

impl SecretsFile {
    /// Makes the file, which only its owner may read.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|err| {
            if err.kind() == io::ErrorKind::AlreadyExists {
                format!("{}: exists, and secrets go into a file of their own", path.display())
            } else {
                format!("{}: {err}", path.display())
            }
        })?;
        Ok(Self { path: path.to_owned(), file, is_empty: true })
    }

    /// Appends a line, which is on the disk when this returns.
    fn append(&mut self, line: &Value) -> Result<(), String> {
        self.is_empty = false;
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.sync_data());
        written.map_err(|err| format!("{}: {err}", self.path.display()))
    }
}

impl Drop for SecretsFile {
    /// A file without a secret goes, so that the next run can make one of that name.
    fn drop(&mut self) {
        if self.is_empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The secrets of each step, read before the first change.
///
/// # Errors
/// Each secret that cannot be read: the object, its name and the reason.
pub(super) fn secrets(plan: &Plan, declared: &Declared) -> Result<Vec<Secrets>, Vec<String>> {
    let mut faults = Vec::new();
    let all = plan
        .steps
        .iter()
        .map(|step| {
            let folder = declared.file(step.key()).and_then(Path::parent);
            let mut read = Secrets::new();
            for (name, from) in needed(step) {
                match secret(&from, folder.unwrap_or_else(|| Path::new("."))) {
                    Ok(text) => _ = read.insert(name, text),
                    Err(why) => faults.push(format!("{}: {name}: {from}: {why}", step.key())),
                }
            }
            read
        })
        .collect();
    if faults.is_empty() { Ok(all) } else { Err(faults) }
}

fn secret(from: &SecretRef, folder: &Path) -> Result<String, String> {
    let text = match from {
        SecretRef::Env(name) => std::env::var(name).map_err(|err| match err {
            VarError::NotPresent => "the variable is not set".to_owned(),
            VarError::NotUnicode(_) => "the variable is not valid UTF-8".to_owned(),
        })?,
        SecretRef::File(path) => {
            std::fs::read_to_string(folder.join(path)).map_err(|err| err.to_string())?
        }
    };
    // The line's end is the editor's, except where a document has lines.
    let text = if text.starts_with("-----BEGIN ") { text } else { text.trim_end().to_owned() };
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text) }
}

/// The result of a plan.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) done: Vec<(&'static str, Key)>,
    /// The step that failed, with the reason.
    pub(super) failed: Option<(&'static str, Key, CarryError)>,
    /// Steps that were not begun.
    pub(super) left: Vec<(&'static str, Key)>,
    /// The broker's warnings: members that it takes and does not hold in full.
    pub(super) warnings: Vec<(Key, Value)>,
}

/// Why a step failed.
pub(super) enum CarryError {
    Api(ClientError),
    /// The object was made, and its secrets could not be written; they are lost.
    Secrets(String),
}

/// Carries a plan out, and stops at the first failure. `told` hears of each step that is done.
pub(super) async fn carry_out(
    client: &Client,
    plan: &Plan,
    secrets: &[Secrets],
    mut out: Option<SecretsFile>,
    mut told: impl FnMut(&Step),
) -> Outcome {
    let mut outcome = Outcome::default();
    for (step, secrets) in plan.steps.iter().zip(secrets) {
        let (action, key) = (step.action.name(), step.key().clone());
        if outcome.failed.is_some() {
            outcome.left.push((action, key));
            continue;
        }
        match one(client, step, secrets, out.as_mut()).await {
            Ok(warnings) => {
                told(step);
                outcome.warnings.extend(warnings.into_iter().map(|one| (key.clone(), one)));
                outcome.done.push((action, key));
            }
            Err(err) => outcome.failed = Some((action, key, err)),
        }
    }
    outcome
}

/// Carries one step out; returns the broker's warnings.
async fn one(
    client: &Client,
    step: &Step,
    secrets: &Secrets,
    mut out: Option<&mut SecretsFile>,
) -> Result<Vec<Value>, CarryError> {
    let mut warnings = Vec::new();
    for request in requests(step, secrets) {
        let answer = client.call(&request).await.map_err(CarryError::Api)?;
        let more = answer.get("warnings").and_then(Value::as_array);
        warnings.extend(more.into_iter().flatten().cloned());
        if let Some(out) = out.as_mut().filter(|_| makes_secrets(step)) {
            out.append(&line(step, &answer)).map_err(CarryError::Secrets)?;
        }
    }
    Ok(warnings)
}

/// The line about the secrets that an answer shows.
fn line(step: &Step, answer: &Value) -> Value {
    let mut line = json!({ "kind": step.key().kind.name(), "name": step.key().name });
    let names = match step.key().kind {
        Kind::Agent => &["apiKey", "signingSecret", "webhookSecret"][..],
        _ => &["subscriptionId", "secret"],
    };
    for name in names {
        if let Some(value) = answer.get(name) {
            line[name] = value.clone();
        }
    }
    line
}
