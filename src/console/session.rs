//! Sessions of the console: a cookie names the visitor, and only paths below `/console` read it.

use crate::http::routing::{get, post};
use askama::Template;
use axum::extract::{Extension, FromRequest, FromRequestParts, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Form, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;
use url::form_urlencoded::{self, Serializer};

use crate::http::connection::Peer;
use crate::http::layer::Written;
use crate::http::problem::Problem;
use crate::http::{Api, authority};
use handoffd_broker::config::SecureCookie;
use handoffd_broker::console_sessions::{LoginError, NewSession, Session, is_token_of_forms};
use handoffd_broker::directory::Principal;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::SessionId;

/// The page after a login.
const HOME: &str = "/console";

/// The parameter of a login after a form that was not taken.
const UNSENT: &str = "unsent";

/// The route on which an open page waits for news.
pub(super) const LIVE: &str = "/console/live";

/// The cookie with a session's token.
const COOKIE: &str = "handoffd_session";

/// Largest posted form, in bytes.
const MAX_FORM: usize = 1024 * 1024;

/// Longest path to return to after a login, in bytes.
const MAX_NEXT: usize = 2048;

/// Policy of the pages of this file: they have no script, style or image.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'";

/// A person with an open session. Without one, a page is answered by 303 to `/console/login?next=PATH`, and JSON by 401.
#[derive(Debug, Clone)]
pub struct Visitor {
    /// The caller, with the role that its key has now.
    pub principal: Principal,
    /// The token that each form of this session has as its member `_csrf`: 64 hexadecimal digits.
    pub csrf: String,
    pub session: SessionId,
}

/// A form that a visitor posted (`application/x-www-form-urlencoded`, 1 MiB at most): from a page of this origin, by `Origin` and
/// `Sec-Fetch-Site`, with the session's token as its member `_csrf`. `T` does not see that member.
pub struct Posted<T>(pub Visitor, pub T);

/// The form of the login page.
#[derive(Deserialize)]
struct LoginForm {
    #[serde(default)]
    key: String,
    #[serde(default)]
    next: String,
}

/// A form without members of its own.
#[derive(Debug, Deserialize)]
struct NoFields {}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    next: &'a str,
    problem: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedPage<'a> {
    title: &'a str,
    sentence: &'a str,
}

/// Routes of login and logout.
pub fn routes() -> Router<Api> {
    Router::new()
        .route("/console/login", get(login_page).post(log_in))
        .route("/console/logout", post(log_out))
        .route("/console/logout-everywhere", post(log_out_everywhere))
}

impl FromRequestParts<Api> for Visitor {
    type Rejection = Response;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Response> {
        let Some(session) = session_of(&parts.headers, api).await? else {
            return Err(unknown(parts));
        };
        // A page that is left open asks there by itself: the person may be away.
        if parts.uri.path() != LIVE {
            api.sessions.note_use(&session);
        }
        let Session { id, principal, csrf, .. } = session;
        Ok(Self { principal, csrf, session: id })
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for Posted<T> {
    type Rejection = Response;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        check_origin(&parts, api).map_err(|refusal| *refusal)?;
        let visitor = Visitor::from_request_parts(&mut parts, api).await?;
        let body = axum::body::to_bytes(body, MAX_FORM).await.map_err(|_| too_large())?;
        let (token, rest) = without_token(&body);
        if !token.is_some_and(|token| is_token_of_forms(&visitor.csrf, &token)) {
            let why =
                "The form is not from this session: open the page again, and send it once more.";
            return Err(refused(StatusCode::FORBIDDEN, "Form refused", why));
        }
        let mut form = Request::from_parts(parts, rest.into());
        form.headers_mut().remove(header::CONTENT_LENGTH);
        let Form(fields) = Form::from_request(form, api).await.map_err(|err| {
            let title = "The form cannot be read";
            refused(err.status(), title, &err.body_text())
        })?;
        Ok(Self(visitor, fields))
    }
}

/// The open session of a request's cookie.
async fn session_of(headers: &HeaderMap, api: &Api) -> Result<Option<Session>, Response> {
    let Some(token) = token_of(headers) else { return Ok(None) };
    api.sessions.resume(token).await.map_err(|err| {
        tracing::warn!(error = %err, "a session cannot be looked up");
        away()
    })
}

/// The token in a request's cookies, which HTTP/2 may send as several headers.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find_map(|(name, value)| (name == COOKIE).then_some(value))
}

/// Answers a request without a session: the person logs in, and returns to the page that they saw.
fn unknown(parts: &Parts) -> Response {
    if wants_json(parts) {
        let why = "the request has no session of the console: log in at /console/login";
        return Problem::new(Code::Unauthenticated, why).into_response();
    }
    let form = !matches!(parts.method, Method::GET | Method::HEAD);
    let page = if form {
        referring_page(parts)
    } else {
        parts.uri.path_and_query().map(ToString::to_string)
    };
    let login = "/console/login?".to_owned();
    let at = login.len();
    let mut query = Serializer::for_suffix(login, at);
    query.extend_pairs(page.as_deref().and_then(local_path).map(|next| ("next", next)));
    // Of a log-out nothing is left to send.
    let unsent = form && local_path(parts.uri.path()).is_some();
    query.extend_pairs(unsent.then_some((UNSENT, "1")));
    see_other(query.finish().trim_end_matches('?'))
}

/// The page of this origin whose form was posted.
fn referring_page(parts: &Parts) -> Option<String> {
    let referer = parts.headers.get(header::REFERER)?.to_str().ok()?;
    let url = Url::parse(referer).ok()?;
    Some(url[url::Position::BeforePath..url::Position::AfterQuery].to_owned())
}

fn wants_json(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    query.split('&').any(|pair| pair == "format=json")
        || accept.is_some_and(|accept| accept.starts_with("application/json"))
}

/// A path below `/console` with its query, in its normal form; `None` for any other text, and for login and logout.
fn local_path(text: &str) -> Option<String> {
    let strange = |byte: u8| byte.is_ascii_control() || byte == b'\\' || !byte.is_ascii();
    if text.len() > MAX_NEXT || !text.starts_with(HOME) || text.bytes().any(strange) {
        return None;
    }
    let base = Url::parse("http://console.invalid/").ok()?;
    let url = base.join(text).ok().filter(|url| url.origin() == base.origin())?;
    let below = url.path().strip_prefix(HOME)?;
    let is_page = (below.is_empty() || below.starts_with('/')) && !below.starts_with("/log");
    is_page.then(|| url[url::Position::BeforePath..url::Position::AfterQuery].to_owned())
}

/// Refuses a form from a page of another origin (`Origin`, `Sec-Fetch-Site`).
fn check_origin(parts: &Parts, api: &Api) -> Result<(), Box<Response>> {
    if is_same_origin(parts, api.config.server.public_url.as_ref()) {
        return Ok(());
    }
    tracing::warn!("a form of the console was refused: it is from a page of another origin");
    let why = "The form is from a page of another origin. Behind a proxy, server.public_url names the address of this broker.";
    Err(Box::new(refused(StatusCode::FORBIDDEN, "Form refused", why)))
}

fn is_same_origin(parts: &Parts, public_url: Option<&Url>) -> bool {
    let one = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = one("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin") {
        return false;
    }
    match one("origin") {
        // A browser that sends `Sec-Fetch-Site` may withhold the origin (`Referrer-Policy: no-referrer`).
        None | Some("null") => site.is_some(),
        Some(origin) => is_own(origin, parts, public_url),
    }
}

/// Whether an origin is the host of the request, or that of `server.public_url`.
fn is_own(origin: &str, parts: &Parts, public_url: Option<&Url>) -> bool {
    let Ok(origin) = Url::parse(origin) else { return false };
    let host = authority::of_parts(parts).ok().flatten();
    let target = host.and_then(|host| Url::parse(&format!("{}://{host}", origin.scheme())).ok());
    let is = |url: &Url| url.origin() == origin.origin() && url.origin().is_tuple();
    target.as_ref().is_some_and(is) || public_url.is_some_and(is)
}

/// Whether the cookie is for https alone.
fn is_secure(parts: &Parts, api: &Api) -> bool {
    match api.config.console.secure_cookie {
        SecureCookie::Always => true,
        SecureCookie::Never => false,
        SecureCookie::Auto => {
            let forwarded = parts.headers.get("x-forwarded-proto");
            forwarded.is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"))
                || api.config.server.public_url.as_ref().is_some_and(|url| is_https(parts, url))
        }
    }
}

/// Whether a request is for the host of this https URL.
fn is_https(parts: &Parts, url: &Url) -> bool {
    let host = authority::of_parts(parts).ok().flatten();
    let target = host.and_then(|host| Url::parse(&format!("https://{host}")).ok());
    url.scheme() == "https" && target.is_some_and(|target| target.host() == url.host())
}

/// Shows the login page; a visitor with a session goes on to the page it names.
async fn login_page(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let query = query.unwrap_or_default();
    let given =
        |wanted: &str| form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == wanted);
    let next = given("next").and_then(|(_, next)| local_path(&next));
    let next = next.as_deref().unwrap_or(HOME);
    if session_of(&headers, &api).await?.is_some() {
        return Ok(see_other(next));
    }
    let unsent = "Your session has ended: nothing of the form was sent. Log in, and send it again.";
    Ok(login_form(StatusCode::OK, next, given(UNSENT).map(|_| unsent)))
}

/// Begins a session by a key.
async fn log_in(
    State(api): State<Api>,
    peer: Option<Extension<Peer>>,
    request: Request,
) -> Result<Response, Response> {
    let (parts, body) = request.into_parts();
    check_origin(&parts, &api).map_err(|refusal| *refusal)?;
    let body = axum::body::to_bytes(body, MAX_FORM).await.map_err(|_| too_large())?;
    let form = Request::from_parts(parts.clone(), body.into());
    let Form(LoginForm { key, next }) = Form::from_request(form, &api)
        .await
        .map_err(|err| login_form(err.status(), HOME, Some("The form cannot be read.")))?;
    let next = local_path(&next);
    let next = next.as_deref().unwrap_or(HOME);
    let (key, address) = (key.trim(), peer.map(|Extension(Peer(address))| address));
    if let Err(seconds) = api.sessions.attempts.count(address, key, api.now()) {
        tracing::warn!(client.address = ?address, "a login to the console was refused: too many attempts");
        return Err(too_many(next, seconds));
    }
    let name = parts.headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok());
    let session = api.sessions.begin(key, name).await.map_err(|err| {
        tracing::warn!(client.address = ?address, reason = %err, "a login to the console was refused");
        not_logged_in(next, &err)
    })?;
    end_former(&parts.headers, &api).await;
    let NewSession { id, principal, .. } = &session;
    tracing::info!(
        tenant = %principal.tenant, key_id = principal.key_id, session_id = %id, role = principal.rights().role_name(),
        "a console session began"
    );
    let flags = if is_secure(&parts, &api) { "; Secure" } else { "" };
    let cookie = cookie(&session.token, session.seconds, flags);
    Ok(with_cookie(see_other(next), &cookie))
}

/// Ends the session that the browser had before it logged in again.
async fn end_former(headers: &HeaderMap, api: &Api) {
    if let Ok(Some(former)) = session_of(headers, api).await {
        let ended = api.sessions.end(&former.principal.tenant, former.id).await;
        if let Err(err) = ended {
            tracing::warn!(error = %err, "the session before a login could not be ended");
        }
    }
}

async fn log_out(
    State(api): State<Api>,
    Posted(visitor, NoFields {}): Posted<NoFields>,
) -> Result<Response, Response> {
    let Visitor { principal, session, .. } = visitor;
    let ended = api.sessions.end(&principal.tenant, session).await;
    ended.map_err(|err| {
        tracing::warn!(error = %err, "a session could not be ended");
        away()
    })?;
    tracing::info!(
        tenant = %principal.tenant, key_id = principal.key_id, session_id = %session, "a console session ended"
    );
    Ok(logged_out())
}

async fn log_out_everywhere(
    State(api): State<Api>,
    Posted(visitor, NoFields {}): Posted<NoFields>,
) -> Result<Response, Response> {
    let principal = visitor.principal;
    let ended = api.sessions.end_all(&principal.tenant, &principal.key_id).await;
    let ended = ended.map_err(|err| {
        tracing::warn!(error = %err, "the sessions of a key could not be ended");
        away()
    })?;
    tracing::info!(
        tenant = %principal.tenant, key_id = principal.key_id, ended, "all console sessions of a key ended"
    );
    Ok(logged_out())
}

fn logged_out() -> Response {
    with_cookie(see_other("/console/login"), &cookie("", 0, ""))
}

/// A `Set-Cookie`. `Lax`, so that a link in a mail or a chat opens its page.
fn cookie(token: &str, seconds: i64, flags: &str) -> String {
    format!("{COOKIE}={token}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Lax{flags}")
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(mut value) = HeaderValue::from_str(cookie) {
        value.set_sensitive(true);
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

/// 303 to a path of this broker.
fn see_other(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static(HOME));
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, location);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn login_form(status: StatusCode, next: &str, problem: Option<&str>) -> Response {
    page(status, &LoginPage { next, problem })
}

fn not_logged_in(next: &str, err: &LoginError) -> Response {
    match err {
        LoginError::UnknownKey => {
            let why = "This key is not valid: it is not known, was revoked, or has expired.";
            login_form(StatusCode::UNAUTHORIZED, next, Some(why))
        }
        LoginError::AgentKey => {
            let why =
                "This is the key of an agent. The console is for admins, operators and auditors.";
            login_form(StatusCode::FORBIDDEN, next, Some(why))
        }
        LoginError::Store(_) => away(),
    }
}

fn too_many(next: &str, seconds: u64) -> Response {
    let why = format!("Too many attempts. Try again in {seconds} s.");
    let mut response = login_form(StatusCode::TOO_MANY_REQUESTS, next, Some(&why));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn too_large() -> Response {
    refused(StatusCode::PAYLOAD_TOO_LARGE, "Form refused", "The form is larger than 1 MiB.")
}

fn away() -> Response {
    let why = "The database does not answer. Try again in a moment.";
    refused(StatusCode::SERVICE_UNAVAILABLE, "Not available", why)
}

fn refused(status: StatusCode, title: &str, sentence: &str) -> Response {
    page(status, &RefusedPage { title, sentence })
}

/// A page of this file, which no cache keeps.
fn page(status: StatusCode, template: &impl Template) -> Response {
    let Ok(text) = template.render() else {
        return Problem::new(Code::Internal, "the page cannot be written").into_response();
    };
    let mut response = (status, text).into_response();
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.extensions_mut().insert(Written);
    response
}

/// The member `_csrf` of a form, and the form without it.
fn without_token(body: &[u8]) -> (Option<String>, String) {
    let (tokens, rest): (Vec<_>, Vec<_>) =
        form_urlencoded::parse(body).partition(|(name, _)| name == "_csrf");
    let token = match tokens.as_slice() {
        [(_, token)] => Some(token.clone().into_owned()),
        _ => None,
    };
    (token, Serializer::new(String::new()).extend_pairs(rest).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_the_console_is_returned_to() {
        for (text, path) in [
            ("/console", "/console"),
            ("/console/tasks/1?from=2&to=3", "/console/tasks/1?from=2&to=3"),
            ("/console?x=1", "/console?x=1"),
            ("/console/a/../b", "/console/b"),
            ("/console/tasks#part", "/console/tasks"),
        ] {
            assert_eq!(local_path(text).as_deref(), Some(path), "{text}");
        }
        for text in [
            "",
            "/",
            "//evil.example/console",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example/console",
            "/consoleevil",
            "/console.evil.example",
            "/console\r\nSet-Cookie: a=b",
            "/console/\tx",
            "/console\\..\\x",
            "/console/../keys",
            "/console/%2e%2e/keys",
            "/console/login?next=/console/login",
            "/console/logout",
            "/console/\u{202e}",
            &format!("/console/{}", "a".repeat(3000)),
        ] {
            assert_eq!(local_path(text), None, "{text}");
        }
    }

    #[test]
    fn a_form_is_from_a_page_of_the_same_origin() {
        let public = Url::parse("https://hand.example").unwrap();
        let of = |pairs: &[(&str, &str)]| {
            let (mut parts, ()) = axum::http::Request::new(()).into_parts();
            for (name, value) in pairs {
                let name: header::HeaderName = name.parse().unwrap();
                parts.headers.insert(name, value.parse().unwrap());
            }
            is_same_origin(&parts, Some(&public))
        };
        let host = ("host", "127.0.0.1:8080");
        assert!(of(&[host, ("origin", "http://127.0.0.1:8080")]));
        assert!(of(&[host, ("origin", "https://hand.example")]), "the public address");
        assert!(of(&[("host", "a.example"), ("origin", "https://a.example:443")]));
        assert!(of(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(of(&[host, ("sec-fetch-site", "same-origin"), ("origin", "null")]));
        for site in ["cross-site", "same-site", "none", ""] {
            let fields = [host, ("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", site)];
            assert!(!of(&fields), "{site}");
        }
        for origin in ["null", "http://127.0.0.1:8081", "https://evil.example", "file://", "data:x"]
        {
            assert!(!of(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!of(&[host]), "neither says where the form is from");
    }

    #[test]
    fn a_form_has_one_token() {
        assert_eq!(
            without_token(b"a=1&_csrf=x&b=%26"),
            (Some("x".to_owned()), "a=1&b=%26".to_owned())
        );
        assert_eq!(without_token(b"a=1").0, None);
        assert_eq!(without_token(b"_csrf=x&_csrf=y").0, None);
    }

    #[test]
    fn the_token_is_found_among_cookies() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; handoffd_session_old=1"));
        headers.append(header::COOKIE, HeaderValue::from_static("c=d;handoffd_session=token"));
        assert_eq!(token_of(&headers), Some("token"));
        assert_eq!(token_of(&HeaderMap::new()), None);
    }
}
