//! The client itself: credentials, one cached connection, limits on time and size.
//!
//! Invariant: a connection returns to the cache only after its answer was read completely, so
//! answers cannot be mixed up. Calls may run concurrently; each takes the cached connection or
//! opens its own, and the last one to finish is cached.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use rustls::ClientConfig;

use crate::call::Credential;
use crate::connection::{HttpConnection, SendFailure, read_body};
use crate::socket::Socket;
use crate::{Address, Error, SecretKey, sign, tls};

/// The largest answer that is read; a longer one is an error and never a growing buffer.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The value of the `User-Agent` header.
pub(crate) const AGENT: &str = concat!("consign/", env!("CARGO_PKG_VERSION"));

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The beginning of API keys that operators make. One with a scope of operators can take the place of the admin token.
const MADE_KEY: &str = "tk_";
const ADMIN_TOKEN: HeaderName = HeaderName::from_static("x-admin-token");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-timestamp");
const NONCE: HeaderName = HeaderName::from_static("x-nonce");
const SIGNATURE: HeaderName = HeaderName::from_static("x-signature");

/// How to reach a server, and with which credentials.
#[derive(Debug, Clone)]
pub struct Options {
    /// Base URL, such as `http://127.0.0.1:7070`.
    pub server: String,
    /// API key of the client routes.
    pub key: Option<SecretKey>,
    /// Token of the admin routes.
    pub admin_token: Option<SecretKey>,
    /// Whether client requests carry an HMAC signature beside the key.
    pub sign: bool,
    /// Time limit of one call, connecting included; a long poll adds its own wait.
    pub timeout: Duration,
    /// A PEM file with a certificate authority to trust in addition to the public ones.
    pub ca_file: Option<PathBuf>,
    /// The Unix socket of the server. If set, the base URL only names it.
    pub socket: Option<Socket>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server: "http://127.0.0.1:7070".to_owned(),
            key: None,
            admin_token: None,
            sign: true,
            timeout: Duration::from_secs(10),
            ca_file: None,
            socket: None,
        }
    }
}

/// An answer with any status.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub struct Client {
    address: Address,
    key: Option<SecretKey>,
    admin_token: Option<SecretKey>,
    sign: bool,
    timeout: Duration,
    tls: Option<Arc<ClientConfig>>,
    socket: Option<Socket>,
    answer_bytes_max: usize,
    kept: Mutex<Option<HttpConnection>>,
}

impl Client {
    pub fn new(options: Options) -> Result<Self, Error> {
        let address = Address::parse(&options.server)?;
        let tls = if address.tls && options.socket.is_none() {
            Some(tls::config(options.ca_file.as_deref())?)
        } else {
            None
        };
        Ok(Self {
            address,
            key: options.key,
            admin_token: options.admin_token,
            sign: options.sign,
            timeout: options.timeout,
            tls,
            socket: options.socket,
            answer_bytes_max: ANSWER_BYTES_MAX,
            kept: Mutex::new(None),
        })
    }

    /// Sets the limit for a server whose answers are known to be small.
    #[must_use]
    pub fn with_answers_up_to(self, bytes: usize) -> Self {
        Self {
            answer_bytes_max: bytes,
            ..self
        }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends one request with the API key, if there is one, and reads the complete answer.
    pub async fn request(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Error> {
        let request = self.build(method, path_and_query, headers, body, Credential::Key)?;
        self.exchange(request, self.timeout).await
    }

    /// Sends a finished request and reads the complete answer.
    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
    ) -> Result<Response, Error> {
        let whole = async {
            let began_at = Instant::now();
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let (connection, response) = self.send(request).await?;
            let (parts, body) = response.into_parts();
            let body = self.read(body).await?;
            self.keep(connection);
            // Without the query and the body, which may hold what is not meant for a terminal.
            tracing::debug!(
                "{method} {}{path}: {}, {} bytes, {} ms",
                self.address.origin(),
                parts.status,
                body.len(),
                began_at.elapsed().as_millis()
            );
            Ok(Response {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        self.within(timeout, whole).await
    }

    /// Sends a finished request and returns the answer before its body, with its connection.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(HttpConnection, http::Response<Incoming>), Error> {
        let mut request = request;
        let kept = self
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut connection) = kept {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                // The server had closed the cached connection. Nothing was sent, so the request is
                // repeated on a new one.
                Err(SendFailure::Unsent(unsent, _)) => request = *unsent,
                Err(SendFailure::Broken(cause)) => return Err(self.broken(cause)),
            }
        }
        let mut connection = match &self.socket {
            Some(socket) => HttpConnection::open_local(&self.address, socket).await?,
            None => HttpConnection::open(&self.address, self.tls.as_ref()).await?,
        };
        match connection.send(request).await {
            Ok(response) => Ok((connection, response)),
            Err(SendFailure::Unsent(_, cause) | SendFailure::Broken(cause)) => {
                Err(self.broken(cause))
            }
        }
    }

    pub(crate) async fn within<T>(
        &self,
        timeout: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| {
                Err(Error::TimedOut {
                    server: self.address.clone(),
                    after: timeout,
                })
            })
    }

    pub(crate) fn build(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: Bytes,
        credential: Credential,
    ) -> Result<Request<Full<Bytes>>, Error> {
        // A server that is reached over its socket is not behind the proxy.
        let prefix = match &self.socket {
            Some(_) => "",
            None => self.address.prefix.as_str(),
        };
        let uri: Uri = format!("{prefix}{path_and_query}")
            .parse()
            .map_err(|error| Error::Request(format!("path {path_and_query}: {error}")))?;
        let mut all = headers;
        let host = match &self.socket {
            // A request over the socket comes from this machine, whatever address the server
            // listens on.
            Some(_) => HeaderValue::from_static("localhost"),
            None => plain(&self.address.authority())?,
        };
        all.insert(header::HOST, host);
        all.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        if !body.is_empty() && !all.contains_key(header::CONTENT_TYPE) {
            all.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
        }
        if body.is_empty() && method != Method::GET {
            // Servers and proxies may refuse a POST without a length, even if it is empty.
            all.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        match credential {
            Credential::None => {}
            Credential::Admin => {
                let token = self.admin_token()?;
                let header = if token.reveal().starts_with(MADE_KEY) {
                    API_KEY
                } else {
                    ADMIN_TOKEN
                };
                all.insert(header, secret(token)?);
            }
            Credential::Bearer => {
                let bearer = SecretKey::new(&format!("Bearer {}", self.admin_token()?.reveal()));
                all.insert(header::AUTHORIZATION, secret(&bearer)?);
            }
            Credential::Key => {
                if let Some(key) = &self.key {
                    all.insert(API_KEY, secret(key)?);
                    if self.sign {
                        let stamp = sign::stamp(key, method.as_str(), path_and_query, &body)?;
                        all.insert(TIMESTAMP, plain(&stamp.timestamp)?);
                        all.insert(NONCE, plain(&stamp.nonce)?);
                        all.insert(SIGNATURE, plain(&stamp.signature)?);
                    }
                }
            }
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = all;
        Ok(request)
    }

    pub(crate) fn has_admin_token(&self) -> bool {
        self.admin_token.is_some()
    }

    fn admin_token(&self) -> Result<&SecretKey, Error> {
        let token = self.admin_token.as_ref();
        token.ok_or_else(|| Error::Request("this call needs the admin token".to_owned()))
    }

    pub(crate) fn broken(&self, cause: hyper::Error) -> Error {
        Error::Broken {
            server: self.address.clone(),
            cause,
        }
    }

    pub(crate) async fn read(&self, body: Incoming) -> Result<Bytes, Error> {
        read_body(body, self.answer_bytes_max, &self.address).await
    }

    fn keep(&self, connection: HttpConnection) {
        if !connection.is_closed() {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("address", &self.address)
            .field("key", &self.key)
            .field("admin_token", &self.admin_token)
            .field("sign", &self.sign)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A header value from text that may be printed.
pub(crate) fn plain(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Request(format!("{text:?} cannot be sent in a header")))
}

/// A header value from a secret: marked as sensitive, and not part of the error.
pub(crate) fn secret(key: &SecretKey) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(key.reveal()).map_err(|_| {
        Error::Request("the key holds characters that cannot be sent in a header".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
pub(crate) mod tests;
