//! One structured event per request, under the log target `access`, and its counters.
//!
//! Invariant: no header, query string or body is logged, so no key can be. The event is written when the response
//! head is ready; `duration_ms` does not include the streaming of a body, and a request whose client disconnects
//! before the response has no event. If the target is disabled and nothing is counted, no clock is read and
//! nothing is copied. This layer also assigns the request id, because it is the outermost one.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use consign_kernel::error::Code;
use http::{Method, Request, Response, Uri};
use tower::Service;
use tracing::Level;

use super::{
    http_meter::HttpMeter,
    proxy::Origin,
    request_id::{HEADER, RequestId, RequestIds},
    server::Peer,
};

/// The error code of a response, which the event contains; an extension of the response.
#[derive(Debug, Clone, Copy)]
pub struct ErrorCode(pub Code);

/// Wraps a service so that each request has an id and is logged.
#[derive(Debug, Clone)]
pub struct AccessLog<S> {
    inner: S,
    ids: Arc<RequestIds>,
    trust_proxy: bool,
    meter: Option<Arc<HttpMeter>>,
}

impl<S> AccessLog<S> {
    pub fn new(inner: S, request_id_seed: u128, trust_proxy: bool) -> Self {
        Self {
            inner,
            ids: Arc::new(RequestIds::new(request_id_seed)),
            trust_proxy,
            meter: None,
        }
    }

    /// Also counts each request.
    #[must_use]
    pub fn metered(self, meter: Arc<HttpMeter>) -> Self {
        Self {
            meter: Some(meter),
            ..self
        }
    }
}

impl<S, In, Out> Service<Request<In>> for AccessLog<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Unpin,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = AccessLogFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<In>) -> Self::Future {
        let request_id = RequestId::presented(request.headers()).unwrap_or_else(|| self.ids.next());
        request.extensions_mut().insert(request_id.clone());
        let entry = tracing::enabled!(target: "access", Level::INFO)
            .then(|| AccessLogEntry::begin(&request, self.trust_proxy));
        let counted = self.meter.clone().map(|meter| CountedRequest {
            meter,
            uri: request.uri().clone(),
            began_at: Instant::now(),
        });
        AccessLogFuture {
            counted,
            answer: self.inner.call(request),
            request_id: Some(request_id),
            entry,
        }
    }
}

/// The response future of [`AccessLog`].
#[derive(Debug)]
pub struct AccessLogFuture<F> {
    answer: F,
    /// Taken when the response is ready.
    request_id: Option<RequestId>,
    entry: Option<AccessLogEntry>,
    counted: Option<CountedRequest>,
}

/// A request that is counted when its response is ready.
#[derive(Debug)]
struct CountedRequest {
    meter: Arc<HttpMeter>,
    uri: Uri,
    began_at: Instant,
}

impl<F, Out, E> Future for AccessLogFuture<F>
where
    F: Future<Output = Result<Response<Out>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut answer = ready!(Pin::new(&mut this.answer).poll(cx));
        if let (Ok(response), Some(request_id)) = (&mut answer, this.request_id.take()) {
            if let Some(counted) = this.counted.take() {
                let (path, took) = (counted.uri.path(), counted.began_at.elapsed());
                counted.meter.count(path, response.status().as_u16(), took);
            }
            if let Some(entry) = this.entry.take() {
                let code = response.extensions().get::<ErrorCode>();
                let code = code.map(|ErrorCode(code)| *code);
                entry.finish(&request_id, response.status().as_u16(), code);
            }
            let headers = response.headers_mut();
            headers.insert(HEADER.clone(), request_id.into_header());
        }
        Poll::Ready(answer)
    }
}

/// The request data that is needed when the response is ready.
#[derive(Debug)]
struct AccessLogEntry {
    method: Method,
    uri: Uri,
    remote_addr: Option<IpAddr>,
    began_at: Instant,
}

impl AccessLogEntry {
    fn begin<In>(request: &Request<In>, trust_proxy: bool) -> Self {
        let peer = request.extensions().get::<Peer>();
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            remote_addr: peer.map(|peer| Origin::of(*peer, request.headers(), trust_proxy).client),
            began_at: Instant::now(),
        }
    }

    fn finish(self, request_id: &RequestId, status_code: u16, error_code: Option<Code>) {
        let microseconds = (self.began_at.elapsed().as_secs_f64() * 1e6).round();
        tracing::info!(
            target: "access",
            endpoint = self.uri.path(),
            method = self.method.as_str(),
            request_id = request_id.as_str(),
            remote_addr = self.remote_addr.map(tracing::field::display),
            status_code,
            error_code = error_code.map(Code::name),
            duration_ms = microseconds / 1e3,
            "request"
        );
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        convert::Infallible,
        fmt::{Debug, Write as _},
        future::ready,
        sync::{Mutex, atomic::AtomicU64},
    };

    use tower::{ServiceExt as _, service_fn};
    use tracing::{Event, Metadata, Subscriber, field, span};

    use super::*;

    /// Records each event as `field=value` words.
    #[derive(Clone, Default)]
    pub(crate) struct Recorder {
        pub(crate) lines: Arc<Mutex<String>>,
        spans: Arc<AtomicU64>,
    }

    impl Subscriber for Recorder {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "access"
        }

        fn event(&self, event: &Event<'_>) {
            let mut lines = self.lines.lock().unwrap();
            event.record(&mut |field: &field::Field, value: &dyn Debug| {
                write!(lines, "{field}={value:?} ").unwrap();
            });
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            use std::sync::atomic::Ordering::Relaxed;
            span::Id::from_u64(self.spans.fetch_add(1, Relaxed) + 1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test]
    async fn the_line_names_the_request_and_shows_no_query_and_no_key() {
        let recorder = Recorder::default();
        let _recording = tracing::subscriber::set_default(recorder.clone());
        let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))));
        let request = Request::post("/claim?goal=secret-goal")
            .header("x-request-id", "r-9")
            .header("x-api-key", "tk_secret")
            .header("x-forwarded-for", "203.0.113.9")
            .extension(Peer {
                addr: ([127, 0, 0, 1], 5000).into(),
                tls: false,
            })
            .body(())
            .unwrap();

        let response = AccessLog::new(inner, 1, true).oneshot(request).await;

        assert_eq!(response.unwrap().headers()[&HEADER], "r-9");
        let line = recorder.lines.lock().unwrap().clone();
        for word in [
            "endpoint=\"/claim\" ",
            "method=\"POST\" ",
            "request_id=\"r-9\" ",
            "remote_addr=203.0.113.9 ",
            "status_code=200 ",
            "duration_ms=",
        ] {
            assert!(line.contains(word), "{word} in {line}");
        }
        assert!(!line.contains("secret"), "{line}");
        assert!(!line.contains("error_code"), "{line}");
    }

    #[tokio::test]
    async fn the_line_of_a_refused_request_has_the_error_code() {
        let recorder = Recorder::default();
        let _recording = tracing::subscriber::set_default(recorder.clone());
        let inner = service_fn(|_: Request<()>| {
            let mut response = Response::new(());
            response
                .extensions_mut()
                .insert(ErrorCode(Code::RateLimited));
            ready(Ok::<_, Infallible>(response))
        });
        let request = Request::get("/jobs").body(()).unwrap();
        let response = AccessLog::new(inner, 1, true).oneshot(request).await;
        assert!(response.is_ok());
        let line = recorder.lines.lock().unwrap().clone();
        assert!(line.contains("error_code=\"rate_limited\" "), "{line}");
    }
}
