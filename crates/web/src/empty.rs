//! A router that reads every request and does no work: the upper bound of the HTTP stack.
//!
//! The load generator runs it behind the same listener and layers as a real face, to measure the cost of HTTP alone.
//! It stores nothing, checks no credentials and is never part of `consign serve`.

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, header};

use super::body;

/// The largest accepted body.
const BODY_BYTES_MAX: usize = 1 << 20;
const ANSWER: &str = r#"{"ok":true}"#;

/// Responds to every request.
pub fn router() -> Router {
    Router::new().fallback(answer)
}

async fn answer(body: Body) -> Response {
    match body::read(body, BODY_BYTES_MAX, body::DEADLINE_DEFAULT).await {
        Ok(_read) => {
            let kind = HeaderValue::from_static("application/json");
            ([(header::CONTENT_TYPE, kind)], ANSWER).into_response()
        }
        Err(error) => error.status().into_response(),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, StatusCode};
    use tower::ServiceExt as _;

    use super::*;

    async fn post(length: usize) -> (StatusCode, axum::body::Bytes) {
        let request = Request::post("/any/path").body(Body::from("x".repeat(length)));
        let response = router().oneshot(request.unwrap()).await.unwrap();
        let status = response.status();
        let body = body::read(response.into_body(), 99, body::DEADLINE_DEFAULT).await;
        (status, body.unwrap())
    }

    #[tokio::test]
    async fn every_post_is_answered_once_its_body_was_read() {
        assert_eq!(post(200).await, (StatusCode::OK, ANSWER.into()));
        assert_eq!(
            post(BODY_BYTES_MAX + 1).await.0,
            StatusCode::PAYLOAD_TOO_LARGE
        );
    }
}
