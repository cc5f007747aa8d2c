//! Local programs that stop or are hostile, and a broker that refuses.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use crate::broker_double::BrokerDouble;
use crate::local_http::{self, Extra};
use crate::world::{Daemon, Home, NO_BROKER, key};

/// A request whose body never comes.
async fn stopped_client(daemon: &Daemon) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.sock()).await.unwrap();
    let head = b"POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{";
    stream.write_all(head).await.unwrap();
    stream
}

#[tokio::test]
async fn stopped_clients_hide_neither_health_nor_the_end_of_the_daemon() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\nmax_inflight = 4\n");
    let daemon = home.up().await;
    let mut stopped = Vec::new();
    for _ in 0..4 {
        stopped.push(stopped_client(&daemon).await);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while daemon.get("/v1/outbox").await.status != 429 {
        assert!(Instant::now() < deadline, "the places are not taken");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(daemon.get("/v1/health").await.status, 200);
    assert_eq!(daemon.post("/v1/shutdown", &json!({})).await.status, 200);
    assert_eq!(daemon.ended().await.status(), 0);
}

#[tokio::test]
async fn refusals_fill_no_log_and_are_counted() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let sock = daemon.sock();
    let calls = (0..60).map(|_| {
        let headers = &[("Authorization", "Capability none")];
        let extra = Extra { headers, body: b"" };
        local_http::unix(&sock, "GET", "/v1/outbox", extra)
    });
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.status, 401);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let counted = loop {
        let counted: u64 = home
            .logged("ipc_requests_rejected")
            .iter()
            .filter_map(|line| line["count"].as_u64())
            .sum();
        if counted > 0 && counted + home.logged("ipc_request_rejected").len() as u64 == 60 {
            break counted;
        }
        assert!(Instant::now() < deadline, "{:?}", home.log());
        sleep(Duration::from_millis(20)).await;
    };
    assert!(counted >= 10);
    daemon.down().await;
}

#[tokio::test]
async fn a_broker_that_refuses_the_hello_is_warned_of_and_is_the_last_error() {
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| {
        behaviour.unauthorized = Some(key(1).public_key().to_string());
    });
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    let health = daemon
        .until_health(|health| health["last_error"].is_string())
        .await;
    let error = health["last_error"].as_str().unwrap();
    assert!(error.contains("refuses the hello: unauthorized"), "{error}");
    let warned = home.logged("broker_refuses");
    assert_eq!(warned[0]["level"], "warn");
    assert_eq!(warned[0]["reason"], error);
    broker.change(|behaviour| behaviour.unauthorized = None);
    daemon.until_connected().await;
    assert_eq!(daemon.health().await["last_error"], Value::Null);
    daemon.down().await;
}

#[tokio::test]
async fn cm_127_a_daemon_that_was_revoked_serves_nobody_while_it_ends() {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    daemon.until_connected().await;
    // A request that is being served delays the end.
    let stopped = stopped_client(&daemon).await;
    broker.close(4002, "banned");
    let deadline = Instant::now() + Duration::from_secs(20);
    while home.logged("the daemon ends").is_empty() {
        assert!(Instant::now() < deadline, "{:?}", home.log());
        sleep(Duration::from_millis(1)).await;
    }
    let sock = daemon.sock();
    while serves(&sock).await {
        assert!(Instant::now() < deadline, "it still serves");
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(daemon.ended().await.status(), 5);
    assert!(!sock.exists());
    drop(stopped);
}

/// Whether a new request gets an answer.
async fn serves(sock: &std::path::Path) -> bool {
    use tokio::io::AsyncReadExt as _;
    let Ok(mut stream) = UnixStream::connect(sock).await else {
        return false;
    };
    let head = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answer = Vec::new();
    let asked = async {
        stream.write_all(head).await?;
        stream.read_to_end(&mut answer).await
    };
    asked.await.is_ok_and(|read| read > 0)
}
