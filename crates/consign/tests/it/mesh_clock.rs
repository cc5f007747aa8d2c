//! The wall clock of a running daemon is set: no accepted message is given up.

use std::time::Duration;

use consign_testkit::shim::Shim;

use super::mesh_world::{MeshWorld, wait_for};
use super::printed;

const YEAR_S: i64 = 365 * 86_400;

#[test]
fn cm_087_a_wall_clock_that_jumps_makes_no_message_too_old() {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let to = bob.pubkey();
    let mut alice = world.join("alice");
    let shim = Shim::build(world.place.folder.path()).expect("cc builds the shim");
    alice.spawn_with(&[], &shim.variables("outbox.db"));
    wait_for("the daemon is ready", || {
        alice.daemon(&["status"]).status.success()
    });
    alice.wait_connected();
    for (number, ahead_s) in [2 * YEAR_S, -YEAR_S, 0].into_iter().enumerate() {
        shim.move_clock(ahead_s).expect("the shim listens");
        // The clock of the ledger follows a little meanwhile.
        std::thread::sleep(Duration::from_millis(1_200));
        let id = format!("jump-{number}");
        printed(&alice.send(&to, "text", &id));
        bob.wait_received(&id);
        wait_for("the row is done", || alice.outbox_status(&id) == "done");
    }
}

#[test]
fn cm_099_a_start_with_a_wrong_clock_removes_no_messages_and_no_keys() {
    let world = MeshWorld::new();
    let alice = world.member("alice");
    let mut bob = world.member("bob");
    printed(&alice.send(&bob.pubkey(), "text", "kept"));
    bob.wait_received("kept");
    printed(&bob.daemon(&["rotate-keypair"]));
    let archive = bob.folder().join("keypair-archive.json");
    let keys = std::fs::read_to_string(&archive).expect("the old key is archived");
    bob.kill();
    let shim = Shim::build(world.place.folder.path()).expect("cc builds the shim");
    shim.move_clock(2 * YEAR_S).expect("the shim listens");
    bob.spawn_with(&[], &shim.variables("inbox.db"));
    // The broker refuses a hello of another time.
    wait_for("the daemon reports the refusal", || {
        let status = bob.daemon(&["status"]);
        status.status.success()
            && printed(&status)["last_error"]
                .as_str()
                .is_some_and(|error| error.contains("timestamp_skew"))
    });
    assert_eq!(bob.inbox_ids(), ["kept"]);
    assert_eq!(std::fs::read_to_string(&archive).ok(), Some(keys));
}
