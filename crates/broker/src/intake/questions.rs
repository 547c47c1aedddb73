//! A receiver asks the sender of its handoff, and the sender answers (specification §10.3).

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::refused::{Refusal, misfit};
use super::spoken::{Addressed, Spoken};
use super::{Intake, actor, heavy};
use crate::archive::{ContentState, Contents};
use crate::directory::Principal;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{Answer, Ask};
use crate::ledger::reply::HandoffReply;
use handoffd_domain::canonical;
use handoffd_domain::failure::{Code, Failure, escaped};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{ContentId, TenantId};
use handoffd_domain::question::{LONGEST_ANSWER, Question};
use handoffd_gate::contract::answer::{check_schema, faults};

/// Work that takes long whatever its input has, as the compiling of a schema does, gets a thread of its own.
const OWN_THREAD: usize = usize::MAX;

/// A receiver's question.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AskBody {
    /// The token that came with the delivery, where the header does not have it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub fencing_token: Option<Value>,
    /// The question: a text, or data of any form.
    #[serde(default, deserialize_with = "stated")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required))]
    pub question: Option<Value>,
    /// A JSON Schema (2020-12) that the answer has to fit; within the bounds of a contract's payload schema.
    #[serde(default, deserialize_with = "stated")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub schema: Option<Value>,
    /// Milliseconds until the handoff expires without an answer, 30 days at most; `delivery.answer_timeout_ms` unless said.
    #[serde(default, deserialize_with = "stated")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, maximum = 2_592_000_000_u64))]
    pub answer_within_ms: Option<Value>,
    /// Members that the request does not have.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub others: Map<String, Value>,
}

/// The answer to a receiver's question.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnswerBody {
    /// The answer: of the form that the question's schema asks for, else free.
    #[serde(default, deserialize_with = "stated")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required))]
    pub answer: Option<Value>,
    /// Which question it answers, from 1; the last one unless said.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    pub number: Option<Value>,
    /// Members that the request does not have.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub others: Map<String, Value>,
}

impl AskBody {
    /// The members that the question's record keeps, as they are stated.
    fn words(self) -> Map<String, Value> {
        let Self { question, schema, answer_within_ms, .. } = self;
        let members =
            [("question", question), ("schema", schema), ("answerWithinMs", answer_within_ms)];
        let stated =
            members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        stated.collect()
    }
}

/// A member as it is stated: `null` is not an absent one.
fn stated<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// A question as a request brings it.
#[derive(Debug)]
pub struct Asked {
    /// The token that came with the delivery.
    pub fencing_token: i64,
    /// Makes a repeated question safe after its answer, too.
    pub idempotency_key: Option<String>,
    pub body: AskBody,
}

/// A handoff, and a caller that may answer its questions.
#[derive(Debug)]
pub struct Answerable<'a> {
    answerer: &'a Principal,
    handoff: Handoff,
}

impl<'a> Answerable<'a> {
    /// A handoff whose questions its sender, or an operator, answers.
    ///
    /// # Errors
    /// The caller is neither.
    pub fn by(answerer: &'a Principal, handoff: Handoff) -> Result<Self, Refusal> {
        if answerer.rights().operates() || answerer.reader().is_sender(&handoff) {
            return Ok(Self { answerer, handoff });
        }
        let why = "only the handoff's sender or an operator may answer";
        Err(Refusal::because(Code::Forbidden, why))
    }
}

impl Intake {
    /// Takes a receiver's question to the ledger.
    ///
    /// # Errors
    /// A member does not fit, the safety rules refuse the question, or the ledger does.
    pub async fn ask(&self, addressed: Addressed<'_>, asked: Asked) -> Result<Spoken, Refusal> {
        let Addressed { receiver, handoff } = addressed;
        let Asked { fencing_token, idempotency_key, body } = asked;
        let within = self.within(&body)?;
        let mut members = body.words();
        let mut warnings = self.redact_words(&mut members)?;
        if let Some(schema) = members.get("schema").filter(|schema| !schema.is_null()).cloned() {
            heavy(OWN_THREAD, move || check_schema(&schema)).await??;
        }
        let now = self.clock.now();
        let words = Value::Object(members);
        let whole = canonical::to_vec(&words);
        let way = (&handoff.target, &handoff.source);
        warnings.extend(self.scan_words(&handoff, way, words, whole.len(), now).await?);
        let ask = Ask {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            fencing_token,
            content: content(&whole, now),
            whole,
            key: idempotency_key,
            answer_by: now.plus(within),
        };
        let call = Call { tenant: receiver.tenant.clone(), at: now, actor: actor(receiver) };
        let HandoffReply { handoff, .. } = self.ledger.handle(call, ask).await?;
        Ok(Spoken { handoff, warnings })
    }

    /// Checks the members of a question; returns the time for its answer.
    fn within(&self, body: &AskBody) -> Result<Duration, Failure> {
        none(&body.others, &["question", "schema", "answerWithinMs"])?;
        if is_blank(body.question.as_ref()) {
            return Err(misfit("/question", "the question is needed: a text, or data"));
        }
        within(body.answer_within_ms.as_ref(), self.limits.answer)
    }

    /// Takes an answer to the ledger.
    ///
    /// # Errors
    /// A member does not fit, the answer does not fit the question's schema, the safety rules refuse it, or the ledger does.
    pub async fn answer(
        &self,
        contents: &Contents,
        answerable: Answerable<'_>,
        idempotency_key: Option<String>,
        body: AnswerBody,
    ) -> Result<Spoken, Refusal> {
        let Answerable { answerer, handoff } = answerable;
        let number = number_of(&body, &handoff)?;
        let question = question_at(&handoff, number)?;
        let mut members: Map<String, Value> =
            body.answer.map(|answer| ("answer".to_owned(), answer)).into_iter().collect();
        let mut warnings = self.redact_words(&mut members)?;
        if question.answer.is_none() && handoff.status == HandoffStatus::InputRequired {
            fits(contents, &handoff.tenant, question, &members).await?;
        }
        let now = self.clock.now();
        let words = Value::Object(members);
        let whole = canonical::to_vec(&words);
        let way = (&handoff.source, &handoff.target);
        warnings.extend(self.scan_words(&handoff, way, words, whole.len(), now).await?);
        let answer = Answer {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            number,
            by: answerer.agent.clone(),
            content: content(&whole, now),
            whole,
            key: idempotency_key,
        };
        let call = Call { tenant: answerer.tenant.clone(), at: now, actor: actor(answerer) };
        let HandoffReply { handoff, .. } = self.ledger.handle(call, answer).await?;
        Ok(Spoken { handoff, warnings })
    }
}

/// The body of a question or an answer; `None` once it was erased or is past its time.
///
/// # Errors
/// The store cannot be read, or the archive does not return the content.
pub async fn words(
    contents: &Contents,
    tenant: &TenantId,
    id: ContentId,
) -> Result<Option<Value>, Refusal> {
    match contents.find(tenant, id).await? {
        ContentState::Whole(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        ContentState::Gone | ContentState::Purged => Ok(None),
        ContentState::Unavailable(_) => Err(Refusal::archive_away()),
    }
}

/// Checks an answer against the schema of its question.
async fn fits(
    contents: &Contents,
    tenant: &TenantId,
    question: &Question,
    members: &Map<String, Value>,
) -> Result<(), Refusal> {
    let question = words(contents, tenant, question.content).await?.ok_or_else(|| {
        Refusal::because(Code::Conflict, "the question was erased, and its schema with it")
    })?;
    let schema = question.get("schema").filter(|schema| !schema.is_null()).cloned();
    let Some((schema, answer)) = schema.zip(members.get("answer").cloned()) else { return Ok(()) };
    let findings = heavy(OWN_THREAD, move || faults(&schema, &answer)).await?;
    if findings.is_empty() { Ok(()) } else { Err(Refusal::Findings(findings)) }
}

/// The question that an answer is for.
fn question_at(handoff: &Handoff, number: u32) -> Result<&Question, Refusal> {
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    place.and_then(|place| handoff.questions.get(place)).ok_or_else(|| {
        if handoff.questions.is_empty() {
            Refusal::because(Code::Conflict, "the receiver asked nothing")
        } else {
            Refusal::NotFound("question")
        }
    })
}

/// Refuses members that the request does not have; `names` has those that it has.
fn none(others: &Map<String, Value>, names: &[&str]) -> Result<(), Failure> {
    match others.keys().next() {
        Some(name) => {
            let why = format!("unknown; known are: {}", names.join(", "));
            Err(misfit(&format!("/{}", escaped(name)), why))
        }
        None => Ok(()),
    }
}

fn is_blank(question: Option<&Value>) -> bool {
    match question {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.trim().is_empty(),
        Some(_) => false,
    }
}

/// The time for the answer.
fn within(stated: Option<&Value>, usual: Duration) -> Result<Duration, Failure> {
    let most = u64::try_from(LONGEST_ANSWER.as_millis()).unwrap_or(u64::MAX);
    let value = match stated {
        None | Some(Value::Null) => return Ok(usual),
        Some(value) => value,
    };
    let ms = value.as_u64().filter(|ms| (1..=most).contains(ms)).ok_or_else(|| {
        let why = format!("must be a whole number of milliseconds from 1 to {most}");
        misfit("/answerWithinMs", why)
    })?;
    Ok(Duration::from_millis(ms))
}

/// The number of the question that an answer is for: the last one unless stated.
fn number_of(body: &AnswerBody, handoff: &Handoff) -> Result<u32, Failure> {
    none(&body.others, &["answer", "number"])?;
    if body.answer.is_none() {
        return Err(misfit("/answer", "the answer is needed"));
    }
    match &body.number {
        None | Some(Value::Null) => Ok(u32::try_from(handoff.questions.len()).unwrap_or(u32::MAX)),
        Some(value) => value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or_else(|| misfit("/number", "must be a question's number, from 1")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_a_text_or_data() {
        for blank in [None, Some(json!(null)), Some(json!("")), Some(json!(" \n"))] {
            assert!(is_blank(blank.as_ref()), "{blank:?}");
        }
        for question in [json!("which court?"), json!(0), json!(false), json!({}), json!([])] {
            assert!(!is_blank(Some(&question)), "{question}");
        }
    }

    #[test]
    fn the_time_for_an_answer_is_whole_milliseconds_up_to_thirty_days() {
        let usual = Duration::from_secs(7);
        let of = |value: Value| within(Some(&value), usual);
        assert_eq!(within(None, usual), Ok(usual));
        assert_eq!(of(json!(null)), Ok(usual));
        assert_eq!(of(json!(1)), Ok(Duration::from_millis(1)));
        assert_eq!(of(json!(2_592_000_000_u64)), Ok(LONGEST_ANSWER));
        for value in [json!(0), json!(-1), json!(1.5), json!("1"), json!(2_592_000_001_u64)] {
            assert_eq!(of(value.clone()).unwrap_err().pointer, "/answerWithinMs", "{value}");
        }
    }

    #[test]
    fn the_words_of_a_question_are_its_members_as_stated_without_the_token() {
        let whole = json!({ "question": "q", "schema": null, "answerWithinMs": 5 });
        let mut sent = whole.clone();
        sent["fencingToken"] = json!(7);
        let body: AskBody = serde_json::from_value(sent).unwrap();
        assert_eq!(Value::Object(body.words()), whole);
        let short: AskBody = serde_json::from_value(json!({ "question": [] })).unwrap();
        assert_eq!(Value::Object(short.words()), json!({ "question": [] }));
    }

    #[test]
    fn a_member_that_a_request_does_not_have_is_named_by_its_escaped_pointer() {
        let body: AnswerBody = serde_json::from_value(json!({ "answer": 1, "a/b": 2 })).unwrap();
        let failure = none(&body.others, &["answer"]).unwrap_err();
        assert_eq!(failure.pointer, "/a~1b");
        assert_eq!(failure.message, "unknown; known are: answer");
    }
}
