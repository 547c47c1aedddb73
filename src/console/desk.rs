//! One request to the console: who makes it, what it asks, and the API as the visitor may use it.

use std::borrow::Cow;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use url::form_urlencoded;

use super::assets;
use super::frame::{Flash, Frame, Theme, link};
use super::json::Json;
use super::session::{Posted, Visitor};
use super::sheet::{Button, Sheet};
use super::{acts, problem, text};
use crate::doors::front::{ApiRequest, CallerHeaders, FrontDoor};
use crate::http::Api;
use handoffd_broker::reader::Rights;
use handoffd_domain::ids::Micros;

/// Names and values of a query or a form, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(pub(super) Vec<(String, String)>);

impl Fields {
    fn of_query(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The first value of a name, without spaces around it; empty where there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(one, _)| one == name).map_or("", |(_, value)| value.trim())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.0.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

/// The API's refusal, as a page tells it.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// The problem's document; null where the answer had none.
    pub(super) problem: Json,
}

impl Refusal {
    pub(super) fn unknown(words: &str) -> Self {
        let problem = Json::Object(vec![("detail".to_owned(), Json::from(words))]);
        Self { status: StatusCode::NOT_FOUND, problem }
    }
}

pub(super) struct Desk {
    front: FrontDoor,
    caller: CallerHeaders,
    visitor: Visitor,
    pub(super) query: Fields,
    /// Path and query of the request.
    here: String,
    theme: Theme,
    pub(super) now: Micros,
}

/// The parts of a request that remain when its body is read.
struct Asked {
    front: Option<FrontDoor>,
    query: Fields,
    here: String,
    theme: Theme,
}

impl Asked {
    fn of(parts: &Parts) -> Self {
        let here = parts.uri.path_and_query().map_or("/console", |target| target.as_str());
        Self {
            front: parts.extensions.get::<FrontDoor>().cloned(),
            query: Fields::of_query(parts.uri.query()),
            here: here.to_owned(),
            theme: Theme::named(&cookie(parts, Theme::COOKIE)),
        }
    }

    fn desk(self, visitor: Visitor, api: &Api) -> Result<Desk, Box<Response>> {
        let Some(front) = self.front else {
            return Err(Box::new(StatusCode::INTERNAL_SERVER_ERROR.into_response()));
        };
        let caller = CallerHeaders::in_name(visitor.principal.clone());
        let (query, here, theme) = (self.query, self.here, self.theme);
        let agent = visitor.principal.rights().is_agent();
        let desk = Desk { front, caller, visitor, query, here, theme, now: api.now() };
        if agent {
            let words = Json::from("The console is for people: an agent's key opens no page.");
            let problem = Json::Object(vec![("detail".to_owned(), words)]);
            let refusal = Refusal { status: StatusCode::FORBIDDEN, problem };
            return Err(Box::new(desk.refused(&refusal)));
        }
        Ok(desk)
    }
}

fn cookie(parts: &Parts, name: &str) -> String {
    let all = parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(one, value)| (one == name).then(|| value.to_owned()))
        .unwrap_or_default()
}

impl FromRequestParts<Api> for Desk {
    type Rejection = Response;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Response> {
        let incoming = Asked::of(parts);
        let visitor = Visitor::from_request_parts(parts, api).await?;
        incoming.desk(visitor, api).map_err(|refusal| *refusal)
    }
}

/// A form that a visitor posted from a page of the console.
pub(super) struct Sent {
    pub(super) desk: Desk,
    pub(super) fields: Fields,
}

impl FromRequest<Api> for Sent {
    type Rejection = Response;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let incoming = Asked::of(&parts);
        let request = Request::from_parts(parts, body);
        let Posted(visitor, fields) =
            Posted::<Vec<(String, String)>>::from_request(request, api).await?;
        Ok(Self {
            desk: incoming.desk(visitor, api).map_err(|refusal| *refusal)?,
            fields: Fields(fields),
        })
    }
}

impl Desk {
    /// Reads from the API. Parameters without a value are left out; a day as `from` or `to` is its first moment.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn get(
        &self,
        segments: &[&str],
        pairs: &[(&str, &str)],
    ) -> Result<Json, Refusal> {
        let filled = pairs.iter().filter(|(_, value)| !value.is_empty());
        let times = filled.map(|(name, value)| match *name {
            "from" | "to" => (*name, text::moment(value)),
            "minAgeMs" => (*name, text::minutes(value)),
            _ => (*name, Cow::Borrowed(*value)),
        });
        let times: Vec<_> = times.collect();
        let given: Vec<_> = times.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        self.send(ApiRequest::get(segments).with(&given)).await
    }

    /// Sends a request to the API.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn send(&self, request: ApiRequest) -> Result<Json, Refusal> {
        let (status, body) = self.front.fetch(&self.caller, request).await;
        let answer = Json::parse(&body);
        if status.is_success() { Ok(answer) } else { Err(Refusal { status, problem: answer }) }
    }

    /// Reads an answer of any type as it comes.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn open(&self, request: ApiRequest) -> Result<axum::body::Body, Refusal> {
        let answer = self.front.call(&self.caller, request, None).await.map_err(|refusal| {
            let problem = serde_json::to_vec(&refusal.problem).unwrap_or_default();
            Refusal { status: refusal.status, problem: Json::parse(&problem) }
        })?;
        Ok(answer.into_body())
    }

    pub(super) const fn rights(&self) -> Rights {
        self.visitor.principal.rights()
    }

    /// Whether the visitor may read why the safety rules refuse a message, in words of the message.
    pub(super) fn explains(&self) -> bool {
        self.rights().operates()
    }

    /// Whether the visitor reads what agents wrote.
    pub(super) fn reads_contents(&self) -> bool {
        self.rights().reads_contents()
    }

    pub(super) fn csrf(&self) -> &str {
        &self.visitor.csrf
    }

    /// Id of the visitor's session.
    pub(super) fn session(&self) -> String {
        self.visitor.session.to_string()
    }

    /// The address of this page with some parameters of its query replaced; an empty value leaves one out.
    pub(super) fn here_with(&self, changes: &[(&str, &str)]) -> String {
        let path = self.here.split('?').next().unwrap_or_default();
        let rest = self.query.0.iter().filter(|(name, _)| {
            name != "done" && name != "did" && !changes.iter().any(|(changed, _)| changed == name)
        });
        let rest = rest.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(
            rest.chain(changes.iter().copied()).filter(|(_, value)| !value.is_empty()),
        );
        let query = query.finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }

    /// A frame around a page of this section, below these pages.
    pub(super) fn frame(
        &self,
        section: &'static str,
        title: impl Into<String>,
        crumbs: &[(&str, &[&str])],
    ) -> Frame {
        let crumbs = crumbs.iter().map(|(name, to)| (link(to, &[]), text::visible(name))).collect();
        let done = acts::named(self.query.get("done"));
        Frame {
            title: title.into(),
            section,
            crumbs,
            theme: self.theme,
            csrf: self.visitor.csrf.clone(),
            here: self.here_with(&[]),
            as_json: self.here_with(&[("format", "json")]),
            flash: done.map(|act| self.flash(act)),
            rights: self.rights(),
            tenant: self.visitor.principal.tenant.to_string(),
            since: self.now.rfc3339(),
            watched: String::new(),
            live: false,
            css: assets::css(),
            js: assets::js(),
        }
    }

    /// The message after an action, with the way to take it back.
    fn flash(&self, act: &'static acts::Act) -> Flash {
        let of: Vec<&str> = self.query.all("did").collect();
        let undo = acts::named(act.undo).and_then(|undo| {
            // Those whose objects are fields of a form are filled in there.
            let named: Vec<&str> = undo
                .path
                .iter()
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            let fields = named.iter().copied().zip(of.iter().copied());
            let fields: Vec<(&str, &str)> = fields.filter(|(name, _)| !name.is_empty()).collect();
            let of = if fields.is_empty() { of.as_slice() } else { &[] };
            let button = self.may_with(undo.name, of, &fields)?;
            Some((button.href, format!("Undo: {}", undo.button.trim_end_matches('…'))))
        });
        let undo = undo.filter(|_| !of.is_empty());
        Flash { words: act.done.to_owned(), tone: "good", undo }
    }

    /// A button to an action on these objects, where the visitor may do it.
    pub(super) fn may(&self, act: &str, of: &[&str]) -> Option<Button> {
        self.may_with(act, of, &[])
    }

    /// The same with some fields filled in.
    pub(super) fn may_with(
        &self,
        act: &str,
        of: &[&str],
        filled: &[(&str, &str)],
    ) -> Option<Button> {
        let act = acts::named(act).filter(|act| act.rights.allow(self.rights()))?;
        let mut pairs: Vec<(&str, &str)> = of.iter().map(|id| ("of", *id)).collect();
        pairs.extend(filled);
        let back = self.here_with(&[]);
        pairs.push(("back", &back));
        let href = link(&["do", act.name], &pairs);
        Some(Button { label: act.button.to_owned(), href, tone: act.tone })
    }

    /// The page, or the refusal's; as JSON where the query says so.
    pub(super) fn answer(&self, page: Result<Sheet, Refusal>) -> Response {
        match page {
            Ok(page) => self.page(StatusCode::OK, &page),
            Err(refusal) => self.refused(&refusal),
        }
    }

    pub(super) fn page(&self, status: StatusCode, page: &Sheet) -> Response {
        if self.query.get("format") == "json" {
            let body = serde_json::to_vec(page).unwrap_or_default();
            return (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        }
        problem::html(status, page)
    }

    pub(super) fn refused(&self, refusal: &Refusal) -> Response {
        self.page(refusal.status, &problem::page(self, refusal))
    }

    /// The page after a form was carried out: only a page of the console.
    pub(super) fn back(to: &str) -> Response {
        let inside = to == "/console" || to.starts_with("/console/") || to.starts_with("/console?");
        let safe = inside && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        Redirect::to(if safe { to } else { "/console" }).into_response()
    }
}
