//! HTTP over a Unix socket, for the user who owns the file.
//!
//! Invariant: only the owner can connect, from the first moment on: the socket gets its mode before it gets its name.
//! The kernel's peer credentials are checked as well: the same user, or root. Sandboxed programs of that user can
//! connect too, so every route needs a token. Limits against remote clients (stalls, lingering) are left out; heads
//! and the number of connections are bounded, and at the limit an idle connection is evicted. There is no proxy, so
//! forwarding headers are removed.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower::{Service, ServiceExt as _};

use super::connections::{Activity, ConnectionLimits, ConnectionSlot, Connections};
use super::proxy;
use super::server::{FIRST_HEAD_TIMEOUT_DEFAULT, HEAD_BYTES_MAX, HEAD_TIMEOUT_DEFAULT, Peer};

const CONNECTIONS_MAX: usize = 64;
/// The limit where each of many local workers may hold one connection in a long poll.
const PEER_CONNECTIONS_MAX: usize = 512;
const ROOT: u32 = 0;
const PAUSE: Duration = Duration::from_millis(100);
/// The portable length of a socket path; Linux allows 107 bytes.
const PATH_BYTES_MAX: usize = 100;

/// Requests over a Unix socket come from this machine and cannot be intercepted.
pub const LOCAL_PEER: Peer = Peer {
    addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    tls: true,
};

/// A path that fits into a socket address, and a file that must stay open while it is used. A long path goes through
/// the descriptor of its directory.
pub fn short_path(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        return Ok((path.to_owned(), None));
    }
    let directory = File::open(directory)?;
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    Ok((by_descriptor.join(name), Some(directory)))
}
/// All clients belong to one user.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A bound socket; its file is removed when it is dropped.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    peer: Option<Peer>,
    /// The user of this process, who owns the file.
    owner: u32,
}

impl UnixSocket {
    /// Replaces the file of an earlier process. Must be called inside a tokio runtime.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let (unfinished, _directory) = short_path(Path::new(&unfinished))?;
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&unfinished)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
        let owner = fs::symlink_metadata(&unfinished)?.uid();
        fs::rename(&unfinished, path)?;
        Ok(Self {
            listener,
            owner,
            path: path.to_owned(),
            peer: None,
        })
    }

    /// Adds this peer to the extensions of each request, as a TCP listener does.
    #[must_use]
    pub fn with_peer(mut self, peer: Peer) -> Self {
        self.peer = Some(peer);
        self
    }

    /// Serves until `shutdown` resolves; running requests get `patience` to finish.
    pub async fn run<S>(self, service: S, shutdown: impl Future, patience: Duration)
    where
        S: Service<Request<Body>, Response = Response, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let connections_max = match self.peer {
            Some(_) => PEER_CONNECTIONS_MAX,
            None => CONNECTIONS_MAX,
        };
        let connections = Connections::new(ConnectionLimits {
            max: connections_max,
            per_client_max: connections_max,
            // Nothing upgrades these connections.
            sockets_max: 0,
        });
        let (ending, seen) = watch::channel(false);
        let mut shutdown = std::pin::pin!(shutdown);
        'serving: loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut shutdown => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) if !self.is_allowed_peer(&stream) => {
                    tracing::warn!("a connection of another user to a local socket was refused");
                }
                Ok((stream, _)) => {
                    let slot = loop {
                        if let Ok(slot) = connections.take(CLIENT, true) {
                            break slot;
                        }
                        tokio::select! {
                            biased;
                            _ = &mut shutdown => break 'serving,
                            () = sleep(PAUSE) => {}
                        }
                    };
                    let activity = slot.activity();
                    let served = serve(stream, service.clone(), self.peer, seen.clone(), slot);
                    activity.driven_by(tokio::spawn(served).abort_handle());
                }
                Err(error) => {
                    let made_room = connections.make_room();
                    tracing::warn!(%error, made_room, "cannot accept connections on a local socket; trying again shortly");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(seen);
        ending.send_replace(true);
        if timeout(patience, ending.closed()).await.is_err() {
            tracing::warn!("requests on a local socket were cut off");
        }
    }
}

impl UnixSocket {
    fn is_allowed_peer(&self, stream: &UnixStream) -> bool {
        let peer = stream.peer_cred();
        peer.is_ok_and(|peer| [self.owner, ROOT].contains(&peer.uid()))
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Another process may have replaced the file already, which is then removed too; its clients notice that at
        // once.
        let _ = fs::remove_file(&self.path);
    }
}

async fn serve<S>(
    stream: UnixStream,
    service: S,
    peer: Option<Peer>,
    mut ending: watch::Receiver<bool>,
    slot: ConnectionSlot,
) where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let activity = slot.activity();
    let of_requests = Arc::clone(&activity);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, activity) = (service.clone(), Arc::clone(&of_requests));
        async move {
            if !activity.begin(false) {
                // The task of this connection is being aborted by an eviction.
                return std::future::pending().await;
            }
            let mut request = request.map(Body::new);
            proxy::remove_forwarding(request.headers_mut());
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let response = service.oneshot(request).await?;
            Ok::<_, Infallible>(response.map(|body| Body::new(TrackedBody { body, activity })))
        }
    });
    // A client that disconnects during a request ends the request: hyper reads ahead unless half-closed connections
    // are enabled. So a worker that died in a long poll gets no intent.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT_DEFAULT)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let first_head_by = Instant::now() + FIRST_HEAD_TIMEOUT_DEFAULT;
    let mut first_head_late = std::pin::pin!(sleep_until(first_head_by));
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
            () = first_head_late.as_mut(), if !has_begun => {
                has_begun = activity.has_begun();
                if !has_begun {
                    return;
                }
            }
            changed = ending.changed() => match changed {
                Ok(()) => connection.as_mut().graceful_shutdown(),
                // The server's future was dropped.
                Err(_) => return,
            },
        }
    }
}

/// A response body. When it ends, its connection waits for the next request.
struct TrackedBody {
    body: Body,
    activity: Arc<Activity>,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.activity.answered();
        self.activity.reads();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use axum::routing::get;
    use axum::{Extension, Router};
    use http::HeaderMap;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::proxy::Origin;

    const PATIENCE: Duration = Duration::from_secs(5);

    async fn ask(path: &Path, head: &str) -> String {
        let (short, _directory) = short_path(path).unwrap();
        let mut stream = UnixStream::connect(short).await.unwrap();
        let request =
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_request_is_local_and_private_whatever_it_says_of_proxies() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let whoami = get(
            async |Extension(peer): Extension<Peer>, headers: HeaderMap| {
                let [trusting, direct] =
                    [true, false].map(|trust| Origin::of(peer, &headers, trust));
                format!(
                    "{} {} {} {}",
                    trusting.client,
                    trusting.https,
                    direct.loopback,
                    headers.len()
                )
            },
        );
        let socket = UnixSocket::bind(&path).unwrap().with_peer(LOCAL_PEER);
        tokio::spawn(socket.run(Router::new().route("/", whoami), pending::<()>(), PATIENCE));
        let forged =
            "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: http\r\nForwarded: for=9.9.9.9\r\n";
        for head in ["", forged] {
            let answer = ask(&path, head).await;
            assert!(answer.ends_with("127.0.0.1 true true 2"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_path_too_long_for_a_socket_works_and_is_cleared_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("consign.sock");
        fs::write(&path, "left over").unwrap();
        let socket = UnixSocket::bind(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new().route("/", get(async || "hello"));
        let served = tokio::spawn(socket.run(router, stopped, PATIENCE));
        assert!(ask(&path, "").await.ends_with("hello"));
        stop.send(()).unwrap();
        served.await.unwrap();
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_its_request_waits_ends_it() {
        struct Dropped(mpsc::Sender<&'static str>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                let _ = self.0.try_send("dropped");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (seen, mut told) = mpsc::channel(4);
        let wait = get(async move || {
            let dropped = Dropped(seen.clone());
            seen.send("waiting").await.unwrap();
            pending::<()>().await;
            drop(dropped);
        });
        let socket = UnixSocket::bind(&path).unwrap();
        tokio::spawn(socket.run(Router::new().route("/", wait), pending::<()>(), PATIENCE));
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        assert_eq!(told.recv().await, Some("waiting"));
        drop(stream);
        let ended = timeout(PATIENCE, told.recv()).await;
        assert_eq!(ended.unwrap(), Some("dropped"));
    }
}
