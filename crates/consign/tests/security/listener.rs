//! Unauthenticated clients that hold connections and bodies: they block neither the server nor its clients.

use std::fs::{self, Permissions};
use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use consign_testkit::process::{Options, Reply, Server, read_reply};
use serde_json::json;

use super::guessing_automation;
use super::place::{Place, binary, get, main_client, published, start};

/// Long enough for a busy machine, far below the time limits for a slow client.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// The server with a soft and hard limit of open files.
pub(super) fn with_open_files(place: &Place, files: u32) -> Options {
    let script = place.path("limited");
    let text = format!(
        "#!/bin/sh\nulimit -n {files} && exec '{}' \"$@\"\n",
        binary().display()
    );
    fs::write(&script, text).expect("a script can be written");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("it is ours");
    let mut options = place.options();
    options.binary = PathBuf::from(&script);
    options
}

pub(super) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.authority()).expect("the kernel takes it");
    stream.set_read_timeout(Some(SOON)).expect("it is a socket");
    stream
}

/// The response to the bytes sent so far.
fn answer(stream: &TcpStream) -> Reply {
    read_reply(&mut BufReader::new(stream)).expect("an answer in time")
}

pub(super) fn health_is_soon_told(server: &Server) {
    let began = Instant::now();
    let mut http = server.http().patience(SOON);
    assert_eq!(get(&mut http, "/health").status, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn s4_slow_and_idle_strangers_do_not_stop_the_server() {
    for (files, strangers) in [(64, 120), (256, 400)] {
        let place = Place::new();
        let server = start(&with_open_files(&place, files));
        let mut http = main_client(&server);
        let mut held = Vec::new();
        for number in 0..strangers {
            let mut stream = connect(&server);
            // Nothing, half a head, a request followed by silence, a body that is never sent. Writing fails on a connection
            // that was evicted.
            let said: &[u8] = match number % 4 {
                0 => b"",
                1 => b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
                2 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                _ => b"POST /api/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
            };
            let _ = stream.write_all(said);
            held.push(stream);
        }
        health_is_soon_told(&server);
        published(&mut http, "in the middle of it");
        health_is_soon_told(&server);
        drop(held);
    }
}

/// Connections on which a body arrives are busy, so they are not evicted at once.
#[test]
fn s4_one_address_with_busy_connections_leaves_room_for_others() {
    let place = Place::new();
    let server = start(&with_open_files(&place, 256));
    let key = server.secret("bus_secret").expect("it was made");
    let key = format!("X-API-KEY: {key}\r\n");
    // Without a quota per address, it would hold all 128 connections.
    let held: Vec<TcpStream> = (0..140)
        .map_while(|_| {
            let mut stream = TcpStream::connect(server.authority()).ok()?;
            let head = format!(
                "POST /intent HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: 40\r\n\r\n"
            );
            // A connection beyond the quota is closed.
            let _ = stream.write_all(head.as_bytes());
            Some(stream)
        })
        .collect();
    let began = Instant::now();
    let address = server.authority().parse().expect("an address");
    let mut other = guessing_automation::connect(guessing_automation::OTHER, address);
    other
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it is taken");
    assert_eq!(answer(&other).status, 200);
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    let is_open = |stream: &&TcpStream| {
        stream.set_nonblocking(true).expect("it is a socket");
        let read = stream.peek(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let open = held.iter().filter(is_open).count();
    assert!((1..=64).contains(&open), "{open} of 140 are open");
}

#[test]
fn s4_the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let place = Place::new();
    let script = place.path("soft");
    let text = format!(
        "#!/bin/sh\nulimit -Sn 100 && exec '{}' \"$@\"\n",
        binary().display()
    );
    fs::write(&script, text).expect("a script can be written");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("it is ours");
    let mut options = place.options();
    options.binary = script;
    let server = start(&options);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid()));
    let limits = limits.expect("Linux tells the limits of a process");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = line.expect("it is listed").split_whitespace().collect();
    assert_eq!(words[3], words[4], "soft and hard: {words:?}");
}

/// A request whose body is announced and not sent.
fn head_only(server: &Server, line: &str, headers: &str, bytes: usize) -> TcpStream {
    let mut stream = connect(server);
    let head =
        format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is taken");
    stream
}

fn tester(server: &Server) -> String {
    let mut admin = server.admin_client().expect("the server made its token");
    let made = admin.post("/admin/generate_key", &json!({"owner": "t"}));
    let made = made.expect("the server answers").json();
    made["api_key"].as_str().expect("a key").to_owned()
}

#[test]
fn s11_bodies_in_flight_of_one_key_are_bounded_and_given_back() {
    const BODY: usize = 1 << 20;
    let place = Place::new();
    let server = start(&place.options());
    let key = format!("X-API-KEY: {}\r\n", tester(&server));
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = head_only(&server, "POST /intents", &key, BODY);
        stream
            .write_all(&vec![b' '; BODY / 2])
            .expect("it is taken");
        let quick = Some(Duration::from_millis(300));
        stream.set_read_timeout(quick).expect("it is a socket");
        if let Ok(reply) = read_reply(&mut BufReader::new(&stream)) {
            break reply;
        }
        held.push(stream);
        assert!(held.len() < 40, "nobody was refused");
    };
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.code(), "database_busy");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(held.len(), 16, "a quarter of 64 MiB");
    // Other keys have their own quota.
    published(&mut main_client(&server), "of another key");

    drop(held);
    let began = Instant::now();
    let again = loop {
        let mut stream = head_only(&server, "POST /intents", &key, BODY);
        stream.write_all(&vec![b' '; BODY]).expect("it is taken");
        let reply = answer(&stream);
        if reply.status != 503 || began.elapsed() > SOON {
            break reply;
        }
    };
    assert_eq!(again.status, 400, "{}", again.text());
}

#[test]
fn s11_what_is_refused_anyway_is_refused_before_its_body_is_read() {
    let place = Place::new();
    let server = start(&place.options().env("ATP_SITE", "https://shop.example"));
    let tester = tester(&server);
    let key = format!("X-API-KEY: {tester}\r\n");
    for (line, headers, status) in [
        ("POST /intents", "", 401),
        ("POST /intents", "X-API-KEY: wrong-key-0123456789\r\n", 401),
        ("POST /no/such/path", key.as_str(), 404),
        ("PUT /intents", key.as_str(), 405),
        ("POST /api/atp/rails/unknown/callback", "", 404),
        ("POST /api/atp/no/such/path", "", 404),
        (
            "POST /admin/purge",
            "X-Admin-Token: wrong-token-0123456\r\n",
            401,
        ),
    ] {
        let stream = head_only(&server, line, headers, 8_000);
        let reply = answer(&stream);
        assert_eq!(reply.status, status, "{line}: {}", reply.text());
    }
    // Also for a request beyond the rate limit of 60 per minute.
    let mut http = server.http().header("x-api-key", &tester);
    let used_up = (0..70).any(|_| get(&mut http, "/get/none").status == 429);
    assert!(used_up);
    let reply = answer(&head_only(&server, "POST /intents", &key, 1 << 20));
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limited"));
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn s4_a_body_that_trickles_leaves_others_alone() {
    let place = Place::new();
    let server = start(&place.options());
    let key = server.secret("bus_secret").expect("it was made");
    let mut slow = head_only(
        &server,
        "POST /intent",
        &format!("X-API-KEY: {key}\r\n"),
        40,
    );
    for _ in 0..3 {
        slow.write_all(b" ").expect("it is taken");
        health_is_soon_told(&server);
    }
    slow.write_all(br#"{"goal":"slow","payload":{"n":12345}}"#)
        .expect("it is taken");
    let reply = answer(&slow);
    assert_eq!(
        reply.status,
        201,
        "a slow client is served: {}",
        reply.text()
    );
}
