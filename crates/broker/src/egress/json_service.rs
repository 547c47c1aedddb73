//! An external service that answers JSON with JSON through the egress guard: a classifier, a matcher, or a model
//! behind either.

use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::GuardedClient;

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
    #[must_use]
    pub fn new(client: GuardedClient, url: &str, api_key: &str) -> Self {
        Self { client, url: url.to_owned(), api_key: api_key.to_owned() }
    }

    /// Sends a question and returns the answer. The caller bounds the time.
    ///
    /// # Errors
    /// The cause, without an address.
    pub async fn ask(&self, question: &Value) -> Result<Value, String> {
        let body = self.send(question).await?;
        serde_json::from_slice(&body).map_err(|_| "its answer is not JSON".to_owned())
    }

    /// The same of a chat endpoint, which may answer in pieces though it was not asked to: as one answer.
    ///
    /// # Errors
    /// The cause, without an address.
    pub async fn ask_chat(&self, question: &Value) -> Result<Value, String> {
        let body = self.send(question).await?;
        if let Ok(whole) = serde_json::from_slice(&body) {
            return Ok(whole);
        }
        std::str::from_utf8(&body)
            .ok()
            .and_then(streamed)
            .ok_or_else(|| "its answer is neither JSON nor a stream that ended".to_owned())
    }

    /// Reads the document at the service's address. The caller bounds the time.
    ///
    /// # Errors
    /// The cause, without an address.
    pub async fn get(&self) -> Result<Value, String> {
        let request = self
            .client
            .request(Method::GET, &self.url)
            .map_err(|err| err.to_string())?
            .header(header::ACCEPT, "application/json");
        let response = request.send().await.map_err(|err| err.without_url().to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status()));
        }
        let body = body(response).await?;
        // A file that some editors write begins with a mark of its encoding, which a reader may pass over (RFC 8259 §8.1).
        let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&body);
        serde_json::from_slice(text).map_err(|_| "its answer is not JSON".to_owned())
    }

    async fn send(&self, question: &Value) -> Result<Vec<u8>, String> {
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
        body(response).await
    }
}

/// A streamed chat answer (server-sent events with `delta`s) as one; `None` if it is not such a stream, or did not end.
fn streamed(text: &str) -> Option<Value> {
    let (mut said, mut reason, mut usage, mut ended) = (String::new(), None, Value::Null, false);
    for line in text.lines() {
        let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
        if data == "[DONE]" {
            ended = true;
            break;
        }
        let chunk: Value = serde_json::from_str(data).ok()?;
        if let Some(more) = chunk.pointer("/choices/0/delta/content").and_then(Value::as_str) {
            said.push_str(more);
        }
        if let Some(why) = chunk.pointer("/choices/0/finish_reason").and_then(Value::as_str) {
            reason = Some(why.to_owned());
        }
        if let Some(counted) = chunk.get("usage").filter(|usage| usage.is_object()) {
            usage = counted.clone();
        }
    }
    ended.then(|| {
        json!({
            "choices": [{ "message": { "content": said }, "finish_reason": reason }],
            "usage": usage,
        })
    })
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
