//! The listener: accepts connections and serves HTTP/1.1 until shutdown.
//!
//! Invariant: every resource that a client can occupy is bounded: connections, time of a handshake, time and bytes of
//! a request head, time of a stalled response. At the limit an idle connection is evicted for the new one; see
//! `connections`. On shutdown no connection is accepted, running requests get a bounded time to finish, and idle
//! connections close at once. A connection that becomes a WebSocket keeps its slot and takes part in the drain; see
//! `websocket`.
//! Bodies, routing and authentication are handled elsewhere.

mod connection;

use std::{
    convert::Infallible,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    time::Duration,
};

use axum::{body::Body, response::Response};
use http::Request;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::Service;

use self::connection::Connection;
use super::connections::{ConnectionLimits, Connections, NoSlot, client};
use super::stall::StallTimeoutStream;
use super::tls;

pub const CONNECTIONS_MAX_DEFAULT: usize = 4096;
/// Also the lifetime of an idle connection, hence well above the 75 s that pooled clients expect.
pub const HEAD_TIMEOUT_DEFAULT: Duration = Duration::from_secs(90);
/// From the accept to the end of the head of the first request.
pub const FIRST_HEAD_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
pub const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(8);
pub const STALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Request line and headers together. hyper limits the number of headers to 100; setting a number here would cost an
/// allocation per request.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

const BACKLOG: u32 = 1024;
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// The retry interval while all connections are busy.
const FULL_PAUSE: Duration = Duration::from_millis(20);
/// The fraction of the connections that one client may have.
const CLIENT_SHARE: usize = 4;
/// With few file descriptors the fraction would be too small.
const CONNECTIONS_PER_CLIENT_MIN: usize = 8;
/// The fraction of the connections that may be WebSocket connections, so that requests always find a slot.
const SOCKET_SHARE: usize = 2;

#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    pub tls: Option<tls::CertificateFiles>,
    /// A further connection evicts the longest idle one; if none is idle, it waits in the kernel's queue.
    pub connections_max: usize,
    /// The limit of one address (of IPv6 a /64). A further connection evicts the client's longest idle one; if none
    /// is idle, it is closed. By default a quarter of all.
    pub connections_per_client_max: Option<usize>,
    /// The limit of WebSocket connections among the connections; a further upgrade is refused. By default half of all.
    pub sockets_max: Option<usize>,
    /// A proxy is in front, so many clients share the addresses of this machine and of its private networks.
    pub behind_proxy: bool,
    /// From the end of a response to the end of the head of the next request.
    pub head_timeout: Duration,
    /// From the accept, including a TLS handshake, to the end of the head of the first request.
    pub first_head_timeout: Duration,
    /// How long running requests may take after shutdown began.
    pub drain_timeout: Duration,
    /// How long a response may make no progress.
    pub stall_timeout: Duration,
    /// The body of the response to an invalid request head, in the protocol's format.
    pub unreadable_body: &'static str,
}

impl Options {
    /// Plain HTTP on `listen` with the default limits.
    pub const fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            connections_max: CONNECTIONS_MAX_DEFAULT,
            connections_per_client_max: None,
            sockets_max: None,
            behind_proxy: false,
            head_timeout: HEAD_TIMEOUT_DEFAULT,
            first_head_timeout: FIRST_HEAD_TIMEOUT_DEFAULT,
            drain_timeout: DRAIN_TIMEOUT_DEFAULT,
            stall_timeout: STALL_TIMEOUT_DEFAULT,
            unreadable_body: "",
        }
    }

    fn connections(&self) -> Connections {
        let share = (self.connections_max / CLIENT_SHARE).max(CONNECTIONS_PER_CLIENT_MIN);
        let sockets = (self.connections_max / SOCKET_SHARE).max(1);
        Connections::new(ConnectionLimits {
            max: self.connections_max,
            per_client_max: self.connections_per_client_max.unwrap_or(share),
            sockets_max: self.sockets_max.unwrap_or(sockets),
        })
    }

    /// Whether this address stands for many clients.
    fn is_proxy(&self, ip: IpAddr) -> bool {
        let near = match ip.to_canonical() {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
            }
        };
        self.behind_proxy && near
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {addr}; choose another address or stop what uses it")]
    Bind { addr: SocketAddr, source: io::Error },
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error("{connections} connections were still busy when the drain time was over")]
    CutOff { connections: usize },
}

/// The peer of the connection; found in the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub addr: SocketAddr,
    pub tls: bool,
}

/// A bound listener that does not serve yet.
pub struct Server {
    options: Options,
    listener: TcpListener,
    local_addr: SocketAddr,
    tls: Option<tls::ReloadableCertificate>,
}

impl Server {
    /// Loads the certificate and binds the address. Must be called inside a tokio runtime.
    pub fn bind(options: Options) -> Result<Self, Error> {
        let tls = options
            .tls
            .clone()
            .map(tls::ReloadableCertificate::load)
            .transpose()?;
        let bound = listen(options.listen).and_then(|listener| {
            let local_addr = listener.local_addr()?;
            Ok((listener, local_addr))
        });
        let (listener, local_addr) = bound.map_err(|source| Error::Bind {
            addr: options.listen,
            source,
        })?;
        Ok(Self {
            options,
            listener,
            local_addr,
            tls,
        })
    }

    /// The bound address, with the real port if 0 was requested.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The handle for reloading the certificate, if there is one.
    pub fn tls(&self) -> Option<tls::ReloadableCertificate> {
        self.tls.clone()
    }

    /// Serves until `shutdown` resolves, then drains. An error means that requests were cut off. Dropping the future
    /// closes all connections at once.
    pub async fn run<S>(self, service: S, shutdown: impl Future) -> Result<(), Error>
    where
        S: Service<Request<Body>, Response = Response, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let Self {
            options,
            listener,
            tls,
            ..
        } = self;
        let connections = options.connections();
        let (phase, phase_seen) = watch::channel(ServerPhase::Serving);
        let mut pause = ACCEPT_PAUSE_MIN;
        let mut shutdown = pin!(shutdown);
        'serving: loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut shutdown => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, addr)) => {
                    pause = ACCEPT_PAUSE_MIN;
                    let (client, shared) = (client(addr.ip()), options.is_proxy(addr.ip()));
                    let slot = loop {
                        match connections.take(client, shared) {
                            Ok(slot) => break slot,
                            Err(NoSlot::ClientFull) => {
                                tracing::debug!(%addr, "a client has reached its limit of connections");
                                continue 'serving;
                            }
                            Err(NoSlot::Full) => tokio::select! {
                                biased;
                                _ = &mut shutdown => break 'serving,
                                () = sleep(FULL_PAUSE) => {}
                            },
                        }
                    };
                    let activity = slot.activity();
                    let connection = Connection {
                        peer: Peer {
                            addr,
                            tls: tls.is_some(),
                        },
                        service: service.clone(),
                        slot,
                        phase: phase_seen.clone(),
                        first_head_by: Instant::now() + options.first_head_timeout,
                        head_timeout: options.head_timeout,
                        unreadable_body: options.unreadable_body,
                    };
                    let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.current()));
                    let stream = StallTimeoutStream::new(stream, options.stall_timeout);
                    let served = tokio::spawn(connection.start(stream, acceptor));
                    activity.driven_by(served.abort_handle());
                }
                Err(error) if concerns_one_client(&error) => {}
                Err(error) => {
                    // Usually out of file descriptors: an immediate retry would only spin.
                    let made_room = connections.make_room();
                    tracing::warn!(%error, made_room, "cannot accept connections; trying again shortly");
                    tokio::select! {
                        biased;
                        _ = &mut shutdown => break,
                        () = sleep(pause) => {}
                    }
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
        drop((listener, phase_seen));
        drain(phase, options.drain_timeout, &connections).await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("local_addr", &self.local_addr)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Each connection holds receivers until it ends; the drain waits until all of them are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerPhase {
    Serving,
    Draining,
    /// The drain time is over.
    Cut,
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restarted server must not wait for closed connections of its predecessor to time out.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Waits a bounded time until each connection has dropped its receiver.
async fn drain(
    phase: watch::Sender<ServerPhase>,
    limit: Duration,
    connections: &Connections,
) -> Result<(), Error> {
    phase.send_replace(ServerPhase::Draining);
    if timeout(limit, phase.closed()).await.is_ok() {
        return Ok(());
    }
    let connections = connections.count();
    phase.send_replace(ServerPhase::Cut);
    phase.closed().await;
    Err(Error::CutOff { connections })
}

#[cfg(test)]
pub(crate) mod tests;
