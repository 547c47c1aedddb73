//! One call: in whose name, of which agent, and what it asks of the API.

use std::sync::Arc;

use axum::http::request::Parts;

use super::super::client::{ApiClient, PageQuery};
use super::super::state::Standing;
use super::error::{A2aError, ErrorKind, Refused, unread};
use super::task::Shown;
use super::{EXTENSION, EXTENSIONS_HEADER, VERSION, VERSION_HEADER};
use crate::http::Api;
use crate::http::problem::Problem;
use handoffd_broker::directory::{Agents, Principal};
use handoffd_domain::agent::{Agent, Card};
use handoffd_domain::ids::AgentId;
use handoffd_store::store::AgentRow;

/// A call under way.
pub(super) struct Call {
    pub(super) api: Api,
    pub(super) client: ApiClient,
    pub(super) principal: Principal,
    /// The agent that the client speaks to.
    pub(super) agent: Arc<AgentRow>,
    /// Its card.
    pub(super) card: Card,
    /// The tenant's agents.
    pub(super) agents: Arc<Agents>,
    /// The address by which the client reaches the broker.
    pub(super) base: String,
    /// Extensions that the client names.
    pub(super) extensions: Vec<String>,
    /// `Last-Event-ID` of the request.
    pub(super) last_event: Option<String>,
}

/// The version that a request asks for: the header, else the parameter. Empty means 0.3, by the protocol.
pub(super) fn check_version(parts: &Parts) -> Result<(), Refused> {
    let header = parts.headers.get(VERSION_HEADER).and_then(|value| value.to_str().ok());
    let query = parts.uri.query().unwrap_or_default();
    let parameter = url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name.eq_ignore_ascii_case(VERSION_HEADER))
        .map(|(_, value)| value.into_owned());
    let asked = header.map(str::to_owned).filter(|text| !text.trim().is_empty()).or(parameter);
    let asked = asked.as_deref().map(str::trim).filter(|text| !text.is_empty()).unwrap_or("0.3");
    // A patch does not count.
    let minor: Vec<&str> = asked.splitn(3, '.').take(2).collect();
    if minor.join(".") == VERSION {
        return Ok(());
    }
    let why = format!("version {asked} is not served here; send A2A-Version: {VERSION}");
    Err(A2aError::new(ErrorKind::VersionNotSupported, why))
}

/// The extensions that a request names.
pub(super) fn extensions(parts: &Parts) -> Vec<String> {
    let values = parts.headers.get_all(EXTENSIONS_HEADER).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(|uri| uri.trim().to_owned())
        .filter(|uri| !uri.is_empty())
        .collect()
}

impl Call {
    /// Whether the client knows the broker's extension.
    pub(super) fn knows_extension(&self) -> bool {
        self.extensions.iter().any(|uri| uri == EXTENSION)
    }

    /// The agent's id.
    pub(super) fn target(&self) -> &str {
        self.agent.agent.agent_id.as_str()
    }

    /// Whether an agent's allowlist reaches this one, or it is this one.
    pub(super) fn reached_by(&self, own: &AgentId) -> bool {
        let agent = &self.agent.agent;
        let reaches = |own: &Agent| own.may_hand_off_to(agent);
        *own == agent.agent_id || self.agents.roster.find(own).is_some_and(reaches)
    }

    pub(super) fn shown(&self, history: Option<usize>) -> Shown {
        Shown { history, artifacts: true, extension: self.knows_extension() }
    }

    /// Reads a task: a handoff to this agent, after a wait of so many seconds for the client's turn. An agent sees those that it
    /// sends.
    pub(super) async fn read(&self, id: &str, seconds: u64) -> Result<Standing, Refused> {
        let query = PageQuery {
            include: Some("message,questions"),
            wait: Some(seconds),
            until: Some("asked"),
        };
        let view = self.client.handoff(id, query).await.map_err(unread)?;
        let own = self.principal.agent.as_ref();
        if view.to_agent.agent_id != self.target()
            || own.is_some_and(|own| view.from_agent.agent_id != own.as_str())
        {
            return Err(A2aError::no_task());
        }
        let mut standing = self.client.succeeded(view, Some("questions")).await;
        standing.withhold_reasons(|words| self.api.intake.is_harmless(words));
        Ok(standing)
    }

    /// The store cannot be reached.
    #[expect(clippy::unnecessary_box_returns, reason = "as errors go on; see `A2aError`")]
    pub(super) fn away<E>(_: E) -> Refused {
        Problem::new(
            handoffd_domain::failure::Code::Unavailable,
            "the store cannot be reached; try again",
        )
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_version_counts_by_its_first_two_numbers_and_none_is_0_3() {
        for (uri, headers) in [
            ("/", vec![("a2a-version", "1.0")]),
            ("/", vec![("A2A-Version", " 1.0.1 ")]),
            ("/?A2A-Version=1.0", vec![]),
            ("/?a2a-version=1.0", vec![("a2a-version", "")]),
        ] {
            assert!(check_version(&parts(uri, &headers)).is_ok(), "{uri} {headers:?}");
        }
        for (uri, headers) in [
            ("/", vec![]),
            ("/", vec![("a2a-version", "")]),
            ("/", vec![("a2a-version", "0.3")]),
            ("/", vec![("a2a-version", "1")]),
            ("/", vec![("a2a-version", "1.1")]),
            ("/?A2A-Version=1.0", vec![("a2a-version", "99.0")]),
        ] {
            let error = check_version(&parts(uri, &headers)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::VersionNotSupported, "{uri} {headers:?}");
        }
    }

    #[test]
    fn extensions_are_separated_by_commas() {
        let named =
            extensions(&parts("/", &[("a2a-extensions", "u:1, u:2"), ("a2a-extensions", "u:3,")]));
        assert_eq!(named, ["u:1", "u:2", "u:3"]);
    }
}
