//! The second opinion: an external classifier, asked over HTTP about messages that passed the rules
//! (`docs/safety.md`). Each request has a time budget; without an answer `failure_mode` applies.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use serde_json::Value;

use crate::config;
use crate::egress::GuardedClient;
use crate::egress::json_service::JsonService;
use crate::intake::{Opinion, SecondOpinion};
use handoffd_domain::residency::Crossing;
use handoffd_gate::safety::FieldClass;
use handoffd_gate::safety::fields::each_text;

mod wire;

pub use wire::Style;

/// The most requests for one message; the classifier does not see a longer message.
const MAX_REQUESTS: usize = 16;

/// One text of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClassifiedText {
    pointer: String,
    class: FieldClass,
    text: String,
}

/// A classifier's verdict on texts.
#[derive(Debug, Clone, PartialEq)]
struct ClassifierAnswer {
    /// Highest score, from 0 to 1.
    score: f64,
    /// Label of the highest score.
    label: String,
    /// Pointer of the text concerned, if stated.
    pointer: String,
}

pub struct ExternalClassifier {
    service: JsonService,
    settings: config::Classifier,
    crossing: Option<Crossing>,
}

impl ExternalClassifier {
    /// A classifier according to the settings; `None` if they have no address.
    #[must_use]
    pub fn new(
        client: GuardedClient,
        settings: &config::Classifier,
        crossing: Option<Crossing>,
    ) -> Option<Self> {
        (!settings.url.is_empty()).then(|| Self {
            service: JsonService::new(client, &settings.url, &settings.api_key),
            settings: settings.clone(),
            crossing,
        })
    }

    async fn ask_all(&self, message: &Value) -> Result<ClassifierAnswer, String> {
        let parts = parts(message, self.settings.max_bytes);
        if parts.len() > MAX_REQUESTS {
            let most = MAX_REQUESTS * self.settings.max_bytes;
            return Err(format!("the message holds more than {most} bytes of text"));
        }
        let answers = try_join_all(parts.iter().map(|part| self.ask_one(part))).await?;
        let none = ClassifierAnswer { score: 0.0, label: String::new(), pointer: String::new() };
        let worse =
            |a: ClassifierAnswer, b: ClassifierAnswer| if b.score > a.score { b } else { a };
        Ok(answers.into_iter().fold(none, worse))
    }

    async fn ask_one(&self, texts: &[ClassifiedText]) -> Result<ClassifierAnswer, String> {
        let style = self.settings.style;
        let question = wire::question(style, &self.settings.model, texts);
        wire::answer(style, &self.service.ask(&question).await?)
    }
}

#[async_trait]
impl SecondOpinion for ExternalClassifier {
    async fn ask(&self, message: &Value) -> Opinion {
        let budget = Duration::from_millis(self.settings.timeout_ms);
        let asked = tokio::time::timeout(budget, self.ask_all(message)).await;
        match asked {
            Ok(Ok(answer)) if answer.score >= self.settings.threshold => {
                Opinion::Unsafe { label: answer.label, pointer: answer.pointer }
            }
            Ok(Ok(_)) => Opinion::Safe,
            Ok(Err(why)) => Opinion::None(why),
            Err(_) => Opinion::None(format!("no answer within {} ms", budget.as_millis())),
        }
    }

    fn name(&self) -> &str {
        if self.settings.model.is_empty() {
            self.settings.style.name()
        } else {
            &self.settings.model
        }
    }

    fn crossing(&self) -> Option<Crossing> {
        self.crossing.clone()
    }

    fn marked_only(&self) -> bool {
        self.settings.ask == config::ClassifierAsk::Marked
    }

    fn after_commit(&self) -> bool {
        self.settings.when == config::ClassifierWhen::After
    }

    fn required(&self) -> bool {
        self.settings.failure_mode == config::FailureMode::Closed
    }
}

/// The texts of a message in parts of at most `most` bytes; a longer text is split.
fn parts(message: &Value, most: usize) -> Vec<Vec<ClassifiedText>> {
    let mut parts: Vec<Vec<ClassifiedText>> = Vec::new();
    let mut left = 0;
    each_text(message, &mut |place, mut text, class| {
        while !text.is_empty() {
            if left == 0 {
                parts.push(Vec::new());
                left = most;
            }
            let mut cut = text.floor_char_boundary(left);
            if cut == 0 {
                cut = text.chars().next().map_or(1, char::len_utf8);
            }
            let (head, tail) = text.split_at(cut);
            if let Some(part) = parts.last_mut() {
                part.push(ClassifiedText {
                    pointer: place.pointer(),
                    class,
                    text: head.to_owned(),
                });
            }
            left = left.saturating_sub(cut);
            text = tail;
        }
    });
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_text_is_asked_about_in_parts_of_bounded_size() {
        let message = json!({ "taskDescription": "äöü".repeat(10), "currentState": { "a": "b" } });
        let parts = parts(&message, 16);
        let all: String = parts.iter().flatten().map(|text| text.text.as_str()).collect();
        assert!(all.contains(&"äöü".repeat(10)), "{all}");
        for part in &parts {
            assert!(part.iter().map(|text| text.text.len()).sum::<usize>() <= 17, "{part:?}");
        }
        assert!(parts.iter().flatten().any(|text| text.pointer == "/currentState/a"));
        assert!(parts.iter().flatten().any(|text| text.class == FieldClass::Task));
    }
}
