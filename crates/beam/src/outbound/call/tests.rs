//! Calls to real servers on loopback, allowed by their literal host and port.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::super::guard::AllowedTargets;
use super::super::guard::tests::ScriptedResolver;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let socket = listener.local_addr().unwrap();
    (listener, socket)
}

/// A server whose connections `serve` handles after the head of the first request.
async fn server<F>(serve: impl Fn(TcpStream, String) -> F + Send + 'static) -> TargetUrl
where
    F: Future<Output = ()> + Send + 'static,
{
    let (listener, socket) = listen().await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            let request = String::from_utf8(request).unwrap();
            tokio::spawn(serve(stream, request));
        }
    });
    TargetUrl::parse(&format!("http://{socket}/hook")).unwrap()
}

/// Sends this text, and then nothing more on an open connection.
async fn sending(text: &'static str) -> TargetUrl {
    server(move |mut stream, _| async move {
        stream.write_all(text.as_bytes()).await.unwrap();
        pending::<()>().await;
    })
    .await
}

fn outbound(urls: &[&TargetUrl]) -> Outbound {
    with_options(urls, &OutboundOptions::default())
}

fn with_options(urls: &[&TargetUrl], options: &OutboundOptions) -> Outbound {
    let listed: Vec<String> = urls.iter().map(|url| url.authority().to_string()).collect();
    let allowed = AllowedTargets::parse(&listed.join(",")).unwrap();
    Outbound::new(AddressGuard::new(allowed), options).unwrap()
}

fn limits() -> CallLimits {
    CallLimits::relay(5 * SECOND)
}

fn short() -> CallLimits {
    CallLimits::relay(SECOND / 10)
}

async fn get(url: &TargetUrl, limits: CallLimits) -> Result<OutboundResponse, OutboundError> {
    let call = outbound(&[url]);
    call.call(url, OutboundRequest::get(), limits).await
}

#[tokio::test]
async fn headers_and_body_are_sent_and_the_response_is_read() {
    let url = server(|mut stream, request| async move {
        let body = format!("{:?}", request.to_lowercase());
        let head = format!("HTTP/1.1 201 X\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
    })
    .await;
    let sender = HeaderName::from_static("x-beam-sender");
    let secret = HeaderName::from_static("x-beam-federation-secret");
    let request = OutboundRequest::post_json("{}")
        .header(sender, "a@b.beam.directory")
        .unwrap()
        .secret_header(secret, "hunter2")
        .unwrap();
    assert!(!format!("{request:?}").contains("hunter2"));
    let call = outbound(&[&url]);
    let response = call.call(&url, request, limits()).await.unwrap();
    assert_eq!(response.status, StatusCode::CREATED);
    let seen = String::from_utf8(response.body.to_vec()).unwrap();
    for part in [
        "post /hook http/1.1",
        "content-type: application/json",
        "x-beam-sender: a@b.beam.directory",
        "x-beam-federation-secret: hunter2",
        &format!("host: {}", url.authority()),
    ] {
        assert!(seen.contains(part), "{part} in {seen}");
    }
}

#[tokio::test]
async fn a_slow_response_ends_at_the_deadline() {
    // Silence, a body that stops, and a body that comes in drops.
    let drops = server(|mut stream, _| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for url in [
        sending("").await,
        sending("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc").await,
        drops,
    ] {
        let begun = Instant::now();
        let error = get(&url, short()).await.unwrap_err();
        let after = SECOND / 10;
        assert_eq!(error, OutboundError::Timeout { after });
        assert!(begun.elapsed() < 2 * SECOND);
    }
}

#[tokio::test]
async fn an_endless_response_ends_at_the_size_limit() {
    let endless = |head: &'static str, chunk: &'static [u8]| {
        server(move |mut stream, _| async move {
            stream.write_all(head.as_bytes()).await.unwrap();
            while stream.write_all(chunk).await.is_ok() {}
        })
    };
    let urls = [
        endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096]).await,
        endless(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"80\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
        )
        .await,
        // The declared length is enough.
        sending("HTTP/1.1 200 OK\r\ncontent-length: 1048577\r\n\r\n").await,
    ];
    for url in urls {
        let error = get(&url, limits()).await.unwrap_err();
        let limit_bytes = RELAY_RESPONSE_BYTES_MAX;
        assert_eq!(error, OutboundError::TooLarge { limit_bytes });
        assert!(error.may_be_sent());
    }
}

#[tokio::test]
async fn a_response_at_the_size_limit_is_read() {
    let url = server(|mut stream, _| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1048576\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let body = vec![b'x'; RELAY_RESPONSE_BYTES_MAX];
        stream.write_all(&body).await.unwrap();
    })
    .await;
    let response = get(&url, limits()).await.unwrap();
    assert_eq!(response.body.len(), RELAY_RESPONSE_BYTES_MAX);
}

#[tokio::test]
async fn endless_headers_are_malformed() {
    let url = server(|mut stream, _| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(b"a: bbbbbbbbbbbbbbbb\r\n").await.is_ok() {}
    })
    .await;
    let error = get(&url, limits()).await.unwrap_err();
    assert!(matches!(error, OutboundError::Malformed(_)), "{error}");
}

#[tokio::test]
async fn a_redirect_is_returned_and_not_followed() {
    let (trap, socket) = listen().await;
    let url = server(move |mut stream, _| async move {
        let response = format!(
            "HTTP/1.1 307 Moved\r\nlocation: http://{socket}/\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(response.as_bytes()).await.unwrap();
    })
    .await;
    // Even a target that is allowed is not called by a redirect.
    let trapped = TargetUrl::parse(&format!("http://{socket}")).unwrap();
    let call = outbound(&[&url, &trapped]);
    let request = OutboundRequest::post_json("{}");
    let response = call.call(&url, request, limits()).await.unwrap();
    assert_eq!(response.status, StatusCode::TEMPORARY_REDIRECT);
    assert!(timeout(SECOND / 10, trap.accept()).await.is_err());
}

#[tokio::test]
async fn what_is_not_http_is_malformed_and_a_lost_connection_is_broken() {
    for (text, malformed) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", true),
        ("HTTP/1.1 abc\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", false),
        ("", false),
    ] {
        let url = server(move |mut stream, _| async move {
            stream.write_all(text.as_bytes()).await.unwrap();
        })
        .await;
        let error = get(&url, limits()).await.unwrap_err();
        assert_eq!(
            (
                matches!(error, OutboundError::Malformed(_)),
                matches!(error, OutboundError::Broken(_)),
            ),
            (malformed, !malformed),
            "{text:?}: {error}"
        );
        assert!(error.may_be_sent());
    }
}

#[test]
fn a_header_value_with_a_control_character_is_refused() {
    let name = HeaderName::from_static("x-beam-nonce");
    for value in [
        "a\r\nX-Beam-Sender: b",
        "a\nb",
        "a\rb",
        "a\0",
        "a\tb",
        "\u{7f}",
        "é",
        "a\u{2028}b",
    ] {
        let expected = OutboundError::Header { name: name.clone() };
        let refused = OutboundRequest::get().header(name.clone(), value);
        assert_eq!(refused.unwrap_err(), expected, "{value:?}");
        let refused = OutboundRequest::get().secret_header(name.clone(), value);
        assert_eq!(refused.unwrap_err(), expected, "{value:?}");
    }
    for name in ["host", "content-length", "transfer-encoding", "connection"] {
        let refused = OutboundRequest::get().header(HeaderName::from_static(name), "1");
        assert!(refused.is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_refused_url_opens_no_connection() {
    let (trap, socket) = listen().await;
    let port = socket.port();
    let call = outbound(&[]);
    for text in [
        format!("http://127.0.0.1:{port}"),
        format!("https://127.0.0.1:{port}"),
        format!("https://localhost:{port}"),
        format!("https://[::ffff:127.0.0.1]:{port}"),
        format!("http://0.0.0.0:{port}"),
    ] {
        let url = TargetUrl::parse(&text).unwrap();
        let error = call.call(&url, OutboundRequest::get(), limits()).await;
        let error = error.unwrap_err();
        assert!(matches!(error, OutboundError::Refused(_)), "{error}");
        assert!(!error.may_be_sent());
    }
    assert!(timeout(SECOND / 10, trap.accept()).await.is_err());
}

#[tokio::test]
async fn a_name_that_is_rebound_to_this_machine_opens_no_connection() {
    let (trap, socket) = listen().await;
    for answer in [&["127.0.0.1"][..], &["10.0.0.1"], &["8.8.8.8", "127.0.0.1"]] {
        let resolver = ScriptedResolver::new(&[answer]);
        let shared = Arc::clone(&resolver);
        let guard = AddressGuard::with_resolver(AllowedTargets::default(), shared);
        let call = Outbound::new(guard, &OutboundOptions::default()).unwrap();
        let url = TargetUrl::parse(&format!("https://a.example:{}", socket.port())).unwrap();
        let error = call.call(&url, OutboundRequest::get(), limits()).await;
        let error = error.unwrap_err();
        assert!(matches!(error, OutboundError::Refused(_)), "{error}");
        assert_eq!(resolver.asked(), 1);
    }
    assert!(timeout(SECOND / 10, trap.accept()).await.is_err());
}

#[tokio::test]
async fn the_checked_address_is_the_one_that_is_called() {
    let served = sending("HTTP/1.1 204 No Content\r\n\r\n").await;
    // The first answer is this server. At the second one nothing listens.
    let resolver = ScriptedResolver::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let listed = format!("a.example:{}", served.authority().port);
    let allowed = AllowedTargets::parse(&listed).unwrap();
    let shared = Arc::clone(&resolver);
    let guard = AddressGuard::with_resolver(allowed, shared);
    let call = Outbound::new(guard, &OutboundOptions::default()).unwrap();
    let url = TargetUrl::parse(&format!("http://{listed}")).unwrap();
    let response = call.call(&url, OutboundRequest::get(), limits()).await;
    assert_eq!(response.unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(resolver.asked(), 1);
    // The next call asks again, and a kept connection to the old address is not used for the new one.
    let error = call.call(&url, OutboundRequest::get(), limits()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, OutboundError::Connect(_)), "{error}");
    assert_eq!(resolver.asked(), 2);
}

#[tokio::test]
async fn a_target_that_does_not_listen_is_a_connect_error() {
    let (listener, socket) = listen().await;
    drop(listener);
    let url = TargetUrl::parse(&format!("http://{socket}")).unwrap();
    let error = get(&url, limits()).await.unwrap_err();
    assert!(matches!(error, OutboundError::Connect(_)), "{error}");
    assert!(!error.may_be_sent());
}

#[tokio::test]
async fn a_configured_url_needs_no_permission() {
    let url = sending("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let call = outbound(&[]);
    let response = call.call_configured(&url, OutboundRequest::get(), limits());
    assert_eq!(response.await.unwrap().body, "ok");
}

#[tokio::test]
async fn a_slow_target_does_not_take_the_slots_of_others() {
    let slow = sending("").await;
    let fast = sending("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
    let options = OutboundOptions {
        endpoint_calls_max: 3,
        calls_per_endpoint_max: 2,
        ..OutboundOptions::default()
    };
    let call = Arc::new(with_options(&[&slow, &fast], &options));
    let patient = CallLimits {
        connect: SECOND / 10,
        ..limits()
    };
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let (call, slow) = (Arc::clone(&call), slow.clone());
        waiting.spawn(async move { call.call(&slow, OutboundRequest::get(), patient).await });
    }
    // Two calls run; the other three give up first.
    for _ in 0..3 {
        let ended = waiting.join_next().await.unwrap().unwrap();
        assert_eq!(ended.unwrap_err(), OutboundError::Busy);
    }
    assert_eq!(waiting.len(), 2);
    for _ in 0..3 {
        let response = call.call(&fast, OutboundRequest::get(), patient).await;
        assert_eq!(response.unwrap().body, "ok");
    }
    // Calls that are cancelled free their slots and leave nothing behind.
    waiting.shutdown().await;
    assert_eq!(call.endpoint_slots.targets_in_use(), 0);
    let error = call.call(&slow, OutboundRequest::get(), short()).await;
    let after = SECOND / 10;
    assert_eq!(error.unwrap_err(), OutboundError::Timeout { after });
}

#[tokio::test]
async fn hanging_endpoints_take_no_slots_from_peers() {
    let slow = sending("").await;
    let peer = sending("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
    let options = OutboundOptions {
        endpoint_calls_max: 1,
        ..OutboundOptions::default()
    };
    let call = Arc::new(with_options(&[&slow, &peer], &options));
    let long = CallLimits::relay(60 * SECOND);
    let running = Arc::clone(&call);
    let running =
        tokio::spawn(async move { running.call(&slow, OutboundRequest::get(), long).await });
    while call.endpoint_slots.targets_in_use() == 0 {
        tokio::task::yield_now().await;
    }
    let endpoint = call.call(&peer, OutboundRequest::get(), short()).await;
    assert_eq!(endpoint.unwrap_err(), OutboundError::Busy);
    let answer = call
        .call_peer(&peer, OutboundRequest::get(), limits())
        .await;
    assert_eq!(answer.unwrap().body, "ok");
    running.abort();
}
