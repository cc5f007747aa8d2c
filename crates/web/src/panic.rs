//! Turns a panic in a handler into a response with status 500.
//!
//! Invariant: a panic does not close its connection, and its text is not sent to the client but logged with the
//! request id. A panic while a response body is streamed, after the head was sent, is not caught here: the connection
//! breaks, which is the only possible signal by then.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use http::Request;
use tower::Service;

use super::request_id::RequestId;

/// Builds the response to a request whose handler panicked.
pub type OnPanic = fn(Option<&RequestId>) -> Response;

/// Wraps a service so that panics become responses.
#[derive(Debug, Clone)]
pub struct CatchPanic<S> {
    inner: S,
    on_panic: OnPanic,
}

impl<S> CatchPanic<S> {
    pub const fn new(inner: S, on_panic: OnPanic) -> Self {
        Self { inner, on_panic }
    }
}

impl<S> Service<Request<Body>> for CatchPanic<S>
where
    S: Service<Request<Body>, Response = Response>,
    S::Future: Unpin,
{
    type Response = Response;
    type Error = S::Error;
    type Future = CatchPanicFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let request_id = request.extensions().get::<RequestId>().cloned();
        // The service is used again only through its clones. They share state only behind locks, which detect
        // poisoning.
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(request)));
        CatchPanicFuture {
            answer: called.map_err(|panic| Some(text(panic.as_ref()).to_owned())),
            request_id,
            on_panic: self.on_panic,
        }
    }
}

/// The response future of [`CatchPanic`].
#[derive(Debug)]
pub struct CatchPanicFuture<F> {
    /// The running handler, or the text of a panic before its first poll.
    answer: Result<F, Option<String>>,
    request_id: Option<RequestId>,
    on_panic: OnPanic,
}

impl<F, E> Future for CatchPanicFuture<F>
where
    F: Future<Output = Result<Response, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let panicked = match &mut this.answer {
            Ok(handler) => match catch_unwind(AssertUnwindSafe(|| Pin::new(handler).poll(cx))) {
                Ok(polled) => return polled,
                Err(panic) => text(panic.as_ref()).to_owned(),
            },
            Err(text) => text.take().unwrap_or_default(),
        };
        let request_id = this.request_id.as_ref();
        tracing::error!(
            request_id = request_id.map(RequestId::as_str),
            panic = panicked,
            "a request handler panicked"
        );
        Poll::Ready(Ok((this.on_panic)(request_id)))
    }
}

pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without text")
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::Ready};

    use axum::response::IntoResponse as _;
    use http::StatusCode;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    fn on_panic(_: Option<&RequestId>) -> Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }

    fn broken<T>() -> T {
        panic!("planned")
    }

    #[tokio::test]
    async fn panics_before_and_after_the_first_await_become_answers() {
        let early = service_fn(|_: Request<Body>| broken::<Ready<Result<_, Infallible>>>());
        let late = service_fn(|_: Request<Body>| {
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok::<Response, Infallible>(broken())
            })
        });

        let early = CatchPanic::new(early, on_panic).oneshot(Request::default());
        let late = CatchPanic::new(late, on_panic).oneshot(Request::default());

        assert_eq!(early.await.unwrap().status(), 500);
        assert_eq!(late.await.unwrap().status(), 500);
    }
}
