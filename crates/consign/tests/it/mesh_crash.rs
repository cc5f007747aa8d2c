//! A daemon or a broker that kills itself at every step of a send, and starts again: whatever was accepted arrives once.
//! Only a binary with failpoints can end at such a point.
#![cfg(feature = "planted")]

use super::mesh_world::{MeshUser, MeshWorld, wait_for};
use super::printed;

/// The passes of a failpoint at which the process ends, a round for each. With each message, the outbox commits its
/// acceptance, its claim and its acknowledgement.
const DAEMON_PASSES: std::ops::RangeInclusive<u32> = 1..=7;
/// A start of the server and the hello commit, too.
const BROKER_PASSES: std::ops::RangeInclusive<u32> = 3..=10;
/// The process dies at its pass long before so many messages.
const MESSAGES_MAX: u32 = 40;

fn id(failpoint: &str, pass: u32, number: u32) -> String {
    format!("{failpoint}-{pass}-{number}")
}

/// Every message has arrived once, the outbox is empty, and the broker has one message of each id.
fn assert_arrived_once(
    world: &MeshWorld,
    alice: &MeshUser,
    bob: &MeshUser,
    mut expected: Vec<String>,
) {
    expected.sort();
    for id in &expected {
        bob.wait_received(id);
    }
    wait_for("all rows are done", || {
        let left = printed(&alice.daemon(&["status"]));
        left["queue_depth"] == 0 && left["inflight"] == 0 && left["dead"] == 0
    });
    let mut received = bob.inbox_ids();
    received.sort();
    assert_eq!(received, expected);
    assert_eq!(world.accepted_messages(), expected);
}

/// The daemon dies at each pass of the failpoint. Its client repeats what was not answered.
fn daemon_dies_at(failpoint: &str) {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let to = bob.pubkey();
    let mut alice = world.join("alice");
    let mut expected = Vec::new();
    for pass in DAEMON_PASSES {
        let armed = format!("{failpoint}:{pass}");
        alice.spawn_with(&[], &[("CONSIGN_FAILPOINT", armed)]);
        wait_for("the daemon is ready or dead", || {
            alice.was_killed() || alice.daemon(&["status"]).status.success()
        });
        let mut ids = Vec::new();
        while !alice.was_killed() {
            let id = id(failpoint, pass, ids.len().try_into().expect("few messages"));
            assert!(ids.len() < MESSAGES_MAX as usize, "the daemon does not die");
            let accepted = alice.send(&to, "text", &id).status.success();
            wait_for("the message is done or the daemon dead", || {
                alice.was_killed() || alice.outbox_status_or_none(&id) == "done"
            });
            assert!(accepted || alice.was_killed());
            ids.push(id);
        }
        alice.kill();
        alice.up();
        // An answer that was lost does not say whether the message was accepted.
        for id in &ids {
            printed(&alice.send(&to, "text", id));
        }
        expected.extend(ids);
        alice.wait_connected();
        wait_for("the round is done", || {
            let left = printed(&alice.daemon(&["status"]));
            left["queue_depth"] == 0 && left["inflight"] == 0
        });
        alice.kill();
    }
    alice.up();
    assert_arrived_once(&world, &alice, &bob, expected);
}

/// The broker dies at each pass of the failpoint, while the daemon sends.
fn broker_dies_at(failpoint: &str) {
    let mut world = MeshWorld::new();
    let bob = world.member("bob");
    let to = bob.pubkey();
    let alice = world.member("alice");
    let mut expected = Vec::new();
    for pass in BROKER_PASSES {
        world.kill_broker();
        world.start_broker_until(&format!("{failpoint}:{pass}"));
        let mut number = 0;
        while !world.broker_has_ended() {
            assert!(number < MESSAGES_MAX, "the broker does not die");
            let id = id(failpoint, pass, number);
            // The daemon needs no broker to accept it.
            printed(&alice.send(&to, "text", &id));
            wait_for("the message is done or the broker dead", || {
                world.broker_has_ended() || alice.outbox_status(&id) == "done"
            });
            expected.push(id);
            number += 1;
        }
        world.kill_broker();
        world.start_broker();
    }
    assert_arrived_once(&world, &alice, &bob, expected);
}

#[test]
fn cm_038_cm_089_a_daemon_that_dies_before_it_writes_loses_nothing() {
    daemon_dies_at("before-write");
}

#[test]
fn cm_038_cm_089_a_daemon_that_dies_before_its_commit_loses_nothing() {
    daemon_dies_at("after-write");
}

#[test]
fn cm_038_cm_089_a_daemon_that_dies_before_its_sync_loses_nothing() {
    daemon_dies_at("before-sync");
}

#[test]
fn cm_038_cm_089_a_daemon_that_dies_before_its_answer_loses_nothing() {
    daemon_dies_at("after-sync");
}

#[test]
fn cm_071_a_broker_that_dies_before_it_writes_accepts_each_message_once() {
    broker_dies_at("before-write");
}

#[test]
fn cm_071_a_broker_that_dies_before_its_commit_accepts_each_message_once() {
    broker_dies_at("after-write");
}

#[test]
fn cm_071_a_broker_that_dies_before_its_sync_accepts_each_message_once() {
    broker_dies_at("before-sync");
}

#[test]
fn cm_071_a_broker_that_dies_before_its_ack_accepts_each_message_once() {
    broker_dies_at("after-sync");
}
