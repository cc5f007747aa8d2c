//! Webhooks with good, bad and missing signatures.

use consign_web::listener_policy::ListenerPolicy;
use data_encoding::{HEXLOWER, HEXUPPER};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{ALL, PATIENCE, SECRET, World, parse, send};

const NOTE: &str =
    r#"printf '%s' "$request" > "$here/request"; echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {note: {}}
webhooks:
  listen: '127.0.0.1:0'
  endpoints:
    - {path: /hook/a, plugin: note, secret_ref: hook, signature_header: X-Signature, max_body_size: 1KB}
    - {path: /hook/b, plugin: note, secret_ref: hook, signature_header: X-Signature}
";

fn signature(secret: &str, body: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    mac.finalize().into_bytes().to_vec()
}

fn header(body: &[u8]) -> String {
    let hex = HEXLOWER.encode(&signature(SECRET, body));
    format!("x-signature: sha256={hex}")
}

async fn jobs(world: &World) -> Value {
    world.get("/jobs").await.json["total"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_body_becomes_a_job_du_109() {
    let world = World::start(&[("note", NOTE)], CONFIG).await;
    let body = br#"{"type":"order.paid","payload":{"n":1}}"#;
    let bare = HEXLOWER.encode(&signature(SECRET, body));
    let upper = HEXUPPER.encode(&signature(SECRET, body));
    for given in [format!("sha256={bare}"), bare, upper] {
        let header = format!("X-Signature: {given}");
        let answer = send(world.hooks, "POST", "/hook/a", &[&header], body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let id = answer.json["job_id"].as_str().unwrap();
        assert_eq!(answer.json.as_object().unwrap().len(), 1);
        let job = world.ended(id).await;
        assert_eq!(job["status"], "succeeded");
        assert_eq!(job["command"], "handle");
        assert_eq!(job["submitted_by"], "webhook");
        let request = std::fs::read_to_string(world.path("request")).unwrap();
        let request: Value = serde_json::from_str(&request).unwrap();
        assert_eq!(request["event"]["type"], "order.paid");
        assert_eq!(request["event"]["payload"], json!({"n": 1}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_signature_is_of_the_very_bytes_that_came_du_109_du_110() {
    let world = World::start(&[("note", NOTE)], CONFIG).await;
    // All are the same JSON value, and none equals the output of a serializer.
    let bodies: [&[u8]; 4] = [
        b"{\"b\":1,\"a\":2}\n",
        b" {\"b\":1,\"a\":2}",
        b"{\"b\": 1.0, \"a\": 2, \"a\": 2}",
        b"\xff\x00 no text at all\r\n",
    ];
    for body in bodies {
        let answer = send(world.hooks, "POST", "/hook/a", &[&header(body)], body).await;
        assert_eq!(answer.status, 202, "{body:?} {answer:?}");
        let id = answer.json["job_id"].as_str().unwrap();
        assert_eq!(world.ended(id).await["status"], "succeeded");
        let others = [
            body.trim_ascii().to_vec(),
            br#"{"a":2,"b":1}"#.to_vec(),
            [body, b"\n"].concat(),
            String::from_utf8_lossy(body).into_owned().into_bytes(),
        ];
        for other in others.iter().filter(|other| *other != body) {
            let answer = send(world.hooks, "POST", "/hook/a", &[&header(other)], body).await;
            answer.is_refused(403);
        }
    }
    assert_eq!(jobs(&world).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_fitting_signature_nothing_is_queued_and_nothing_told_du_110() {
    let world = World::start(&[("note", NOTE)], CONFIG).await;
    let body = br#"{"n":1}"#;
    let good = HEXLOWER.encode(&signature(SECRET, body));
    let other = HEXLOWER.encode(&signature(SECRET, br#"{"n":2}"#));
    let foreign = HEXLOWER.encode(&signature("another secret", body));
    let empty = HEXLOWER.encode(&signature("", body));
    for given in [
        String::new(),
        "x-signature:".to_owned(),
        "x-signature: sha256=".to_owned(),
        format!("x-signature: {other}"),
        format!("x-signature: {foreign}"),
        format!("x-signature: {empty}"),
        format!("x-signature: {}", &good[..62]),
        format!("x-signature: {good}00"),
        format!("x-signature: sha256=sha256={good}"),
        format!("x-signature: sha1={good}"),
        format!("x-signature: {SECRET}"),
        format!("x-other: {good}"),
        format!("x-signature: {good}\r\nx-signature: {good}"),
        format!("authorization: Bearer {ALL}"),
    ] {
        let headers: Vec<&str> = Some(given.as_str())
            .filter(|given| !given.is_empty())
            .into_iter()
            .collect();
        let answer = send(world.hooks, "POST", "/hook/a", &headers, body).await;
        answer.is_refused(403);
        assert_eq!(answer.body, r#"{"error":"forbidden"}"#, "{given}");
    }
    let signed = header(body);
    let get = send(world.hooks, "GET", "/hook/a", &[&signed], body).await;
    get.is_refused(405);
    assert_eq!(get.header("allow"), Some("POST"));
    for path in [
        "/hook/c",
        "/hook/a/",
        "/hook/%61",
        "/hook/a/../a",
        "/",
        "/jobs",
        "//hook/a",
    ] {
        send(world.hooks, "POST", path, &[&signed], body)
            .await
            .is_refused(404);
    }
    assert_eq!(jobs(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_above_the_limit_is_not_read_du_111() {
    let world = World::start(&[("note", NOTE)], CONFIG).await;
    let fits = "x".repeat(1_000);
    let answer = send(
        world.hooks,
        "POST",
        "/hook/a",
        &[&header(fits.as_bytes())],
        fits.as_bytes(),
    )
    .await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let large = "x".repeat(2_000);
    let answer = send(
        world.hooks,
        "POST",
        "/hook/a",
        &[&header(large.as_bytes())],
        large.as_bytes(),
    )
    .await;
    answer.is_refused(413);
    let answer = send(
        world.hooks,
        "POST",
        "/hook/b",
        &[&header(large.as_bytes())],
        large.as_bytes(),
    )
    .await;
    assert_eq!(answer.status, 202, "the usual limit is a megabyte");
    let huge = "x".repeat((1 << 20) + 1);
    let answer = send(
        world.hooks,
        "POST",
        "/hook/b",
        &[&header(huge.as_bytes())],
        huge.as_bytes(),
    )
    .await;
    answer.is_refused(413);
    // Announced, and never sent: refused at once. In chunks without a length: refused when the limit is exceeded.
    let announced = b"POST /hook/a HTTP/1.1\r\nhost: a\r\nx-signature: 00\r\ncontent-length: 99999999999\r\n\r\n";
    assert_eq!(crate::world::raw(world.hooks, announced).await.status, 413);
    let mut pieces =
        b"POST /hook/a HTTP/1.1\r\nhost: a\r\nx-signature: 00\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..10 {
        pieces.extend_from_slice(format!("100\r\n{}\r\n", "x".repeat(256)).as_bytes());
    }
    assert_eq!(crate::world::raw(world.hooks, &pieces).await.status, 413);
    assert_eq!(jobs(&world).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stops_half_way_is_no_body_du_110() {
    let world = World::start(&[("note", NOTE)], CONFIG).await;
    let body = br#"{"n":1}"#;
    let head = format!(
        "POST /hook/a HTTP/1.1\r\nhost: a\r\n{}\r\ncontent-length: 100\r\n\r\n",
        header(body)
    );
    let mut stream = TcpStream::connect(world.hooks).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let status = parse(&answer).status;
    assert!(status == 400 || status == 0, "{status}");
    // A client that stops sending is disconnected.
    let mut stream = TcpStream::connect(world.hooks).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert_eq!(parse(&answer).status, 408);
    assert_eq!(jobs(&world).await, 0);
}

const PUBLISHES: &str = "
plugins: {note: {}}
webhooks:
  listen: '127.0.0.1:0'
  endpoints:
    - path: /hook/p
      publish: {goal: paid, namespace: orders, max_attempts: 2, delivery_header: X-Delivery}
      secret_ref: hook
      signature_header: X-Signature
";

async fn deliver(world: &World, body: &[u8], more: &[&str]) -> crate::world::Answer {
    let signed = header(body);
    let mut headers = vec![signed.as_str()];
    headers.extend(more);
    send(world.hooks, "POST", "/hook/p", &headers, body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_body_is_published_as_an_intent_and_a_delivery_once() {
    let world = World::start(&[("note", NOTE)], PUBLISHES).await;
    let body = br#"{"type":"order.paid","goal":"else","payload":{"n":1}}"#;
    let first = deliver(&world, body, &["X-Delivery: 7"]).await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(first.json["duplicate"], false);
    let id = first.json["intent_id"].as_str().unwrap();
    let intent = world
        .engine
        .observe(id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            intent.goal.as_str(),
            intent.namespace.as_str(),
            intent.owner.as_str()
        ),
        ("paid", "orders", "main")
    );
    assert_eq!((intent.attempts_max, intent.public), (2, false));
    let payload: Value = serde_json::from_str(&intent.payload).unwrap();
    assert_eq!(payload, serde_json::from_slice::<Value>(body).unwrap());
    let again = deliver(&world, body, &["X-Delivery: 7"]).await;
    assert_eq!(again.json, json!({"intent_id": id, "duplicate": true}));
    deliver(&world, b"{}", &["X-Delivery: 7"])
        .await
        .is_refused(409);
    for more in [&["X-Delivery: 8"][..], &[], &["X-Delivery:"]] {
        let other = deliver(&world, body, more).await;
        assert_eq!(other.status, 202, "{other:?}");
        assert_ne!(other.json["intent_id"], id, "{more:?}");
    }
    assert_eq!(jobs(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_published_is_refused_and_text_is_wrapped() {
    let world = World::start(&[("note", NOTE)], PUBLISHES).await;
    let large = format!("\"{}\"", "x".repeat(7_168));
    deliver(&world, large.as_bytes(), &[]).await.is_refused(413);
    let twice = ["X-Delivery: 1", "X-Delivery: 2"];
    deliver(&world, b"{}", &twice).await.is_refused(400);
    let unsigned = send(world.hooks, "POST", "/hook/p", &[], b"{}").await;
    unsigned.is_refused(403);
    let text = deliver(&world, b"plain", &[]).await;
    let id = text.json["intent_id"].as_str().unwrap();
    let intent = world
        .engine
        .observe(id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(intent.payload, r#"{"body":"plain"}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_any_depth_becomes_a_job_that_runs() {
    let world = World::start(&[("note", NOTE)], CONFIG).await;
    for depth in [60, 70, 125, 127, 400] {
        let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let header = header(body.as_bytes());
        let answer = send(world.hooks, "POST", "/hook/a", &[&header], body.as_bytes()).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let job = world.ended(answer.json["job_id"].as_str().unwrap()).await;
        assert_eq!(job["status"], "succeeded", "{depth}: {job}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_switches_of_the_server_hold_for_the_api_and_the_webhooks() {
    let maintenance = ListenerPolicy {
        maintenance: true,
        ..ListenerPolicy::default()
    };
    let enforce_https = ListenerPolicy {
        enforce_https: true,
        ..ListenerPolicy::default()
    };
    let bearer = format!("authorization: Bearer {ALL}");
    let signed = header(b"{}");
    for (policy, status) in [(maintenance, 503), (enforce_https, 403)] {
        let world = World::start_behind(policy, &[("note", NOTE)], CONFIG).await;
        // From another address, through a proxy that is not trusted.
        let far = "x-forwarded-for: 203.0.113.9";
        let asked = send(world.api, "GET", "/jobs", &[&bearer, far], b"").await;
        assert_eq!(asked.status, status, "{asked:?}");
        let told = send(world.hooks, "POST", "/hook/a", &[&signed, far], b"{}").await;
        assert_eq!(told.status, status, "{told:?}");
        for way in [world.api, world.hooks] {
            let health = send(way, "GET", "/healthz", &[], b"").await;
            assert_eq!(health.status, 200, "{health:?}");
        }
    }
}
