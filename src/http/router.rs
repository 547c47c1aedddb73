//! The whole route table, and the OpenAPI document that comes of it.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{
    Api, agents, dead_letters, docs, handoffs, inbox, keys, layer, service, tasks, trace, verdicts,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "handoffd",
        description = "The handoff broker for multi-agent systems: proves a handoff fit to act on, commits it with evidence, delivers it, takes the receiver's verdict, and can put everything back.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "/", description = "This broker")),
    tags(
        (name = "handoffs", description = "Submitting and reading handoffs"),
        (name = "verdicts", description = "What receivers say"),
        (name = "inbox", description = "Handoffs for receivers that pull"),
        (name = "tasks", description = "What the handoffs are about"),
        (name = "agents", description = "Who may, and who can"),
        (name = "allowlist", description = "Whom an agent may hand off to"),
        (name = "keys", description = "Who may call"),
        (name = "dead letters", description = "Handoffs that wait for a person"),
        (name = "schemas", description = "The message schemas"),
        (name = "service", description = "The broker itself"),
    ),
    components(schemas(super::problem::ProblemDetails)),
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

fn table() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(handoffs::submit, handoffs::list))
        .routes(routes!(handoffs::validate))
        .routes(routes!(handoffs::get))
        .routes(routes!(verdicts::accept))
        .routes(routes!(verdicts::reject))
        .routes(routes!(verdicts::heartbeat))
        .routes(routes!(verdicts::complete))
        .routes(routes!(verdicts::fail))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::get))
        .routes(routes!(trace::trace))
        .routes(routes!(tasks::complete))
        .routes(routes!(tasks::put_checkpoint, tasks::get_checkpoint))
        .routes(routes!(agents::create, agents::list))
        .routes(routes!(agents::find_match))
        .routes(routes!(agents::get, agents::patch, agents::delete))
        .routes(routes!(agents::get_targets, agents::put_targets))
        .routes(routes!(agents::add_target, agents::remove_target))
        .routes(routes!(agents::rotate_secret))
        .routes(routes!(inbox::poll))
        .routes(routes!(agents::allowlist))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::get))
        .routes(routes!(service::schemas))
        .routes(routes!(service::handoff_schema))
        .routes(routes!(service::livez))
        .routes(routes!(service::readyz))
        .routes(routes!(service::metrics))
}

/// The OpenAPI 3.1 document of this build.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    table().into_openapi()
}

/// The API.
pub fn router(api: Api) -> Router {
    let (routes, document) = table().split_for_parts();
    routes
        .merge(docs::routes(document))
        .layer(from_fn_with_state(api.clone(), layer::surround))
        .with_state(api)
}

/// Just `/metrics` and `/livez`, for a listener of their own.
pub fn metrics_router(api: Api) -> Router {
    Router::new()
        .route("/metrics", get(service::page))
        .route("/livez", get(service::livez))
        .route("/readyz", get(service::readyz))
        .layer(from_fn_with_state(api.clone(), layer::surround))
        .with_state(api)
}
