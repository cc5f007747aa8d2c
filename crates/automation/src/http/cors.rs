//! CORS: allows exactly the origins that the configuration lists.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::ApiState;

/// Passes the request on, and adds the headers that allow a listed origin to read the response.
pub(super) async fn answer(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    let origin = listed(&state, request.headers());
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(ORIGIN)
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first {
        // Without the headers below, the browser denies access.
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    if !state
        .runtime
        .program()
        .config()
        .api
        .allowed_origins
        .is_empty()
    {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    let Some(origin) = origin else {
        return response;
    };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_ALLOW_CREDENTIALS,
        HeaderValue::from_static("true"),
    );
    if asks_first {
        for (name, value) in [
            (
                ACCESS_CONTROL_ALLOW_METHODS,
                "GET, POST, PUT, DELETE, OPTIONS",
            ),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                "Authorization, Content-Type, Last-Event-ID",
            ),
            (ACCESS_CONTROL_MAX_AGE, "300"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

fn listed(state: &ApiState, headers: &HeaderMap) -> Option<HeaderValue> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let only = origins.next().filter(|_| origins.next().is_none())?;
    let program = state.runtime.program();
    let mut allowed = program.config().api.allowed_origins.iter();
    allowed
        .any(|allowed| allowed.as_bytes() == only.as_bytes())
        .then(|| only.clone())
}
