//! The door as an OAuth resource server (RFC 9728, docs/doors/mcp.md#oauth): its metadata, and callers by a token of the issuer.

use axum::extract::State;
use axum::http::request::Parts;
use serde_json::{Value, json};

use super::PATH;
use crate::http::Api;
use crate::http::auth::{Named, any_caller, key_of};
use crate::http::problem::{Problem, ProblemMore};
use handoffd_broker::directory::Principal;
use handoffd_broker::issuer::{Issuer, TokenFault};
use handoffd_domain::failure::Code;

/// The paths of the door's description for clients; followed by the door's path, as RFC 9728 §3.1 asks for a resource with
/// a path.
pub(super) const METADATA: [&str; 2] =
    ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"];

/// The address of the door, which is the name of the resource.
pub(super) fn resource(api: &Api) -> String {
    let url = api.config.server.public_url.as_ref();
    url.map_or_else(String::new, |url| format!("{}{PATH}", url.as_str().trim_end_matches('/')))
}

/// Protected resource metadata.
pub(super) async fn metadata(State(api): State<Api>) -> axum::Json<Value> {
    let settings = &api.config.doors.mcp.oauth;
    let mut metadata = json!({
        "resource": resource(&api),
        "authorization_servers": [settings.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "handoffd",
    });
    if !settings.scope.is_empty() {
        metadata["scopes_supported"] = json!([settings.scope]);
    }
    axum::Json(metadata)
}

/// The caller of a request: by a token of the issuer where one is set, else by a key of the broker.
pub(super) async fn caller(
    parts: &mut Parts,
    api: &Api,
    issuer: Option<&Issuer>,
) -> Result<Principal, Problem> {
    let Some(issuer) = issuer else {
        return any_caller(parts, api).await;
    };
    let token = key_of(&parts.headers).filter(|key| Issuer::is_token(key));
    let Some(token) = token else {
        let known = any_caller(parts, api).await;
        return known.map_err(|problem| Problem { more: challenge(api, None), ..problem });
    };
    match issuer.caller(token, &api.intake.directory).await {
        Ok(principal) => {
            // The API is asked in the agent's name: it knows no tokens.
            parts.extensions.insert(Named(principal.clone()));
            Ok(principal)
        }
        Err(fault) => {
            tracing::info!(why = %fault, "a token was refused");
            Err(refused(api, &fault))
        }
    }
}

fn refused(api: &Api, fault: &TokenFault) -> Problem {
    let (code, error) = match fault {
        TokenFault::KeysAway | TokenFault::StoreAway => {
            return Problem::new(Code::Unavailable, fault.to_string());
        }
        TokenFault::Scope(_) => (Code::Forbidden, "insufficient_scope"),
        _ => (Code::Unauthenticated, "invalid_token"),
    };
    Problem { more: challenge(api, Some(error)), ..Problem::new(code, fault.to_string()) }
}

/// `WWW-Authenticate`, which tells a client where to begin (RFC 9728 §5.1).
fn challenge(api: &Api, error: Option<&str>) -> Option<Box<ProblemMore>> {
    let url = api.config.server.public_url.as_ref()?;
    let base = url.as_str().trim_end_matches('/');
    let mut challenge =
        format!("Bearer realm=\"handoffd\", resource_metadata=\"{base}{}\"", METADATA[1]);
    if let Some(error) = error {
        challenge = format!("{challenge}, error=\"{error}\"");
    }
    let scope = api.config.doors.mcp.oauth.scope.as_str();
    if !scope.is_empty() {
        challenge = format!("{challenge}, scope=\"{scope}\"");
    }
    let challenge = Some(challenge.into());
    Some(Box::new(ProblemMore { challenge, ..ProblemMore::default() }))
}
