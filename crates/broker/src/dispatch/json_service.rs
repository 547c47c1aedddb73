//! An external service that answers JSON with JSON through the egress guard: a classifier, a matcher, or a model
//! behind either.

use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::egress::GuardedClient;

/// Largest answer read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// An external JSON service and its address.
pub struct JsonService {
    client: GuardedClient,
    url: String,
    /// Sent as a bearer token; empty means none.
    api_key: String,
}

impl JsonService {
    /// A service at this URL.
    #[must_use]
    pub fn new(client: GuardedClient, url: &str, api_key: &str) -> Self {
        Self { client, url: url.to_owned(), api_key: api_key.to_owned() }
    }

    /// Sends a question and returns the answer. The caller bounds the time.
    ///
    /// # Errors
    /// The cause, without an address.
    pub async fn ask(&self, question: &Value) -> Result<Value, String> {
        let mut request = self
            .client
            .request(Method::POST, &self.url)
            .map_err(|err| err.to_string())?
            .header(header::ACCEPT, "application/json");
        if !self.api_key.is_empty() {
            request = request.bearer_auth(&self.api_key);
        }
        let response =
            request.json(question).send().await.map_err(|err| err.without_url().to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status()));
        }
        let body = body(response).await?;
        serde_json::from_slice(&body).map_err(|_| "its answer is not JSON".to_owned())
    }
}

/// Reads an answer of at most [`MAX_ANSWER`] bytes.
async fn body(mut response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|err| err.without_url().to_string())? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("its answer has more than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A request for a chat endpoint after OpenAI: the task as the system message, `shown` as JSON, and the demand for a
/// JSON answer.
#[must_use]
pub fn chat(model: &str, task: &str, shown: &Value) -> Value {
    json!({
        "model": model,
        "temperature": 0,
        "response_format": { "type": "json_object" },
        "messages": [
            { "role": "system", "content": task },
            { "role": "user", "content": shown.to_string() },
        ],
    })
}

/// The JSON answer of a chat endpoint's model.
///
/// # Errors
/// The defect of the answer.
pub fn chat_answer(value: &Value) -> Result<Value, String> {
    let said = value
        .pointer("/choices/0/message/content")
        .and_then(Value::as_str)
        .ok_or_else(|| "its answer has no /choices/0/message/content".to_owned())?;
    serde_json::from_str(said).map_err(|_| "the model did not answer with JSON".to_owned())
}
