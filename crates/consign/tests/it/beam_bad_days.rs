//! Beam on bad days: a server that is killed or stopped during a relay, recipients that are absent, slow or wrong, and senders
//! whose clock is off.

use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::websocket::WebSocketClient;
use serde_json::json;

use super::beam_world::{
    BeamAgent, alice_and_bob, assert_no_panic, assert_nothing_waits, beam_error, beam_options,
    begin_send, count, legal_trace, next_intent, send, until_status,
};
use super::{Place, start};

/// How long a stop with open sockets may take.
const STOP_MAX: Duration = Duration::from_secs(10);

#[test]
fn be_154_be_155_a_killed_server_takes_the_late_result_and_the_intent_was_delivered_once() {
    let place = Place::new();
    let options = beam_options(&place);
    // The kill comes at once, and after the delivery was stored.
    for (nonce, waits) in [("at-once", false), ("delivered", true)] {
        let mut server = start(&options);
        let (alice, bob) = alice_and_bob(&server);
        let mut socket = bob.connect(&server);
        let frame = alice.message(&bob, nonce);
        let sending = begin_send(&server, &frame);
        assert_eq!(next_intent(&mut socket), frame);
        if waits {
            until_status(&server, nonce, "delivered");
        }
        server.kill9().unwrap();
        sending.join().unwrap().unwrap_err();

        let server = start(&options);
        let mut socket = bob.connect(&server);
        if waits {
            let early = send(&mut server.http(), &frame);
            assert_eq!(beam_error(&early), (409, "IN_PROGRESS".to_owned()));
        }
        socket.send_json(&bob.result(nonce, "late")).unwrap();
        until_status(&server, nonce, "acked");
        let first = send(&mut server.http(), &frame);
        assert_eq!(first.status, 200, "{}", first.text());
        assert_eq!(first.json()["payload"]["message"], "late");
        let again = send(&mut server.http(), &frame);
        assert_eq!((again.status, again.body), (200, first.body));
        assert_nothing_waits(&server, (&alice, &bob), &mut socket);
        let trace = legal_trace(&server, nonce);
        assert_eq!(
            (count(&trace, "delivered"), count(&trace, "acked")),
            (1, 1),
            "{trace:?}"
        );
    }
}

#[test]
fn sigterm_closes_open_sockets_with_1001_and_loses_no_intent() {
    let place = Place::new();
    let options = beam_options(&place);
    let mut server = start(&options);
    let (alice, bob) = alice_and_bob(&server);
    let mut recipient = bob.connect(&server);
    let mut sender = alice.connect(&server);
    let mut feed = WebSocketClient::open(server.authority(), "/ws?feed=intents").unwrap();
    // It neither reads the closing frame nor answers it.
    let silent = WebSocketClient::open(server.authority(), "/ws?feed=intents").unwrap();
    let (by_http, by_socket) = (alice.message(&bob, "http"), alice.message(&bob, "socket"));
    let sending = begin_send(&server, &by_http);
    next_intent(&mut recipient);
    sender
        .send_json(&json!({"type": "intent", "frame": by_socket}))
        .unwrap();
    next_intent(&mut recipient);
    for nonce in ["http", "socket"] {
        until_status(&server, nonce, "delivered");
    }

    let closing = thread::spawn(move || {
        [&mut recipient, &mut sender, &mut feed].map(|socket| socket.until_closed().unwrap())
    });
    let asked = Instant::now();
    assert!(server.terminate(STOP_MAX).unwrap().success());
    let took = asked.elapsed();
    let expected = (1001, "Server is shutting down".to_owned());
    assert_eq!(
        closing.join().unwrap(),
        [expected.clone(), expected.clone(), expected]
    );
    assert!(took < STOP_MAX, "{took:?}");
    drop(silent);
    // The sender has no result: it got an error or none at all.
    let answer = sending.join().unwrap();
    assert!(
        answer.as_ref().map_or(true, |answer| answer.status >= 500),
        "{answer:?}"
    );

    let server = start(&options);
    let mut recipient = bob.connect(&server);
    for (nonce, frame) in [("http", by_http), ("socket", by_socket)] {
        recipient.send_json(&bob.result(nonce, "late")).unwrap();
        until_status(&server, nonce, "acked");
        let answer = send(&mut server.http(), &frame);
        assert_eq!(answer.json()["payload"]["message"], "late");
        let trace = legal_trace(&server, nonce);
        assert_eq!(count(&trace, "delivered"), 1, "{trace:?}");
    }
    assert_nothing_waits(&server, (&alice, &bob), &mut recipient);
    assert_no_panic(&server);
}

#[test]
fn be_096_be_099_be_116_be_118_recipients_that_are_absent_slow_wrong_or_too_eager() {
    let place = Place::new();
    let server = start(&beam_options(&place).env("RELAY_TIMEOUT_MS", "1500"));
    let (alice, bob) = alice_and_bob(&server);
    let carol = BeamAgent::new("carol", 3);
    carol.register(&mut server.http());
    let mut http = server.http();
    let mut other = carol.connect(&server);

    // Absent, and then there.
    let frame = alice.message(&bob, "absent");
    let offline = send(&mut http, &frame);
    assert_eq!(beam_error(&offline), (503, "OFFLINE".to_owned()));
    let mut socket = bob.connect(&server);
    let sending = begin_send(&server, &frame);
    next_intent(&mut socket);
    socket.send_json(&bob.result("absent", "here")).unwrap();
    assert_eq!(sending.join().unwrap().unwrap().status, 200);
    assert_eq!(
        legal_trace(&server, "absent")[3..5],
        ["failed".to_owned(), "queued".to_owned()]
    );

    // Twice, and for another agent: the first result of the recipient counts.
    let frame = alice.message(&bob, "twice");
    let sending = begin_send(&server, &frame);
    next_intent(&mut socket);
    other.send_json(&carol.result("twice", "carol")).unwrap();
    // Its socket is read in order, so the result was seen before this error is sent.
    other.send_text("{").unwrap();
    assert_eq!(other.next_json().unwrap()["type"], "error");
    for text in ["first", "second"] {
        socket.send_json(&bob.result("twice", text)).unwrap();
    }
    let first = sending.join().unwrap().unwrap();
    assert_eq!(first.json()["payload"]["message"], "first");
    socket.send_text("{").unwrap();
    assert_eq!(socket.next_json().unwrap()["type"], "error");
    assert_eq!(send(&mut http, &frame).body, first.body);
    assert_eq!(count(&legal_trace(&server, "twice"), "acked"), 1);

    // Too slow, and then late.
    let frame = alice.message(&bob, "slow");
    let timeout = send(&mut http, &frame);
    assert_eq!(beam_error(&timeout), (504, "TIMEOUT".to_owned()));
    next_intent(&mut socket);
    other.send_json(&carol.result("slow", "carol")).unwrap();
    socket.send_json(&bob.result("slow", "late")).unwrap();
    until_status(&server, "slow", "acked");
    let late = send(&mut http, &frame);
    assert_eq!(late.json()["payload"]["message"], "late");
    legal_trace(&server, "slow");
    assert_nothing_waits(&server, (&alice, &bob), &mut socket);
    assert_no_panic(&server);
}

#[test]
fn be_068_a_sender_whose_clock_is_off_by_more_than_five_minutes_is_refused() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let mut socket = bob.connect(&server);
    let mut http = server.http();
    // A clock that is ahead comes closer while the request travels.
    for (off_s, nonce) in [(-301, "behind"), (310, "ahead")] {
        let refused = send(&mut http, &alice.message_at(off_s, &bob, nonce, "hello"));
        assert_eq!(beam_error(&refused), (400, "INVALID_INTENT".to_owned()));
        assert!(refused.text().contains("replay window"), "{refused:?}");
    }
    for (off_s, nonce) in [(-2, "behind"), (2, "ahead")] {
        let sending = begin_send(&server, &alice.message_at(off_s, &bob, nonce, "hello"));
        assert_eq!(next_intent(&mut socket)["nonce"], nonce);
        socket.send_json(&bob.result(nonce, "in time")).unwrap();
        assert_eq!(sending.join().unwrap().unwrap().status, 200);
        legal_trace(&server, nonce);
    }
}

#[test]
fn be_111_a_recipient_that_reconnects_often_answers_over_its_last_socket() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let mut old = bob.connect(&server);
    let sending = begin_send(&server, &alice.message(&bob, "n-1"));
    next_intent(&mut old);
    let mut new = bob.connect(&server);
    for _ in 0..10 {
        let closed = old.until_closed().unwrap();
        assert_eq!(closed, (1001, "Replaced by new connection".to_owned()));
        old = std::mem::replace(&mut new, bob.connect(&server));
    }
    new.send_json(&bob.result("n-1", "again here")).unwrap();
    let answer = sending.join().unwrap().unwrap();
    assert_eq!(answer.json()["payload"]["message"], "again here");
    assert_nothing_waits(&server, (&alice, &bob), &mut new);
    assert_no_panic(&server);
}
