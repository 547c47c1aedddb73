//! The router and the OpenAPI document, both made of the route table in `mod.rs`.

use axum::Router;
use axum::handler::Handler;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodFilter, MethodRouter};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, Path};
use utoipa_axum::PathItemExt;
use utoipa_axum::router::OpenApiRouter;

use super::agents::ALIAS;
use super::document::{Published, published};
use super::routing::{get, on};
#[allow(clippy::wildcard_imports, reason = "the route table names a module for each resource")]
use super::*;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "handoffd",
        description = "The handoff broker for multi-agent systems: proves a handoff fit to act on, commits it with evidence, delivers it, takes the receiver's verdict, and can put everything back.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "/", description = "This broker")),
    security(("bearer" = []), ("apiKey" = [])),
    tags(
        (name = "handoffs", description = "Submitting and reading handoffs"),
        (name = "verdicts", description = "Verdicts of receivers"),
        (name = "inbox", description = "Handoffs for receivers that pull"),
        (name = "tasks", description = "Tasks, their checkpoints and budgets"),
        (name = "agents", description = "Registered agents"),
        (name = "allowlist", description = "Allowlists: the agents to which an agent may hand off"),
        (name = "contracts", description = "Contracts of edges"),
        (name = "caps", description = "Rolling caps on spending"),
        (name = "keys", description = "API keys"),
        (name = "escalations", description = "Questions that wait for a person"),
        (name = "dead letters", description = "Handoffs that wait for a person"),
        (name = "audit", description = "The log as evidence: tree heads, proofs, tiles"),
        (name = "events", description = "Events and subscriptions"),
        (name = "schemas", description = "The schemas of messages and events, and the registry of payload schemas"),
        (name = "data subjects", description = "Personal data: access, erasure and legal holds"),
        (name = "service", description = "Health, metrics and documents of the broker"),
    ),
    components(schemas(super::problem::ProblemDetails, super::events::CloudEvent, super::open::ActorRole)),
    modifiers(&Security)
)]
struct Document;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(
            "bearer",
            SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
        );
        components.add_security_scheme(
            "apiKey",
            SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))),
        );
    }
}

/// The handlers of one line of the table, for [`Routes`].
macro_rules! routed {
    ($($module:ident :: $handler:ident),+ $(,)?) => { pastey::paste! {
        [$( operation::<$module::[<__path_ $handler>], _, _>($module::$handler) ),+]
    } };
}

/// A handler under the path and the methods that its `#[utoipa::path]` states.
fn operation<P: Path, H: Handler<T, Api>, T: 'static>(handler: H) -> (String, MethodRouter<Api>) {
    let methods = P::methods();
    let filters = methods.iter().map(PathItemExt::to_method_filter);
    let filter = filters.reduce(MethodFilter::or).expect("each description states a method");
    (P::path(), on(filter, handler))
}

/// Takes the route table without its descriptions: nothing of a broker reaches those, so that the linker leaves
/// them out of the binary.
struct Routes(Router<Api>);

impl Routes {
    fn routes<const N: usize>(self, operations: [(String, MethodRouter<Api>); N]) -> Self {
        let add =
            |router: Router<Api>, (path, operation): (String, _)| router.route(&path, operation);
        Self(operations.into_iter().fold(self.0, add))
    }
}

/// Makes the OpenAPI 3.1 document from the handlers. Tests hold `docs/openapi.json` to it, which is what a broker
/// serves.
#[must_use]
pub fn openapi() -> Published {
    use utoipa_axum::routes;

    let described = route_table!(OpenApiRouter::<Api>::with_openapi(Document::openapi()), routes);
    published(&described.into_openapi())
}

/// The routes of agents, for [`ALIAS`].
fn agents_alone() -> Router<Api> {
    Routes(Router::new())
        .routes(routed!(agents::create, agents::list))
        .routes(routed!(agents::get, agents::patch, agents::delete))
        .routes(routed!(allowlist::get_targets, allowlist::put_targets))
        .routes(routed!(allowlist::add_target, allowlist::remove_target))
        .routes(routed!(matching::handoff_tool))
        .0
}

pub fn router(api: Api) -> Router {
    with_doors(api, Router::new())
}

/// The router of the API and of doors to it: what surrounds the API's requests surrounds theirs.
pub fn with_doors(api: Api, doors: Router<Api>) -> Router {
    route_table!(Routes(Router::new()), routed)
        .0
        .nest(ALIAS, agents_alone())
        .layer(from_fn(withheld::withhold))
        .layer(from_fn_with_state(api.clone(), once::once))
        .layer(from_fn(queries::check))
        .merge(docs::routes())
        .merge(doors)
        .layer(from_fn_with_state(api.clone(), layer::surround))
        .with_state(api)
}

/// The router of a separate listener: `/metrics` and `/livez`.
pub fn metrics_router(api: Api) -> Router {
    Router::new()
        .route("/metrics", get(service::page))
        .route("/livez", get(service::livez))
        .route("/readyz", get(service::readyz))
        .layer(from_fn_with_state(api.clone(), layer::surround))
        .with_state(api)
}
