//! The suite's tools and its prompt that ask the client before they answer: multi-round requests (SEP-2322).
//!
//! A round is a set of questions. A tool with a sealed state gives the state out with the questions and takes it back with the
//! answers. The seal covers the agent and the tool: a state of another agent or of another tool is refused.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ContentBlock, CreateMessageResult,
    ElicitResult, ElicitationAction, GetPromptRequestParams, GetPromptResponse, InputRequest,
    InputRequiredResult, InputResponses, ListRootsResult, RequestStateCodec, SealOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{library, tools};

/// The prompt that asks.
pub(super) const PROMPT: &str = "test_input_required_result_prompt";
/// How long a client may take for a round.
const STATE_TTL: Duration = Duration::from_mins(10);

pub(super) const TOOLS: [(&str, &str); 8] = [
    ("test_input_required_result_elicitation", "Asks the user's name"),
    ("test_input_required_result_sampling", "Asks the client's model"),
    ("test_input_required_result_list_roots", "Asks for the client's roots"),
    ("test_input_required_result_request_state", "Asks, and gives out a state"),
    ("test_input_required_result_multiple_inputs", "Asks user, model and client at once"),
    ("test_input_required_result_multi_round", "Asks twice"),
    ("test_input_required_result_tampered_state", "Refuses a state that is not its own"),
    ("test_input_required_result_capabilities", "Asks what the client can answer"),
];

/// A question, by the key of its answer.
#[derive(Clone, Copy)]
enum Question {
    /// The user fills in one member of a form.
    User { key: &'static str, message: &'static str, member: &'static str, kind: &'static str },
    /// The client's model answers a prompt.
    Model { key: &'static str, prompt: &'static str, tokens: u32 },
    /// The client lists its roots.
    Roots,
}

impl Question {
    fn key(self) -> &'static str {
        match self {
            Self::User { key, .. } | Self::Model { key, .. } => key,
            Self::Roots => "client_roots",
        }
    }

    fn request(self) -> Result<InputRequest, ErrorData> {
        let request = match self {
            Self::User { message, member, kind, .. } => json!({
                "method": "elicitation/create",
                "params": {
                    "message": message,
                    "requestedSchema": {
                        "type": "object",
                        "properties": { member: { "type": kind } },
                        "required": [member],
                    },
                },
            }),
            Self::Model { prompt, tokens, .. } => json!({
                "method": "sampling/createMessage",
                "params": {
                    "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
                    "maxTokens": tokens,
                },
            }),
            Self::Roots => json!({ "method": "roots/list", "params": {} }),
        };
        serde_json::from_value(request).map_err(internal)
    }

    /// The client has what the question needs.
    fn fits(self, client: &ClientCapabilities) -> bool {
        match self {
            Self::User { .. } => client.elicitation.is_some(),
            Self::Model { .. } => client.sampling.is_some(),
            Self::Roots => client.roots.is_some(),
        }
    }

    fn needs(self) -> ClientCapabilities {
        let client = ClientCapabilities::builder();
        match self {
            Self::User { .. } => client.enable_elicitation().build(),
            Self::Model { .. } => client.enable_sampling().build(),
            Self::Roots => client.enable_roots().build(),
        }
    }

    /// The answer as a text; `None` where it is missing or does not have the form of the question.
    fn answer(self, answers: &InputResponses) -> Option<String> {
        let given = answers.get(self.key())?.clone();
        match self {
            Self::User { member, kind, .. } => {
                let form: ElicitResult = serde_json::from_value(given).ok()?;
                if form.action != ElicitationAction::Accept {
                    return Some("nothing".to_owned());
                }
                match (kind, form.content?.get(member)?) {
                    ("string", Value::String(text)) => Some(text.clone()),
                    ("boolean", Value::Bool(value)) => Some(value.to_string()),
                    _ => None,
                }
            }
            Self::Model { .. } => {
                let sampled: CreateMessageResult = serde_json::from_value(given).ok()?;
                let message = serde_json::to_value(sampled.message).ok()?;
                message["content"]["text"].as_str().map(str::to_owned)
            }
            Self::Roots => {
                let list: ListRootsResult = serde_json::from_value(given).ok()?;
                let uris: Vec<String> = list.roots.into_iter().map(|root| root.uri).collect();
                Some(uris.join(", "))
            }
        }
    }
}

const NAME: Question = Question::User {
    key: "user_name",
    message: "What is your name?",
    member: "name",
    kind: "string",
};
const CONFIRM: Question =
    Question::User { key: "confirm", message: "Please confirm", member: "ok", kind: "boolean" };
const CAPITAL: Question = Question::Model {
    key: "capital_question",
    prompt: "What is the capital of France?",
    tokens: 100,
};
const GREETING: Question =
    Question::Model { key: "greeting", prompt: "Generate a greeting", tokens: 50 };
const STEP_1: Question = Question::User {
    key: "step1",
    message: "Step 1: What is your name?",
    member: "name",
    kind: "string",
};
const STEP_2: Question = Question::User {
    key: "step2",
    message: "Step 2: What is your favorite color?",
    member: "color",
    kind: "string",
};
const CONTEXT: Question = Question::User {
    key: "user_context",
    message: "What context should the prompt use?",
    member: "context",
    kind: "string",
};

/// The questions of a tool, round by round.
struct Dialogue {
    rounds: &'static [&'static [Question]],
    /// A sealed state goes out with the questions, and answers count with it alone.
    sealed: bool,
    /// The dialogue leaves out questions that the client cannot answer. Another dialogue refuses the call.
    adapts: bool,
    /// The text before the answers in the result.
    result: &'static str,
}

fn dialogue(name: &str) -> Option<Dialogue> {
    let (rounds, sealed, result): (&[&[Question]], bool, &str) = match name {
        "test_input_required_result_elicitation" => (&[&[NAME]], false, "Hello, "),
        "test_input_required_result_sampling" => (&[&[CAPITAL]], false, "The model says: "),
        "test_input_required_result_list_roots" => (&[&[Question::Roots]], false, "The roots: "),
        "test_input_required_result_request_state" => (&[&[CONFIRM]], true, "state-ok: "),
        "test_input_required_result_multiple_inputs" => {
            (&[&[NAME, GREETING, Question::Roots]], true, "The client says: ")
        }
        "test_input_required_result_multi_round" => {
            (&[&[STEP_1], &[STEP_2]], true, "The user says: ")
        }
        "test_input_required_result_tampered_state" => (&[&[CONFIRM]], true, "Confirmed: "),
        "test_input_required_result_capabilities" => {
            (&[&[NAME, CAPITAL, Question::Roots]], true, "The client says: ")
        }
        "test_streaming_elicitation" => (&[&[NAME]], false, "The user says: "),
        PROMPT => (&[&[CONTEXT]], false, "Prompt with context: "),
        _ => return None,
    };
    let adapts = name == "test_input_required_result_capabilities";
    Some(Dialogue { rounds, sealed, adapts, result })
}

/// The rounds of a dialogue that have ended, and their answers.
#[derive(Default, Serialize, Deserialize)]
struct State {
    round: usize,
    answers: Vec<String>,
}

/// The next answer of a dialogue.
enum Step {
    Asks(InputRequiredResult),
    Ends(String),
}

/// The parts of a request that a dialogue reads.
struct Turn<'a> {
    client: &'a ClientCapabilities,
    responses: Option<&'a InputResponses>,
    /// The opened state of the request; `None` in a first round, and in a dialogue without a state.
    state: Option<State>,
}

impl Dialogue {
    fn step(
        &self,
        turn: Turn<'_>,
        seal: impl FnOnce(&State) -> Result<Option<String>, ErrorData>,
    ) -> Result<Step, ErrorData> {
        // Answers without the sealed state do not count.
        let begins = self.sealed && turn.state.is_none();
        let mut state = turn.state.unwrap_or_default();
        let answers = turn.responses.filter(|_| !begins).and_then(|responses| {
            let asked = self.questions(state.round, turn.client).ok()?;
            asked.into_iter().map(|one| one.answer(responses)).collect::<Option<Vec<_>>>()
        });
        if let Some(answers) = answers {
            state.answers.extend(answers);
            state.round += 1;
        }
        if state.round == self.rounds.len() {
            return Ok(Step::Ends(format!("{}{}", self.result, state.answers.join("; "))));
        }
        let mut requests = rmcp::model::InputRequests::new();
        for question in self.questions(state.round, turn.client)? {
            requests.insert(question.key().to_owned(), question.request()?);
        }
        Ok(Step::Asks(InputRequiredResult::new(Some(requests), seal(&state)?)))
    }

    /// A round's questions, all of which the client can answer.
    fn questions(
        &self,
        round: usize,
        client: &ClientCapabilities,
    ) -> Result<Vec<Question>, ErrorData> {
        let all = self.rounds.get(round).copied().unwrap_or_default();
        let (fit, unfit): (Vec<Question>, Vec<Question>) =
            all.iter().partition(|one| one.fits(client));
        match unfit.first() {
            Some(missing) if fit.is_empty() || !self.adapts => {
                Err(ErrorData::missing_required_client_capability(missing.needs()))
            }
            _ => Ok(fit),
        }
    }
}

/// A call of a tool that asks; `None` for any other tool.
pub(super) fn call(
    states: &RequestStateCodec,
    agent: &str,
    request: &CallToolRequestParams,
    client: &ClientCapabilities,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let dialogue = dialogue(&request.name).filter(|_| request.name != PROMPT)?;
    let bound = format!("{agent}/{}", request.name);
    let sealed = request.request_state.as_deref().filter(|_| dialogue.sealed);
    let opened = sealed.map(|sealed| states.open_json_with(sealed, bound.as_bytes())).transpose();
    let turn = opened
        .map(|state| Turn { client, responses: request.input_responses.as_ref(), state })
        .map_err(|why| ErrorData::invalid_params(format!("requestState: {why}"), None));
    let options = SealOptions::new().associated_data(bound.as_bytes()).ttl(STATE_TTL);
    let seal = |state: &State| {
        dialogue
            .sealed
            .then(|| states.seal_json_with(state, &options).map_err(internal))
            .transpose()
    };
    Some(turn.and_then(|turn| dialogue.step(turn, seal)).map(|step| match step {
        Step::Asks(asked) => asked.into(),
        Step::Ends(text) => tools::said(text),
    }))
}

/// The prompt that asks; `None` for any other prompt.
pub(super) fn prompt(
    request: &GetPromptRequestParams,
    client: &ClientCapabilities,
) -> Option<Result<GetPromptResponse, ErrorData>> {
    let dialogue = dialogue(&request.name).filter(|_| request.name == PROMPT)?;
    let turn = Turn { client, responses: request.input_responses.as_ref(), state: None };
    Some(dialogue.step(turn, |_| Ok(None)).map(|step| match step {
        Step::Asks(asked) => asked.into(),
        Step::Ends(text) => library::messages(vec![ContentBlock::text(text)]),
    }))
}

fn internal(why: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(why.to_string(), None)
}
