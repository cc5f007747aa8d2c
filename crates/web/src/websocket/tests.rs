//! Real sockets on loopback; each test has its own server.

pub(crate) mod client;
mod limits;
mod slots;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::StatusCode;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;

use self::client::{PATIENCE, RawClient};
use super::*;
use crate::access_log::tests::Recorder;
use crate::layers;
use crate::server::{self, Server};
use crate::tls;

pub(super) struct SocketServer {
    pub(super) addr: SocketAddr,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) ended: JoinHandle<Result<(), server::Error>>,
}

fn listen() -> server::Options {
    server::Options::new((Ipv4Addr::LOCALHOST, 0).into())
}

fn start(listen: server::Options, router: Router) -> SocketServer {
    let server = Server::bind(listen).unwrap();
    let (stop, stopped) = oneshot::channel();
    SocketServer {
        addr: server.local_addr(),
        stop,
        ended: tokio::spawn(server.run(router, stopped)),
    }
}

/// Sends each message back.
async fn echo(sender: SocketSender, mut messages: SocketMessages) {
    while let Some(message) = messages.next().await {
        let sent = match message {
            SocketMessage::Text(text) => sender.try_send(text),
            SocketMessage::Binary(bytes) => sender.try_send_binary(bytes),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// A server with `/ws` for `handler`, and `/` that says hello.
fn serve<H, F>(listen: server::Options, options: Options, handler: H) -> SocketServer
where
    H: FnOnce(SocketSender, SocketMessages) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let upgrade = get(async move |upgrade: SocketUpgrade| upgrade.accept(options, handler));
    let hello = get(async || "hello");
    start(
        listen,
        Router::new().route("/ws", upgrade).route("/", hello),
    )
}

fn serve_echo(options: Options) -> SocketServer {
    serve(listen(), options, echo)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_make_sends_and_receives_and_closes() {
    let running = serve_echo(Options {
        binary: BinaryMessages::Delivered,
        ..Options::new()
    });
    let url = format!("ws://{}/ws", running.addr);
    let client = move || {
        use tungstenite::Message;
        let stream = std::net::TcpStream::connect(running.addr).unwrap();
        let (mut socket, response) = tungstenite::client(url, stream).unwrap();
        assert!(response.headers().get("sec-websocket-extensions").is_none());
        for length in [0, 1, 125, 126, 4096, 65_535, MESSAGE_BYTES_MAX] {
            let text = "\u{fc}".repeat(length / 2);
            socket.send(Message::text(&text)).unwrap();
            assert_eq!(socket.read().unwrap(), Message::text(text));
            let bytes = vec![7; length];
            socket.send(Message::binary(bytes.clone())).unwrap();
            assert_eq!(socket.read().unwrap(), Message::binary(bytes));
        }
        socket.send(Message::Ping("p".into())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Pong("p".into()));
        socket.close(None).unwrap();
        let closed = loop {
            if let Err(closed) = socket.read() {
                break closed;
            }
        };
        assert!(matches!(closed, tungstenite::Error::ConnectionClosed));
    };
    tokio::task::spawn_blocking(client).await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_sent_with_the_handshake_is_not_lost() {
    let running = serve_echo(Options::new());
    let stream = TcpStream::connect(running.addr).await.unwrap();
    let mut bytes = client::handshake("/ws").into_bytes();
    bytes.extend(client::frame(0x81, b"early"));
    let mut client = RawClient::open_with(stream, &bytes).await;
    assert_eq!(client.next().await, Some((0x81, b"early".to_vec())));
}

#[tokio::test]
async fn a_handler_that_returns_or_panics_closes_its_socket() {
    let running = serve(listen(), Options::new(), async |sender, mut messages| {
        let first = messages.next().await;
        assert_eq!(first, Some(SocketMessage::Text("a".to_owned())));
        sender.try_send("last words").unwrap();
    });
    let mut client = RawClient::connect(running.addr).await;
    client.send(0x81, b"a").await;
    assert_eq!(client.next().await, Some((0x81, b"last words".to_vec())));
    assert_eq!(client.closed().await, (1000, String::new()));

    let mut client = RawClient::connect(running.addr).await;
    client.send(0x81, b"b").await;
    assert_eq!(client.closed().await, (1011, "Internal error".to_owned()));
}

#[tokio::test]
async fn a_clone_of_the_sender_closes_the_socket_from_elsewhere() {
    let senders = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&senders);
    let running = serve(
        listen(),
        Options::new(),
        async move |sender, mut messages| {
            known.lock().unwrap().push(sender);
            while messages.next().await.is_some() {}
        },
    );
    let mut client = RawClient::connect(running.addr).await;
    let sender = timeout(PATIENCE, async {
        loop {
            if let Some(sender) = senders.lock().unwrap().pop() {
                return sender;
            }
            tokio::task::yield_now().await;
        }
    });
    let sender: SocketSender = sender.await.unwrap();
    sender.try_send("queued").unwrap();
    sender.close(CloseCode::GOING_AWAY, "Replaced by new connection");
    assert_eq!(sender.try_send("late"), Err(SendRefusal::Closed));
    assert_eq!(client.next().await, Some((0x81, b"queued".to_vec())));
    let reason = "Replaced by new connection".to_owned();
    assert_eq!(client.closed().await, (1001, reason));
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response() {
    let refuse = get(
        async |upgrade: Result<SocketUpgrade, UpgradeRefusal>| match upgrade {
            Ok(_dropped) => StatusCode::FORBIDDEN.into_response(),
            Err(refusal) => (refusal.status(), refusal.to_string()).into_response(),
        },
    );
    let running = start(listen(), Router::new().route("/ws", refuse));
    let stream = TcpStream::connect(running.addr).await.unwrap();
    let first = RawClient::open(stream, "/ws").await;
    assert!(first.head.starts_with("HTTP/1.1 403"), "{}", first.head);
    // The connection serves further requests.
    let second = RawClient::open(first.stream, "/ws").await;
    assert!(second.head.starts_with("HTTP/1.1 403"), "{}", second.head);
}

#[tokio::test]
async fn the_layers_pass_an_upgrade_through() {
    let recorder = Recorder::default();
    let _recording = tracing::subscriber::set_default(recorder.clone());
    let upgrade = get(async |upgrade: SocketUpgrade| upgrade.accept(Options::new(), echo));
    let options = layers::Options {
        trust_proxy: false,
        request_id_seed: 1,
        on_panic: |_| StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        on_too_many_failures: Some(crate::throttle::TooManyFailures(Arc::new(|_| {
            StatusCode::TOO_MANY_REQUESTS.into_response()
        }))),
    };
    let service = layers::around(Router::new().route("/ws", upgrade), options);
    let server = Server::bind(listen()).unwrap();
    let addr = server.local_addr();
    tokio::spawn(server.run(service, std::future::pending::<()>()));
    let mut client = RawClient::connect(addr).await;
    let head = client.head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("\r\nx-request-id: "), "{head}");
    assert!(head.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
    assert!(!head.contains("extensions"), "{head}");
    client.echo("hello").await;
    let line = recorder.lines.lock().unwrap().clone();
    assert!(line.contains("endpoint=\"/ws\" ") && line.contains("status_code=101 "));
}

#[tokio::test]
async fn a_socket_works_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = tls::CertificateFiles {
        certificates: directory.path().join("chain.pem"),
        key: directory.path().join("key.pem"),
    };
    server::tests::write_pair(&files);
    let listen = server::Options {
        tls: Some(files.clone()),
        ..listen()
    };
    let running = serve(listen, Options::new(), echo);
    let stream = TcpStream::connect(running.addr).await.unwrap();
    let stream = server::tests::handshake(stream, &files.certificates).await;
    let mut client = RawClient::open(stream.unwrap(), "/ws").await;
    client.echo("short").await;
    client.echo(&"x".repeat(MESSAGE_BYTES_MAX)).await;
    running.stop.send(()).unwrap();
    assert_eq!(client.closed().await.0, 1001);
    timeout(PATIENCE, running.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
