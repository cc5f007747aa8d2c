//! One connection, from the handshake to its last response.
//!
//! Invariant: it drops its phase receivers exactly when it ends, which tells the server that it has drained. If it
//! becomes a WebSocket, this task ends, and the socket holds a receiver of its own. Errors of a connection are handled
//! here and do not reach the server.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::{
    HeaderValue, Request, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use hyper::{
    body::{Body as _, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt as _};

use super::{HEAD_BYTES_MAX, Peer, ServerPhase};
use crate::connections::{Activity, ConnectionSlot};
use crate::linger::{LingeringStream, UnreadBody};
use crate::presence::{OverTcp, Presence};
use crate::stall::StallTimeoutStream;
use crate::websocket::SocketAdmission;

const BUFFER_BYTES_MAX: usize = 128 << 10;
/// A larger body may still be in transit when the response is ready.
const BODY_IN_FLIGHT_BYTES: u64 = 16 << 10;

/// One accepted connection and its configuration.
pub(super) struct Connection<S> {
    pub(super) peer: Peer,
    pub(super) service: S,
    pub(super) slot: ConnectionSlot,
    pub(super) phase: watch::Receiver<ServerPhase>,
    pub(super) first_head_by: Instant,
    pub(super) head_timeout: Duration,
    pub(super) unreadable_body: &'static str,
}

impl<S> Connection<S>
where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    pub(super) async fn start(mut self, stream: StallTimeoutStream, acceptor: Option<TlsAcceptor>) {
        // Responses are written in one piece; waiting to fill a packet would only delay them.
        if let Err(error) = stream.tcp().set_nodelay(true) {
            tracing::debug!(%error, "a client disconnected before it was served");
            return;
        }
        let Some(acceptor) = acceptor else {
            return self.serve(stream).await;
        };
        let handshake = tokio::select! {
            handshake = timeout_at(self.first_head_by, acceptor.accept(stream)) => handshake,
            _ = self.phase.changed() => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve<T>(self, stream: T)
    where
        T: AsyncRead + AsyncWrite + OverTcp + Unpin + Send + 'static,
    {
        let Self {
            peer,
            service,
            slot,
            mut phase,
            first_head_by,
            head_timeout,
            unreadable_body,
        } = self;
        let activity = slot.activity();
        let unread_body = UnreadBody::default();
        let presence = Presence::default();
        let stream = LingeringStream::new(
            stream,
            unread_body.clone(),
            presence.clone(),
            unreadable_body,
            slot,
        );
        let admission = SocketAdmission {
            activity: Arc::clone(&activity),
            phase: phase.clone(),
        };
        let answer = service_fn(move |request: Request<Incoming>| {
            let context = ConnectionContext {
                peer,
                presence: presence.clone(),
                unread_body: unread_body.clone(),
                activity: Arc::clone(&admission.activity),
                admission: request
                    .headers()
                    .contains_key(UPGRADE)
                    .then(|| admission.clone()),
            };
            answer(service.clone(), request, context)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            // A client may close its sending side and still wait for the response.
            .half_close(true)
            // It would hold back a response while unparsed bytes wait, and lose hyper's own 431.
            .pipeline_flush(false)
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut first_head_late = pin!(sleep_until(first_head_by));
        let mut has_begun = false;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                changed = phase.changed() => match (changed, *phase.borrow()) {
                    (Ok(()), ServerPhase::Draining) => connection.as_mut().graceful_shutdown(),
                    (Ok(()), ServerPhase::Serving) => {}
                    // Either the drain time is over, or the server's future was dropped.
                    (_, ServerPhase::Cut) | (Err(_), _) => return,
                },
                () = first_head_late.as_mut(), if !has_begun => {
                    has_begun = activity.has_begun();
                    if !has_begun {
                        tracing::debug!("a client did not send a request in time");
                        return;
                    }
                }
            }
        }
    }
}

/// What a connection adds to each request.
struct ConnectionContext {
    peer: Peer,
    presence: Presence,
    unread_body: UnreadBody,
    activity: Arc<Activity>,
    /// Only of a request that asks for an upgrade.
    admission: Option<SocketAdmission>,
}

/// Calls the service with one request.
async fn answer<S>(
    service: S,
    request: Request<Incoming>,
    context: ConnectionContext,
) -> Result<Response, Infallible>
where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
{
    let ConnectionContext {
        peer,
        presence,
        unread_body,
        activity,
        admission,
    } = context;
    let announced = request.body().size_hint().upper();
    let may_be_in_flight = announced.is_none_or(|bytes| bytes > BODY_IN_FLIGHT_BYTES);
    let has_body = !request.body().is_end_stream();
    if !activity.begin(has_body) {
        // The task of this connection is being aborted by an eviction.
        return std::future::pending().await;
    }
    let mut request = request.map(|body| {
        if has_body {
            let activity = Arc::clone(&activity);
            Body::new(IncomingBody { body, activity })
        } else {
            // An empty body needs no allocation, an incoming one does.
            Body::empty()
        }
    });
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(presence);
    if let Some(admission) = admission {
        request.extensions_mut().insert(admission);
    }

    let mut response = service.oneshot(request).await?;

    activity.answered();
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        activity.stayed_http();
    }
    // A 503 may leave the body unread, as other errors do.
    let left_unread = status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE;
    unread_body.set(may_be_in_flight && left_unread);
    if matches!(
        status,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT
    ) {
        // The body was not read to its end, so no further request can follow on this connection.
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// A request body that records when it is complete.
struct IncomingBody {
    body: Incoming,
    activity: Arc<Activity>,
}

impl hyper::body::Body for IncomingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.activity.received();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
