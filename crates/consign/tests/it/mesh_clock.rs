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
