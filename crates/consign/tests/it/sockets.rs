//! Requests that no client library sends, over a bare socket.

use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use consign_testkit::process::{Reply, Server, read_reply};

use super::{Place, assert_five_headers, get, main_client, publish};

/// Sends the bytes, optionally shuts down the sending side, and reads one response within 3 s.
fn exchange(server: &Server, bytes: &[u8], shut: bool) -> Option<Reply> {
    let mut stream = server.http().connect().expect("the server accepts");
    stream
        .set_read_timeout(Some(Duration::from_secs(3)))
        .expect("a socket has a timeout");
    // The server may respond and close before all bytes are written.
    let _ = stream.write_all(bytes);
    if shut {
        let _ = stream.shutdown(Shutdown::Write);
    }
    read_reply(&mut BufReader::new(stream)).ok()
}

fn head(server: &Server, request_line: &str, more: &str) -> String {
    let key = server
        .secret("bus_secret")
        .expect("the server made its key");
    let host = server.authority();
    format!("{request_line} HTTP/1.1\r\nHost: {host}\r\nX-API-KEY: {key}\r\n{more}\r\n")
}

/// The status and the code of the protocol's error format, with all five headers.
fn refused(server: &Server, bytes: &[u8]) -> (u16, String) {
    let reply = exchange(server, bytes, false).expect("an answer comes");
    in_the_protocols_shape(&reply);
    (reply.status, reply.code())
}

fn in_the_protocols_shape(reply: &Reply) {
    assert_five_headers(reply);
    let message = reply.json()["error"]["message"].as_str().map(str::len);
    assert!(message.is_some_and(|length| length > 5), "{}", reply.text());
}

#[test]
fn malformed_and_oversized_requests_get_a_clear_error() {
    let place = Place::new();
    let server = place.start();
    let post = |body: &[u8]| {
        let more = format!("Content-Length: {}\r\n", body.len());
        [head(&server, "POST /intent", &more).as_bytes(), body].concat()
    };
    let is = |bytes: &[u8], status: u16, code: &str| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        assert_eq!(
            refused(&server, bytes),
            (status, code.to_owned()),
            "{shown}"
        );
    };
    is(&post(b"{\"goal\":"), 400, "invalid_payload");
    is(&post(b"[1,2]"), 400, "invalid_payload");
    is(&post(b"\xff\xfe{}"), 400, "invalid_payload");
    is(&post("[".repeat(8000).as_bytes()), 400, "invalid_payload");
    let nested = format!(
        "{{\"goal\":\"g\",\"payload\":{}{}}}",
        "[".repeat(2000),
        "]".repeat(2000)
    );
    is(&post(nested.as_bytes()), 400, "invalid_payload");
    is(&post(&vec![b'x'; 100_000]), 413, "payload_too_large");
    let huge = head(&server, "POST /intent", "Content-Length: 99999999999\r\n");
    is(huge.as_bytes(), 413, "payload_too_large");
    let chunked = head(&server, "POST /intent", "Transfer-Encoding: chunked\r\n");
    let chunk = format!("{chunked}4000\r\n{}\r\n", "x".repeat(0x4000));
    is(chunk.as_bytes(), 413, "payload_too_large");
    is(
        head(&server, "GET /nowhere", "").as_bytes(),
        404,
        "not_found",
    );
    is(
        head(&server, "DELETE /intent", "").as_bytes(),
        405,
        "method_not_allowed",
    );
    is(
        head(&server, "GET /intents?limit=%FF", "").as_bytes(),
        400,
        "invalid_limit",
    );
    assert_eq!(publish(&mut main_client(&server), "alive").status, 201);
}

#[test]
fn what_is_not_http_is_answered_with_400_and_closed() {
    let place = Place::new();
    let server = place.start();
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".as_slice(),
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"POST /intent HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /intent HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    ] {
        let asked = Instant::now();
        let reply = exchange(&server, bytes, true);
        if let Some(reply) = reply {
            assert_eq!(reply.status, 400);
            in_the_protocols_shape(&reply);
        }
        assert!(asked.elapsed() < Duration::from_secs(3));
    }
    let many = "X-More: v\r\n".repeat(200);
    let reply = exchange(
        &server,
        head(&server, "GET /health", &many).as_bytes(),
        false,
    );
    let reply = reply.unwrap();
    assert_eq!(reply.status, 431);
    in_the_protocols_shape(&reply);
    assert_eq!(get(&mut server.http(), "/health").status, 200);
}

#[test]
fn a_client_that_shuts_its_sending_side_still_gets_its_answer() {
    let place = Place::new();
    let server = place.start();
    let body = r#"{"goal":"g","payload":1}"#;
    let more = format!("Content-Length: {}\r\n", body.len());
    let request = format!("{}{body}", head(&server, "POST /intent", &more));
    assert_eq!(
        exchange(&server, request.as_bytes(), true).unwrap().status,
        201
    );
    // A body that ends early is an error and not an intent.
    let cut = &request.as_bytes()[..request.len() - 5];
    let reply = exchange(&server, cut, true);
    assert!(reply.is_none_or(|reply| reply.status == 400));
    let listed = get(&mut main_client(&server), "/intents").json();
    assert_eq!(listed["intents"].as_array().map(Vec::len), Some(1));
}

#[test]
fn slow_clients_hold_up_nobody_and_cost_little() {
    let place = Place::new();
    let server = place.start();
    let slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = server.http().connect().unwrap();
            let start = head(&server, "POST /intent", "Content-Length: 8000\r\n");
            stream
                .write_all(&start.as_bytes()[..start.len() - 2])
                .unwrap();
            stream
        })
        .collect();
    let asked = Instant::now();
    let mut http = main_client(&server);
    for number in 0..20 {
        assert_eq!(publish(&mut http, &format!("quick-{number}")).status, 201);
    }
    assert!(asked.elapsed() < Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let resident_kb: u64 = resident.trim_end_matches("kB").trim().parse().unwrap();
    assert!(resident_kb < 200_000, "{resident_kb} kB");
    drop(slow);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let place = Place::new();
    let server = place.start();
    let mut stream = server.http().connect().unwrap();
    let (first, second) = (head(&server, "GET /health", ""), head(&server, "GET /", ""));
    stream
        .write_all(format!("{first}{second}").as_bytes())
        .unwrap();
    let mut stream = BufReader::new(stream);
    assert_eq!(read_reply(&mut stream).unwrap().json()["ok"], true);
    assert!(
        read_reply(&mut stream)
            .unwrap()
            .text()
            .starts_with("Intent Bus")
    );
    stream.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}
