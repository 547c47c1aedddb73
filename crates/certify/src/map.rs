//! A broker's own paths and words, where they are not the canonical ones.

use std::path::Path;

use serde::Deserialize;

use crate::CertifyError;

/// The mapping file. Each member has the canonical API's value unless stated.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Map {
    /// Path that takes a message.
    pub submit: String,
    /// Path of a handoff; `{id}` is its id.
    pub handoff: String,
    /// Path of a task; `{id}` is its id.
    pub task: String,
    /// Path that registers an agent.
    pub agents: String,
    /// JSON pointer of the new agent's key in the answer to a registration.
    pub api_key: String,
    /// JSON pointer of the new agent's webhook secret.
    pub webhook_secret: String,
    /// JSON pointer of the status of a handoff or task.
    pub status: String,
    /// The broker's words for a handoff's or task's status, each with its canonical word.
    pub statuses: std::collections::BTreeMap<String, String>,
    /// Ids of claims that the broker does not make.
    pub not_claimed: Vec<String>,
}

impl Default for Map {
    fn default() -> Self {
        Self {
            submit: "/handoffs".to_owned(),
            handoff: "/handoffs/{id}".to_owned(),
            task: "/tasks/{id}".to_owned(),
            agents: "/agents".to_owned(),
            api_key: "/apiKey".to_owned(),
            webhook_secret: "/webhookSecret".to_owned(),
            status: "/status".to_owned(),
            statuses: std::collections::BTreeMap::new(),
            not_claimed: Vec::new(),
        }
    }
}

impl Map {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// [`CertifyError::File`]: the file cannot be read, is not YAML, or has a member that the kit does not know.
    pub fn read(path: &Path) -> Result<Self, CertifyError> {
        let wrong = |why: String| CertifyError::File { file: path.display().to_string(), why };
        let text = std::fs::read_to_string(path).map_err(|err| wrong(err.to_string()))?;
        let map: Self = serde_saphyr::from_str(&text).map_err(|err| wrong(err.to_string()))?;
        let unknown =
            |id: &&String| !crate::claims::CLAIMS.iter().any(|claim| claim.id == id.as_str());
        match map.not_claimed.iter().find(unknown) {
            Some(id) => Err(wrong(format!("not_claimed names {id}, which the kit does not know"))),
            None => Ok(map),
        }
    }

    /// The canonical word for a status.
    pub(crate) fn status_word<'a>(&'a self, word: &'a str) -> &'a str {
        self.statuses.get(word).map_or(word, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_file_states_only_what_differs_and_no_unknown_member() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("map.yaml");
        std::fs::write(
            &file,
            "submit: /v2/transfers\nstatuses: {queued: PENDING}\nnot_claimed: [budget]\n",
        )
        .unwrap();
        let map = Map::read(&file).unwrap();
        assert_eq!((map.submit.as_str(), map.task.as_str()), ("/v2/transfers", "/tasks/{id}"));
        assert_eq!(
            (map.status_word("queued"), map.status_word("ACCEPTED")),
            ("PENDING", "ACCEPTED")
        );
        for wrong in ["submitt: /x\n", "not_claimed: [budgett]\n"] {
            std::fs::write(&file, wrong).unwrap();
            assert!(Map::read(&file).unwrap_err().to_string().contains("map.yaml"), "{wrong}");
        }
    }
}
