//! Connections on which a request never begins: over plain HTTP, and during or after a TLS handshake.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{Options, Reply, Server, read_reply};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use super::listener::{SOON, connect, health_is_soon_told, with_open_files};
use super::place::{Place, start};

/// The limit is 10 s from the moment the connection is accepted.
const EARLIEST: Duration = Duration::from_secs(9);
/// With a margin for a busy machine, and far below the 90 s of a connection that has served a request.
const LATEST: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(300);
const HALF_A_HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// How long the server keeps a connection on which only `trickle` is sent, one byte at a time.
fn kept(mut stream: TcpStream, began: Instant, trickle: &[u8]) -> Duration {
    stream
        .set_read_timeout(Some(PAUSE))
        .expect("it is a socket");
    let mut rest = trickle.iter();
    let mut bytes = [0; 4096];
    while began.elapsed() < LATEST {
        let sent = rest.next().map(|byte| stream.write_all(&[*byte]));
        let is_closed = match stream.read(&mut bytes) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        if is_closed || sent.is_some_and(|sent| sent.is_err()) {
            break;
        }
    }
    began.elapsed()
}

/// Sends `first`, then the rest byte by byte, and asserts that the connection ends in time.
fn ends_in_time(server: &Server, what: &'static str, first: &[u8], trickle: &[u8]) -> Waiting {
    let began = Instant::now();
    let mut stream = connect(server);
    stream.write_all(first).expect("it is taken");
    let trickle = trickle.to_vec();
    Waiting(what, thread::spawn(move || kept(stream, began, &trickle)))
}

struct Waiting(&'static str, thread::JoinHandle<Duration>);

impl Waiting {
    fn assert_in_time(self) {
        let kept = self.1.join().expect("the thread ends");
        assert!(kept > EARLIEST && kept < LATEST, "{}: {kept:?}", self.0);
    }
}

/// A server with a certificate for 127.0.0.1, and the configuration of its clients.
fn with_certificate(place: &Place, options: Options) -> (Options, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let made = made.expect("a certificate can be made");
    let (cert, key) = (place.path("cert.pem"), place.path("key.pem"));
    fs::write(&key, made.signing_key.serialize_pem()).expect("the key can be written");
    fs::write(&cert, made.cert.pem()).expect("the certificate can be written");
    let mut roots = RootCertStore::empty();
    roots
        .add(made.cert.der().clone())
        .expect("it is a certificate");
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let options = options
        .arg("--tls-cert")
        .arg(&cert.to_string_lossy())
        .arg("--tls-key")
        .arg(&key.to_string_lossy());
    (options, Arc::new(client))
}

fn session(client: &Arc<ClientConfig>) -> ClientConnection {
    let name = "127.0.0.1".try_into().expect("it is an address");
    ClientConnection::new(Arc::clone(client), name).expect("the configuration fits")
}

fn client_hello(client: &Arc<ClientConfig>) -> Vec<u8> {
    let mut hello = Vec::new();
    let written = session(client).write_tls(&mut hello);
    assert!(written.expect("memory takes it") > 100);
    hello
}

/// A connection with a completed handshake, on which these bytes were sent.
fn shaken(server: &Server, client: &Arc<ClientConfig>, sent: &[u8]) -> TcpStream {
    let mut socket = connect(server);
    let mut session = session(client);
    while session.is_handshaking() {
        session
            .complete_io(&mut socket)
            .expect("the server is there");
    }
    let mut stream = Stream::new(&mut session, &mut socket);
    stream.write_all(sent).expect("it is taken");
    socket
}

fn health_over_tls(server: &Server, client: &Arc<ClientConfig>) -> Reply {
    let mut socket = connect(server);
    let mut session = session(client);
    let mut stream = Stream::new(&mut session, &mut socket);
    stream.write_all(HEALTH).expect("it is taken");
    read_reply(&mut BufReader::new(stream)).expect("an answer in time")
}

#[test]
fn s4_a_first_head_that_does_not_arrive_in_ten_seconds_closes_the_connection() {
    let place = Place::new();
    let server = start(&place.options());
    let began = Instant::now();
    let mut served = connect(&server);
    served.write_all(HEALTH).expect("it is taken");
    let first = read_reply(&mut BufReader::new(&served)).expect("an answer");
    assert_eq!(first.status, 200);
    let waiting = [
        ends_in_time(&server, "silence", b"", b""),
        ends_in_time(&server, "half a head", HALF_A_HEAD, b""),
        ends_in_time(&server, "a head that trickles", HALF_A_HEAD, &[b'x'; 1000]),
    ];
    health_is_soon_told(&server);
    for one in waiting {
        one.assert_in_time();
    }
    // The limit applies to the first head only: a client that was served once may wait longer.
    assert!(began.elapsed() > EARLIEST);
    served.write_all(HEALTH).expect("it is taken");
    let later = read_reply(&mut BufReader::new(&served)).expect("an answer");
    assert_eq!(later.status, 200);
}

#[test]
fn s4_a_tls_handshake_that_does_not_end_in_ten_seconds_closes_the_connection() {
    let place = Place::new();
    let (options, client) = with_certificate(&place, place.options());
    let server = start(&options);
    let hello = client_hello(&client);
    let mut waiting = vec![
        ends_in_time(&server, "silence", b"", b""),
        ends_in_time(&server, "half a hello", &hello[..60], b""),
        ends_in_time(&server, "a hello that trickles", &hello[..60], &hello[60..]),
        ends_in_time(&server, "a hello and no more", &hello, b""),
    ];
    for (what, sent) in [
        ("a handshake and no request", &b""[..]),
        ("a handshake and half a head", HALF_A_HEAD),
    ] {
        let began = Instant::now();
        let socket = shaken(&server, &client, sent);
        waiting.push(Waiting(
            what,
            thread::spawn(move || kept(socket, began, b"")),
        ));
    }
    assert_eq!(health_over_tls(&server, &client).status, 200);
    for one in waiting {
        one.assert_in_time();
    }
    assert_eq!(health_over_tls(&server, &client).status, 200);
}

#[test]
fn s4_unfinished_tls_handshakes_do_not_stop_the_server() {
    let place = Place::new();
    let (options, client) = with_certificate(&place, with_open_files(&place, 64));
    let server = start(&options);
    let hello = client_hello(&client);
    let mut held = Vec::new();
    for number in 0..120 {
        let mut stream = connect(&server);
        let sent = match number % 3 {
            0 => 0,
            1 => 60,
            _ => hello.len(),
        };
        // Writing fails on a connection that was evicted.
        let _ = stream.write_all(&hello[..sent]);
        held.push(stream);
    }
    let began = Instant::now();
    assert_eq!(health_over_tls(&server, &client).status, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(held);
}
