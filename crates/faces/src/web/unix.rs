//! HTTP over a socket in the file system, for whoever may open the file.
//!
//! Invariant: only the owner may, from the first moment on: the socket gets its mode before it gets its name. Its clients are
//! trusted programs of the same user, so what bounds strangers on an address (stalls, lingering) is left out; heads and the
//! number of connections are bounded all the same.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tower::{Service, ServiceExt as _};

use super::server::{HEAD_BYTES_MAX, HEAD_TIMEOUT_DEFAULT};

const CONNECTIONS_MAX: usize = 64;
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket; its file goes away with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Takes the place of whatever an earlier process left there. Must be called inside a tokio runtime.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&unfinished)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
        fs::rename(&unfinished, path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Serves until `shutdown` resolves; requests under way get `patience` to finish.
    pub async fn run<S>(self, service: S, shutdown: impl Future, patience: Duration)
    where
        S: Service<Request<Body>, Response = Response, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (ending, seen) = watch::channel(false);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let next = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (self.listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                biased;
                _ = &mut shutdown => break,
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => {
                    let served = serve(stream, service.clone(), seen.clone());
                    tokio::spawn(async move {
                        let _place = place;
                        served.await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept; trying again shortly");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        drop(seen);
        ending.send_replace(true);
        if timeout(patience, ending.closed()).await.is_err() {
            tracing::warn!("requests on the control socket were cut off");
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have taken its place already, and then this is not ours to remove; who looks finds out at once.
        let _ = fs::remove_file(&self.path);
    }
}

async fn serve<S>(stream: UnixStream, service: S, mut ending: watch::Receiver<bool>)
where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        service.oneshot(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT_DEFAULT)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            changed = ending.changed() => match changed {
                Ok(()) => connection.as_mut().graceful_shutdown(),
                // The server's future was dropped.
                Err(_) => return,
            },
        }
    }
}
