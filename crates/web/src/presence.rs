//! Detects that a client disconnects while its request waits.
//!
//! A worker that dies during a long poll must not get an intent, which would stay leased until the lease expires.
//! hyper does not read while a request is processed, so the connection checks its socket itself, and only for
//! requests that need it. Over TLS an orderly close looks like data; only an abrupt close is detected there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

use super::stall::StallTimeoutStream;

/// One per connection; found in each request's extensions.
#[derive(Clone, Debug, Default)]
pub struct Presence(Arc<PresenceState>);

#[derive(Debug, Default)]
struct PresenceState {
    watched: AtomicBool,
    gone: AtomicBool,
    hung_up: Notify,
}

impl Presence {
    /// Returns when the client has closed its side of the connection. It costs nothing unless it is awaited.
    pub async fn hung_up(&self) {
        let _watch = PresenceWatch::begin(&self.0);
        while !self.0.gone.load(Ordering::Acquire) {
            self.0.hung_up.notified().await;
        }
    }

    /// Called by the connection's task whenever it has nothing to write.
    pub(super) fn look(&self, cx: &mut Context<'_>, socket: &TcpStream) {
        if !self.0.watched.load(Ordering::Acquire) || self.0.gone.load(Ordering::Acquire) {
            return;
        }
        let mut byte = [0; 1];
        match socket.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(0) | Err(_)) => {
                self.0.gone.store(true, Ordering::Release);
                self.0.hung_up.notify_one();
            }
            Poll::Ready(Ok(_)) | Poll::Pending => {}
        }
    }
}

/// The socket is checked only while this guard exists.
struct PresenceWatch<'a>(&'a PresenceState);

impl<'a> PresenceWatch<'a> {
    fn begin(state: &'a PresenceState) -> Self {
        state.watched.store(true, Ordering::Release);
        Self(state)
    }
}

impl Drop for PresenceWatch<'_> {
    fn drop(&mut self) {
        self.0.watched.store(false, Ordering::Release);
    }
}

/// A stream over a TCP socket.
pub(super) trait OverTcp {
    fn tcp(&self) -> &TcpStream;
}

impl OverTcp for StallTimeoutStream {
    fn tcp(&self) -> &TcpStream {
        self.socket()
    }
}

impl OverTcp for TlsStream<StallTimeoutStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0.socket()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::extract::{Request, State};
    use axum::routing::get;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::server::{Options, Server};

    async fn wait(
        State(seen): State<mpsc::Sender<&'static str>>,
        request: Request,
    ) -> &'static str {
        let presence = request.extensions().get::<Presence>().cloned().unwrap();
        seen.send("waiting").await.unwrap();
        presence.hung_up().await;
        seen.send("hung up").await.unwrap();
        "nobody reads this"
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_its_request_waits_is_noticed() {
        let (seen, mut told) = mpsc::channel(4);
        let server = Server::bind(Options::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let addr = server.local_addr();
        let router = Router::new().route("/", get(wait)).with_state(seen);
        tokio::spawn(server.run(router, std::future::pending::<()>()));
        let mut client = TcpStream::connect(addr).await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(told.recv().await, Some("waiting"));
        assert!(
            timeout(Duration::from_millis(200), told.recv())
                .await
                .is_err(),
            "it is still there"
        );
        drop(client);
        assert_eq!(
            timeout(Duration::from_secs(5), told.recv()).await,
            Ok(Some("hung up"))
        );
    }
}
