//! Requests to socket addresses that the caller resolved and checked.
//!
//! Invariant: a connection goes to one of the given socket addresses and to no other. The name of the server is never
//! resolved here; it is used for the certificate and for the `Host` header only. A connection is used again only for the
//! same server at a socket address that the new call gives too. Redirects are not followed, and no proxy is used.

mod idle;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use rustls::ClientConfig;

use crate::client::{AGENT, plain};
use crate::connection::{HttpConnection, SendFailure, read_body};
use crate::{Address, Error, Response, tls};
use idle::IdleConnections;

/// A name may resolve to any number of addresses; no more than these are tried.
const SOCKETS_TRIED_MAX: usize = 4;

/// A server and the socket addresses at which it may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTarget {
    /// The scheme, and the name for the certificate and for the `Host` header.
    pub server: Address,
    /// Tried in this order.
    pub sockets: Vec<SocketAddr>,
}

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeLimits {
    /// For each socket address: connecting and the TLS handshake.
    pub connect: Duration,
    /// For the whole call, from the first connection to the last byte of the response.
    pub total: Duration,
    /// A longer response is an error.
    pub response_bytes_max: usize,
}

/// One request of a [`PinnedClient`]. The headers `Host` and `User-Agent` are set by the client.
#[derive(Debug, Clone)]
pub struct PinnedRequest {
    pub method: Method,
    pub path_and_query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A client for many servers, with one TLS configuration and one pool of idle connections.
pub struct PinnedClient {
    tls: Arc<ClientConfig>,
    idle: IdleConnections,
}

impl PinnedClient {
    /// Trusts the public authorities, and those in the PEM file if there is one.
    pub fn new(ca_file: Option<&Path>) -> Result<Self, Error> {
        Ok(Self {
            tls: tls::config(ca_file)?,
            idle: IdleConnections::default(),
        })
    }

    /// Sends one request and reads the complete response, whatever its status is.
    pub async fn request(
        &self,
        target: &PinnedTarget,
        request: PinnedRequest,
        limits: ExchangeLimits,
    ) -> Result<Response, Error> {
        let request = build(&target.server, request)?;
        let whole = async {
            let (connection, socket, response) = self.send(target, request, limits.connect).await?;
            let (parts, body) = response.into_parts();
            let body = read_body(body, limits.response_bytes_max, &target.server).await?;
            // After 101 the connection speaks another protocol.
            if parts.status != StatusCode::SWITCHING_PROTOCOLS {
                self.idle.put(&target.server, socket, connection);
            }
            Ok(Response {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        tokio::time::timeout(limits.total, whole)
            .await
            .unwrap_or_else(|_| {
                Err(Error::TimedOut {
                    server: target.server.clone(),
                    after: limits.total,
                })
            })
    }

    async fn send(
        &self,
        target: &PinnedTarget,
        request: Request<Full<Bytes>>,
        connect: Duration,
    ) -> Result<(HttpConnection, SocketAddr, http::Response<Incoming>), Error> {
        let broken = |cause| Error::Broken {
            server: target.server.clone(),
            cause,
        };
        let mut request = request;
        if let Some((socket, mut connection)) = self.idle.take(target).await {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, socket, response)),
                // The server had closed the idle connection. Nothing was sent, so a new connection can take the request.
                Err(SendFailure::Unsent(unsent, _)) => request = *unsent,
                Err(SendFailure::Broken(cause)) => return Err(broken(cause)),
            }
        }
        let (socket, mut connection) = self.open(target, connect).await?;
        match connection.send(request).await {
            Ok(response) => Ok((connection, socket, response)),
            Err(SendFailure::Unsent(_, cause) | SendFailure::Broken(cause)) => Err(broken(cause)),
        }
    }

    async fn open(
        &self,
        target: &PinnedTarget,
        connect: Duration,
    ) -> Result<(SocketAddr, HttpConnection), Error> {
        let unreachable = |cause| Error::Unreachable {
            server: target.server.clone(),
            cause,
        };
        let tls = target.server.tls.then_some(&self.tls);
        let mut last = unreachable(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "no socket address is given",
        ));
        for &socket in target.sockets.iter().take(SOCKETS_TRIED_MAX) {
            let opening = HttpConnection::open_at(socket, &target.server, tls);
            match tokio::time::timeout(connect, opening).await {
                Ok(Ok(connection)) => return Ok((socket, connection)),
                Ok(Err(error)) => last = error,
                Err(_) => last = unreachable(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last)
    }
}

impl fmt::Debug for PinnedClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PinnedClient")
            .finish_non_exhaustive()
    }
}

fn build(server: &Address, given: PinnedRequest) -> Result<Request<Full<Bytes>>, Error> {
    let path: PathAndQuery = given
        .path_and_query
        .parse()
        .map_err(|error| Error::Request(format!("path {:?}: {error}", given.path_and_query)))?;
    let mut headers = given.headers;
    headers.insert(header::HOST, plain(&server.authority())?);
    headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
    if given.body.is_empty() && given.method != Method::GET {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let mut request = Request::new(Full::new(given.body));
    *request.method_mut() = given.method;
    *request.uri_mut() = Uri::from(path);
    *request.headers_mut() = headers;
    Ok(request)
}

#[cfg(test)]
mod tests;
