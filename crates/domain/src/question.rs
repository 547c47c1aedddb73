//! A receiver's question to the sender of its handoff, and the answer (specification §10.3). Rows hold ids, times and
//! salted digests; the words are contents of records, so that erasure and retention reach them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{AgentId, ContentId, Micros};

/// The most questions of one handoff.
pub const MAX_QUESTIONS: usize = 32;

/// The longest time for an answer.
pub const LONGEST_ANSWER: Duration = Duration::from_hours(30 * 24);

/// Reason code of a handoff that expired because no answer came in time.
pub const ANSWER_TIMEOUT: &str = "ANSWER_TIMEOUT";

/// Tells a repeated request from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMark {
    /// SHA-256 over the canonical body, salted with the salt of the handoff's own digest, in hex; empty where that salt
    /// was erased.
    pub digest: String,
    /// The request's `Idempotency-Key`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
}

/// How a request relates to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// The same request again.
    Same,
    /// The same `Idempotency-Key` with another body.
    Contradicts,
    Other,
}

impl RequestMark {
    /// Compares a new request with this one. Without a key the body decides, with one the key does.
    #[must_use]
    pub fn likeness(&self, new: &Self) -> Likeness {
        let same_body = !self.digest.is_empty() && self.digest == new.digest;
        let known = self.digest.is_empty() || new.digest.is_empty();
        match (&self.key, &new.key) {
            (Some(old), Some(new)) if old == new => {
                if same_body || known {
                    Likeness::Same
                } else {
                    Likeness::Contradicts
                }
            }
            (_, None) if same_body => Likeness::Same,
            _ => Likeness::Other,
        }
    }
}

/// A question of a receiver to its sender. Its number is its place among those of the handoff, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// The content with question and schema.
    pub content: ContentId,
    /// When it was asked.
    pub asked_at: Micros,
    /// When the handoff expires without an answer.
    pub answer_by: Micros,
    /// The request that asked.
    pub request: RequestMark,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub content: ContentId,
    /// When it was given.
    pub answered_at: Micros,
    /// The agent that gave it; none: a person.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<AgentId>,
    pub request: RequestMark,
}

/// Questions as a column holds them; none for no question.
#[must_use]
pub fn to_text(questions: &[Question]) -> Option<String> {
    // Plain data always serialises.
    (!questions.is_empty()).then(|| serde_json::to_string(questions).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_known_by_its_key_or_by_its_body() {
        let mark = |body: &str, key: Option<&str>| RequestMark {
            digest: body.to_owned(),
            key: key.map(str::to_owned),
        };
        let plain = mark("a", None);
        assert_eq!(plain.likeness(&mark("a", None)), Likeness::Same);
        assert_eq!(plain.likeness(&mark("b", None)), Likeness::Other);
        assert_eq!(plain.likeness(&mark("a", Some("k"))), Likeness::Other);
        let keyed = mark("a", Some("k"));
        assert_eq!(keyed.likeness(&mark("a", Some("k"))), Likeness::Same);
        assert_eq!(keyed.likeness(&mark("b", Some("k"))), Likeness::Contradicts);
        assert_eq!(keyed.likeness(&mark("a", Some("other"))), Likeness::Other);
        assert_eq!(keyed.likeness(&mark("a", None)), Likeness::Same);
    }

    #[test]
    fn without_a_digest_only_a_key_tells() {
        let erased =
            |key: Option<&str>| RequestMark { digest: String::new(), key: key.map(str::to_owned) };
        assert_eq!(erased(None).likeness(&erased(None)), Likeness::Other);
        assert_eq!(erased(Some("k")).likeness(&erased(Some("k"))), Likeness::Same);
    }

    #[test]
    fn questions_survive_the_store() {
        assert_eq!(to_text(&[]), None);
        let request = RequestMark { digest: "00".to_owned(), key: None };
        let content = ContentId(uuid::Uuid::from_u128(1));
        let answer = Answer { content, answered_at: Micros(3), by: None, request: request.clone() };
        let (asked_at, answer_by) = (Micros(1), Micros(2));
        let one = Question { content, asked_at, answer_by, request, answer: Some(answer) };
        let kept: Vec<Question> =
            serde_json::from_str(&to_text(std::slice::from_ref(&one)).unwrap()).unwrap();
        assert_eq!(kept, [one]);
    }
}
