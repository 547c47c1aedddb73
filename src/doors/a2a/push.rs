//! Push-notification configurations of a task, as the client's own subscriptions to the handoff's events
//! (A2A 1.0 §3.1.7–3.1.10). Their secrets are sealed with the subscription, and no answer shows them.

use axum::http::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::error::{A2aError, Refused, nothing, violations};
use super::request::read;
use crate::http::Api;
use crate::http::problem::Problem;
use crate::http::subscriptions::MAX_CREDENTIAL;
use crate::http::subscriptions::views::SubscriptionView;
use handoffd_broker::administration::subscriptions::MAX_OWN;
use handoffd_domain::a2a::TaskState;
use handoffd_domain::event::{EventFormat, EventType, Subscriber, SubscriptionSpec};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::ids::{Micros, SubscriptionId};
use handoffd_store::store::events::{EventScope, SubscriptionRow};

/// `TaskPushNotificationConfig`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushConfig {
    #[serde(default)]
    id: Option<String>,
    #[serde(default, alias = "task_id")]
    pub(super) task_id: Option<String>,
    url: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    authentication: Option<Authentication>,
}

/// `AuthenticationInfo`.
#[derive(Debug, Deserialize)]
struct Authentication {
    scheme: String,
    #[serde(default)]
    credentials: Option<String>,
}

/// `GetTaskPushNotificationConfigRequest`, `DeleteTaskPushNotificationConfigRequest`; without `id`
/// `ListTaskPushNotificationConfigsRequest`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushRequest {
    #[serde(alias = "task_id")]
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) id: Option<String>,
}

/// Most characters of a configuration's id.
const MAX_ID: usize = 128;
/// Events of a task that are read at once.
const EVENTS: i64 = 500;

impl PushConfig {
    /// Reads a configuration.
    pub(super) fn read(config: Map<String, Value>) -> Result<Self, Refused> {
        let config: Self = read("pushNotificationConfig", Value::Object(config))?;
        let id = config.id.as_deref().unwrap_or_default();
        if id.chars().count() > MAX_ID || id.chars().any(char::is_control) {
            let why = format!("must have {MAX_ID} characters at most, and no control character");
            return Err(A2aError::invalid("pushNotificationConfig.id", why));
        }
        if config.authentication.as_ref().is_some_and(|one| !is_token(&one.scheme)) {
            let field = "pushNotificationConfig.authentication.scheme";
            return Err(A2aError::invalid(field, "must be the name of a scheme, such as Bearer"));
        }
        Ok(config)
    }

    /// The configuration's id; empty where the client names none.
    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Gives the configuration this id where the client names none.
    pub(super) fn or_id(mut self, id: String) -> Self {
        if self.id().is_empty() {
            self.id = Some(id);
        }
        self
    }

    /// Whether the API would take the configuration for a task. Returns the subscription that has to go first.
    pub(super) async fn check(
        &self,
        call: &Call,
        task: &str,
    ) -> Result<Option<SubscriptionId>, Refused> {
        self.check_form(&call.api)?;
        outgoing(call, task, self.id()).await
    }

    /// Whether the API would take what the configuration says.
    fn check_form(&self, api: &Api) -> Result<(), Refused> {
        let spec = SubscriptionSpec {
            url: Some(self.url.clone()),
            format: Some(EventFormat::A2a),
            ..SubscriptionSpec::default()
        };
        let url = || (api.endpoints)(&self.url).map(|why| ("/url".to_owned(), why));
        let credentials = [("token", self.token.clone()), ("authorization", self.authorization())];
        let unfit = |(name, text): (&str, Option<String>)| {
            let text = text.filter(|text| !text.is_empty())?;
            let why = "must be a text that a header can have";
            let fits = text.len() <= MAX_CREDENTIAL && HeaderValue::from_str(&text).is_ok();
            (!fits).then(|| (format!("/{name}"), why.to_owned()))
        };
        let wrong = spec.make().err().or_else(url);
        match wrong.or_else(|| credentials.into_iter().find_map(unfit)) {
            None => Ok(()),
            Some((pointer, why)) => {
                let failure = Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, why);
                let problem = Problem::refusal(vec![failure], false);
                Err(violations("pushNotificationConfig", &problem))
            }
        }
    }

    /// `Authorization` of the notifications.
    fn authorization(&self) -> Option<String> {
        let one = self.authentication.as_ref()?;
        let credentials = one.credentials.as_deref().filter(|text| !text.is_empty())?;
        Some(format!("{} {credentials}", one.scheme))
    }
}

/// A name as RFC 9110 §5.6.2 has it.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// The events that a configuration tells of. A return comes with the completion, and says nothing more of the state.
fn told_events() -> Vec<EventType> {
    let mut events = TaskState::events();
    events.retain(|kind| *kind != EventType::HandoffReturned);
    events
}

/// Adds a configuration, or replaces the one of the same id. `whole`: it also gets the earlier events.
pub(super) async fn create(
    call: &Call,
    task: &str,
    config: PushConfig,
    whole: bool,
) -> Result<Value, Refused> {
    let standing = call.read(task, 0).await?;
    let first = config.check(call, task).await?;
    let mut replaced = of_task(call, task).await?;
    replaced.retain(|one| !config.id().is_empty() && id_of(one) == config.id());
    // A new configuration is told from its place on in the commit that makes it: told later to go back, it would hear what
    // comes before what was, and some of it twice. One that takes another's place goes on where that one was.
    let since = match replaced.first() {
        Some(before) => place_of(call, before).await?,
        None if whole => Some(standing.view.created_at.clone()),
        None => None,
    };
    let first = first.map(|id| id.to_string());
    for id in first.iter().chain(replaced.iter().map(|one| &one.subscription_id)) {
        drop_subscription(call, id).await?;
    }
    let mut body = json!({
        "url": config.url, "format": "a2a", "filter": { "handoffId": task, "taskId": standing.broker_task() },
        "description": config.id(), "eventTypes": told_events(),
    });
    for (name, value) in [
        ("since", since),
        ("authorization", config.authorization()),
        ("token", config.token.clone().filter(|token| !token.is_empty())),
    ] {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    let made = call.client.subscribe(&body).await.map_err(|refused| {
        let first = refused.problem.failures.first();
        match first.map(|first| (first.pointer.as_str(), first.message.as_str())) {
            Some((pointer @ ("/url" | "/authorization" | "/token"), why)) => {
                let failure = Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, why);
                violations("pushNotificationConfig", &Problem::refusal(vec![failure], false))
            }
            _ => refused.into(),
        }
    })?;
    Ok(told(task, &made))
}

/// How far a configuration has been told.
async fn place_of(call: &Call, subscription: &SubscriptionView) -> Result<Option<String>, Refused> {
    let Ok(id) = subscription.subscription_id.parse() else { return Ok(None) };
    let key = (call.principal.tenant.clone(), Subscriber::Subscription(id));
    let cursor = call.api.store.find_cursor(&key).await.map_err(Call::away)?;
    Ok(cursor.map(|cursor| cursor.position.to_string()))
}

/// Whether a task has this configuration already, as far as an answer shows one.
pub(super) async fn is_made(call: &Call, task: &str, config: &PushConfig) -> Result<bool, Refused> {
    let found = of_task(call, task).await?;
    Ok(found.iter().any(|one| id_of(one) == config.id() && one.url == config.url))
}

/// The subscription that goes before another one is made, where the agent has as many as it may have: the one that is
/// replaced, else that of the task that ended first. `None` where there is room.
async fn outgoing(call: &Call, task: &str, id: &str) -> Result<Option<SubscriptionId>, Refused> {
    // Those of people are not counted.
    let Some(agent) = &call.principal.agent else { return Ok(None) };
    let rows = call.api.store.list_subscriptions(&call.principal.tenant).await;
    let mut rows = rows.map_err(Call::away)?;
    rows.retain(|row| row.subscription.owner.as_ref() == Some(agent));
    if rows.len() < MAX_OWN {
        return Ok(None);
    }
    rows.retain(|row| row.subscription.format == EventFormat::A2a);
    let is_replaced = |row: &&SubscriptionRow| {
        let of = row.subscription.filter.handoff_id.map(|id| id.to_string());
        let own = row.id.to_string();
        let named = Some(row.subscription.description.as_str()).filter(|id| !id.is_empty());
        of.as_deref() == Some(task) && named.unwrap_or(&own) == id
    };
    if let Some(row) = rows.iter().find(is_replaced) {
        return Ok(Some(row.id));
    }
    let mut ended = Vec::new();
    for row in &rows {
        ended.extend(told_to_the_end(call, row).await?.map(|at| (at, row.id)));
    }
    let first = ended.into_iter().min_by_key(|(at, _)| *at);
    first.map(|(_, id)| Some(id)).ok_or_else(|| {
        let why = format!("an agent may have {MAX_OWN} subscriptions: delete some first");
        Problem::new(Code::Conflict, why).into()
    })
}

/// When the task of a configuration ended; `None` while it goes on, or while something of it is still to be told.
async fn told_to_the_end(call: &Call, row: &SubscriptionRow) -> Result<Option<Micros>, Refused> {
    let (store, tenant, filter) = (&call.api.store, &row.tenant, &row.subscription.filter);
    let Some(id) = filter.handoff_id else { return Ok(None) };
    let handoff = store.find_handoff(&(tenant.clone(), id)).await.map_err(Call::away)?;
    let Some(handoff) = handoff else { return Ok(Some(Micros(0))) };
    let Some(ended) = handoff.ended_at.filter(|_| handoff.status.is_final()) else {
        return Ok(None);
    };
    let key = (tenant.clone(), Subscriber::Subscription(row.id));
    let cursor = store.find_cursor(&key).await.map_err(Call::away)?;
    let Some(cursor) = cursor.filter(|cursor| cursor.active) else { return Ok(Some(ended)) };
    let scope = EventScope::Task(handoff.task_id);
    let rest = store.list_events(tenant, scope, cursor.position, EVENTS).await;
    let rest = rest.map_err(Call::away)?;
    let is_told = !rest.iter().any(|one| filter.takes(&one.event));
    let is_whole = i64::try_from(rest.len()).is_ok_and(|count| count < EVENTS);
    Ok((is_told && is_whole).then_some(ended))
}

/// `GetTaskPushNotificationConfig`.
pub(super) async fn get(call: &Call, request: PushRequest) -> Result<Value, Refused> {
    call.read(&request.task_id, 0).await?;
    let id = request.id.unwrap_or_default();
    let found = find(call, &request.task_id, &id).await?;
    found.map(|found| told(&request.task_id, &found)).ok_or_else(A2aError::no_task)
}

/// `ListTaskPushNotificationConfigs`: all on one page.
pub(super) async fn list(call: &Call, request: PushRequest) -> Result<Value, Refused> {
    call.read(&request.task_id, 0).await?;
    let found = of_task(call, &request.task_id).await?;
    let configs: Vec<Value> = found.iter().map(|one| told(&request.task_id, one)).collect();
    Ok(json!({ "configs": configs }))
}

/// `DeleteTaskPushNotificationConfig`: one that is not there is gone.
pub(super) async fn delete(call: &Call, request: PushRequest) -> Result<Value, Refused> {
    call.read(&request.task_id, 0).await?;
    let id = request.id.unwrap_or_default();
    if let Some(found) = find(call, &request.task_id, &id).await? {
        drop_subscription(call, &found.subscription_id).await?;
    }
    Ok(nothing())
}

async fn drop_subscription(call: &Call, id: &str) -> Result<(), Refused> {
    match call.client.unsubscribe(id).await {
        // Another request was first.
        Err(refused) if refused.code() == Some(Code::NotFound) => Ok(()),
        dropped => Ok(dropped?),
    }
}

/// The subscriptions that are configurations of a task.
async fn of_task(call: &Call, task: &str) -> Result<Vec<SubscriptionView>, Refused> {
    let mut items = call.client.subscriptions().await?.items;
    items.retain(|one| {
        one.format == EventFormat::A2a && one.filter.handoff_id.as_deref() == Some(task)
    });
    Ok(items)
}

async fn find(call: &Call, task: &str, id: &str) -> Result<Option<SubscriptionView>, Refused> {
    let items = of_task(call, task).await?;
    Ok(items.into_iter().find(|one| id_of(one) == id))
}

/// The id of a configuration: the client's, else the subscription's.
fn id_of(subscription: &SubscriptionView) -> &str {
    match subscription.description.as_str() {
        "" => &subscription.subscription_id,
        id => id,
    }
}

fn told(task: &str, subscription: &SubscriptionView) -> Value {
    json!({ "id": id_of(subscription), "taskId": task, "url": subscription.url })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(value: Value) -> Result<PushConfig, Refused> {
        let Value::Object(members) = value else { panic!("an object") };
        PushConfig::read(members)
    }

    #[test]
    fn a_configuration_names_a_url_and_perhaps_what_the_endpoint_asks_for() {
        let read = config(
            json!({ "url": "https://x/", "authentication": { "scheme": "Bearer", "credentials": "s" } }),
        );
        assert_eq!(read.unwrap().authorization().as_deref(), Some("Bearer s"));
        let none = config(json!({ "url": "https://x/", "authentication": { "scheme": "Bearer" } }));
        assert!(none.unwrap().authorization().is_none());
        for wrong in [
            json!({}),
            json!({ "url": 7 }),
            json!({ "url": "https://x/", "id": "a\nb" }),
            json!({ "url": "https://x/", "id": "x".repeat(129) }),
            json!({ "url": "https://x/", "authentication": { "scheme": "Bea rer" } }),
            json!({ "url": "https://x/", "authentication": "Bearer" }),
        ] {
            assert!(config(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_told_of_a_configuration_has_no_secret() {
        let subscription = json!({
            "subscriptionId": "s", "url": "https://x/", "description": "", "eventTypes": [], "filter": {}, "format": "a2a",
            "enabled": true, "createdAt": "", "updatedAt": "", "secret": "whsec_x",
        });
        assert_eq!(
            told("h", &serde_json::from_value(subscription).unwrap()),
            json!({ "id": "s", "taskId": "h", "url": "https://x/" })
        );
    }
}
