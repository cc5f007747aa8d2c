//! Webhooks with good, bad and missing signatures.

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
    // Announced, and never sent: refused at once. In pieces without an announcement: refused when it is too much.
    let announced = b"POST /hook/a HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n";
    assert_eq!(crate::world::raw(world.hooks, announced).await.status, 413);
    let mut pieces =
        b"POST /hook/a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
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
    // One that never goes on is let go.
    let mut stream = TcpStream::connect(world.hooks).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert_eq!(parse(&answer).status, 408);
    assert_eq!(jobs(&world).await, 0);
}
