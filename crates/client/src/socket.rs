//! A server on a Unix socket, and the check of the process behind it.
//!
//! Invariant: the peer of each new connection is verified before a byte is sent, also when a cached connection was
//! replaced.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The process that listens on a socket, as reported by the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    pub uid: u32,
    /// `None` if the system does not report it, or if the process is in another PID namespace.
    pub pid: Option<u32>,
}

type PeerCheck = dyn Fn(PeerProcess) -> Result<(), String> + Send + Sync;

/// A socket and the check of its peer.
#[derive(Clone)]
pub struct Socket {
    path: PathBuf,
    verify: Arc<PeerCheck>,
}

impl Socket {
    /// `verify` returns why a peer is not trusted.
    pub fn new(
        path: PathBuf,
        verify: impl Fn(PeerProcess) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            path,
            verify: Arc::new(verify),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn verify(&self, peer: &tokio::net::unix::UCred) -> Result<(), String> {
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        (self.verify)(PeerProcess {
            uid: peer.uid(),
            pid: pid.filter(|pid| *pid != 0),
        })
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Socket")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{HeaderMap, Method};
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;
    use crate::{Client, Error, Options, SecretKey};

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

    fn place() -> PathBuf {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("consign-client-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        path
    }

    fn client(socket: Socket) -> Client {
        Client::new(Options {
            // No server is there, and no certificate is used: the address is only a name.
            server: "https://127.0.0.1:1".to_owned(),
            key: Some(SecretKey::new("ck_secret")),
            socket: Some(socket),
            ..Options::default()
        })
        .unwrap()
    }

    async fn ask(client: &Client) -> Result<crate::Response, Error> {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        client.request(Method::GET, "/x", headers, body).await
    }

    #[tokio::test]
    async fn a_request_goes_over_the_socket_and_names_this_machine() {
        let path = place();
        let listener = UnixListener::bind(&path).unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            stream.write_all(ANSWER).await.unwrap();
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let own = std::process::id();
        let verified = Socket::new(path, move |peer| {
            (peer.pid == Some(own))
                .then_some(())
                .ok_or_else(|| format!("{peer:?}"))
        });
        assert_eq!(ask(&client(verified)).await.unwrap().body, "{}");
        let head = served.await.unwrap();
        assert!(head.contains("host: localhost\r\n"), "{head}");
        assert!(head.contains("x-api-key: ck_secret"), "{head}");
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_peer_that_is_not_trusted() {
        let path = place();
        let listener = UnixListener::bind(&path).unwrap();
        let heard = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await.unwrap();
            heard
        });
        let refusing = Socket::new(path, |_| Err("it is a stranger".to_owned()));
        let error = ask(&client(refusing)).await.unwrap_err();
        assert!(matches!(error, Error::Peer { .. }), "{error}");
        assert_eq!(heard.await.unwrap(), b"");
    }

    #[tokio::test]
    async fn a_replaced_connection_is_verified_again() {
        let path = place();
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(ANSWER).await;
            }
        });
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let socket = Socket::new(path, move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                return Ok(());
            }
            Err("it is another one now".to_owned())
        });
        let client = client(socket);
        ask(&client).await.unwrap();
        let error = ask(&client).await.unwrap_err();
        assert!(matches!(error, Error::Peer { .. }), "{error}");
        assert_eq!(looks.load(Ordering::Relaxed), 2);
    }
}
