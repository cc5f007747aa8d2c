//! Daemons against a broker that does not offer what they need: how they close, and with which status they end.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message};

use super::mesh_world::{MESH, MeshWorld, write_config};
use super::{code, text};

/// Serves one connection: accepts the hello and answers the negotiation. Sends the close frame that it received.
fn broker(dedupe: Value) -> (String, mpsc::Receiver<(u16, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ws", listener.local_addr().unwrap());
    let (closed, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut socket = tungstenite::accept(stream).unwrap();
        while let Ok(message) = socket.read() {
            if let Message::Close(Some(frame)) = &message {
                let _ = closed.send((frame.code.into(), frame.reason.to_string()));
                continue;
            }
            let Message::Text(text) = message else {
                continue;
            };
            let frame: Value = serde_json::from_str(&text).unwrap();
            let answer = match frame["type"].as_str() {
                Some("hello") => json!({
                    "type": "hello_ack", "presenceId": "p", "memberDisplayName": "alice",
                    "memberProfile": {"groups": []},
                }),
                Some("feature_negotiation_request") => json!({
                    "type": "feature_negotiation_response", "_reqId": frame["_reqId"],
                    "supported": {
                        "client_message_id_dedupe": {"params": dedupe},
                        "concurrent_connection_policy": {"params": {"version": 1}},
                    },
                    "missing_required": [],
                }),
                _ => continue,
            };
            socket.send(Message::text(answer.to_string())).unwrap();
        }
    });
    (url, receiver)
}

fn check(dedupe: Value, close: u16, kind: &str, exit: i32) {
    let (url, closed) = broker(dedupe);
    let folder = tempfile::tempdir().unwrap();
    write_config(folder.path(), &url);
    let mut command = consign_testkit::process::cleaned(&super::binary());
    command
        .args(["daemon", "up", "--foreground", "--mesh", MESH])
        .env("HOME", folder.path());
    let ended = consign_testkit::process::run(command, super::PATIENCE).unwrap();
    let log = text(&ended.stderr);
    assert_eq!(code(&ended), exit, "{log}");
    let (code, reason) = closed.recv_timeout(super::PATIENCE).unwrap();
    assert_eq!(code, close);
    let reason: Value = serde_json::from_str(&reason).unwrap();
    assert_eq!(reason["kind"], kind);
    assert_eq!(reason["feature"], "client_message_id_dedupe");
    assert!(reason["detail"].is_string());
    let is_warning = |line: &str| line.contains(r#""level":"warn""#) && line.contains("dedupe");
    assert!(
        log.lines().any(is_warning),
        "the whole answer is logged: {log}"
    );
}

fn offer(version: u32, days: i64) -> Value {
    json!({
        "version": version, "mode": "retention_scoped", "dedupe_retention_days": days,
        "request_fingerprint": true,
    })
}

#[test]
fn cm_083_cm_131_cm_138_cm_139_a_broker_that_offers_too_little_ends_the_daemon_with_its_code() {
    check(offer(1, 365), 4010, "feature_unavailable", 10);
    check(offer(9, 365), 4011, "feature_param_invalid", 11);
    check(offer(2, 0), 4011, "feature_param_invalid", 11);
    check(offer(2, 2), 4012, "feature_param_below_floor", 12);
}

#[test]
fn cm_043_the_command_refuses_a_window_below_the_floor() {
    let world = MeshWorld::new();
    let args = ["mesh", "create", "short", "--dedupe-days", "2", "--json"];
    assert!(!world.place.consign(&args).status.success());
}
