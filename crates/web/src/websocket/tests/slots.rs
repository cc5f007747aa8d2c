//! Sockets among the connections of a server, and its drain.

use std::time::Duration;

use http::header::RETRY_AFTER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use super::*;

async fn hello(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    request_hello(&mut stream).await;
    stream
}

async fn request_hello(stream: &mut TcpStream) {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = Vec::new();
    let reading = async {
        while !response.ends_with(b"hello") {
            assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0);
        }
    };
    timeout(PATIENCE, reading).await.expect("a response");
}

async fn refused(addr: SocketAddr) -> String {
    let stream = TcpStream::connect(addr).await.unwrap();
    RawClient::open(stream, "/ws").await.head
}

#[tokio::test]
async fn sockets_are_limited_to_half_of_the_connections_and_free_their_slots() {
    let listen = server::Options {
        connections_max: 8,
        connections_per_client_max: Some(8),
        ..listen()
    };
    let running = serve(listen, Options::new(), echo);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(RawClient::connect(running.addr).await);
    }
    let head = refused(running.addr).await;
    // Both limits are four here; that of the server is looked at first.
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert!(head.contains(RETRY_AFTER.as_str()), "{head}");
    let mut first = clients.remove(0);
    first.send(0x88, b"").await;
    assert_eq!(first.next().await, Some((0x88, Vec::new())));
    assert_eq!(first.next().await, None);
    let mut next = RawClient::connect(running.addr).await;
    next.echo("a slot").await;
    // A client that disappears frees its slot as well.
    drop(clients.remove(0));
    sleep(Duration::from_millis(100)).await;
    RawClient::connect(running.addr).await.echo("another").await;
}

#[tokio::test]
async fn a_flood_of_connections_evicts_idle_ones_and_no_socket() {
    let listen = server::Options {
        connections_max: 8,
        connections_per_client_max: Some(8),
        ..listen()
    };
    let running = serve(listen, Options::new(), echo);
    let mut sockets = Vec::new();
    for _ in 0..4 {
        sockets.push(RawClient::connect(running.addr).await);
    }
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(hello(running.addr).await);
    }
    for socket in &mut sockets {
        socket.echo("undisturbed").await;
    }
    // Sockets still count: only four of the others are open.
    let mut open = 0;
    for stream in &mut idle {
        let mut byte = [0];
        let end = timeout(Duration::from_millis(20), stream.read(&mut byte)).await;
        open += usize::from(end.is_err());
    }
    assert_eq!(open, 4);
    request_hello(idle.last_mut().unwrap()).await;
}

#[tokio::test]
async fn a_connection_whose_upgrade_was_discarded_can_be_evicted() {
    let discard = get(async |upgrade: SocketUpgrade| {
        drop(upgrade.accept(Options::new(), echo));
        StatusCode::FORBIDDEN
    });
    let listen = server::Options {
        connections_max: 2,
        ..listen()
    };
    let router = Router::new()
        .route("/ws", discard)
        .route("/", get(async || "hello"));
    let running = start(listen, router);
    let mut refused = RawClient::connect(running.addr).await;
    assert!(refused.head.starts_with("HTTP/1.1 403"), "{}", refused.head);
    let _open = (hello(running.addr).await, hello(running.addr).await);
    assert_eq!(refused.next().await, None);
}

#[tokio::test]
async fn a_drain_closes_sockets_with_1001_whether_they_answer_or_not() {
    let options = Options {
        close_timeout: Duration::from_millis(500),
        ..Options::new()
    };
    let running = serve(listen(), options, echo);
    let mut polite = RawClient::connect(running.addr).await;
    let mut deaf = RawClient::connect(running.addr).await;
    polite.echo("before").await;
    deaf.send(0x01, b"half a message").await;
    let began = Instant::now();
    running.stop.send(()).unwrap();
    let expected = (1001, "Server is shutting down".to_owned());
    assert_eq!(polite.closed().await, expected);
    assert_eq!(deaf.closing().await, expected);
    // Nothing follows the closing frame, no pong either.
    deaf.send(0x89, b"").await;
    timeout(PATIENCE, running.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        began.elapsed() >= options.close_timeout,
        "the server waited for an answer"
    );
    assert_eq!(deaf.next().await, None);
}

#[tokio::test]
async fn a_handler_that_outlasts_the_drain_is_cut_off() {
    let listen = server::Options {
        drain_timeout: Duration::from_millis(200),
        ..listen()
    };
    let running = serve(listen, Options::new(), async |_sender, _messages| {
        std::future::pending::<()>().await;
    });
    let mut client = RawClient::connect(running.addr).await;
    running.stop.send(()).unwrap();
    assert_eq!(client.closed().await.0, 1001);
    let ended = timeout(PATIENCE, running.ended).await.unwrap().unwrap();
    assert!(
        matches!(ended, Err(server::Error::CutOff { .. })),
        "{ended:?}"
    );
}

#[tokio::test]
async fn an_upgrade_with_a_body_is_refused() {
    let running = serve_echo(Options::new());
    let mut stream = TcpStream::connect(running.addr).await.unwrap();
    let request = client::handshake("/ws").replace("Host:", "Content-Length: 5\r\nHost:");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 400");
}
