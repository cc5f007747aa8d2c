//! A daemon whose disk is full: it refuses, it stays, and it goes on when there is space. One whose disk loses what was
//! written ends, because nothing that it answers afterwards could be trusted.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use consign_testkit::shim::{Fault, Shim};
use serde_json::{Value, json};

use super::mesh_world::{MeshUser, MeshWorld, wait_for};

/// A request to the local interface: its status and its body.
fn ask(user: &MeshUser, method: &str, target: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(user.folder().join("sock")).expect("the daemon listens");
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.read_to_string(&mut answer))
        .expect("the daemon answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = serde_json::from_str(body).expect("a JSON body");
    (status.expect("a status"), body)
}

fn send(user: &MeshUser, to: &str, id: &str) -> (u16, Value) {
    let body = json!({"to": to, "message": "text", "client_message_id": id});
    ask(user, "POST", "/v1/send", &body.to_string())
}

/// A mesh with bob, and alice whose outbox is disturbed.
fn disturbed() -> (MeshWorld, Shim, MeshUser, MeshUser) {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let mut alice = world.join("alice");
    let shim = Shim::build(world.place.folder.path()).expect("cc builds the shim");
    alice.spawn_with(&[], &shim.variables("outbox.db"));
    wait_for("the daemon is ready", || {
        alice.daemon(&["status"]).status.success()
    });
    alice.wait_connected();
    (world, shim, alice, bob)
}

#[test]
fn cm_038_cm_095_a_full_disk_refuses_messages_and_the_daemon_goes_on_when_there_is_space() {
    let (_world, shim, alice, bob) = disturbed();
    let to = bob.pubkey();
    assert_eq!(send(&alice, &to, "before").0, 202);
    bob.wait_received("before");
    wait_for("the row is done", || {
        alice.outbox_status("before") == "done"
    });

    shim.set(Fault::Writes).expect("the shim listens");
    for number in 0..5 {
        let (status, refused) = send(&alice, &to, &format!("during-{number}"));
        assert!([503, 507].contains(&status), "{status} {refused}");
        assert!(refused["error"].is_string(), "{refused}");
        // What is there can be read, and a known id has its answer.
        let (status, health) = ask(&alice, "GET", "/v1/health", "");
        assert_eq!((status, &health["connected"]), (200, &true.into()));
        let (status, listed) = ask(&alice, "GET", "/v1/outbox", "");
        assert_eq!(status, 200);
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(ask(&alice, "GET", "/v1/inbox", "").0, 200);
    }
    assert!(shim.failed().expect("the shim counts") > 0);
    assert_eq!(send(&alice, &to, "before").0, 200);
    shim.set(Fault::None).expect("the shim listens");

    // The same ids are free, and each message arrives once.
    for number in 0..5 {
        let (status, answer) = send(&alice, &to, &format!("during-{number}"));
        assert_eq!(status, 202, "{answer}");
    }
    for number in 0..5 {
        bob.wait_received(&format!("during-{number}"));
    }
    let mut received = bob.inbox_ids();
    received.sort();
    let expected = [
        "before", "during-0", "during-1", "during-2", "during-3", "during-4",
    ];
    assert_eq!(received, expected);
}

#[test]
fn cm_038_a_failing_sync_accepts_nothing_and_ends_the_daemon() {
    let (_world, shim, mut alice, bob) = disturbed();
    let to = bob.pubkey();
    shim.set(Fault::Syncs).expect("the shim listens");
    let (status, refused) = send(&alice, &to, "lost");
    assert!([503, 507].contains(&status), "{status} {refused}");
    assert_eq!(alice.exit_status(), 1);
    assert!(
        alice.stderr().contains("start the daemon again"),
        "{}",
        alice.stderr()
    );
    shim.set(Fault::None).expect("the shim listens");
    alice.up();
    // Whether the refused message was on the disk is open; its client sends it again.
    assert!([200, 202].contains(&send(&alice, &to, "lost").0));
    bob.wait_received("lost");
    assert_eq!(bob.inbox_ids(), ["lost"]);
}
