//! One connection, from the handshake to its last answer.
//!
//! Invariant: it lets go of its phase receiver exactly when it is over, which is how the server
//! knows that it has drained. A connection's troubles end here; the server never hears of them.

use std::{convert::Infallible, pin::pin, time::Duration};

use axum::{body::Body, response::Response};
use http::{HeaderValue, Request, StatusCode, header::CONNECTION};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, watch},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt as _};

use super::{HEAD_BYTES_MAX, Peer, Phase};
use crate::web::linger::{Lingering, UnreadBody};
use crate::web::presence::{OverTcp, Presence};
use crate::web::stall::Unstalled;

const BUFFER_BYTES_MAX: usize = 128 << 10;
/// A body beyond this may still be on its way when the answer is ready.
const BODY_IN_FLIGHT_BYTES: u64 = 16 << 10;

/// One accepted connection and what it takes to serve it.
pub(super) struct Connection<S> {
    pub(super) peer: Peer,
    pub(super) service: S,
    pub(super) place: OwnedSemaphorePermit,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) head_timeout: Duration,
    pub(super) unreadable_body: &'static str,
}

impl<S> Connection<S>
where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    pub(super) async fn start(
        mut self,
        stream: Unstalled,
        acceptor: Option<TlsAcceptor>,
        handshake_timeout: Duration,
    ) {
        // Answers are written in one piece; waiting to fill a packet would only delay them.
        if let Err(error) = stream.tcp().set_nodelay(true) {
            tracing::debug!(%error, "a client left before it was served");
            return;
        }
        let Some(acceptor) = acceptor else {
            return self.serve(stream).await;
        };
        let handshake = tokio::select! {
            handshake = timeout(handshake_timeout, acceptor.accept(stream)) => handshake,
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
            place,
            mut phase,
            head_timeout,
            unreadable_body,
        } = self;
        let unread_body = UnreadBody::default();
        let presence = Presence::default();
        let stream = Lingering::new(
            stream,
            unread_body.clone(),
            presence.clone(),
            unreadable_body,
            place,
        );
        let answer = service_fn(move |request: Request<Incoming>| {
            let known = (peer, presence.clone(), unread_body.clone());
            answer(service.clone(), request, known)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            // A client may shut its sending side and still wait for the answer.
            .half_close(true)
            // It would hold back an answer while unparsed bytes wait, and lose hyper's own 431.
            .pipeline_flush(false)
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades();
        let mut connection = pin!(connection);
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
                    (Ok(()), Phase::Draining) => connection.as_mut().graceful_shutdown(),
                    (Ok(()), Phase::Serving) => {}
                    // Either time is up, or the server's future was dropped.
                    (_, Phase::Cut) | (Err(_), _) => return,
                },
            }
        }
    }
}

/// Passes one request on, with what the connection knows about it.
async fn answer<S>(
    service: S,
    request: Request<Incoming>,
    (peer, presence, unread_body): (Peer, Presence, UnreadBody),
) -> Result<Response, Infallible>
where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
{
    let announced = request.body().size_hint().upper();
    let may_be_in_flight = announced.is_none_or(|bytes| bytes > BODY_IN_FLIGHT_BYTES);
    let mut request = request.map(|body| {
        if body.is_end_stream() {
            // An empty body needs no allocation, an incoming one does.
            Body::empty()
        } else {
            Body::new(body)
        }
    });
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(presence);

    let mut response = service.oneshot(request).await?;

    let status = response.status();
    unread_body.set(may_be_in_flight && status.is_client_error());
    if matches!(
        status,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT
    ) {
        // The body was not read to its end, so nothing can follow it on this connection.
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
