//! The WebSocket to the broker, over TCP or TLS.
//!
//! Invariant: certificates are always checked, against the public roots.

use std::io;
use std::sync::Arc;

use http::Uri;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::limits::BROKER_FRAME_BYTES_MAX;

/// Frames are short, and a daemon that waits should need little memory.
const BUFFER_BYTES: usize = 8 << 10;
/// More than a frame of the protocol, so that a longer one is reported and not cut off.
const MESSAGE_BYTES_MAX: usize = BROKER_FRAME_BYTES_MAX + (64 << 10);

pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

pub(super) type BrokerSocket = WebSocketStream<Box<dyn ByteStream>>;

/// Connects to a URL such as `wss://broker.example/ws`. The caller limits the time.
pub(super) async fn connect(url: &str) -> io::Result<BrokerSocket> {
    let uri: Uri = url.parse().map_err(invalid)?;
    let is_tls = match uri.scheme_str() {
        Some("ws") => false,
        Some("wss") => true,
        _ => return Err(invalid("the broker's URL must begin with ws:// or wss://")),
    };
    let host = uri
        .host()
        .ok_or_else(|| invalid("the broker's URL has no host"))?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((name, port)).await?;
    stream.set_nodelay(true)?;
    let stream: Box<dyn ByteStream> = if is_tls {
        let name = ServerName::try_from(name.to_owned()).map_err(invalid)?;
        Box::new(connector()?.connect(name, stream).await?)
    } else {
        Box::new(stream)
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let connected = tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await;
    let (socket, _) = connected.map_err(io::Error::other)?;
    Ok(socket)
}

fn connector() -> io::Result<TlsConnector> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
