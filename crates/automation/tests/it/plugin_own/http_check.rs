//! `http-check` against a misbehaving server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use consign_automation::plugin::response::PluginResponse;
use serde_json::{Value, json};

use super::{ask, found, refused};

/// Ends with the test process; each connection has its own thread.
struct Server {
    address: String,
    /// The status of `/switch`.
    status: Arc<AtomicU16>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let status = Arc::new(AtomicU16::new(200));
        let shared = Arc::clone(&status);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let status = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &status));
            }
        });
        Self { address, status }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    /// A check of these paths with a given state and further configuration keys.
    async fn poll(&self, paths: &[&str], state: Value, more: Value) -> PluginResponse {
        let urls: Vec<_> = paths.iter().map(|path| self.url(path)).collect();
        let mut config = more;
        config["urls"] = json!(urls);
        ask(
            "http-check",
            "poll",
            json!({"config": config, "state": state}),
        )
        .await
    }

    /// Why a path is down.
    async fn reason(&self, path: &str, more: Value) -> String {
        let response = self.poll(&[path], json!({}), more).await;
        let event = &response.events[0];
        assert_eq!(event.kind, "http_check.down", "{path}");
        event.payload["reason"].as_str().unwrap().to_owned()
    }
}

/// Ignores errors, because the client may disconnect early.
fn serve(mut stream: TcpStream, status: &AtomicU16) -> Option<()> {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head[..length]);
    let path = head.split(' ').nth(1)?.to_owned();
    let redirect =
        |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    let plain = |status: u16, body: &str| {
        format!(
            "HTTP/1.1 {status} S\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = match path.as_str() {
        "/ok" => plain(200, "all is well"),
        "/switch" => plain(status.load(Ordering::SeqCst), "switch"),
        "/loop" => redirect("/loop"),
        "/once" => redirect("/ok"),
        "/file" => redirect("file:///etc/passwd"),
        "/garbage" => "no protocol at all\r\n\r\n".to_owned(),
        "/torn" => "HTTP/1.1 200 S\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
        "/huge" => {
            stream.write_all(b"HTTP/1.1 200 S\r\n\r\n").ok()?;
            let chunk = vec![b'x'; 65_536];
            loop {
                stream.write_all(&chunk).ok()?;
            }
        }
        "/drip" => loop {
            stream.write_all(b"H").ok()?;
            thread::sleep(Duration::from_millis(100));
        },
        "/slow" => {
            thread::sleep(Duration::from_millis(300));
            plain(200, "late")
        }
        // A redirect chain that ends, but too late.
        "/8" => plain(200, "the end"),
        number => redirect(&format!("/{}", number[1..].parse::<u32>().ok()? + 1)),
    };
    stream.write_all(answer.as_bytes()).ok()
}

#[tokio::test]
async fn only_a_change_is_news_and_the_state_carries_it() {
    let server = Server::start();
    let first = server.poll(&["/switch"], Value::Null, json!({})).await;
    assert_eq!(first.events, []);
    assert_eq!(first.result, "1 of 1 addresses are up");

    server.status.store(503, Ordering::SeqCst);
    let state = json!(first.state_updates);
    let down = server.poll(&["/switch"], state.clone(), json!({})).await;
    let event = &down.events[0];
    assert_eq!(
        (event.kind.as_str(), down.events.len()),
        ("http_check.down", 1)
    );
    assert_eq!(event.payload["status"], 503);
    assert_eq!(event.payload["url"], server.url("/switch"));
    // The same change from the same state, as after a crash before it was stored.
    let again = server.poll(&["/switch"], state, json!({})).await;
    assert!(event.dedupe_key.is_some() && again.events[0].dedupe_key == event.dedupe_key);

    let still = server
        .poll(&["/switch"], json!(down.state_updates), json!({}))
        .await;
    assert_eq!(still.events, []);
    let url = server.url("/switch");
    assert_eq!(
        still.state_updates["checks"][&url]["since"],
        event.payload["since"]
    );

    server.status.store(200, Ordering::SeqCst);
    let up = server
        .poll(&["/switch"], json!(still.state_updates), json!({}))
        .await;
    assert_eq!(up.events[0].kind, "http_check.up");
    assert_ne!(up.events[0].dedupe_key, event.dedupe_key);
}

#[tokio::test]
async fn status_latency_and_body_are_judged() {
    let server = Server::start();
    let down = |path: &'static str, more: Value| server.reason(path, more);
    assert_eq!(
        down("/ok", json!({"expected_status": [201, 204]})).await,
        "status 200"
    );
    assert!(
        down("/slow", json!({"max_latency_ms": 100}))
            .await
            .contains("later than 100 ms")
    );
    assert!(
        down("/ok", json!({"contains": "ill"}))
            .await
            .contains("does not contain")
    );
    assert_eq!(
        down("/once", json!({"follow_redirects": false})).await,
        "status 302"
    );

    let fine = json!({"contains": "is well", "max_latency_ms": 10_000, "expected_status": 200});
    let fine = server.poll(&["/ok", "/once"], json!({}), fine).await;
    assert_eq!(
        (fine.events.len(), fine.result.as_str()),
        (0, "2 of 2 addresses are up")
    );
    let own = json!({"urls": [{"url": server.url("/once"), "contains": "ill"}, server.url("/ok")]});
    let own = ask("http-check", "poll", json!({"config": own})).await;
    assert_eq!(own.result, "1 of 2 addresses are up");
    let shared = json!({"url": server.url("/ok"), "contains": null});
    let shared = json!({"urls": [shared], "contains": "ill"});
    let shared = ask("http-check", "poll", json!({"config": shared})).await;
    assert_eq!(shared.result, "0 of 1 addresses are up");
}

#[tokio::test]
async fn whatever_a_server_does_it_is_down_and_the_others_are_still_asked() {
    let server = Server::start();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut urls: Vec<String> = ["/loop", "/1", "/file", "/garbage", "/torn", "/drip", "/ok"]
        .iter()
        .map(|path| server.url(path))
        .collect();
    urls.push(format!("http://{closed}/"));
    let started = Instant::now();
    let config = json!({"urls": urls, "timeout_seconds": 3});
    let response = ask("http-check", "poll", json!({"config": config})).await;
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "somebody held it up"
    );
    assert_eq!(response.result, "1 of 8 addresses are up");
    let reason = |path: &str| {
        let checks = &response.state_updates["checks"];
        checks[&server.url(path)]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        reason("/loop").contains("a loop of them"),
        "{}",
        reason("/loop")
    );
    assert!(
        reason("/1").contains("more than 5 redirects"),
        "{}",
        reason("/1")
    );
    assert!(
        reason("/drip").contains("no whole answer within 3 s"),
        "{}",
        reason("/drip")
    );
    assert!(
        !format!("{response:?}").contains("root:"),
        "a file was read"
    );
}

#[tokio::test]
async fn of_an_endless_body_only_the_beginning_is_read() {
    let server = Server::start();
    let started = Instant::now();
    let more = json!({"body_bytes_max": 100_000, "contains": "xxx"});
    let response = server.poll(&["/huge"], json!({}), more).await;
    assert_eq!(response.result, "1 of 1 addresses are up");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn addresses_of_a_payload_are_asked_only_where_that_is_allowed() {
    let server = Server::start();
    let event = json!({"type": "t", "payload": {"url": server.url("/switch")}});
    let config = json!({"urls": [server.url("/ok")]});
    let told = refused(
        "http-check",
        "handle",
        json!({"config": config, "event": event}),
    )
    .await;
    assert!(told.contains("allow_payload_urls"), "{told}");

    let mut config = config;
    config["allow_payload_urls"] = json!(true);
    server.status.store(500, Ordering::SeqCst);
    let members = json!({"config": config, "event": event});
    let response = ask("http-check", "handle", members).await;
    assert_eq!(response.events[0].payload["url"], server.url("/switch"));
    let without = json!({"config": config, "event": {"type": "t", "payload": null}});
    let response = ask("http-check", "handle", without).await;
    assert_eq!(response.result, "1 of 1 addresses are up");
}

#[tokio::test]
async fn only_web_addresses_are_taken() {
    for url in [
        "file:///etc/passwd",
        "ftp://x/",
        "http://",
        "http://u:p@x/",
        "http://x/a b",
        "http://x:99999/",
        "http://[",
        "7",
    ] {
        let told = refused("http-check", "poll", json!({"config": {"urls": [url]}})).await;
        assert!(
            told.contains("is no http or https address"),
            "{url}: {told}"
        );
    }
    let many = vec!["http://x/"; 101];
    refused("http-check", "poll", json!({"config": {"urls": many}})).await;
    let facts = &found("http-check").manifest.fact_outputs;
    assert!(
        facts
            .iter()
            .all(|fact| fact.fact_type == "http_check.snapshot")
    );
    assert_eq!(facts.len(), 2);
}
