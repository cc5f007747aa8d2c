//! A daemon or a broker that kills itself at every step of a send, and starts again: whatever was accepted arrives once.
//! Only a binary with failpoints can end at such a point. `cargo xtask mesh-crash` repeats the tests with later passes.
#![cfg(feature = "planted")]

use super::mesh_world::{MeshUser, MeshWorld, wait_for};
use super::printed;

/// The first pass of a failpoint at which the process ends, and how many passes of it are tried, one after the other. With
/// each message, the outbox commits its acceptance, its claim and its acknowledgement.
const DAEMON_PASSES: (u32, u32) = (1, 7);
/// A start of the server and the hello commit, too.
const BROKER_PASSES: (u32, u32) = (3, 8);
/// The process dies at its pass before so many messages.
const MESSAGES_MAX: u32 = 200;
/// Which repetition of the tests this is, from 0. Each continues with the passes after those of the one before.
const ROUND: &str = "CONSIGN_MESH_CRASH_ROUND";
/// Later repetitions begin anew, because so many messages before the end take long.
const ROUNDS_APART: u32 = 8;

fn passes((first, count): (u32, u32)) -> std::ops::Range<u32> {
    let round: u32 = match std::env::var(ROUND) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => 0,
    };
    let first = first + round % ROUNDS_APART * count;
    first..first + count
}

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

/// The daemon dies at each pass of the failpoint. Its client repeats what was not answered, and nothing else.
fn daemon_dies_at(failpoint: &str) {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let to = bob.pubkey();
    let mut alice = world.join("alice");
    let mut expected = Vec::new();
    for pass in passes(DAEMON_PASSES) {
        let armed = format!("{failpoint}:{pass}");
        alice.spawn_with(&[], &[("CONSIGN_FAILPOINT", armed)]);
        wait_for("the daemon is ready or dead", || {
            alice.was_killed() || alice.daemon(&["status"]).status.success()
        });
        let (mut ids, mut unanswered) = (Vec::new(), Vec::new());
        while !alice.was_killed() {
            let id = id(failpoint, pass, ids.len().try_into().expect("few messages"));
            assert!(ids.len() < MESSAGES_MAX as usize, "the daemon does not die");
            let accepted = alice.send(&to, "text", &id).status.success();
            wait_for("the message is done or the daemon dead", || {
                alice.was_killed() || alice.outbox_status_or_none(&id) == "done"
            });
            assert!(accepted || alice.was_killed());
            if !accepted {
                unanswered.push(id.clone());
            }
            ids.push(id);
        }
        alice.kill();
        alice.up();
        // An answer that was lost does not say whether the message was accepted.
        for id in &unanswered {
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
    for pass in passes(BROKER_PASSES) {
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

/// The receiving daemon dies at each pass of the failpoint, and is started again.
fn receiver_dies_at(failpoint: &str) {
    let world = MeshWorld::new();
    let alice = world.member("alice");
    let mut bob = world.join("bob");
    let to = bob.pubkey();
    let mut expected = Vec::new();
    for pass in passes(DAEMON_PASSES) {
        bob.spawn_with(&[], &[("CONSIGN_FAILPOINT", format!("{failpoint}:{pass}"))]);
        let mut number = 0;
        while !bob.was_killed() {
            assert!(number < MESSAGES_MAX, "the daemon does not die");
            let id = id(failpoint, pass, number);
            printed(&alice.send(&to, "text", &id));
            wait_for("the message is received or the daemon dead", || {
                bob.was_killed() || bob.received_or_none().contains(&id)
            });
            expected.push(id);
            number += 1;
        }
        bob.kill();
    }
    bob.up();
    assert_arrived_once(&world, &alice, &bob, expected);
}

#[test]
fn cm_088_a_receiver_that_dies_before_the_commit_of_its_inbox_loses_nothing() {
    receiver_dies_at("before-inbox-commit");
}

#[test]
fn cm_088_a_receiver_that_dies_before_its_acknowledgement_loses_nothing() {
    receiver_dies_at("after-inbox-commit");
}
