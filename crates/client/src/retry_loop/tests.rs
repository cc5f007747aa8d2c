//! Whole requests against a scripted server: which requests are repeated, and the final result.

use std::cell::RefCell;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::client::tests::read_request;
use crate::{AtpTransaction, Client, Options, SecretKey};

const ROW: &str = r#"{"ok":true,"intent_id":"i","transaction_id":"atp_tx_1","state":"STATE","amount_cents":1500,"currency":"EUR","rail":{"name":"null","reference":"atp_1"},"created_at":"a","updated_at":"b"}"#;

/// One connection per answer; an empty answer is a connection that breaks after the request. Returns the requests.
async fn scripted(answers: Vec<String>) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut stream).await);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    let options = Options {
        server,
        key: Some(SecretKey::new("ck_of_the_server")),
        ..Options::default()
    };
    (Client::new(options).unwrap(), task)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn row(status: &str, state: &str) -> String {
    answer(status, "", &ROW.replace("STATE", state))
}

async fn execute(
    client: &Client,
    left: Duration,
) -> (Result<ParsedResponse<AtpTransaction>, Error>, Vec<String>) {
    let reasons = RefCell::new(Vec::new());
    let note = |why: &str, _: Duration| reasons.borrow_mut().push(why.to_owned());
    let patience = RetryLoop::until(SystemTime::now() + left, &note);
    let key = SecretKey::new("0123456789abcdef");
    let result = patience
        .send(|| client.transactions().execute(&key, r#"{"intent_id":"i"}"#))
        .await;
    (result, reasons.into_inner())
}

const LONG: Duration = Duration::from_mins(10);

#[tokio::test]
async fn the_same_request_goes_out_until_the_answer_is_final() {
    let busy = r#"{"ok":false,"error":"store_unavailable","message":"the store does not answer"}"#;
    let (client, server) = scripted(vec![
        String::new(),
        answer("503 Service Unavailable", "", busy),
        row("202 Accepted", "executing"),
        row("200 OK", "settled"),
    ])
    .await;
    let (result, reasons) = execute(&client, LONG).await;
    let settled = result.unwrap();
    assert_eq!(
        (settled.body.state.as_str(), settled.is_open()),
        ("settled", false)
    );
    let requests = server.await.unwrap();
    assert_eq!(requests.len(), 4);
    assert!(
        requests.iter().all(|request| *request == requests[0]),
        "{requests:?}"
    );
    assert!(requests[0].contains("idempotency-key: 0123456789abcdef\r\n"));
    assert!(
        !requests[0].contains("ck_of_the_server"),
        "agents send no key of the server"
    );
    assert_eq!(reasons.len(), 3);
    assert_eq!(
        (reasons[1].as_str(), reasons[2].as_str()),
        (
            "the store does not answer (store_unavailable, status 503)",
            "still in progress"
        )
    );
}

#[tokio::test]
async fn a_conflict_is_final_at_once() {
    let consumed =
        r#"{"ok":false,"error":"nonce_consumed","message":"the nonce has already been used"}"#;
    let (client, server) = scripted(vec![answer("409 Conflict", "", consumed)]).await;
    let (result, reasons) = execute(&client, LONG).await;
    assert_eq!(result.unwrap_err().code(), Some("nonce_consumed"));
    assert_eq!((server.await.unwrap().len(), reasons.len()), (1, 0));
}

#[tokio::test]
async fn what_is_open_when_the_time_is_over_is_given_as_it_is() {
    let later = answer(
        "202 Accepted",
        "retry-after: 700\r\nidempotent-replayed: true\r\n",
        &ROW.replace("STATE", "executing"),
    );
    let (client, server) = scripted(vec![later]).await;
    let (result, reasons) = execute(&client, LONG).await;
    let open = result.unwrap();
    assert!(open.is_open() && open.replayed);
    assert_eq!((server.await.unwrap().len(), reasons.len()), (1, 0));
}

#[tokio::test]
async fn a_request_is_sent_once_even_when_the_time_is_over_already() {
    let (client, server) = scripted(vec![row("200 OK", "settled")]).await;
    let (result, _) = execute(&client, Duration::ZERO).await;
    assert_eq!(result.unwrap().body.state, "settled");
    assert_eq!(server.await.unwrap().len(), 1);
}
