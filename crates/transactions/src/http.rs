//! The face of the Agent Transaction Protocol: signed permissions, transactions with exactly one effect, public receipts.
//!
//! Handlers are thin: a body is read within its limit, the site does the work, and its answer is sent unchanged.
//! `docs/protocols/transactions.md` describes what the protocol leaves open and our extensions.

mod compat;
mod hosts;
mod listener_policy;
pub mod openapi;
mod operator;
mod rate_limit;
pub mod settings;
mod token;

use std::fmt;
use std::sync::Arc;

use crate::document::{NOTE_BYTES_MAX, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX};
use crate::problem::Problem;
use crate::site::{Site, SiteAnswer};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use consign_engine::LedgerHealth;
use consign_kernel::error::Code;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tower::layer::layer_fn;

use consign_web::access_log::ErrorCode;
use consign_web::body::{self, BodyError, ReceivedBody};
use consign_web::credentials::SecretDigest;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::panic::CatchPanic;
use consign_web::request_id::RequestId;
use consign_web::{error_status, throttle};

pub use hosts::SiteHosts;
use rate_limit::{RateCharge, RateLimit};
pub use token::UserTokens;

/// A rail's callbacks are small.
const CALLBACK_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
pub struct Options {
    /// The admin token for the operator's routes; if absent, they are closed.
    pub admin_secret: Option<SecretDigest>,
    /// The listener policy of the server, including whether a proxy is trusted for client addresses.
    pub policy: ListenerPolicy,
    /// The host names under which requests that change something are accepted.
    pub hosts: SiteHosts,
    /// Requests per minute and address on public routes; zero for no limit.
    pub public_per_minute: u32,
    /// Writes and callbacks per minute and address.
    pub writes_per_minute: u32,
    /// Bytes of such requests per minute and address.
    pub write_bytes_per_minute: u32,
    /// The tokens of the compatibility profile; if absent, the profile is off.
    pub compat: Option<UserTokens>,
}

#[derive(Clone)]
struct TransactionFace {
    site: Site,
    options: Arc<Options>,
    /// For public routes and for routes that write.
    public: Arc<RateLimit>,
    writes: Arc<RateLimit>,
}

impl fmt::Debug for TransactionFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionFace")
    }
}

/// All routes under `/api/atp` and the site's documents. It has no fallback, so that it can be merged into another router.
pub fn router(site: Site, options: Options) -> Router {
    let face = TransactionFace {
        site,
        public: Arc::new(RateLimit::new(options.public_per_minute, 0)),
        writes: Arc::new(RateLimit::new(
            options.writes_per_minute,
            options.write_bytes_per_minute.into(),
        )),
        options: Arc::new(options),
    };
    let compat = face.options.compat.is_some();
    let routes = routes();
    let routes = if compat {
        compat::with_routes(routes)
    } else {
        routes
    };
    let routes = routes.layer(from_fn_with_state(face.clone(), hosts::guard));
    let routes = routes.layer(layer_fn(|routes| CatchPanic::new(routes, on_panic)));
    let routes = routes.layer(from_fn(mark_wrong_token));
    let routes = if face.options.policy.restricts_access() {
        routes.layer(from_fn_with_state(face.clone(), listener_policy::enforce))
    } else {
        routes
    };
    routes.with_state(face)
}

/// The answer to an address with too many wrong credentials.
pub fn on_too_many_failures() -> Response {
    const RETRY_AFTER_S: u32 = 60;
    ProblemResponse(Problem::RateLimited {
        retry_after_s: RETRY_AFTER_S,
    })
    .into_response()
}

/// The answer to a request whose handler panicked.
fn on_panic(_: Option<&RequestId>) -> Response {
    ProblemResponse(Problem::InternalError).into_response()
}

fn routes() -> Router<TransactionFace> {
    Router::new()
        .route("/api/atp/intents", post(create).get(intents))
        .route("/api/atp/intents/{intent_id}", get(intent))
        .route("/api/atp/intents/{intent_id}/receipts", get(receipts))
        .route("/api/atp/authorize", post(authorize))
        .route("/api/atp/execute", post(execute))
        .route("/api/atp/compensate", post(compensate))
        .route("/api/atp/cancel", post(cancel))
        .route("/api/atp/intents/{intent_id}/revoke", post(revoke))
        .route("/api/atp/transactions/{transaction_id}", get(transaction))
        .route(
            "/api/atp/transactions/{transaction_id}/compensate",
            post(compensate_named),
        )
        .route("/api/atp/receipts/verify", post(verify))
        .route("/api/atp/receipts/{receipt_id}", get(receipt))
        .route("/api/atp/rails/{rail}/callback", post(callback))
        .route("/api/atp/keys", get(keys))
        .route("/api/atp/health", get(health))
        .route("/api/atp/admin/reconcile", post(operator::reconcile))
        .route("/api/atp/admin/audit", get(operator::audit))
        .route("/api/atp/admin/transactions", get(operator::transactions))
        .route(
            "/api/atp/admin/transactions/{transaction_id}/resolve",
            post(operator::resolve),
        )
        .route("/api/atp/admin/keys/announce", post(operator::announce))
        .route("/api/atp/admin/keys/rotate", post(operator::rotate))
        .route(
            "/api/atp/admin/keys/{key_id}/revoke",
            post(operator::revoke),
        )
        .route("/api/atp/{*rest}", any(unknown_path))
        .route("/.well-known/wab.json", get(manifest))
        .route("/.well-known/wab-revocations.json", get(revocations))
        .method_not_allowed_fallback(wrong_method)
}

type HandlerResult = Result<SiteResponse, ProblemResponse>;

async fn create(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let user = face.user(request.headers())?;
    let body = face.receive_write(request, REQUEST_BYTES_MAX).await?.1;
    if let Some(user) = user {
        return Ok(SiteResponse(user.create(&body).await?));
    }
    face.check_is_document(&body)?;
    Ok(SiteResponse(face.site.create(&body).await?))
}

/// All intents for operators; a user's own for users.
async fn intents(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let user = match face.operator(request.headers()) {
        Ok(()) => None,
        Err(refused) => Some(face.user(request.headers())?.ok_or(refused)?),
    };
    let limit = operator::number(&request, "limit")?.map(bounded);
    let offset = operator::number(&request, "offset")?.map(bounded);
    if let Some(user) = user {
        return Ok(SiteResponse(user.intents(limit, offset).await?));
    }
    let limit = limit.unwrap_or(operator::LIST_DEFAULT);
    let before = operator::number(&request, "from")?;
    let intents = face.site.intents(limit, offset.unwrap_or(0), before);
    Ok(SiteResponse(intents.await?))
}

fn bounded(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

async fn authorize(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let (headers, body) = face.receive_write(request, REQUEST_BYTES_MAX).await?;
    Ok(SiteResponse(
        face.site.authorize(key(&headers)?, &body).await?,
    ))
}

async fn execute(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let (headers, body) = face.receive_write(request, REQUEST_BYTES_MAX).await?;
    Ok(SiteResponse(
        face.site.execute(key(&headers)?, &body).await?,
    ))
}

async fn compensate(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    Ok(SiteResponse(
        face.site.compensate(key(&headers)?, &body).await?,
    ))
}

async fn cancel(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    Ok(SiteResponse(face.site.cancel(key(&headers)?, &body).await?))
}

/// With a user's token, the compatibility profile; otherwise the request of an agent.
async fn compensate_named(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.user(request.headers())?;
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    if let Some(user) = user {
        return Ok(SiteResponse(user.compensate(&id, &body).await?));
    }
    let compensated = face.site.compensate_named(&id, key(&headers)?, &body);
    Ok(SiteResponse(compensated.await?))
}

async fn revoke(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.user(request.headers())?;
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    if let Some(user) = user {
        return Ok(SiteResponse(user.revoke(&id, &body).await?));
    }
    let cancelled = face.site.cancel_named(&id, key(&headers)?, &body);
    Ok(SiteResponse(cancelled.await?))
}

/// For operators, regardless of the owner.
async fn intent(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    headers: HeaderMap,
) -> HandlerResult {
    if face.operator(&headers).is_ok() {
        return Ok(SiteResponse(face.site.any_intent(&id).await?));
    }
    if let Some(user) = face.user(&headers)? {
        return Ok(SiteResponse(user.intent(&id).await?));
    }
    Ok(SiteResponse(face.site.intent(&id).await?))
}

async fn receipts(State(face): State<TransactionFace>, Segment(id): Segment) -> HandlerResult {
    Ok(SiteResponse(face.site.receipts_of(&id).await?))
}

async fn transaction(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    headers: HeaderMap,
) -> HandlerResult {
    if face.operator(&headers).is_ok() {
        return Ok(SiteResponse(face.site.any_transaction(&id).await?));
    }
    if let Some(user) = face.user(&headers)? {
        return Ok(SiteResponse(user.transaction_shown(&id).await?));
    }
    Ok(SiteResponse(face.site.transaction_shown(&id).await?))
}

async fn receipt(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    face.charge_public(&request)?;
    Ok(SiteResponse(face.site.receipt_shown(&id).await?))
}

async fn verify(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    face.charge_public(&request)?;
    let body = whole(request, VERIFY_BYTES_MAX).await?.1;
    Ok(SiteResponse(face.site.verify(&body).await?))
}

async fn callback(
    State(face): State<TransactionFace>,
    Segment(rail): Segment,
    request: Request,
) -> HandlerResult {
    // Checked before the body is read.
    if !face.site.has_rail(&rail) {
        return Err(Problem::NotFound { what: "rail" }.into());
    }
    let (headers, body) = face.receive_write(request, CALLBACK_BYTES_MAX).await?;
    let headers: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .collect();
    Ok(SiteResponse(
        face.site.callback(&rail, &headers, &body).await?,
    ))
}

async fn keys(State(face): State<TransactionFace>) -> Response {
    json_text(face.site.key_list().to_string())
}

async fn manifest(State(face): State<TransactionFace>) -> Response {
    json_text(face.site.manifest())
}

async fn revocations(State(face): State<TransactionFace>) -> Response {
    json_text(face.site.revocations())
}

async fn health(State(face): State<TransactionFace>) -> Response {
    let ledger = face.site.ledger_health().await;
    let writer = ledger == LedgerHealth::Healthy;
    let mut body = json!({
        "ok": writer,
        "service": "atp",
        "version": env!("CARGO_PKG_VERSION"),
        "writer": writer,
    });
    if writer {
        return json_value(&body);
    }
    let problem = Problem::StoreUnavailable;
    body["error"] = problem.name().into();
    body["message"] = problem.to_string().into();
    body["ledger"] = ledger.name().into();
    body["reason"] = ledger.reason().into();
    refusal(&problem, &body)
}

async fn unknown_path() -> ProblemResponse {
    ProblemResponse(Problem::NotFound { what: "path" })
}

async fn wrong_method() -> Response {
    let code = Code::MethodNotAllowed;
    let mut body = serde_json::to_value(Problem::NotFound { what: "method" }).unwrap_or_default();
    body["error"] = code.name().into();
    body["message"] = "this path does not support this method; see the Allow header".into();
    let mut response = (error_status::of(code), json_value(&body)).into_response();
    response.extensions_mut().insert(ErrorCode(code));
    response
}

impl TransactionFace {
    /// Charges a request to the limit of the public routes.
    fn charge_public(&self, request: &Request) -> Result<(), Problem> {
        self.take(&self.public, request, 0).map(|_| ())
    }

    /// Receives the complete body of a write.
    async fn receive_write(
        &self,
        request: Request,
        max_bytes: usize,
    ) -> Result<(HeaderMap, ReceivedBody), ProblemResponse> {
        // Without an announced length, the body may have the maximal length.
        let announced = request.body().size_hint().upper();
        let announced = announced.and_then(|bytes| usize::try_from(bytes).ok());
        let announced = announced.unwrap_or(max_bytes).min(max_bytes);
        let taken = self.take(&self.writes, &request, announced)?;
        let read = whole(request, max_bytes).await;
        if let Ok((_, body)) = &read {
            taken.give_back(announced.saturating_sub(body.len()));
        }
        read
    }

    fn take<'a>(
        &self,
        allowance: &'a RateLimit,
        request: &Request,
        bytes: usize,
    ) -> Result<RateCharge<'a>, Problem> {
        allowance
            .take(request, self.options.policy.trust_proxy, bytes)
            .map_err(|retry_after_s| Problem::RateLimited { retry_after_s })
    }
}

/// A path segment. Segments that are not UTF-8 name nothing.
struct Segment(String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = named.map_err(|_| Problem::NotFound { what: "path" })?;
        Ok(Self(name))
    }
}

/// The complete body, within its limit.
async fn whole(
    request: Request,
    max_bytes: usize,
) -> Result<(HeaderMap, ReceivedBody), ProblemResponse> {
    let (head, body) = request.into_parts();
    let body: Body = body;
    let sender = body::sender(&head.extensions);
    match body::receive(body, max_bytes, body::DEADLINE_DEFAULT, sender).await {
        Ok(body) => Ok((head.headers, body)),
        // Nothing was changed, and the request may be sent again, as this error says.
        Err(BodyError::NoRoom) => Err(ProblemResponse(Problem::StoreUnavailable)),
        Err(BodyError::TooLarge) => Err(ProblemResponse(Problem::PayloadTooLarge { max_bytes })),
        Err(BodyError::TooSlow) => Err(ProblemResponse(Problem::RequestTimeout)),
        Err(error @ BodyError::Broken) => Err(ProblemResponse(Problem::InvalidRequest {
            field: None,
            reason: error.to_string(),
        })),
    }
}

/// Two keys are ambiguous, and a guess could pay twice.
fn key(headers: &HeaderMap) -> Result<Option<&[u8]>, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let first = keys.next().map(HeaderValue::as_bytes);
    match keys.next() {
        None => Ok(first),
        Some(_) => Err(Problem::IdempotencyKeyInvalid {
            reason: "occurs twice",
        }),
    }
}

/// The site's answer as an HTTP response.
struct SiteResponse(SiteAnswer);

impl IntoResponse for SiteResponse {
    fn into_response(self) -> Response {
        let Self(answer) = self;
        let retry_after = answer.retry_after_s();
        let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
        let mut response = (status, json_text(answer.body)).into_response();
        let headers = response.headers_mut();
        if answer.replayed {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        if let Some(state) = answer.state {
            headers.insert("atp-state", HeaderValue::from_static(state.word()));
        }
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// An error in the protocol's format.
struct ProblemResponse(Problem);

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let body = serde_json::to_value(&problem).unwrap_or_default();
        refusal(&problem, &body)
    }
}

fn refusal(problem: &Problem, body: &Value) -> Response {
    let code = problem.code();
    let mut response = (error_status::of(code), json_value(body)).into_response();
    response.extensions_mut().insert(ErrorCode(code));
    if let Some(seconds) = problem.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if matches!(
        problem,
        Problem::TokenRefused { .. } | Problem::CallbackRefused { .. }
    ) {
        response = throttle::marked(response);
    }
    response
}

/// A token that was sent and refused counts as a wrong credential; a missing token does not.
async fn mark_wrong_token(request: Request, next: Next) -> Response {
    let is_shown = request.headers().contains_key(AUTHORIZATION);
    let response = next.run(request).await;
    if is_shown && response.status() == StatusCode::UNAUTHORIZED {
        return throttle::marked(response);
    }
    response
}

fn json_value(value: &Value) -> Response {
    json_text(value.to_string())
}

fn json_text(text: String) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], text).into_response()
}
