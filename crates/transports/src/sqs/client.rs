//! Amazon SQS over its JSON protocol: a request, signed after Signature Version 4, sent through the egress guard.

use std::time::Duration;

use bytes::Bytes;
pub use object_store::aws::AwsCredential;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::time::timeout;

use super::super::exchange::{exchange, foreign};
use handoffd_broker::egress::GuardedClient;
use handoffd_broker::egress::exchange::denied;
use handoffd_broker::transport::AttemptFailure;

/// Largest answer read, in bytes: ten messages of 1 MiB with their attributes, escaped.
const MAX_ANSWER: usize = 32 << 20;
/// The name of the service in a signature's scope.
const SERVICE: &str = "sqs";
const CONTENT: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");

/// A server of SQS, and in whose name it is asked.
#[derive(Clone)]
pub struct Client {
    pub http: GuardedClient,
    /// Scheme, host and port.
    pub endpoint: url::Url,
    pub region: String,
    pub credentials: AwsCredentialProvider,
}

/// Why an action has no result.
#[derive(Debug)]
pub enum CallError {
    /// No answer came, or one that is not of SQS.
    Transport(AttemptFailure),
    /// The broker has no credentials to sign with.
    Credentials(String),
    /// SQS refused.
    Refused(Refusal),
}

/// An error of SQS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The error's name without its namespace, such as `QueueDoesNotExist`.
    pub code: String,
    /// The server's sentence; it can name the account and the queue, never a key.
    pub message: String,
}

impl Client {
    /// Performs an action.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        action: &str,
        input: &Value,
        limit: Duration,
    ) -> Result<Value, CallError> {
        let credential = self.credentials.get_credential();
        let credential = match timeout(limit, credential).await {
            Ok(Ok(credential)) => credential,
            Ok(Err(why)) => return Err(CallError::Credentials(why.to_string())),
            Err(_) => return Err(CallError::Credentials("they did not come in time".to_owned())),
        };
        let body = Bytes::from(input.to_string());
        let headers = signed(&credential, &self.region, &self.endpoint, action, body.clone())
            .map_err(CallError::Credentials)?;
        let request = self
            .http
            .request(Method::POST, self.endpoint.as_str())
            .map_err(|why| CallError::Transport(denied(why)))?
            .headers(headers)
            .body(body);
        let answered = exchange(request, limit, MAX_ANSWER).await;
        let (status, body) = answered.map_err(CallError::Transport)?;
        result(status, &body)
    }
}

/// The headers of a request, with its signature.
///
/// # Errors
/// Why it cannot be signed.
pub fn signed(
    credential: &AwsCredential,
    region: &str,
    endpoint: &url::Url,
    action: &str,
    body: Bytes,
) -> Result<HeaderMap, String> {
    let legal = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !legal(&credential.key_id) || !credential.token.as_deref().is_none_or(legal) {
        return Err("they hold characters that a header cannot carry".to_owned());
    }
    let mut request = HttpRequest::new(HttpRequestBody::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() =
        endpoint.as_str().parse().map_err(|_| "the endpoint is not a URL".to_owned())?;
    let target = HeaderValue::try_from(format!("AmazonSQS.{action}"));
    request.headers_mut().insert(TARGET, target.map_err(|_| "no such action".to_owned())?);
    request.headers_mut().insert(CONTENT_TYPE, CONTENT);
    AwsAuthorizer::new(credential, SERVICE, region)
        .try_authorize(&mut request, None)
        .map_err(|why| why.to_string())?;
    Ok(std::mem::take(request.headers_mut()))
}

/// Reads an answer.
fn result(status: u16, body: &[u8]) -> Result<Value, CallError> {
    let value: Option<Value> =
        if body.is_empty() { Some(Value::Null) } else { serde_json::from_slice(body).ok() };
    if status == 200
        && let Some(value) = value
    {
        return Ok(value);
    }
    match refusal(status, &value.unwrap_or_default()).or_else(|| xml_refusal(status, body)) {
        Some(refusal) => Err(CallError::Refused(refusal)),
        None => Err(CallError::Transport(foreign(status, "SQS"))),
    }
}

fn refusal(status: u16, value: &Value) -> Option<Refusal> {
    let text = |names: [&str; 2]| {
        names.into_iter().find_map(|name| value.get(name)?.as_str()).map(str::to_owned)
    };
    let code = text(["__type", "code"])?;
    Some(Refusal {
        status,
        code: code.rsplit('#').next().unwrap_or_default().to_owned(),
        message: text(["message", "Message"]).unwrap_or_default(),
    })
}

/// Gateways in front of SQS, and other servers, refuse in XML what was asked in JSON.
fn xml_refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    let text = std::str::from_utf8(body).ok()?;
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.trim().to_owned())
    };
    let code = element("Code").filter(|code| !code.is_empty())?;
    Some(Refusal { status, code, message: element("Message").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_in_json_and_in_xml() {
        let json = br#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no such queue"}"#;
        let xml = b"<ErrorResponse><Errors><Error><Code>QueueDoesNotExist</Code>\
                    <Message>no such queue</Message></Error></Errors></ErrorResponse>";
        for body in [&json[..], xml] {
            let Err(CallError::Refused(refusal)) = result(400, body) else { panic!("no refusal") };
            assert_eq!((refusal.status, refusal.code.as_str()), (400, "QueueDoesNotExist"));
            assert_eq!(refusal.message, "no such queue");
        }
        assert!(matches!(result(502, b"<html>bad gateway"), Err(CallError::Transport(_))));
        assert!(matches!(result(200, b"<html>login"), Err(CallError::Transport(_))));
        assert_eq!(result(200, b"").unwrap(), Value::Null);
    }
}
