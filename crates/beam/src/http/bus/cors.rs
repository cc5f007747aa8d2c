//! CORS: web pages of this machine and of the configured origins may read responses of the bus.
//!
//! It grants nothing else: a page needs the key of the bus like any other client.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::http::BeamFace;

/// Passes the request on, and adds the headers that allow a listed origin to read the response.
pub(super) async fn answer(State(face): State<BeamFace>, request: Request, next: Next) -> Response {
    let listed = &face.beam.settings().bus.allowed_origins;
    let origin = allowed(request.headers(), listed);
    let headers = request.headers();
    let is_preflight = request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        // Without the headers below, the browser denies access.
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = origin else {
        return response;
    };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if is_preflight {
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type, Authorization"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

fn allowed(headers: &HeaderMap, listed: &[String]) -> Option<HeaderValue> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let only = origins.next().filter(|_| origins.next().is_none())?;
    let text = only.to_str().ok()?;
    let is_allowed = listed.iter().any(|listed| listed == text) || is_of_this_machine(text);
    is_allowed.then(|| only.clone())
}

/// `localhost` or `127.0.0.1`, by HTTP or HTTPS, on any port.
fn is_of_this_machine(origin: &str) -> bool {
    let rest = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    let Some(rest) = rest else { return false };
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok() && !port.starts_with('+');
    matches!(host, "localhost" | "127.0.0.1") && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_this_machine_are_told_from_others() {
        for origin in [
            "http://localhost",
            "https://localhost:8443",
            "http://127.0.0.1:3000",
        ] {
            assert!(is_of_this_machine(origin), "{origin}");
        }
        for origin in [
            "null",
            "http://localhost.evil.example",
            "http://localhost:80.evil.example",
            "http://127.0.0.1:",
            "http://127.0.0.2",
            "ftp://localhost",
            "http://user@localhost",
        ] {
            assert!(!is_of_this_machine(origin), "{origin}");
        }
    }
}
