//! The paths, and the access to them.

use super::events::{Events, MOST_STREAMS};
use super::formats::Format;
use super::items::{ItemSelection, items};
use super::searches::{MOST_WAITING, Searches};
use super::watched_server::WatchedServer;
use super::{figures, metrics};
use crate::token::{self, Token};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reverie_core::Error;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

/// The paths that need no token: they have no data of the tables.
const OPEN: [&str; 3] = ["/", "/livez", "/readyz"];
/// The page, in one file when it is sent. The parts about a training run and about clients have their own sources.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page.html").replacen("// run.js\n", include_str!("run.js"), 1).replacen(
        "// clients.js\n",
        include_str!("clients.js"),
        1,
    )
});

/// The state of all requests.
pub(super) struct App {
    pub(super) watched: Arc<WatchedServer>,
    pub(super) events: Arc<Events>,
    token: Option<Token>,
    searches: Searches,
    policy: HeaderValue,
}

impl App {
    pub(super) fn new(watched: Arc<WatchedServer>, token: Option<&str>) -> Arc<Self> {
        let events = Events::new(Arc::clone(&watched));
        let (token, searches) = (token.map(Token::new), Searches::default());
        Arc::new(Self { watched, events, token, searches, policy: policy() })
    }
}

/// The page's own script and style may run, and nothing else.
fn policy() -> HeaderValue {
    let hash = |tag: &str| {
        let inside = PAGE.split_once(&format!("<{tag}>")).and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
        let (inside, _) = inside.expect("the page has it");
        format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, inside.as_bytes())))
    };
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; script-src {}; style-src {}; form-action 'none'; base-uri 'none'; \
         frame-ancestors 'none'",
        hash("script"),
        hash("style")
    );
    HeaderValue::try_from(policy).expect("ASCII")
}

/// All paths.
pub(super) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { typed("text/html; charset=utf-8", PAGE.as_str()) }))
        .route("/livez", get(|| async { typed("text/plain; charset=utf-8", "alive\n") }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scraped))
        .route("/api/info", get(|State(app): State<Arc<App>>| async move { json_of(&figures::info(&app.watched)) }))
        .route("/api/why", get(|State(app): State<Arc<App>>| async move { json_of(&figures::why(&app.watched)) }))
        .route(
            "/api/clients",
            get(|State(app): State<Arc<App>>| async move { json_of(&figures::clients(&app.watched)) }),
        )
        .route("/api/run", get(|State(app): State<Arc<App>>| async move { json_of(&figures::run(&app.watched)) }))
        .route("/api/tables/{name}/items", get(items_of))
        .route("/api/events", get(events))
        .fallback(|| async { failed(StatusCode::NOT_FOUND, "there is nothing at this path; the page is at /") })
        .method_not_allowed_fallback(|| async { failed(StatusCode::METHOD_NOT_ALLOWED, "use GET") })
        .layer(from_fn_with_state(Arc::clone(app), checked))
        .with_state(Arc::clone(app))
}

/// Checks the host and the token, and adds the headers of every response.
async fn checked(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&app, request.uri().path(), request.headers()) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CONTENT_SECURITY_POLICY, app.policy.clone());
    response
}

fn refusal(app: &App, path: &str, headers: &HeaderMap) -> Option<Response> {
    let Some(token) = &app.token else {
        // A page of another site may have a name that leads to this machine: its script would read everything.
        let host = headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
        let refused = host.filter(|host| !is_local(host))?;
        let why = format!("this server has no token and is read as 127.0.0.1 or localhost, not as '{refused}'");
        return Some(failed(StatusCode::MISDIRECTED_REQUEST, &why));
    };
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    if OPEN.contains(&path)
        || shown.and_then(|shown| shown.strip_prefix(b"Bearer ")).is_some_and(|shown| token.admits(shown))
    {
        return None;
    }
    let mut refused = failed(StatusCode::UNAUTHORIZED, &token::wrong(shown.is_some()));
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"reverie\""));
    Some(refused)
}

/// True for an address, or a name that leads to this machine everywhere.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    match app.watched.not_ready_reason() {
        None => typed("text/plain; charset=utf-8", "ready\n"),
        Some(trouble) => {
            let trouble = typed("text/plain; charset=utf-8", format!("{trouble}\n"));
            (StatusCode::SERVICE_UNAVAILABLE, trouble).into_response()
        }
    }
}

async fn scraped(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let format = Format::wanted(&accept.collect::<Vec<_>>().join(","));
    match metrics::exposition(&app.watched) {
        Ok(text) => typed(format.media_type(), format.of(text)),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("the metrics could not be written: {error}")),
    }
}

async fn items_of(
    State(app): State<Arc<App>>,
    Path(table): Path<String>,
    Query(parameters): Query<HashMap<String, String>>,
) -> Response {
    let wanted = match ItemSelection::parse(&parameters) {
        Ok(wanted) => wanted,
        Err(error) => return refused(&error),
    };
    let watched = Arc::clone(&app.watched);
    // A table of millions of items is searched, and chunks are unpacked.
    match app.searches.run(move || items(&watched.tables, &table, &wanted)).await {
        Some(Ok(Ok(found))) => json_of(&found),
        Some(Ok(Err(error))) => refused(&error),
        Some(Err(error)) => failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("the items could not be read: {error}")),
        None => {
            let why = format!("{MOST_WAITING} searches of items wait already; try again later");
            failed(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

async fn events(State(app): State<Arc<App>>) -> Response {
    match app.events.stream() {
        Some(body) => typed("text/event-stream", body),
        None => {
            let why = format!("{MOST_STREAMS} pages are open already; close one of them");
            failed(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

fn typed(media_type: &'static str, body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, media_type)], body.into()).into_response()
}

fn json_of(value: &Value) -> Response {
    typed("application/json", value.to_string())
}

/// A response with the reason, as JSON.
fn failed(status: StatusCode, why: &str) -> Response {
    (status, json_of(&json!({ "error": why }))).into_response()
}

fn refused(error: &Error) -> Response {
    let status = match error {
        Error::UnknownTable { .. } | Error::UnknownKey { .. } => StatusCode::NOT_FOUND,
        Error::InvalidArgument(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    failed(status, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_another_machine_may_have_chosen_is_not_local() {
        for host in ["127.0.0.1", "127.0.0.1:9090", "localhost:80", "LOCALHOST", "[::1]:9090", "10.0.0.7:1"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example", "[x]"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
