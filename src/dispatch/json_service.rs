//! A service outside that answers JSON with JSON, asked through the egress guard: a classifier, a matcher,
//! a model behind either.

use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::egress::GuardedClient;

/// Largest answer read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// A service, and how it is reached.
pub struct JsonService {
    client: GuardedClient,
    url: String,
    /// Sent as a bearer token; empty: none.
    api_key: String,
}

impl JsonService {
    /// At an address.
    #[must_use]
    pub fn new(client: GuardedClient, url: &str, api_key: &str) -> Self {
        Self { client, url: url.to_owned(), api_key: api_key.to_owned() }
    }

    /// Its answer to a question. The caller bounds the time.
    ///
    /// # Errors
    /// Why there is none, in words that name no address.
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

/// An answer's bytes, as long as they are few.
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

/// A question to a chat endpoint as OpenAI has it: what the model is to do, and on what, which it is shown
/// as JSON. It is asked to answer with JSON.
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

/// What a chat endpoint's model answered, as JSON.
///
/// # Errors
/// What is wrong with the answer, in words.
pub fn chat_answer(value: &Value) -> Result<Value, String> {
    let said = value
        .pointer("/choices/0/message/content")
        .and_then(Value::as_str)
        .ok_or_else(|| "its answer has no /choices/0/message/content".to_owned())?;
    serde_json::from_str(said).map_err(|_| "the model did not answer with JSON".to_owned())
}
