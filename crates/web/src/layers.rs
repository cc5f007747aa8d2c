//! Builds the layers around a router in the required order.
//!
//! From the outside in: access log (so that it sees the final status), response headers (so that the response to a
//! panic has them too), throttle, panic guard, router. The layers wrap the whole router once; `Router::layer` would
//! box a future per layer and route.

use std::fmt;

use super::{
    access_log::AccessLog,
    headers::ResponseHeaders,
    panic::{CatchPanic, OnPanic},
    throttle::{Throttle, TooManyFailures},
};

/// The configuration of the layers.
#[derive(Clone)]
pub struct Options {
    /// Whether one hop of forwarding headers is trusted for the client address in the log.
    pub trust_proxy: bool,
    /// Random per process; request ids are derived from it.
    pub request_id_seed: u128,
    /// Builds the response to a request whose handler panicked.
    pub on_panic: OnPanic,
    /// Builds the response to an address with too many wrong credentials; without it nothing is counted.
    pub on_too_many_failures: Option<TooManyFailures>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("trust_proxy", &self.trust_proxy)
            .finish_non_exhaustive()
    }
}

/// A service with all layers around it.
pub type Layered<S> = AccessLog<ResponseHeaders<Throttle<CatchPanic<S>>>>;

/// Wraps `service`, usually a finished `axum::Router`, in all layers.
pub fn around<S>(service: S, options: Options) -> Layered<S> {
    let guarded = CatchPanic::new(service, options.on_panic);
    let counted = Throttle::new(guarded, options.trust_proxy, options.on_too_many_failures);
    AccessLog::new(
        ResponseHeaders::new(counted),
        options.request_id_seed,
        options.trust_proxy,
    )
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        body::Body,
        response::{IntoResponse as _, Response},
        routing::get,
    };
    use http::{Request, StatusCode};
    use tower::ServiceExt as _;

    use super::*;
    use crate::{body, request_id::RequestId};

    fn on_panic(id: Option<&RequestId>) -> Response {
        let named = id.map(|id| id.as_str().to_owned());
        (StatusCode::INTERNAL_SERVER_ERROR, named.unwrap_or_default()).into_response()
    }

    fn broken() -> &'static str {
        panic!("planned")
    }

    #[tokio::test]
    async fn every_answer_carries_headers_and_request_id_even_after_a_panic() {
        let service = around(
            Router::new().route("/boom", get(|| async { broken() })),
            Options {
                trust_proxy: false,
                request_id_seed: 7,
                on_panic,
                on_too_many_failures: None,
            },
        );
        let request = Request::get("/boom")
            .header("x-request-id", "r-1")
            .body(Body::empty())
            .unwrap();

        let response = service.clone().oneshot(request).await.unwrap();

        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()["x-request-id"], "r-1");
        assert_eq!(response.headers()["x-intent-version"], "2.1");
        let body = body::read(response.into_body(), 9, body::DEADLINE_DEFAULT).await;
        assert_eq!(body.unwrap(), "r-1");

        let unknown = Request::get("/nowhere").body(Body::empty()).unwrap();
        let response = service.oneshot(unknown).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()["x-frame-options"], "DENY");
        assert_eq!(response.headers()["x-request-id"].len(), 32);
    }
}
