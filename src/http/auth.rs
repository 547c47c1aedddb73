//! Authorisation as extractors: a handler's signature names the callers that it admits.
//!
//! A key of role `operator-metadata` is refused by each of them. `Open` and `Masked` around an extractor admit it.

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use tracing::Instrument;

use super::Api;
use super::problem::Problem;
use super::withheld::{Sight, closed_to_metadata};
use handoffd_broker::directory::Principal;
use handoffd_broker::reader::Rights;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;
use handoffd_store::store::Role;

/// Any authenticated caller.
pub struct Caller(pub Principal);

/// Any caller; `None` without a key. A key that is not valid is refused.
pub struct OptionalCaller(pub Option<Principal>);

/// An agent, by its own key.
pub struct AgentCaller {
    pub principal: Principal,
    pub id: AgentId,
}

/// A caller that may change tasks: agent, operator or admin.
pub struct Participant(pub Principal);

/// An operator or admin.
pub struct Operator(pub Principal);

/// A reader of evidence: auditor, operator or admin.
pub struct Auditor(pub Principal);

pub struct Admin(pub Principal);

/// A caller in whose name the broker itself makes a request. An extension of requests within this process: nothing that
/// comes over the network sets it.
#[derive(Debug, Clone)]
pub struct Named(pub Principal);

pub(crate) fn key_of(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer
        .or_else(|| headers.get("x-api-key")?.to_str().ok().map(str::trim))
        .filter(|key| !key.is_empty())
}

/// The caller of a request that was looked up before its handler asks.
#[derive(Debug, Clone)]
struct Identified(Principal);

/// Looks the caller of a request up, and keeps what was found for its handler. A key that is not known, or a store that does
/// not answer, is the handler's to tell.
pub(super) async fn identify(request: &mut Request, api: &Api) -> Option<Principal> {
    if let Some(named) = request.extensions().get::<Named>() {
        return Some(named.0.clone());
    }
    let principal = look_up(request.headers(), api).await.ok()?;
    request.extensions_mut().insert(Identified(principal.clone()));
    Some(principal)
}

/// The caller of a request as it was looked up; `None` without a valid key.
#[must_use]
pub(super) fn identified(extensions: &Extensions) -> Option<&Principal> {
    let named = extensions.get::<Named>().map(|named| &named.0);
    named.or_else(|| extensions.get::<Identified>().map(|known| &known.0))
}

async fn authenticate(parts: &Parts, api: &Api) -> Result<Principal, Problem> {
    match identified(&parts.extensions) {
        Some(principal) => Ok(principal.clone()),
        None => look_up(&parts.headers, api).await,
    }
}

async fn look_up(headers: &HeaderMap, api: &Api) -> Result<Principal, Problem> {
    let unknown = || {
        Problem::new(
            Code::Unauthenticated,
            "send a valid key as `Authorization: Bearer …` or `X-API-Key`",
        )
    };
    let key = key_of(headers).ok_or_else(unknown)?;
    let span = tracing::debug_span!("gate.key", error.type = tracing::field::Empty);
    let looking = async {
        let found = api.intake.directory.authenticate(key).await?;
        found.ok_or_else(|| {
            tracing::Span::current().record("error.type", Code::Unauthenticated.as_str());
            unknown()
        })
    };
    looking.instrument(span).await
}

impl FromRequestParts<Api> for OptionalCaller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match key_of(&parts.headers) {
            Some(_) => authenticate(parts, api).await.map(|principal| Self(Some(principal))),
            None => Ok(Self(None)),
        }
    }
}

pub(super) fn forbidden(who: &str) -> Problem {
    Problem::new(Code::Forbidden, format!("only {who} may do this"))
}

/// An extractor that decides on a caller by its role.
pub trait Admits: Sized {
    /// Whom it admits, for its refusal.
    const WHO: &'static str;
    /// Admits a caller that has the rights of this role.
    fn admit(principal: Principal, rights: Rights) -> Option<Self>;
}

/// Admits whom `E` admits, and as an operator a key of role `operator-metadata`: the answer has no contents.
pub struct Open<E>(pub E);

/// The same, where the answer may have contents: `withheld` takes them out for such a key.
pub struct Masked<E>(pub E);

/// A caller that `E` admits, with an operator's rights for one that reads no contents.
fn admitted<E: Admits>(principal: Principal) -> Result<E, Problem> {
    let rights = match principal.role {
        Role::OperatorMetadata => Role::Operator,
        role => role,
    };
    let rights = Rights::from(rights);
    E::admit(principal, rights).ok_or_else(|| forbidden(E::WHO))
}

/// Any caller of the tenant, for what only passes requests on: the route itself decides.
pub(crate) async fn any_caller(parts: &Parts, api: &Api) -> Result<Principal, Problem> {
    authenticate(parts, api).await
}

impl<E: Admits> FromRequestParts<Api> for Open<E> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let principal = authenticate(parts, api).await?;
        admitted(principal).map(Self)
    }
}

impl<E: Admits> FromRequestParts<Api> for Masked<E> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let principal = authenticate(parts, api).await?;
        Sight::limit(&parts.extensions, &principal);
        admitted(principal).map(Self)
    }
}

macro_rules! extractor {
    ($name:ident, $who:literal, |$principal:ident, $rights:ident| $made:expr) => {
        impl Admits for $name {
            const WHO: &'static str = $who;
            fn admit($principal: Principal, $rights: Rights) -> Option<Self> {
                $made
            }
        }

        impl FromRequestParts<Api> for $name {
            type Rejection = Problem;
            async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
                let principal = authenticate(parts, api).await?;
                let rights = principal.rights();
                if !rights.reads_contents() {
                    return Err(closed_to_metadata());
                }
                Self::admit(principal, rights).ok_or_else(|| forbidden($who))
            }
        }
    };
}

extractor!(Caller, "a key of the tenant", |principal, _rights| Some(Self(principal)));
extractor!(AgentCaller, "an agent, with its own key,", |principal, _rights| {
    principal.agent.clone().map(|id| Self { principal, id })
});
extractor!(Participant, "an agent or operator", |principal, rights| {
    rights.takes_part().then_some(Self(principal))
});
extractor!(Operator, "an operator", |principal, rights| {
    rights.operates().then_some(Self(principal))
});
extractor!(Auditor, "an auditor or operator", |principal, rights| {
    (!rights.is_agent()).then_some(Self(principal))
});
extractor!(Admin, "an admin", |principal, rights| {
    rights.administers().then_some(Self(principal))
});
