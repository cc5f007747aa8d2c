//! The face of the Agent Transaction Protocol: signed permissions, transactions with exactly one effect, public receipts.
//!
//! Status codes, `Retry-After` and the JSON of responses are in this folder alone: `problem_response` for errors, `views` for
//! the results of the site.
//! `docs/protocols/transactions.md` describes what the protocol leaves open and our extensions.

mod compat;
mod handlers;
mod hosts;
mod listener_policy;
mod mount;
pub mod openapi;
mod operator;
mod problem_response;
mod receive;
mod report;
mod response;
mod routes;
mod token;
mod views;

use std::fmt;
use std::sync::Arc;

use crate::problem::Problem;
use crate::site::Site;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::AUTHORIZATION;
use tower::layer::layer_fn;

use consign_web::credentials::SecretDigest;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::panic::CatchPanic;
use consign_web::rate_limit::RateLimit;
use consign_web::request_id::RequestId;
use consign_web::throttle;

pub use hosts::SiteHosts;
pub use mount::SiteMount;
pub use problem_response::ProblemResponse;
pub use response::SiteResponse;
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
fn router(site: Site, options: Options) -> Router {
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
    let routes = routes::routes();
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
fn on_too_many_failures() -> Response {
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

/// A token that was sent and refused counts as a wrong credential; a missing token does not.
async fn mark_wrong_token(request: Request, next: Next) -> Response {
    let is_shown = request.headers().contains_key(AUTHORIZATION);
    let response = next.run(request).await;
    if is_shown && response.status() == StatusCode::UNAUTHORIZED {
        return throttle::marked(response);
    }
    response
}
