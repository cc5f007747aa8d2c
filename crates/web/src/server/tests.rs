//! Real sockets on loopback; each test has its own server.

mod stalls;

use std::{fs, future::pending, net::Ipv4Addr, path::Path, sync::Arc};

use axum::{
    Extension, Router,
    response::IntoResponse as _,
    routing::{get, post},
};
use http::StatusCode;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{body, layers};

const PATIENCE: Duration = Duration::from_secs(5);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

struct RunningServer {
    addr: SocketAddr,
    tls: Option<tls::ReloadableCertificate>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), Error>>,
}

fn options() -> Options {
    Options::new((Ipv4Addr::LOCALHOST, 0).into())
}

fn start(options: Options, router: Router) -> RunningServer {
    let server = Server::bind(options).unwrap();
    let (stop, stopped) = oneshot::channel();
    RunningServer {
        addr: server.local_addr(),
        tls: server.tls(),
        stop,
        ended: tokio::spawn(server.run(router, stopped)),
    }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn connect(running: &RunningServer) -> TcpStream {
    TcpStream::connect(running.addr).await.unwrap()
}

/// Reads until `end` has come, or the stream ended.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    let reading = async {
        while !text.ends_with(end.as_bytes()) {
            if stream.read_buf(&mut text).await.unwrap() == 0 {
                break;
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("an answer in time");
    String::from_utf8(text).unwrap()
}

/// Reads until the server closes.
async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    let reading = stream.read_to_string(&mut text);
    timeout(PATIENCE, reading)
        .await
        .expect("a close in time")
        .unwrap();
    text
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_names_its_peer() {
    let whoami =
        get(async |Extension(peer): Extension<Peer>| format!("{} {}.", peer.addr, peer.tls));
    let running = start(options(), Router::new().route("/", whoami));
    let mut stream = connect(&running).await;
    let expected = format!("{} false.", stream.local_addr().unwrap());

    for _ in 0..3 {
        stream.write_all(GET).await.unwrap();
        let answer = read_until(&mut stream, ".").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with(&expected), "{answer}");
    }
    // Two requests sent at once, the second one in part: the first is answered all the same.
    stream.write_all(&[GET, &GET[..9]].concat()).await.unwrap();
    assert!(read_until(&mut stream, ".").await.ends_with(&expected));
    stream.write_all(&GET[9..]).await.unwrap();
    assert!(read_until(&mut stream, ".").await.ends_with(&expected));
}

#[tokio::test]
async fn a_layered_router_can_be_served() {
    let layers = layers::Options {
        trust_proxy: false,
        request_id_seed: 1,
        on_panic: |_| StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        on_too_many_failures: None,
    };
    let server = Server::bind(options()).unwrap();
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    tokio::spawn(server.run(layers::around(hello(), layers), pending::<()>()));
    stream.write_all(GET).await.unwrap();
    let answer = read_until(&mut stream, "hello").await;
    assert!(answer.contains("x-request-id: "), "{answer}");
    assert!(answer.contains("x-frame-options: DENY"), "{answer}");
}

#[tokio::test]
async fn a_client_that_stops_sending_still_gets_its_answer() {
    let slow = get(async || {
        sleep(Duration::from_millis(50)).await;
        "hello"
    });
    let running = start(options(), Router::new().route("/", slow));
    let mut stream = connect(&running).await;
    stream.write_all(GET).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(read_to_end(&mut stream).await.ends_with("hello"));
}

#[tokio::test]
async fn shutdown_finishes_the_running_request_and_closes_idle_connections() {
    let [entered, release] = [(); 2].map(|()| Arc::new(Notify::new()));
    let signals = (Arc::clone(&entered), Arc::clone(&release));
    let slow = get(async move || {
        signals.0.notify_one();
        signals.1.notified().await;
        "done"
    });
    let running = start(options(), hello().route("/slow", slow));
    let mut idle = connect(&running).await;
    idle.write_all(GET).await.unwrap();
    read_until(&mut idle, "hello").await;
    let mut busy = connect(&running).await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    entered.notified().await;

    running.stop.send(()).unwrap();

    assert_eq!(read_to_end(&mut idle).await, "");
    assert!(TcpStream::connect(running.addr).await.is_err());
    release.notify_one();
    let answer = read_to_end(&mut busy).await;
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.ends_with("done"), "{answer}");
    running.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_outlasts_the_drain_is_cut_off() {
    let entered = Arc::new(Notify::new());
    let signal = Arc::clone(&entered);
    let stuck = get(async move || {
        signal.notify_one();
        pending::<()>().await;
    });
    let drain_timeout = Duration::from_millis(50);
    let options = Options {
        drain_timeout,
        ..options()
    };
    let running = start(options, Router::new().route("/", stuck));
    let mut stream = connect(&running).await;
    stream.write_all(GET).await.unwrap();
    entered.notified().await;

    running.stop.send(()).unwrap();

    assert_eq!(read_to_end(&mut stream).await, "");
    let ended = running.ended.await.unwrap();
    assert!(matches!(ended, Err(Error::CutOff { connections: 1 })));
}

#[tokio::test]
async fn a_head_that_trickles_is_cut() {
    let head_timeout = Duration::from_millis(100);
    let options = Options {
        head_timeout,
        ..options()
    };
    let running = start(options, hello());
    let mut stream = connect(&running).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(!answer.contains("200"), "{answer}");
}

#[tokio::test]
async fn a_head_too_large_or_with_too_many_headers_is_refused() {
    let running = start(options(), hello());
    let long = format!("X-Long: {}\r\n", "x".repeat(HEAD_BYTES_MAX));
    let many = "X-Many: 1\r\n".repeat(101);
    for headers in [long, many] {
        let mut stream = connect(&running).await;
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    let mut stream = connect(&running).await;
    let fits = format!("X-Long: {}\r\n", "x".repeat(HEAD_BYTES_MAX - 200));
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{fits}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(
        read_until(&mut stream, "hello")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

/// A router whose `/slow` waits for a signal and reports when it was called.
fn with_slow() -> (Router, Arc<Notify>, Arc<Notify>) {
    let [entered, release] = [(); 2].map(|()| Arc::new(Notify::new()));
    let signals = (Arc::clone(&entered), Arc::clone(&release));
    let slow = get(async move || {
        signals.0.notify_one();
        signals.1.notified().await;
        "done"
    });
    (hello().route("/slow", slow), entered, release)
}

const GET_SLOW: &[u8] = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_place_while_all_are_busy() {
    let options = Options {
        connections_max: 1,
        ..options()
    };
    let (router, entered, release) = with_slow();
    let running = start(options, router);
    let mut first = connect(&running).await;
    first.write_all(GET_SLOW).await.unwrap();
    entered.notified().await;

    let mut second = connect(&running).await;
    second.write_all(GET).await.unwrap();
    let mut byte = [0];
    let early = timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(early.is_err(), "served while the only place was taken");

    release.notify_one();
    assert!(read_until(&mut first, "done").await.ends_with("done"));
    assert!(read_until(&mut second, "hello").await.ends_with("hello"));
    assert_eq!(read_to_end(&mut first).await, "", "it made room");
}

#[tokio::test]
async fn s4_silent_half_sent_and_finished_connections_make_room_for_a_new_one() {
    let options = Options {
        connections_max: 4,
        ..options()
    };
    let (router, entered, release) = with_slow();
    let running = start(options, router);
    let mut busy = connect(&running).await;
    busy.write_all(GET_SLOW).await.unwrap();
    entered.notified().await;
    let silent = connect(&running).await;
    let mut half = connect(&running).await;
    half.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    let mut finished = connect(&running).await;
    finished.write_all(GET).await.unwrap();
    read_until(&mut finished, "hello").await;

    let mut kept = Vec::new();
    for mut idle in [silent, half, finished] {
        let mut next = connect(&running).await;
        next.write_all(GET).await.unwrap();
        assert!(read_until(&mut next, "hello").await.ends_with("hello"));
        let mut rest = Vec::new();
        let closed = timeout(PATIENCE, idle.read_to_end(&mut rest)).await;
        // An end or a reset, in the order in which they became idle.
        assert!(closed.is_ok() && rest.is_empty(), "{rest:?}");
        kept.push(next);
    }
    release.notify_one();
    assert!(read_until(&mut busy, "done").await.ends_with("done"));
    for next in &mut kept {
        next.write_all(GET).await.unwrap();
        assert!(read_until(next, "hello").await.ends_with("hello"));
    }
}

#[tokio::test]
async fn s4_a_client_at_its_share_loses_an_idle_connection_and_never_a_busy_one() {
    let options = Options {
        connections_per_client_max: Some(1),
        ..options()
    };
    let (router, entered, release) = with_slow();
    let running = start(options, router);
    let mut idle = connect(&running).await;
    idle.write_all(GET).await.unwrap();
    read_until(&mut idle, "hello").await;

    let mut busy = connect(&running).await;
    busy.write_all(GET_SLOW).await.unwrap();
    entered.notified().await;
    assert_eq!(read_to_end(&mut idle).await, "");

    let mut byte = [0];
    let mut second = connect(&running).await;
    let closed = timeout(PATIENCE, second.read(&mut byte)).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");

    release.notify_one();
    assert!(read_until(&mut busy, "done").await.ends_with("done"));
    let mut next = connect(&running).await;
    next.write_all(GET).await.unwrap();
    read_until(&mut next, "hello").await;
}

#[tokio::test]
async fn s4_a_first_head_must_arrive_in_time_and_a_later_one_may_take_longer() {
    let options = Options {
        first_head_timeout: Duration::from_millis(100),
        ..options()
    };
    let running = start(options, hello());
    let mut silent = connect(&running).await;
    let mut kept = connect(&running).await;
    kept.write_all(GET).await.unwrap();
    read_until(&mut kept, "hello").await;
    let mut trickling = connect(&running).await;
    let trickle = async {
        for byte in GET {
            if trickling.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let mut rest = Vec::new();
        let _ = trickling.read_to_end(&mut rest).await;
        rest
    };
    let rest = timeout(PATIENCE, trickle).await.expect("a close in time");
    assert_eq!(String::from_utf8(rest).unwrap(), "");
    assert_eq!(read_to_end(&mut silent).await, "");
    kept.write_all(GET).await.unwrap();
    read_until(&mut kept, "hello").await;
}

#[test]
fn s4_only_near_addresses_count_as_a_proxy_and_only_behind_one() {
    let is_proxy = |behind_proxy, ip: &str| {
        let options = Options {
            behind_proxy,
            ..options()
        };
        options.is_proxy(ip.parse().unwrap())
    };
    for near in [
        "127.0.0.1",
        "::1",
        "::ffff:10.0.0.2",
        "172.17.0.1",
        "fd00::1",
    ] {
        assert!(is_proxy(true, near) && !is_proxy(false, near), "{near}");
    }
    assert!(!is_proxy(true, "203.0.113.9") && !is_proxy(true, "2001:db8::1"));
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending_a_huge_body() {
    let limited = post(
        async |body: Body| match body::read(body, 1000, PATIENCE).await {
            Ok(_) => StatusCode::OK.into_response(),
            Err(error) => (error.status(), "refused").into_response(),
        },
    );
    let running = start(options(), Router::new().route("/", limited));
    let body = vec![b'x'; 4 << 20];

    for framing in ["Content-Length: 4194304", "Transfer-Encoding: chunked"] {
        let mut stream = connect(&running).await;
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        if framing.starts_with('T') {
            stream.write_all(b"400000\r\n").await.unwrap();
        }
        // All of it can be sent before the answer is looked at.
        stream.write_all(&body).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(answer.ends_with("refused"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_asks_before_sending_is_told_to_continue_or_refused() {
    let limited = post(
        async |body: Body| match body::read(body, 10, PATIENCE).await {
            Ok(body) => body.into_response(),
            Err(error) => (error.status(), "refused").into_response(),
        },
    );
    let running = start(options(), Router::new().route("/", limited));
    let head = |length| {
        format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        )
    };

    let mut stream = connect(&running).await;
    stream.write_all(head(3).as_bytes()).await.unwrap();
    let interim = read_until(&mut stream, "\r\n\r\n").await;
    assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
    stream.write_all(b"abc").await.unwrap();
    assert!(
        read_until(&mut stream, "abc")
            .await
            .starts_with("HTTP/1.1 200")
    );

    stream.write_all(head(11).as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn tls_serves_and_a_reload_reaches_new_connections_only() {
    let directory = tempfile::tempdir().unwrap();
    let files = tls::CertificateFiles {
        certificates: directory.path().join("chain.pem"),
        key: directory.path().join("key.pem"),
    };
    write_pair(&files);
    let options = Options {
        tls: Some(files.clone()),
        ..options()
    };
    let running = start(options, hello());
    let mut old = connect_tls(&running, &files.certificates).await.unwrap();
    let old_root = directory.path().join("old.pem");
    fs::copy(&files.certificates, &old_root).unwrap();

    write_pair(&files);
    running.tls.as_ref().unwrap().reload().unwrap();

    old.write_all(GET).await.unwrap();
    assert!(
        read_until(&mut old, "hello")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(connect_tls(&running, &old_root).await.is_err());
    let mut new = connect_tls(&running, &files.certificates).await.unwrap();
    assert_eq!(
        new.get_ref().1.alpn_protocol(),
        Some(b"http/1.1".as_slice())
    );
    new.write_all(GET).await.unwrap();
    assert!(
        read_until(&mut new, "hello")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn a_client_that_never_finishes_its_handshake_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let files = tls::CertificateFiles {
        certificates: directory.path().join("chain.pem"),
        key: directory.path().join("key.pem"),
    };
    write_pair(&files);
    let options = Options {
        tls: Some(files),
        first_head_timeout: Duration::from_millis(50),
        ..options()
    };
    let running = start(options, hello());
    let mut silent = connect(&running).await;
    assert_eq!(read_to_end(&mut silent).await, "");
}

#[tokio::test]
async fn a_taken_address_is_an_error_that_names_it() {
    let running = start(options(), hello());
    let error = Server::bind(Options::new(running.addr)).unwrap_err();
    assert!(error.to_string().contains(&running.addr.to_string()));
}

pub(crate) fn write_pair(files: &tls::CertificateFiles) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&files.certificates, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
}

async fn connect_tls(running: &RunningServer, root: &Path) -> io::Result<TlsStream<TcpStream>> {
    handshake(connect(running).await, root).await
}

pub(crate) async fn handshake(stream: TcpStream, root: &Path) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(root).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}
