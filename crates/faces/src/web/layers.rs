//! Stacks the layers around a router in their one right order.
//!
//! From the outside in: access log (so that it sees the final status), response headers (so that
//! a panic's answer carries them too), panic guard, router. Wrapping happens once around the whole
//! router rather than with `Router::layer`, which would box a future per layer and per route.

use super::{
    access_log::AccessLog,
    headers::ResponseHeaders,
    panic::{CatchPanic, OnPanic},
};

/// What the layers need to know.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether one hop of forwarding headers is believed when the client is named in the log.
    pub trust_proxy: bool,
    /// Random per process; request ids are derived from it.
    pub request_id_seed: u128,
    /// Builds the answer to a request whose handler panicked.
    pub on_panic: OnPanic,
}

/// A service with all layers around it.
pub type Layered<S> = AccessLog<ResponseHeaders<CatchPanic<S>>>;

/// Wraps `service`, usually a finished `axum::Router`, in every layer of the web ground.
pub fn around<S>(service: S, options: Options) -> Layered<S> {
    let guarded = CatchPanic::new(service, options.on_panic);
    AccessLog::new(
        ResponseHeaders::new(guarded),
        options.request_id_seed,
        options.trust_proxy,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::{
        Router,
        body::Body,
        response::{IntoResponse as _, Response},
        routing::get,
    };
    use http::{Request, StatusCode};
    use tower::ServiceExt as _;

    use super::*;
    use crate::web::request_id::RequestId;

    static NAMED: AtomicBool = AtomicBool::new(false);

    fn on_panic(id: Option<&RequestId>) -> Response {
        NAMED.store(id.is_some_and(|id| id.as_str() == "r-1"), Ordering::Relaxed);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }

    #[tokio::test]
    async fn a_panicking_handler_still_answers_with_headers_and_request_id() {
        let router = Router::new().route(
            "/boom",
            get(|| async {
                if NAMED.load(Ordering::Relaxed) {
                    return "unreachable";
                }
                panic!("planned")
            }),
        );
        let service = around(
            router,
            Options {
                trust_proxy: false,
                request_id_seed: 7,
                on_panic,
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
        assert!(NAMED.load(Ordering::Relaxed));

        let unknown = Request::get("/nowhere").body(Body::empty()).unwrap();
        let response = service.oneshot(unknown).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()["x-frame-options"], "DENY");
        assert_eq!(response.headers()["x-request-id"].len(), 32);
    }
}
