//! The five headers of every response.
//!
//! Invariant: every response of the wrapped service has these five headers with these values; a handler cannot change
//! them. Responses that hyper writes itself for an invalid request head never pass through a service; `unreadable`
//! handles those.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use consign_kernel::plant::{self, Plant};
use http::{
    HeaderMap, HeaderName, HeaderValue, Response,
    header::{CACHE_CONTROL, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS},
};
use tower::Service;

/// The version of the Intent Protocol in all responses.
pub const INTENT_VERSION: &str = "2.1";

/// The five headers, in the order in which they are sent.
pub static ALWAYS: [(HeaderName, HeaderValue); 5] = [
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("x-intent-version"),
        HeaderValue::from_static(INTENT_VERSION),
    ),
];

/// Adds the five headers, replacing existing values.
pub fn put(headers: &mut HeaderMap) {
    // Capacity for these, the request id, and the headers of hyper, so that the map grows once.
    headers.reserve(ALWAYS.len() + 3);
    for (name, value) in &ALWAYS {
        if name == X_FRAME_OPTIONS && plant::on(Plant::DropFrameHeader) {
            continue;
        }
        headers.insert(name.clone(), value.clone());
    }
}

/// Wraps a service so that each of its responses passes through [`put`].
#[derive(Debug, Clone)]
pub struct ResponseHeaders<S> {
    inner: S,
}

impl<S> ResponseHeaders<S> {
    pub const fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, Request, Body> Service<Request> for ResponseHeaders<S>
where
    S: Service<Request, Response = Response<Body>>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseHeadersFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseHeadersFuture {
            answer: self.inner.call(request),
        }
    }
}

/// The response future of [`ResponseHeaders`].
#[derive(Debug)]
pub struct ResponseHeadersFuture<F> {
    answer: F,
}

impl<F, Body, E> Future for ResponseHeadersFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = ready!(Pin::new(&mut self.answer).poll(cx));
        if let Ok(response) = &mut answer {
            put(response.headers_mut());
        }
        Poll::Ready(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handlers_own_cache_rule_is_replaced_not_doubled() {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));

        put(&mut headers);

        let rules: Vec<_> = headers.get_all(CACHE_CONTROL).iter().collect();
        assert_eq!(rules, ["no-store"]);
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["x-intent-version"], "2.1");
    }
}
