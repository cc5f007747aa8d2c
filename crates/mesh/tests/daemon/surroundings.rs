//! Keys, machine and hooks of a running daemon.

use std::os::unix::fs::PermissionsExt as _;

use consign_mesh::body::CarriedBody;
use consign_mesh::environment::IdentityFlag;
use consign_mesh::fingerprint::BodyHash;
use consign_mesh::frame::PushFrame;
use consign_mesh::keys::MeshPublicKey;
use serde_json::{Value, json};

use crate::local_http::{self, Extra};
use crate::receiving::{clear, direct, until_acked};
use crate::sending::{bob, connected};
use crate::world::{Home, NO_BROKER, key};

fn hook(home: &Home, name: &str, settings: &str, script: &str) {
    let folder = home.folder().join("hooks");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hooks.toml"), format!("[{name}]\n{settings}\n")).unwrap();
    let path = folder.join(format!("{name}.sh"));
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn cm_009_cm_122_a_rotated_key_stays_and_the_old_one_still_opens() {
    let (home, broker, daemon) = connected().await;
    let rotated = daemon.post("/v1/keypair/rotate", &json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    let rotated = rotated.json();
    assert_eq!(rotated["old_pubkey"], key(1).public_key().to_string());
    let new = rotated["new_pubkey"].as_str().unwrap().to_owned();
    assert_eq!(daemon.health().await["member_pubkey"], new);
    // The daemon connects again as the same member with the new key.
    broker
        .until("hello", |broker| broker.of_type("hello").len() == 2)
        .await;
    let hello = &broker.of_type("hello")[1];
    assert_eq!(
        (&hello["pubkey"], &hello["memberId"]),
        (&json!(new), &json!("m-1"))
    );
    daemon.until_connected().await;
    let archive = std::fs::metadata(home.folder().join("keypair-archive.json")).unwrap();
    assert_eq!(archive.permissions().mode() & 0o777, 0o600);
    for (id, to) in [
        ("old", key(1).public_key()),
        ("new", MeshPublicKey::parse(&new).unwrap()),
    ] {
        let carried = CarriedBody::direct(id.as_bytes(), &key(2), to, &[9; 24]).unwrap();
        broker.push(PushFrame {
            nonce: carried.nonce,
            ciphertext: carried.ciphertext,
            ..clear(id, 2, "")
        });
    }
    until_acked(&broker, 2).await;
    let items = daemon.get("/v1/inbox").await.json();
    let bodies: Vec<&Value> = items["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["body"])
        .collect();
    assert_eq!(bodies, ["new", "old"]);
    let metrics = daemon.get("/v1/metrics").await.text;
    assert!(
        metrics.contains("cm_daemon_decrypt_archived_total 1"),
        "{metrics}"
    );
    daemon.down().await;
    let daemon = home.up().await;
    assert_eq!(daemon.health().await["member_pubkey"], new);
    daemon.down().await;
}

#[tokio::test]
async fn a_key_is_not_replaced_while_a_message_waits() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    assert_eq!(
        daemon.post("/v1/keypair/rotate", &json!({})).await.status,
        503
    );
    daemon.down().await;
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.ack = std::sync::Arc::new(|_| None));
    daemon.send("c-1", "*", "hi").await;
    let refused = daemon.post("/v1/keypair/rotate", &json!({})).await;
    assert_eq!(
        (refused.status, refused.json()),
        (409, json!({"error": "outbox_not_empty"}))
    );
    assert_eq!(
        daemon.health().await["member_pubkey"],
        key(1).public_key().to_string()
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_010_an_ephemeral_daemon_writes_no_key() {
    let home = Home::new(1, NO_BROKER);
    let mut options = home.options();
    options.identity = IdentityFlag::Ephemeral;
    home.up_with(options).await.down().await;
    assert!(!home.folder().join("keypair.json").exists());
    home.up().await.down().await;
    assert!(home.folder().join("keypair.json").exists());
}

#[tokio::test]
async fn cm_015_cm_016_another_machine_is_refused_with_4_unless_settings_allow_it() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[host_fingerprint]\nid_override = \"one\"\n");
    home.up().await.down().await;
    assert!(home.folder().join("host_fingerprint.json").exists());
    home.configure("[host_fingerprint]\nid_override = \"two\"\n");
    let end = home.start(home.options()).ended().await;
    assert_eq!(end.status(), 4);
    let message = end.message.unwrap();
    assert!(
        message.contains("accept-host") && message.contains("remint"),
        "{message}"
    );
    home.configure("[clone]\npolicy = \"warn\"\n[host_fingerprint]\nid_override = \"two\"\n");
    home.up().await.down().await;
}

#[tokio::test]
async fn cm_097_cm_101_cm_110_a_hook_runs_after_the_message_is_stored() {
    let (home, broker, daemon) = connected().await;
    let seen = home.folder().join("seen");
    hook(
        &home,
        "on-message",
        "network_policy = \"allow\"\nfs_policy = \"rw\"",
        &format!("cat > {}", seen.display()),
    );
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    let mut events = daemon.events().await;
    broker.push(clear("c-1", 2, "hello hook"));
    let audit = events.event("hook_executed").await;
    assert_eq!(
        (&audit["hook"], &audit["exit"]),
        (&json!("on-message"), &json!(0))
    );
    let input: Value = serde_json::from_str(&std::fs::read_to_string(&seen).unwrap()).unwrap();
    let items = daemon.get("/v1/inbox").await.json();
    assert_eq!(input["id"], items["items"][0]["id"]);
    assert_eq!(input["body"], "hello hook");
    daemon.down().await;
}

#[tokio::test]
async fn cm_103_cm_104_the_token_of_a_running_hook_sends_to_its_sender_and_nothing_else() {
    let (home, broker, daemon) = connected().await;
    hook(
        &home,
        "on-dm",
        "network_policy = \"allow\"\nfs_policy = \"rw\"\ncapability_token_scope = [\"dm:send:<sender_pubkey>\"]",
        &format!(
            "cd {}; echo $CLAUDEMESH_CAPABILITY_TOKEN > new; mv new token; while [ ! -e go ]; do sleep 0.02; done",
            home.folder().display()
        ),
    );
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    let mut events = daemon.events().await;
    broker.push(direct("c-1", 2, "hello"));
    let file = home.folder().join("token");
    while !file.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let token = std::fs::read_to_string(file).unwrap();
    let authorization = format!("Capability {}", token.trim());
    let headers = [("Authorization", authorization.as_str())];
    let call = async |method: &str, target: &str, to: &str| {
        let body = json!({"to": to, "message": "hi"}).to_string();
        let extra = Extra {
            headers: &headers,
            body: body.as_bytes(),
        };
        let answer = local_http::unix(&daemon.sock(), method, target, extra).await;
        answer.status
    };
    assert_eq!(call("POST", "/v1/send", &bob()).await, 202);
    let other = key(3).public_key().to_string();
    assert_eq!(call("POST", "/v1/send", &other).await, 403);
    assert_eq!(call("GET", "/v1/inbox", "").await, 403);
    std::fs::write(home.folder().join("go"), "").unwrap();
    let audit = events.event("hook_executed").await;
    assert_eq!(audit["capability_calls"], 3);
    assert_eq!(call("POST", "/v1/send", &bob()).await, 401);
    daemon.down().await;
}

#[tokio::test]
async fn cm_111_the_last_gate_changes_or_refuses_before_the_hash() {
    let (home, broker, daemon) = connected().await;
    hook(
        &home,
        "pre-send",
        "network_policy = \"allow\"\nfs_policy = \"rw\"",
        "if grep -q secret; then exit 1; fi; echo '{\"message\":\"changed\",\"priority\":\"now\"}'",
    );
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    let refused = daemon.send("c-1", "*", "a secret").await;
    assert_eq!(
        (refused.status, refused.json()),
        (422, json!({"error": "rejected_by_hook"}))
    );
    assert_eq!(daemon.row("c-1").await, Value::Null);
    assert_eq!(daemon.send("c-1", "*", "plain").await.status, 202);
    daemon.until_status("c-1", "done").await;
    let sent = &broker.of_type("send")[0];
    assert_eq!(sent["body_sha256"], BodyHash::of(b"changed").to_string());
    assert_eq!(sent["priority"], "now");
    daemon.down().await;
}
