//! Delivery to the HTTP endpoint of an agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_beam::outbound::{AddressGuard, AllowedTargets};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::world::{Identity, World};

/// An endpoint that answers every request with the same bytes.
struct Endpoint {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    async fn answering(response: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (response, seen) = (response.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let mut bytes = vec![0; 100_000];
                    let mut length = 0;
                    while !is_complete(&bytes[..length]) {
                        let read = stream.read(&mut bytes[length..]).await.unwrap();
                        if read == 0 {
                            return;
                        }
                        length += read;
                    }
                    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                    seen.lock().unwrap().push(text);
                    let _ = stream.write_all(response.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { address, requests }
    }

    async fn with_body(status: &str, body: &str) -> Self {
        let length = body.len();
        Self::answering(format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ))
        .await
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn is_complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse::<usize>().ok())?
    });
    body.len() >= length.unwrap_or(0)
}

async fn world_with(endpoint: &Endpoint) -> (World, Identity, Identity) {
    world_within(endpoint, Duration::from_secs(5)).await
}

async fn world_within(endpoint: &Endpoint, timeout: Duration) -> (World, Identity, Identity) {
    let allowed = AllowedTargets::parse(&endpoint.address).unwrap();
    let world = World::with(|settings| {
        settings.guard = AddressGuard::new(allowed);
        settings.result_timeout = Some(timeout);
    })
    .await;
    let (alice, bob) = world.alice_and_bob().await;
    let url = format!("http://{}/beam", endpoint.address);
    world
        .change_agent(&bob.beam_id, |agent| {
            agent.http_endpoint = Some(url.clone());
        })
        .await;
    (world, alice, bob)
}

#[tokio::test]
async fn be_101_an_endpoint_gets_headers_and_body_and_its_answer_is_the_result() {
    let body = json!({"v": "1", "success": true, "nonce": "other", "timestamp": "2026-01-01T00:00:00.000Z",
        "payload": {"message": "re"}, "latency": 7});
    let endpoint = Endpoint::with_body("200 OK", &body.to_string()).await;
    let (world, alice, bob) = world_with(&endpoint).await;
    let frame = alice.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let result = answer.json();
    assert_eq!(result["payload"], json!({"message": "re"}));
    assert_eq!(
        (&result["nonce"], &result["latency"]),
        (&json!("n-1"), &json!(7))
    );
    let requests = endpoint.requests();
    let (head, sent) = requests[0].split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /beam http/1.1"), "{head}");
    assert!(
        head.contains(&format!("x-beam-sender: {}", alice.beam_id)),
        "{head}"
    );
    assert!(head.contains("x-beam-nonce: n-1"), "{head}");
    let timestamp = frame["timestamp"].as_str().unwrap().to_lowercase();
    assert!(
        head.contains(&format!("x-beam-timestamp: {timestamp}")),
        "{head}"
    );
    let signature = frame["signature"].as_str().unwrap().to_lowercase();
    assert!(
        head.contains(&format!("x-beam-signature: {signature}")),
        "{head}"
    );
    let sent: Value = serde_json::from_str(sent).unwrap();
    let expected = json!({"intent": "conversation.message", "from": alice.beam_id, "payload": frame["payload"],
        "nonce": "n-1", "timestamp": frame["timestamp"]});
    assert_eq!(sent, expected);
    let trace = world.trace("n-1").await;
    let last: Vec<_> = trace.iter().rev().take(2).collect();
    assert_eq!(
        (last[0].0, &last[0].1["transport"]),
        ("acked", &json!("direct-http"))
    );
    assert_eq!(last[1].0, "delivered");
}

#[tokio::test]
async fn be_101_every_body_of_an_endpoint_means_something() {
    for (body, success, payload) in [
        (
            r#"{"success":true,"payload":{"a":1}}"#,
            true,
            json!({"a": 1}),
        ),
        (
            r#"{"success":false,"error":"no","errorCode":"NOPE"}"#,
            false,
            Value::Null,
        ),
        (r#"{"accepted":true}"#, true, json!({"accepted": true})),
        ("[1]", true, json!({})),
        ("not JSON", true, json!({})),
        ("", true, json!({})),
    ] {
        let endpoint = Endpoint::with_body("202 Accepted", body).await;
        let (world, alice, bob) = world_with(&endpoint).await;
        let answer = world
            .post("/intents/send", &alice.message(&world, &bob, "n-1"))
            .await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        let result = answer.json();
        assert_eq!(result["success"], success, "{body}");
        assert_eq!(
            result.get("payload").cloned().unwrap_or(Value::Null),
            payload,
            "{body}"
        );
        if !success {
            assert_eq!(result["errorCode"], "NOPE");
        }
    }
}

#[tokio::test]
async fn be_101_an_endpoint_that_refuses_or_redirects_is_passed_over_for_the_socket() {
    let elsewhere = Endpoint::with_body("200 OK", "{}").await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        elsewhere.address
    );
    for response in [
        redirect,
        "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        "nonsense".to_owned(),
        String::new(),
    ] {
        let endpoint = Endpoint::answering(response).await;
        let (world, alice, bob) = world_with(&endpoint).await;
        let frame = alice.message(&world, &bob, "n-1");
        let offline = world.post("/intents/send", &frame).await;
        assert_eq!(offline.error(), (503, "OFFLINE".to_owned()));
        let mut socket = world.connect(&bob.beam_id).await;
        let payload = json!({"message": "by socket"});
        let (answer, _) = tokio::join!(
            world.post("/intents/send", &frame),
            socket.answer(&bob, &payload),
        );
        assert_eq!(answer.json()["payload"], payload);
        let trace = world.trace("n-1").await;
        let fallback = trace
            .iter()
            .find(|(_, details)| details["outcome"] == "fallback");
        assert_eq!(fallback.unwrap().1["errorCode"], "DIRECT_HTTP_FAILED");
    }
    assert!(
        elsewhere.requests().is_empty(),
        "a redirect is never followed"
    );
}

#[tokio::test]
async fn an_endpoint_on_a_private_address_is_never_called() {
    let endpoint = Endpoint::with_body("200 OK", "{}").await;
    let (world, alice, bob) = world_with(&endpoint).await;
    let port = endpoint.address.rsplit_once(':').unwrap().1.to_owned();
    for host in [
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "user@127.0.0.1",
    ] {
        let url = format!("http://{host}:{port}/");
        world
            .change_agent(&bob.beam_id, |agent| {
                agent.http_endpoint = Some(url.clone());
            })
            .await;
        let frame = alice.message(&world, &bob, &format!("n-{host}"));
        let answer = world.post("/intents/send", &frame).await;
        assert_eq!(answer.error(), (503, "OFFLINE".to_owned()), "{host}");
    }
    assert!(endpoint.requests().is_empty());
}

/// An endpoint that accepts connections and never answers.
async fn silent_endpoint() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn world_with_silent(timeout: Duration) -> (World, Identity, Identity, TcpListener) {
    let (listener, address) = silent_endpoint().await;
    let allowed = AllowedTargets::parse(&address).unwrap();
    let world = World::with(|settings| {
        settings.guard = AddressGuard::new(allowed);
        settings.result_timeout = Some(timeout);
    })
    .await;
    let (alice, bob) = world.alice_and_bob().await;
    let url = format!("http://{address}/");
    world
        .change_agent(&bob.beam_id, |agent| {
            agent.http_endpoint = Some(url.clone());
        })
        .await;
    (world, alice, bob, listener)
}

#[tokio::test]
async fn be_099_an_endpoint_that_does_not_answer_in_time_is_a_timeout() {
    let timeout = Duration::from_millis(700);
    let (world, alice, bob, _silent) = world_with_silent(timeout).await;
    let frame = alice.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    assert!(answer.text.contains("(700ms)"), "{}", answer.text);
    let failed = world.until_status("n-1", "failed").await;
    assert_eq!(failed["errorCode"], "TIMEOUT");
}

#[tokio::test]
async fn be_101_a_socket_gets_what_an_endpoint_does_not_answer_in_half_the_time() {
    let timeout = Duration::from_secs(4);
    let (world, alice, bob, _silent) = world_with_silent(timeout).await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "n-1");
    let payload = json!({"message": "by socket"});
    let (sent, _) = tokio::join!(
        world.post("/intents/send", &frame),
        socket.answer(&bob, &payload)
    );
    assert_eq!((sent.status, &sent.json()["payload"]), (200, &payload));
}

#[tokio::test]
async fn an_intent_without_a_free_call_is_a_failed_delivery_and_not_offline() {
    // Connections are queued and never accepted.
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        address: hanging.local_addr().unwrap().to_string(),
        requests: Arc::default(),
    };
    let (world, alice, bob) = world_within(&endpoint, Duration::from_secs(30)).await;
    let world = Arc::new(world);
    let mut sent = tokio::task::JoinSet::new();
    // One more than may run at the same time.
    for number in 0..33 {
        let frame = alice.message(&world, &bob, &format!("n-{number}"));
        let world = Arc::clone(&world);
        sent.spawn(async move { world.post("/intents/send", &frame).await });
    }
    let first = sent.join_next().await.unwrap().unwrap();
    let expected = (502, "DELIVERY_FAILED".to_owned());
    assert_eq!(first.error(), expected, "{}", first.text);
    assert!(first.text.contains("Too many calls"), "{}", first.text);
}
