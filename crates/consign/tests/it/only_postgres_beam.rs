//! Beam on two real nodes of one PostgreSQL, one of which is killed during a relay.

use consign_testkit::postgres::Database;
use consign_testkit::process::{Options, Server};

use super::beam_world::{
    BeamAgent, OPERATOR, alice_and_bob, assert_no_panic, assert_nothing_waits, begin_send, count,
    legal_trace, next_intent, send, until_status,
};
use super::only_postgres_nodes::{copy_keys, database, node};
use super::{Place, start};

/// Two nodes, of which the second one is killed.
struct TwoNodes {
    _place: Place,
    _database: Database,
    stays: Server,
    killed: Server,
    alice: BeamAgent,
    bob: BeamAgent,
}

impl TwoNodes {
    fn start() -> Self {
        let (place, database) = (Place::new(), database());
        let options = |name: &str| -> Options {
            node(&place, &database, name)
                .env("BEAM_ADMIN_EMAILS", OPERATOR)
                .env("BEAM_RATE_LIMIT_PER_MIN", "1000000")
        };
        let stays = start(&options("one"));
        copy_keys(&place.path("one"), &place.path("two"));
        let killed = start(&options("two"));
        let (alice, bob) = alice_and_bob(&stays);
        Self {
            _place: place,
            _database: database,
            stays,
            killed,
            alice,
            bob,
        }
    }

    /// The intent was delivered once and has one end, which a repetition returns.
    fn assert_answered_once(&self, nonce: &str, text: &str) {
        until_status(&self.stays, nonce, "acked");
        let trace = legal_trace(&self.stays, nonce);
        assert_eq!(
            (count(&trace, "delivered"), count(&trace, "acked")),
            (1, 1),
            "{trace:?}"
        );
        let frame = self.alice.message(&self.bob, nonce);
        let again = send(&mut self.stays.http(), &frame);
        assert_eq!(again.status, 200, "{}", again.text());
        assert_eq!(again.json()["payload"]["message"], text);
        assert_no_panic(&self.stays);
    }
}

#[test]
fn be_155_a_recipient_whose_node_was_killed_answers_over_the_other_one() {
    let mut nodes = TwoNodes::start();
    let mut old = nodes.bob.connect(&nodes.killed);
    let frame = nodes.alice.message(&nodes.bob, "n-1");
    let sending = begin_send(&nodes.stays, &frame);
    assert_eq!(next_intent(&mut old), frame);
    until_status(&nodes.stays, "n-1", "delivered");
    nodes.killed.kill9().unwrap();

    let mut new = nodes.bob.connect(&nodes.stays);
    new.send_json(&nodes.bob.result("n-1", "here")).unwrap();
    let answer = sending.join().unwrap().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["payload"]["message"], "here");
    nodes.assert_answered_once("n-1", "here");
    assert_nothing_waits(&nodes.stays, (&nodes.alice, &nodes.bob), &mut new);
}

#[test]
fn be_094_be_155_a_sender_whose_node_was_killed_gets_the_result_at_the_other_one() {
    let mut nodes = TwoNodes::start();
    let mut socket = nodes.bob.connect(&nodes.stays);
    let frame = nodes.alice.message(&nodes.bob, "n-1");
    let sending = begin_send(&nodes.killed, &frame);
    assert_eq!(next_intent(&mut socket), frame);
    until_status(&nodes.stays, "n-1", "delivered");
    nodes.killed.kill9().unwrap();
    sending.join().unwrap().unwrap_err();

    socket.send_json(&nodes.bob.result("n-1", "here")).unwrap();
    nodes.assert_answered_once("n-1", "here");
    assert_nothing_waits(&nodes.stays, (&nodes.alice, &nodes.bob), &mut socket);
}
