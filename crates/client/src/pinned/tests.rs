//! The pinned client against scripted servers on real sockets.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::generate_simple_self_signed;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const LIMITS: ExchangeLimits = ExchangeLimits {
    connect: Duration::from_secs(5),
    total: Duration::from_secs(5),
    response_bytes_max: 1000,
};

/// A server that gives every request the same response, and counts connections. It shows the last request.
struct Repeating {
    socket: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: tokio::sync::mpsc::UnboundedReceiver<String>,
}

async fn repeating(response: &'static str, tls: Option<TlsAcceptor>) -> Repeating {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let socket = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let (seen, requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let (seen, tls) = (seen.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => respond(stream, response, seen).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            respond(stream, response, seen).await;
                        }
                    }
                }
            });
        }
    });
    Repeating {
        socket,
        connections,
        requests,
    }
}

async fn respond(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    response: &str,
    seen: tokio::sync::mpsc::UnboundedSender<String>,
) {
    let mut text = Vec::new();
    while stream.read_buf(&mut text).await.is_ok_and(|read| read > 0) {
        if text.windows(4).any(|end| end == b"\r\n\r\n") {
            let _ = seen.send(String::from_utf8(std::mem::take(&mut text)).unwrap());
            let _ = stream.write_all(response.as_bytes()).await;
        }
    }
}

fn target(url: &str, socket: SocketAddr) -> PinnedTarget {
    PinnedTarget {
        server: Address::parse(url).unwrap(),
        sockets: vec![socket],
    }
}

fn get() -> PinnedRequest {
    PinnedRequest {
        method: Method::GET,
        path_and_query: "/a?b".to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn the_name_is_sent_and_never_resolved() {
    let mut server = repeating(OK, None).await;
    let client = PinnedClient::new(None).unwrap();
    let target = target("http://no-such-name.invalid:81", server.socket);
    let response = client.request(&target, get(), LIMITS).await.unwrap();
    assert_eq!(response.body, "ok");
    let request = server.requests.recv().await.unwrap();
    assert!(request.starts_with("GET /a?b HTTP/1.1\r\n"), "{request}");
    assert!(
        request.contains("host: no-such-name.invalid:81\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn a_connection_is_used_again_only_for_the_same_name_and_socket() {
    let server = repeating(OK, None).await;
    let client = PinnedClient::new(None).unwrap();
    let opened = || server.connections.load(Ordering::SeqCst);
    let one = target("http://one.example:81", server.socket);
    for _ in 0..3 {
        client.request(&one, get(), LIMITS).await.unwrap();
    }
    assert_eq!(opened(), 1);

    let other_name = target("http://two.example:81", server.socket);
    client.request(&other_name, get(), LIMITS).await.unwrap();
    assert_eq!(opened(), 2);

    // The name has another address now, which does not answer.
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let moved = target("http://one.example:81", unused.local_addr().unwrap());
    drop(unused);
    let error = client.request(&moved, get(), LIMITS).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(opened(), 2);
}

#[tokio::test]
async fn a_redirect_is_a_response_and_a_long_one_is_an_error() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let server = repeating(moved, None).await;
    let client = PinnedClient::new(None).unwrap();
    let to = target("http://a.example", server.socket);
    let response = client.request(&to, get(), LIMITS).await.unwrap();
    assert_eq!(response.status, StatusCode::FOUND);

    // The declared length alone is enough: the body never comes.
    let long = "HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n";
    let server = repeating(long, None).await;
    let to = target("http://a.example", server.socket);
    let error = client.request(&to, get(), LIMITS).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn the_next_socket_address_is_tried_and_no_more_than_four() {
    let server = repeating(OK, None).await;
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let closed = unused.local_addr().unwrap();
    drop(unused);
    let client = PinnedClient::new(None).unwrap();
    let mut to = target("http://a.example", closed);
    to.sockets.push(server.socket);
    assert!(client.request(&to, get(), LIMITS).await.is_ok());

    let client = PinnedClient::new(None).unwrap();
    to.sockets = vec![closed, closed, closed, closed, server.socket];
    assert!(client.request(&to, get(), LIMITS).await.is_err());
}

#[tokio::test]
async fn a_certificate_must_have_the_name_of_the_url() {
    let made = generate_simple_self_signed(vec!["peer.example".to_owned()]).unwrap();
    let folder = std::env::temp_dir().join(format!("consign-pinned-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let authority = folder.join("ca.pem");
    std::fs::write(&authority, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let certificates = vec![CertificateDer::from(made.cert)];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let server = repeating(OK, Some(TlsAcceptor::from(Arc::new(config)))).await;
    let trusting = PinnedClient::new(Some(&authority)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let right = target("https://peer.example", server.socket);
    let response = trusting.request(&right, get(), LIMITS).await.unwrap();
    assert_eq!(response.body, "ok");

    let wrong = target("https://other.example", server.socket);
    let error = trusting.request(&wrong, get(), LIMITS).await.unwrap_err();
    assert!(error.is_distrust(), "{error}");
    let by_number = target("https://127.0.0.1", server.socket);
    let refused = trusting.request(&by_number, get(), LIMITS).await;
    assert!(refused.unwrap_err().is_distrust());
    let unknown = PinnedClient::new(None).unwrap();
    let refused = unknown.request(&right, get(), LIMITS).await;
    assert!(refused.unwrap_err().is_distrust());
}

#[tokio::test]
async fn a_server_that_accepts_and_stays_silent_meets_the_limits() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let socket = silent.local_addr().unwrap();
    let client = PinnedClient::new(None).unwrap();
    let limits = ExchangeLimits {
        connect: Duration::from_millis(50),
        total: Duration::from_millis(100),
        ..LIMITS
    };
    let plain = target("http://a.example", socket);
    let error = client.request(&plain, get(), limits).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    // The TLS handshake is part of connecting.
    let sealed = target("https://a.example", socket);
    let error = client.request(&sealed, get(), limits).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { cause, .. } if cause.kind() == io::ErrorKind::TimedOut),
        "{error}"
    );
}
