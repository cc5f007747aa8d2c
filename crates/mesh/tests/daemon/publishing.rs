//! Intents that local programs publish: what is accepted, what the server gets, and what its answers do to a row.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{Daemon, Home, NO_BROKER};

/// A request that the server got: its idempotency key and its body.
type PublishedRequest = (String, String);

/// A server of the Intent Protocol with prepared answers; then it accepts everything.
struct ServerDouble {
    url: String,
    requests: Arc<Mutex<Vec<PublishedRequest>>>,
}

#[derive(Clone)]
enum Prepared {
    Answer(u16, Value),
    HangUp,
}

impl ServerDouble {
    async fn start(prepared: &[Prepared]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(VecDeque::from(prepared.to_vec())));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen), Arc::clone(&answers)));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<PublishedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<PublishedRequest>>>,
    prepared: Arc<Mutex<VecDeque<Prepared>>>,
) {
    let mut bytes = Vec::new();
    loop {
        let (line, key, body) = loop {
            if let Some(request) = taken(&mut bytes) {
                break request;
            }
            let mut chunk = [0; 4096];
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            }
        };
        let answer = if line.starts_with("POST /intent ") {
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push((key, body));
                seen.len()
            };
            let next = prepared.lock().unwrap().pop_front();
            next.unwrap_or_else(|| {
                let body = json!({"id": format!("intent-{number}"), "status": "published"});
                Prepared::Answer(201, body)
            })
        } else {
            Prepared::Answer(200, json!({"status": "ok"}))
        };
        let Prepared::Answer(status, body) = answer else {
            return;
        };
        let body = body.to_string();
        let text = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Takes a whole request: its first line, its idempotency key and its body.
fn taken(bytes: &mut Vec<u8>) -> Option<(String, String, String)> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let value = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let length: usize = value("content-length").map_or(0, |length| length.parse().unwrap());
    if rest.len() < length {
        return None;
    }
    let line = head.lines().next().unwrap_or_default().to_owned();
    let key = value("idempotency-key").unwrap_or_default();
    let taken = (line, key, rest[..length].to_owned());
    bytes.drain(..head.len() + 4 + length);
    Some(taken)
}

fn refusal(status: u16, code: &str) -> Prepared {
    let body = json!({"error": {"code": code, "message": "Words of the server."}});
    Prepared::Answer(status, body)
}

/// A home whose daemon publishes at this server.
fn home(server: &ServerDouble) -> Home {
    let home = Home::new(1, NO_BROKER);
    home.configure(&format!(
        "[intents]\nurl = \"{}\"\napi_key_file = \"key\"\n",
        server.url
    ));
    write_key(&home, 0o600);
    home
}

fn write_key(home: &Home, mode: u32) {
    let file = home.folder().join("key");
    std::fs::write(&file, "ck_test\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
}

async fn publish(daemon: &Daemon, id: &str, payload: &Value) -> crate::local_http::LocalAnswer {
    let body = json!({"goal": "mail", "payload": payload, "client_message_id": id});
    daemon.post("/v1/intents", &body).await
}

#[tokio::test]
async fn intents_are_published_in_their_order_under_their_own_ids() {
    let server = ServerDouble::start(&[]).await;
    let home = home(&server);
    let daemon = home.up().await;
    for number in 0..5 {
        let answer = publish(&daemon, &format!("i-{number}"), &json!({"n": number})).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    let last = daemon.until_status("i-4", "done").await;
    assert_eq!(last["broker_message_id"], "intent-5");
    let expected: Vec<PublishedRequest> = (0..5)
        .map(|n| {
            let body = format!(r#"{{"goal":"mail","payload":{{"n":{n}}}}}"#);
            (format!("i-{n}"), body)
        })
        .collect();
    assert_eq!(server.requests(), expected);
    let row = home.outbox(
        "SELECT destination_kind, destination_ref, target_spec, ciphertext, CAST(payload AS TEXT), length(request_fingerprint) \
         FROM outbox WHERE client_message_id = 'i-0'",
    );
    let body = r#"{"goal":"mail","payload":{"n":0}}"#;
    assert_eq!(row, [["intent", "mail", "NULL", "NULL", body, "32"]]);
    daemon.down().await;
}

#[tokio::test]
async fn without_a_key_the_missing_setting_is_named_and_the_id_stays_free() {
    let server = ServerDouble::start(&[]).await;
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let refused = publish(&daemon, "i-1", &json!(1)).await;
    assert_eq!(refused.status, 404);
    let error = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(
        error.starts_with("intents_not_configured: set api_key_file in [intents] of ")
            && error.contains("config.toml"),
        "{error}"
    );
    home.configure(&format!(
        "[intents]\nurl = \"{}\"\napi_key_file = \"key\"\n",
        server.url
    ));
    write_key(&home, 0o644);
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    let refused = publish(&daemon, "i-1", &json!(1)).await;
    assert!(refused.text.contains("mode 0644"), "{}", refused.text);
    write_key(&home, 0o600);
    assert_eq!(publish(&daemon, "i-1", &json!(2)).await.status, 202);
    daemon.until_status("i-1", "done").await;
    daemon.down().await;
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_may_not_is_dead() {
    let server = ServerDouble::start(&[refusal(503, "database_busy"), Prepared::HangUp]).await;
    let home = home(&server);
    let daemon = home.up().await;
    publish(&daemon, "i-1", &json!(1)).await;
    let done = daemon.until_status("i-1", "done").await;
    assert_eq!(done["attempts"], 3);
    let requests = server.requests();
    assert!(
        requests.iter().all(|one| *one == requests[0]),
        "{requests:?}"
    );
    daemon.down().await;

    let server = ServerDouble::start(&[
        refusal(400, "invalid_goal"),
        refusal(409, "idempotency_conflict"),
    ])
    .await;
    let home = self::home(&server);
    let daemon = home.up().await;
    publish(&daemon, "i-1", &json!(1)).await;
    let dead = daemon.until_status("i-1", "dead").await;
    assert_eq!(
        dead["last_error"],
        "Words of the server. (invalid_goal, status 400)"
    );
    publish(&daemon, "i-2", &json!(1)).await;
    daemon.until_status("i-2", "dead").await;
    assert_eq!(home.logged("outbox_dead").len(), 1);
    assert_eq!(home.logged("idempotency_key_reused").len(), 1);
    let again = publish(&daemon, "i-1", &json!(1)).await;
    assert_eq!(again.status, 409);
    assert_eq!(again.json()["conflict"], "outbox_dead_fingerprint_match");
    let requeue =
        json!({"id": dead["id"], "new_client_message_id": "i-3", "message": "{\"n\": 3}"});
    let requeued = daemon.post("/v1/outbox/requeue", &requeue).await;
    assert_eq!(requeued.status, 200, "{}", requeued.text);
    daemon.until_status("i-3", "done").await;
    let last = server.requests().pop().unwrap();
    let body = r#"{"goal":"mail","payload":{"n":3}}"#;
    assert_eq!(last, ("i-3".to_owned(), body.to_owned()));
    let no_json = json!({"id": daemon.row("i-2").await["id"], "message": "{"});
    assert_eq!(
        daemon.post("/v1/outbox/requeue", &no_json).await.status,
        400
    );
    daemon.down().await;
}

#[tokio::test]
async fn an_id_belongs_to_one_request_be_it_a_message_or_an_intent() {
    let server = ServerDouble::start(&[]).await;
    let home = home(&server);
    let daemon = home.up().await;
    assert_eq!(daemon.send("one", "*", "hello").await.status, 202);
    let answer = publish(&daemon, "one", &json!("hello")).await;
    assert_eq!(answer.status, 409);
    assert_eq!(
        answer.json()["conflict"],
        "outbox_pending_fingerprint_mismatch"
    );
    publish(&daemon, "two", &json!("hello")).await;
    assert_eq!(daemon.send("two", "*", "hello").await.status, 409);
    daemon.down().await;
}

#[tokio::test]
async fn a_row_that_the_server_may_have_forgotten_is_not_published() {
    let server = ServerDouble::start(&[]).await;
    let home = home(&server);
    home.configure(&format!(
        "[intents]\nurl = \"{}\"\napi_key_file = \"key\"\n",
        "http://127.0.0.1:9"
    ));
    let daemon = home.up().await;
    for id in ["old", "young"] {
        publish(&daemon, id, &json!(id)).await;
    }
    daemon.down().await;
    let hour = 3_600_000;
    home.edit_outbox(&format!(
        "UPDATE outbox SET enqueued_at = enqueued_at - 23 * {hour} WHERE client_message_id = 'old'; \
         UPDATE outbox SET enqueued_at = enqueued_at - 22 * {hour} WHERE client_message_id = 'young'"
    ));
    home.configure(&format!(
        "[intents]\nurl = \"{}\"\napi_key_file = \"key\"\n",
        server.url
    ));
    let daemon = home.up().await;
    daemon.until_status("young", "done").await;
    let old = daemon.until_status("old", "dead").await;
    assert_eq!(old["last_error"], "max_age_exceeded");
    let keys: Vec<String> = server.requests().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["young"]);
    daemon.down().await;
}

#[tokio::test]
async fn an_intent_that_another_program_added_is_published() {
    let server = ServerDouble::start(&[]).await;
    let home = home(&server);
    home.up().await.down().await;
    let hash = "ab".repeat(32);
    home.edit_outbox(&format!(
        "INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at, next_attempt_at, status, mesh, \
         destination_kind, destination_ref) SELECT 'added', 'i-1', x'{hash}', CAST('{{\"goal\":\"mail\",\"payload\":1}}' AS BLOB), \
         now, now, 'pending', 'home', 'intent', 'mail' FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now)"
    ));
    let daemon = home.up().await;
    daemon.until_status("i-1", "done").await;
    assert_eq!(server.requests()[0].0, "i-1");
    daemon.down().await;
}
