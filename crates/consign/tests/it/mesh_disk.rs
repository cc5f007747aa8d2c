//! A daemon whose disk is full: it refuses, it stays, and it goes on when there is space. One whose disk loses what was
//! written ends, because nothing that it answers afterwards could be trusted.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use consign_testkit::disk::Disk;
use consign_testkit::seeded_random::SeededRandom;
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

#[test]
fn cm_088_what_was_acknowledged_to_the_broker_survives_a_power_failure() {
    const ROUNDS: usize = 4;
    let world = MeshWorld::new();
    let alice = world.member("alice");
    let mut bob = world.member("bob");
    let to = bob.pubkey();
    let shim = Shim::build(world.place.folder.path()).expect("cc builds the shim");
    let log = world.place.path("changes");
    // A seed whose first choice loses every write that was not synced.
    let loses_all = |random: &SeededRandom| random.clone().below(4) == 0;
    let mut seeds = (0..).map(SeededRandom::new).filter(loses_all);
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        bob.kill();
        let folder = bob.folder();
        // Files of a running daemon, and links to them.
        for name in ["sock", "pid", "http.port"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
        for name in ["daemon.sock", "daemon.pid", "local-token"] {
            std::fs::remove_file(folder.join(name)).expect("the link can be removed");
        }
        let mut disk = Disk::read(&folder).expect("the folder can be read");
        std::fs::write(&log, "").expect("a log can be made");
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let logging = [
            ("CONSIGN_SHIM_TREE", path(&folder)),
            ("CONSIGN_SHIM_LOG", path(&log)),
        ];
        let variables = [&shim.variables("inbox.db")[..], &logging].concat();
        bob.spawn_with(&[], &variables);
        wait_for("the daemon is ready", || {
            bob.daemon(&["status"]).status.success()
        });
        bob.wait_connected();
        for number in 0..10 {
            let id = format!("power-{round}-{number}");
            assert_eq!(send(&alice, &to, &id).0, 202);
            expected.push(id);
        }
        // An acknowledgement leaves before the next message is read from the inbox.
        for id in &expected {
            bob.wait_received(id);
        }
        bob.kill();
        let mut random = seeds.next().expect("there is one more");
        let changes = std::fs::read(&log).expect("the log can be read");
        disk.replay(&changes, &mut random.clone());
        let loss = disk.cut_power(&mut random);
        assert!(loss.dropped > 0, "{loss:?}");
        disk.write(&folder).expect("the folder can be written");
        bob.up();
        bob.wait_connected();
        for id in &expected {
            bob.wait_received(id);
        }
    }
    let mut received = bob.inbox_ids();
    received.sort();
    expected.sort();
    assert_eq!(received, expected);
}
