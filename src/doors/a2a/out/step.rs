//! The next step for a remote task, by its state and its handoff (docs/doors/a2a.md#out). Pure.

use serde_json::{Value, json};

use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::question::MAX_QUESTIONS;
use handoffd_transports::a2a::task::{RemoteState, RemoteTask};

/// The handoff, as far as a step depends on it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HandoffState {
    pub(super) status: HandoffStatus,
    /// Questions that the agent asked so far.
    pub(super) questions: usize,
    /// The last question that the agent asked.
    pub(super) question: Option<LastQuestion>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LastQuestion {
    pub(super) number: u32,
    /// The remote task still says this question, as far as the broker can tell.
    pub(super) stands: bool,
    pub(super) answer: Option<Value>,
    pub(super) delivery: AnswerDelivery,
}

/// How far an answer is on its way to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerDelivery {
    Due,
    /// The agent got it a moment ago, and may not have taken it up.
    Fresh,
    Done,
}

/// The broker's next action.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Wait,
    /// Send the answer of that question to the agent.
    Answer(u32, Value),
    /// With the result, and the broker's note of the parts of the agent's answer that could not be kept.
    Complete(Option<Value>, Option<Value>),
    Fail {
        code: &'static str,
        message: Option<String>,
    },
    Ask(Value),
    /// The handoff ended otherwise: withdraw the remote task.
    Cancel,
    End,
}

/// The question of an agent that waits and says nothing.
const UNSAID: &str = "The agent asks for input.";

/// The next step. Only the present state of a task counts, not its past: a task that goes backwards after its end finds the
/// handoff ended.
pub(super) fn next(ours: &HandoffState, remote: &RemoteTask) -> Step {
    match ours.status {
        // The attempt that made the task is not settled yet.
        HandoffStatus::Pending => Step::Wait,
        status if status.is_final() => {
            if remote.state.is_terminal() {
                Step::End
            } else {
                Step::Cancel
            }
        }
        status => held(ours, status, remote),
    }
}

fn held(ours: &HandoffState, status: HandoffStatus, remote: &RemoteTask) -> Step {
    let fail = |code| Step::Fail { code, message: remote.reason() };
    match remote.state {
        RemoteState::Submitted | RemoteState::Working => Step::Wait,
        RemoteState::Completed => Step::Complete(remote.result(), remote.unreadable.clone()),
        RemoteState::Failed => fail("A2A_TASK_FAILED"),
        RemoteState::Canceled => fail("A2A_TASK_CANCELED"),
        RemoteState::Rejected => fail("A2A_TASK_REJECTED"),
        RemoteState::AuthRequired => fail("A2A_AUTH_REQUIRED"),
        RemoteState::InputRequired if status == HandoffStatus::InputRequired => Step::Wait,
        RemoteState::InputRequired => input(ours, remote),
    }
}

/// The question of a task that waits for input.
pub(super) fn question(remote: &RemoteTask) -> Value {
    remote.words().unwrap_or_else(|| json!(UNSAID))
}

/// The agent waits for input, and no question is open here. An answer goes to the question that it was given for: after a restart
/// the broker does not remember what it sent, and an agent without a history does not tell.
fn input(ours: &HandoffState, remote: &RemoteTask) -> Step {
    let last = ours.question.as_ref().filter(|last| last.stands);
    match last {
        Some(LastQuestion {
            number, answer: Some(answer), delivery: AnswerDelivery::Due, ..
        }) => Step::Answer(*number, answer.clone()),
        Some(LastQuestion { delivery: AnswerDelivery::Fresh, .. }) => Step::Wait,
        _ if ours.questions >= MAX_QUESTIONS => {
            Step::Fail { code: "A2A_TOO_MANY_QUESTIONS", message: None }
        }
        _ => Step::Ask(question(remote)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(state: &str, text: Option<&str>) -> RemoteTask {
        let mut status = json!({ "state": format!("TASK_STATE_{state}") });
        if let Some(text) = text {
            status["message"] = json!({ "parts": [{ "text": text }] });
        }
        let artifacts = json!([{ "artifactId": "a", "parts": [{ "data": { "sum": 7 } }] }]);
        RemoteTask::read(&json!({ "id": "t", "status": status, "artifacts": artifacts })).unwrap()
    }

    fn ours(status: HandoffStatus) -> HandoffState {
        HandoffState { status, questions: 0, question: None }
    }

    fn asked(answer: Option<&str>, delivery: AnswerDelivery) -> HandoffState {
        let status =
            if answer.is_some() { HandoffStatus::Accepted } else { HandoffStatus::InputRequired };
        let answer = answer.map(Into::into);
        let question = LastQuestion { number: 1, stands: true, answer, delivery };
        HandoffState { status, questions: 1, question: Some(question) }
    }

    /// The remote task asks another question.
    fn moved(mut ours: HandoffState) -> HandoffState {
        ours.question.as_mut().unwrap().stands = false;
        ours
    }

    #[test]
    fn each_state_of_a_task_is_a_verdict_or_a_wait() {
        let accepted = ours(HandoffStatus::Accepted);
        assert_eq!(next(&accepted, &remote("SUBMITTED", None)), Step::Wait);
        assert_eq!(next(&accepted, &remote("WORKING", None)), Step::Wait);
        let sum = json!({ "sum": 7 });
        assert_eq!(next(&accepted, &remote("COMPLETED", None)), Step::Complete(Some(sum), None));
        for (state, code) in [
            ("FAILED", "A2A_TASK_FAILED"),
            ("CANCELED", "A2A_TASK_CANCELED"),
            ("REJECTED", "A2A_TASK_REJECTED"),
            ("AUTH_REQUIRED", "A2A_AUTH_REQUIRED"),
        ] {
            let message = Some("why".to_owned());
            let step = Step::Fail { code, message };
            assert_eq!(next(&accepted, &remote(state, Some("why"))), step);
        }
    }

    #[test]
    fn a_question_is_asked_once_and_its_answer_sent_once() {
        let waits = remote("INPUT_REQUIRED", Some("Which?"));
        let question = Step::Ask(json!("Which?"));
        assert_eq!(next(&ours(HandoffStatus::Accepted), &waits), question);
        assert_eq!(next(&asked(None, AnswerDelivery::Due), &waits), Step::Wait);
        let answer = Step::Answer(1, json!("EUR"));
        assert_eq!(next(&asked(Some("EUR"), AnswerDelivery::Due), &waits), answer);
        assert_eq!(next(&asked(Some("EUR"), AnswerDelivery::Fresh), &waits), Step::Wait);
        assert_eq!(next(&asked(Some("EUR"), AnswerDelivery::Done), &waits), question);
        let second = remote("INPUT_REQUIRED", Some("And when?"));
        let next_question = Step::Ask(json!("And when?"));
        let moved_on = moved(asked(Some("EUR"), AnswerDelivery::Fresh));
        assert_eq!(next(&moved_on, &second), next_question);
        // A broker that started anew does not know that it sent the answer of the first question.
        let forgotten = moved(asked(Some("EUR"), AnswerDelivery::Due));
        assert_eq!(next(&forgotten, &second), next_question);
        let silent = remote("INPUT_REQUIRED", None);
        assert_eq!(next(&ours(HandoffStatus::Accepted), &silent), Step::Ask(json!(UNSAID)));
    }

    #[test]
    fn a_handoff_that_asked_all_its_questions_fails() {
        let waits = remote("INPUT_REQUIRED", Some("And?"));
        let mut ours = asked(Some("EUR"), AnswerDelivery::Done);
        ours.questions = MAX_QUESTIONS - 1;
        assert_eq!(next(&ours, &waits), Step::Ask(json!("And?")));
        ours.questions = MAX_QUESTIONS;
        let failed = Step::Fail { code: "A2A_TOO_MANY_QUESTIONS", message: None };
        assert_eq!(next(&ours, &waits), failed);
        // The answer of the last one still goes out.
        let last =
            HandoffState { questions: MAX_QUESTIONS, ..asked(Some("EUR"), AnswerDelivery::Due) };
        assert_eq!(next(&last, &waits), Step::Answer(1, json!("EUR")));
    }

    #[test]
    fn an_ended_handoff_withdraws_a_task_that_lives_and_takes_nothing_more() {
        for status in HandoffStatus::ALL.into_iter().filter(|status| status.is_final()) {
            assert_eq!(next(&ours(status), &remote("WORKING", None)), Step::Cancel, "{status:?}");
            assert_eq!(next(&ours(status), &remote("AUTH_REQUIRED", None)), Step::Cancel);
            assert_eq!(next(&ours(status), &remote("COMPLETED", None)), Step::End, "{status:?}");
        }
        assert_eq!(next(&ours(HandoffStatus::Pending), &remote("COMPLETED", None)), Step::Wait);
    }
}
