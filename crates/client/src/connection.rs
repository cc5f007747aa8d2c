//! One HTTP/1.1 connection: plain, inside TLS, or over a Unix socket.
//!
//! Invariant: a failed send reports whether anything left this machine; only an unsent request is returned, which makes
//! repeating it safe.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::socket::Socket;
use crate::{Address, Error};

#[derive(Debug)]
pub(crate) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
}

pub(crate) enum SendFailure {
    /// Nothing was written; the request may be sent on another connection.
    Unsent(Box<Request<Full<Bytes>>>, hyper::Error),
    /// Part of the request may have arrived.
    Broken(hyper::Error),
}

impl HttpConnection {
    pub(crate) async fn open(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, Error> {
        let unreachable = |cause| Error::Unreachable {
            server: address.clone(),
            cause,
        };
        let stream = TcpStream::connect((address.host.as_str(), address.port))
            .await
            .map_err(unreachable)?;
        Self::over(stream, address, tls).await
    }

    /// Connects to this socket address and to no other. The address gives only the name that the certificate must have.
    pub(crate) async fn open_at(
        socket: SocketAddr,
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, Error> {
        let stream = TcpStream::connect(socket)
            .await
            .map_err(|cause| Error::Unreachable {
                server: address.clone(),
                cause,
            })?;
        Self::over(stream, address, tls).await
    }

    async fn over(
        stream: TcpStream,
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, Error> {
        let unreachable = |cause| Error::Unreachable {
            server: address.clone(),
            cause,
        };
        // Requests are small and answered one by one; waiting to fill a segment would only add latency.
        stream.set_nodelay(true).map_err(unreachable)?;
        let handshaken = match tls {
            None => handshake(stream).await,
            Some(config) => {
                let name = ServerName::try_from(address.host.clone())
                    .map_err(|error| unreachable(io::Error::other(error)))?;
                let stream = TlsConnector::from(Arc::clone(config))
                    .connect(name, stream)
                    .await
                    .map_err(unreachable)?;
                handshake(stream).await
            }
        };
        handshaken.map_err(|error| unreachable(io::Error::other(error)))
    }

    /// Connects to a Unix socket and verifies its peer before anything is sent. The address only names it.
    pub(crate) async fn open_local(address: &Address, socket: &Socket) -> Result<Self, Error> {
        let unreachable = |cause| Error::Unreachable {
            server: address.clone(),
            cause,
        };
        let connected = UnixStream::connect(socket.path()).await;
        let stream = connected.map_err(|cause| {
            let named = format!("{}: {cause}", socket.path().display());
            unreachable(io::Error::new(cause.kind(), named))
        })?;
        let peer = stream.peer_cred().map_err(unreachable)?;
        socket.verify(&peer).map_err(|why| Error::Peer {
            path: socket.path().display().to_string(),
            why,
        })?;
        let handshaken = handshake(stream).await;
        handshaken.map_err(|error| unreachable(io::Error::other(error)))
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendFailure> {
        if let Err(error) = self.sender.ready().await {
            return Err(SendFailure::Unsent(Box::new(request), error));
        }
        self.sender
            .try_send_request(request)
            .await
            .map_err(|mut failure| match failure.take_message() {
                Some(request) => SendFailure::Unsent(Box::new(request), failure.into_error()),
                None => SendFailure::Broken(failure.into_error()),
            })
    }

    /// Waits until the connection can take a request. It cannot if the server closed it, or has not yet read the
    /// previous request completely.
    pub(crate) async fn is_ready_within(&mut self, limit: Duration) -> bool {
        matches!(
            tokio::time::timeout(limit, self.sender.ready()).await,
            Ok(Ok(()))
        )
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Reads a body up to a limit. A declared length above the limit is an error before anything is read.
pub(crate) async fn read_body(
    body: Incoming,
    limit_bytes: usize,
    server: &Address,
) -> Result<Bytes, Error> {
    let too_large = || Error::TooLarge {
        server: server.clone(),
        limit_bytes,
    };
    if usize::try_from(body.size_hint().lower()).map_or(true, |bytes| bytes > limit_bytes) {
        return Err(too_large());
    }
    match Limited::new(body, limit_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => match error.downcast::<hyper::Error>() {
            Ok(cause) => Err(Error::Broken {
                server: server.clone(),
                cause: *cause,
            }),
            Err(other) => Err(Error::Request(other.to_string())),
        },
    }
}

async fn handshake<S>(stream: S) -> Result<HttpConnection, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
    // The driver ends when the sender is dropped or the peer closes. Its error also reaches the pending request, so it
    // can be ignored here.
    tokio::spawn(async move {
        let _ = driver.await;
    });
    Ok(HttpConnection { sender })
}
