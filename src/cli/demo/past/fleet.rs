//! The agents of the made-up past: an insurer's desk for claims. Those with a webhook serve it in this process, and answer as
//! they are told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::super::agents::Caller;
use super::Outcome;

pub(super) const INTAKE: &str = "claims-intake";
pub(super) const TRIAGE: &str = "claims-triage";
pub(super) const DAMAGE: &str = "damage-assessment";
pub(super) const FRAUD: &str = "fraud-check";
pub(super) const PAYOUT: &str = "payout";
pub(super) const LETTERS: &str = "customer-letters";
pub(super) const TRANSLATION: &str = "translation";
pub(super) const DESK: &str = "claims-desk";
pub(super) const ARCHIVE: &str = "document-archive";

/// An agent, whether it has a webhook, what it does, and to whom it may hand off.
struct Post(&'static str, bool, &'static str, &'static [&'static str]);

const POSTS: [Post; 9] = [
    Post(INTAKE, false, "Takes claims in from the web form and by mail", &[TRIAGE]),
    Post(TRIAGE, true, "Sorts claims by kind and amount", &[DAMAGE, FRAUD, TRANSLATION, ARCHIVE]),
    Post(
        DAMAGE,
        true,
        "Estimates a damage from photos and reports",
        &[FRAUD, PAYOUT, DESK, LETTERS],
    ),
    Post(FRAUD, true, "Compares a claim with earlier ones", &[PAYOUT, DESK]),
    Post(PAYOUT, true, "Pays a claim out", &[LETTERS, ARCHIVE]),
    Post(LETTERS, false, "Writes to customers", &[]),
    Post(TRANSLATION, true, "Translates reports", &[TRIAGE, DAMAGE]),
    Post(DESK, true, "Tells people of large claims, which they approve", &[PAYOUT]),
    Post(ARCHIVE, true, "Keeps documents for ten years", &[]),
];

/// How a webhook answers.
#[derive(Debug, Clone)]
pub(super) enum Manner {
    Accept,
    Reject(&'static str, &'static str),
    /// With this status, and no verdict.
    Status(u16),
}

/// The endpoint of an agent.
struct Desk {
    manner: Mutex<Manner>,
    /// Fencing tokens by handoff.
    tokens: Mutex<HashMap<String, String>>,
    accepted: mpsc::UnboundedSender<String>,
}

/// The value behind a lock; a panic of another holder leaves whole values.
fn of<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Member {
    key: String,
    caller: Caller,
    desk: Arc<Desk>,
    accepted: Option<mpsc::UnboundedReceiver<String>>,
    server: Option<AbortOnDropHandle<()>>,
}

/// All agents, and an endpoint for events.
pub(in crate::cli::demo) struct Fleet {
    members: HashMap<&'static str, Member>,
    events: Option<AbortOnDropHandle<()>>,
    events_at: SocketAddr,
}

impl Fleet {
    /// Registers the agents and serves their webhooks.
    pub(super) async fn start(operator: &Caller, broker: SocketAddr) -> Outcome<Self> {
        let mut members = HashMap::new();
        for place in &POSTS {
            members.insert(place.0, enlist(place, operator, broker).await?);
        }
        for Post(id, _, _, targets) in &POSTS {
            let list = json!({ "handoffTargets": targets });
            let path = format!("/agents/{id}/handoff-targets");
            operator.put(&path, &list).await?.expect(200, "setting an allowlist")?;
        }
        let routes = Router::new()
            .route("/events", post(|| async { StatusCode::NO_CONTENT }))
            .route("/former", post(|| async { StatusCode::GONE }));
        let (events_at, events) = serve(routes).await?;
        Ok(Self { members, events: Some(events), events_at })
    }

    fn member(&self, id: &str) -> Outcome<&Member> {
        self.members.get(id).ok_or_else(|| format!("no agent {id}"))
    }

    /// The broker, with the key of this agent.
    pub(super) fn caller(&self, id: &str) -> Outcome<&Caller> {
        Ok(&self.member(id)?.caller)
    }

    /// How this agent's webhook answers from now on.
    pub(super) fn behave(&self, id: &str, manner: Manner) -> Outcome {
        *of(&self.member(id)?.desk.manner) = manner;
        Ok(())
    }

    /// The token that a delivery to this agent came with.
    pub(super) fn token(&self, id: &str, handoff: &str) -> Outcome<String> {
        let token = of(&self.member(id)?.desk.tokens).get(handoff).cloned();
        token.ok_or_else(|| format!("{id} did not get {handoff}"))
    }

    /// Notes the token with which this agent took a handoff from its inbox.
    pub(super) fn keep_token(&self, id: &str, handoff: &str, token: String) -> Outcome {
        of(&self.member(id)?.desk.tokens).insert(handoff.to_owned(), token);
        Ok(())
    }

    /// An address for events: of a receiver that takes them, or of one that is gone.
    pub(super) fn events_url(&self, gone: bool) -> String {
        format!("http://{}/{}", self.events_at, if gone { "former" } else { "events" })
    }

    /// Nothing listens at this agent's address any more.
    pub(super) fn hang_up(&mut self, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.server = None;
        }
    }

    /// From here on the agents with webhooks do their work at another broker on the same store: they complete what they
    /// accept.
    pub(in crate::cli::demo) fn work_at(&mut self, broker: SocketAddr) -> Outcome {
        let mut workers = Vec::new();
        for member in self.members.values_mut() {
            let Some(mut accepted) = member.accepted.take() else { continue };
            while accepted.try_recv().is_ok() {}
            let caller = Caller::new(broker, &member.key)?;
            let desk = Arc::clone(&member.desk);
            workers.push(async move {
                while let Some(handoff) = accepted.recv().await {
                    tokio::time::sleep(WORK).await;
                    let token = of(&desk.tokens).get(&handoff).cloned();
                    let done = json!({ "fencingToken": token, "result": { "done": true } });
                    // A refusal is in the broker's own log.
                    let _ = caller.post(&format!("/handoffs/{handoff}/complete"), &done).await;
                }
            });
        }
        let events = self.events.take();
        let all = tokio::spawn(async move {
            let _events = events;
            futures_util::future::join_all(workers).await;
        });
        self.events = Some(AbortOnDropHandle::new(all));
        Ok(())
    }
}

/// How long an agent works at a handoff while the console is served.
const WORK: Duration = Duration::from_secs(2);

async fn serve(routes: Router) -> Outcome<(SocketAddr, AbortOnDropHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|err| err.to_string())?;
    let at = listener.local_addr().map_err(|err| err.to_string())?;
    let server = tokio::spawn(async move {
        // Ends with the demo; an error shows as a delivery that does not arrive.
        let _ = axum::serve(listener, routes).await;
    });
    Ok((at, AbortOnDropHandle::new(server)))
}

async fn enlist(place: &Post, operator: &Caller, broker: SocketAddr) -> Outcome<Member> {
    let Post(id, webhook, about, _) = place;
    let (accept, accepted) = mpsc::unbounded_channel();
    let desk = Arc::new(Desk {
        manner: Mutex::new(Manner::Accept),
        tokens: Mutex::default(),
        accepted: accept,
    });
    let mut spec = json!({
        "agentId": id, "agentType": id, "agentVersion": "1.4.0", "description": about,
        "capabilities": ["claims"], "metadata": { "team": "claims" },
    });
    let mut server = None;
    if *webhook {
        let routes = Router::new().route("/handoffs", post(receive)).with_state(Arc::clone(&desk));
        let (at, serving) = serve(routes).await?;
        spec["delivery"] = json!({ "mode": "webhook", "url": format!("http://{at}/handoffs") });
        server = Some(serving);
    }
    let made = operator.post("/agents", &spec).await?.expect(201, "registering an agent")?;
    let key = made["apiKey"].as_str().unwrap_or_default().to_owned();
    let caller = Caller::new(broker, &key)?;
    Ok(Member { key, caller, desk, accepted: Some(accepted), server })
}

async fn receive(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let handoff = header("handoff-id").to_owned();
    let manner = of(&desk.manner).clone();
    match manner {
        // A chunk of a stream that was accepted before.
        _ if headers.contains_key("handoff-chunk") => StatusCode::NO_CONTENT.into_response(),
        Manner::Status(status) => {
            StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE).into_response()
        }
        Manner::Reject(reason, details) => {
            answer(&json!({ "status": "REJECTED", "reason": reason, "details": details }))
        }
        Manner::Accept => {
            let token = header("handoff-fencing-token").to_owned();
            of(&desk.tokens).insert(handoff.clone(), token);
            let _ = desk.accepted.send(handoff);
            answer(&json!({ "status": "ACCEPTED" }))
        }
    }
}

fn answer(verdict: &Value) -> Response {
    axum::Json(verdict.clone()).into_response()
}
