//! The client against a scripted server on a real socket.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::{ClaimFilter, KeyOptions, Output, Publish};

/// Serves connections one after the other; each inner list has the answers of one connection, after
/// which it is closed. Returns the requests as text.
async fn scripted(connections: Vec<Vec<String>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answers in connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in answers {
                requests.push(read_request(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
        requests
    });
    (server, task)
}

pub(crate) async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "the client hung up in the middle of: {text}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .unwrap_or(0_usize);
        if body.len() >= length {
            return text;
        }
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn client(server: String) -> Client {
    Client::new(Options {
        server,
        key: Some(SecretKey::new("tk_test")),
        admin_token: Some(SecretKey::new("adm_test")),
        ..Options::default()
    })
    .unwrap()
}

const CLAIM: &str =
    r#"{"id":"a1","claim_token":"t","goal":"g","payload":{"x":1},"claim_timeout":60}"#;

#[tokio::test]
async fn two_calls_share_one_connection() {
    let published = answer(
        "201 Created",
        r#"{"id":"a1","status":"published","namespace":"default"}"#,
    );
    let (server, task) = scripted(vec![vec![published, answer("200 OK", CLAIM)]]).await;
    let client = client(server);
    let publish = Publish::new("g", &json!({"x": 1})).unwrap();
    assert_eq!(client.publish(&publish, Some("k1")).await.unwrap().id, "a1");
    let claim = ClaimFilter {
        goal: Some("a b".to_owned()),
        wait_s: Some(5),
        ..ClaimFilter::default()
    };
    let claimed = client.claim(&claim).await.unwrap();
    assert_eq!(claimed[0].payload.get(), r#"{"x":1}"#);

    let requests = task.await.unwrap();
    assert!(
        requests[0].starts_with("POST /intent HTTP/1.1\r\n"),
        "{}",
        requests[0]
    );
    assert!(requests[0].contains("idempotency-key: k1\r\n"));
    assert!(requests[0].contains("x-api-key: tk_test\r\n"));
    assert!(requests[0].ends_with(r#"{"goal":"g","payload":{"x":1}}"#));
    assert!(requests[1].starts_with("POST /claim?goal=a%20b&wait=5 HTTP/1.1\r\n"));
    assert!(requests[1].contains("content-length: 0\r\n"));
}

#[tokio::test]
async fn a_batch_claim_reads_a_list_and_a_single_intent_alike() {
    let list = format!(r#"{{"intents":[{CLAIM},{CLAIM}]}}"#);
    let answers = vec![answer("200 OK", &list), answer("200 OK", CLAIM)];
    let (server, task) = scripted(vec![answers]).await;
    let client = client(server);
    let claim = ClaimFilter {
        max: Some(2),
        ..ClaimFilter::default()
    };
    assert_eq!(client.claim(&claim).await.unwrap().len(), 2);
    assert_eq!(client.claim(&claim).await.unwrap().len(), 1);
    assert!(task.await.unwrap()[0].starts_with("POST /claim?max=2 "));
}

#[tokio::test]
async fn what_is_sent_verifies_against_its_own_headers() {
    let (server, task) = scripted(vec![vec![answer("200 OK", r#"{"ok":true}"#)]]).await;
    client(server)
        .set("my ké", &json!("v"), Some(5))
        .await
        .unwrap();
    let request = task.await.unwrap().remove(0);
    let header = |name: &str| {
        let start = format!("{name}: ");
        request
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap()
            .to_owned()
    };
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let expected = crate::signature(
        &SecretKey::new("tk_test"),
        "POST",
        "/set/my%20k%C3%A9",
        &header("x-timestamp"),
        &header("x-nonce"),
        body.as_bytes(),
    );
    assert_eq!(header("x-signature"), expected);
}

/// A reverse proxy removes the path below which it serves the server, so the signature covers what is left.
#[tokio::test]
async fn a_server_below_a_path_gets_its_requests_there_and_the_signature_covers_the_rest() {
    let (server, task) = scripted(vec![vec![answer("204 No Content", "")]]).await;
    let below = client(format!("{server}/tools/bus/"));
    assert!(
        below
            .claim(&ClaimFilter::default())
            .await
            .unwrap()
            .is_empty()
    );
    let request = task.await.unwrap().remove(0);
    assert!(
        request.starts_with("POST /tools/bus/claim HTTP/1.1\r\n"),
        "{request}"
    );
    let header = |name: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().to_owned()
    };
    let expected = crate::signature(
        &SecretKey::new("tk_test"),
        "POST",
        "/claim",
        &header("x-timestamp: "),
        &header("x-nonce: "),
        b"",
    );
    assert_eq!(header("x-signature: "), expected);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced_once() {
    let empty = || answer("204 No Content", "").replace("content-length: 0\r\n", "");
    let (server, task) = scripted(vec![vec![empty()], vec![empty()]]).await;
    let client = client(server);
    assert!(
        client
            .claim(&ClaimFilter::default())
            .await
            .unwrap()
            .is_empty()
    );
    let is_closed = || {
        client
            .kept
            .lock()
            .unwrap()
            .as_ref()
            .is_none_or(HttpConnection::is_closed)
    };
    while !is_closed() {
        tokio::task::yield_now().await;
    }
    assert!(
        client
            .claim(&ClaimFilter::default())
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(task.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_connection_that_breaks_after_sending_is_not_tried_again() {
    let (server, task) = scripted(vec![vec![String::new()]]).await;
    let error = client(server).fulfil("a1", "t", None).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert_eq!(task.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_carries_status_code_and_message() {
    let body = r#"{"error":{"code":"not_found","message":"Intent not found."}}"#;
    let (server, task) = scripted(vec![vec![answer("404 Not Found", body)]]).await;
    let output = Output::json(&json!({"done": true})).unwrap();
    let error = client(server)
        .fulfil("a/1", "t", Some(&output))
        .await
        .unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::NOT_FOUND));
    assert_eq!(
        error.to_string(),
        "Intent not found. (not_found, status 404)"
    );
    let request = task.await.unwrap().remove(0);
    assert!(request.starts_with("POST /fulfill/a%2F1 "), "{request}");
    assert!(
        request.ends_with(r#"{"claim_token":"t","result":{"done":true},"result_type":"json"}"#)
    );
}

#[tokio::test]
async fn admin_calls_carry_the_admin_token_alone() {
    let body = r#"{"api_key":"tk_new","owner":"me"}"#;
    let (server, task) = scripted(vec![vec![answer("201 Created", body)]]).await;
    let made = client(server)
        .generate_key(Some("me"), &[], &KeyOptions::default())
        .await
        .unwrap();
    assert_eq!(made.key.reveal(), "tk_new");
    assert!(!format!("{made:?}").contains("tk_new"));
    let request = task.await.unwrap().remove(0);
    assert!(request.contains("x-admin-token: adm_test\r\n"));
    assert!(!request.contains("x-api-key") && !request.contains("x-signature"));
}

#[tokio::test]
async fn an_answer_that_never_comes_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(Options {
        server: format!("http://{}", listener.local_addr().unwrap()),
        timeout: Duration::from_millis(20),
        ..Options::default()
    })
    .unwrap();
    let error = client.jwks().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused() {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
        ANSWER_BYTES_MAX + 1
    );
    let (server, _task) = scripted(vec![vec![head]]).await;
    let error = client(server).status("a1").await.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { .. } | Error::Broken { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_caller_that_expects_little_reads_little() {
    let body = r#"{"keys":[]}"#;
    for (limit, fits) in [(body.len(), true), (body.len() - 1, false)] {
        let (server, _task) = scripted(vec![vec![answer("200 OK", body)]]).await;
        let client = client(server).with_answers_up_to(limit);
        assert_eq!(client.jwks().await.is_ok(), fits, "{limit}");
    }
}

#[tokio::test]
async fn events_arrive_one_by_one_until_the_stream_ends() {
    let stream = "id: 1\nevent: fact\ndata: {\"seq\":1}\n\n: ping\n\nid: 2\ndata: x\n\n";
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{stream}"
    );
    let (server, task) = scripted(vec![vec![whole]]).await;
    let client = client(server);
    let mut events = client.events(Some("0")).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().event, "fact");
    assert_eq!(
        events.next().await.unwrap().unwrap().id.as_deref(),
        Some("2")
    );
    assert_eq!(events.next().await.unwrap(), None);
    assert!(task.await.unwrap()[0].contains("last-event-id: 0\r\n"));
}

#[test]
fn debug_of_a_client_shows_no_secret() {
    let shown = format!("{:?}", client("http://127.0.0.1:1".to_owned()));
    assert!(
        !shown.contains("tk_test") && !shown.contains("adm_test"),
        "{shown}"
    );
}
