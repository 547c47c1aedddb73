//! The whole route table, which makes the router and the OpenAPI document.

use axum::Router;
use axum::handler::Handler;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodFilter, MethodRouter};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, Path};
use utoipa_axum::PathItemExt;
use utoipa_axum::router::OpenApiRouter;

use super::document::{Published, published};
use super::routing::{get, on};
use super::{
    Api, access_report, agents, allowlist, attempts, attention, audit, blame, bulk, caps,
    checkpoints, claims, contracts, cost, costs, data_subjects, dead_letters, docs, erasures,
    escalations, events, handoffs, heads, history, inbox, keys, layer, legal_holds, matching, once,
    prompt, queries, questions, receivers, refusals, schemas, service, sessions, streams,
    subscriptions, tasks, tiles, trace, transports, users, verdicts, what_if, why, withheld,
};

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
    components(schemas(super::problem::ProblemDetails, super::events::CloudEvent)),
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

/// The route table, for a router whose `routes` takes what `$routes!` makes of the handlers of one path.
macro_rules! table {
    ($router:expr, $routes:ident) => {
        $router
            .routes($routes!(handoffs::submit, handoffs::list))
            .routes($routes!(handoffs::validate))
            .routes($routes!(handoffs::get))
            .routes($routes!(attempts::list))
            .routes($routes!(prompt::prompt))
            .routes($routes!(prompt::result_prompt))
            .routes($routes!(prompt::question_prompt))
            .routes($routes!(history::history))
            .routes($routes!(streams::append, streams::list))
            .routes($routes!(verdicts::accept))
            .routes($routes!(verdicts::reject))
            .routes($routes!(verdicts::heartbeat))
            .routes($routes!(verdicts::takeover))
            .routes($routes!(questions::ask))
            .routes($routes!(questions::answer))
            .routes($routes!(verdicts::complete))
            .routes($routes!(verdicts::fail))
            .routes($routes!(tasks::list))
            .routes($routes!(tasks::get))
            .routes($routes!(trace::trace))
            .routes($routes!(blame::blame))
            .routes($routes!(cost::cost))
            .routes($routes!(why::explain))
            .routes($routes!(attention::list))
            .routes($routes!(receivers::list))
            .routes($routes!(receivers::get))
            .routes($routes!(costs::costs))
            .routes($routes!(users::search))
            .routes($routes!(tasks::complete))
            .routes($routes!(tasks::cancel))
            .routes($routes!(bulk::cancel_tasks))
            .routes($routes!(tasks::budget))
            .routes($routes!(checkpoints::list))
            .routes($routes!(checkpoints::restore))
            .routes($routes!(tasks::put_checkpoint, tasks::get_checkpoint))
            .routes($routes!(agents::create, agents::list))
            .routes($routes!(matching::find_match))
            .routes($routes!(matching::handoff_tool))
            .routes($routes!(agents::get, agents::patch, agents::delete))
            .routes($routes!(allowlist::get_targets, allowlist::put_targets))
            .routes($routes!(allowlist::add_target, allowlist::remove_target))
            .routes($routes!(agents::rotate_secret))
            .routes($routes!(transports::list))
            .routes($routes!(transports::test))
            .routes($routes!(inbox::poll))
            .routes($routes!(claims::read))
            .routes($routes!(allowlist::graph))
            .routes($routes!(contracts::put, contracts::get))
            .routes($routes!(contracts::list))
            .routes($routes!(contracts::lint_all))
            .routes($routes!(caps::list))
            .routes($routes!(caps::put, caps::delete))
            .routes($routes!(what_if::ask))
            .routes($routes!(keys::create, keys::list))
            .routes($routes!(keys::revoke))
            .routes($routes!(sessions::list))
            .routes($routes!(sessions::end))
            .routes($routes!(refusals::list))
            .routes($routes!(dead_letters::list))
            .routes($routes!(dead_letters::get))
            .routes($routes!(audit::tree_head))
            .routes($routes!(heads::list))
            .routes($routes!(audit::records))
            .routes($routes!(audit::inclusion))
            .routes($routes!(audit::consistency))
            .routes($routes!(audit::keys))
            .routes($routes!(tiles::checkpoint))
            .routes($routes!(tiles::tile))
            .routes($routes!(tiles::log_checkpoint))
            .routes($routes!(tiles::log_tile))
            .routes($routes!(subscriptions::create, subscriptions::list))
            .routes($routes!(subscriptions::get, subscriptions::patch, subscriptions::delete))
            .routes($routes!(subscriptions::rotate_secret))
            .routes($routes!(subscriptions::replay))
            .routes($routes!(subscriptions::deliveries))
            .routes($routes!(events::list))
            .routes($routes!(events::watch_task))
            .routes($routes!(events::event_schemas))
            .routes($routes!(events::event_schema))
            .routes($routes!(dead_letters::release))
            .routes($routes!(dead_letters::discard))
            .routes($routes!(dead_letters::release_many))
            .routes($routes!(dead_letters::discard_many))
            .routes($routes!(escalations::list))
            .routes($routes!(escalations::get))
            .routes($routes!(escalations::resolve))
            .routes($routes!(bulk::resolve_escalations))
            .routes($routes!(access_report::report, data_subjects::erase))
            .routes($routes!(data_subjects::get_erasure))
            .routes($routes!(erasures::list))
            .routes($routes!(legal_holds::list))
            .routes($routes!(legal_holds::place, legal_holds::get, legal_holds::release))
            .routes($routes!(service::schemas))
            .routes($routes!(schemas::list))
            .routes($routes!(schemas::versions))
            .routes($routes!(schemas::put, schemas::get))
            .routes($routes!(schemas::compare))
            .routes($routes!(service::handoff_schema))
            .routes($routes!(service::sw4rm_context_schema))
            .routes($routes!(service::livez))
            .routes($routes!(service::readyz))
            .routes($routes!(service::metrics))
    };
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

    let described = table!(OpenApiRouter::<Api>::with_openapi(Document::openapi()), routes);
    published(&described.into_openapi())
}

/// Path prefix under which Orbit's clients find agents (seed 003).
pub const ALIAS: &str = "/api/v1";

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
    table!(Routes(Router::new()), routed)
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
