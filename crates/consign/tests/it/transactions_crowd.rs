//! Many concurrent agents, and misbehaving rails: one charge for each transaction, and the same response for every agent.
#![cfg(feature = "planted")]

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use consign_testkit::process::{Reply, Server};

use super::start;
use super::transactions_till::{Keys, Manner, Till};
use super::transactions_world::{
    Rail, Shop, authorize, compensate, compensated, execute, executed_until, intent, key, receipts,
    state, wait_until_settled,
};

const CROWD: usize = 64;
const ID: &str = "int_abc";

/// Sends all requests at the same moment, alternating between the servers.
pub(crate) fn execute_at_once(servers: &[&Server], key: impl Fn(usize) -> String) -> Vec<Reply> {
    let barrier = Barrier::new(CROWD);
    thread::scope(|scope| {
        let asked: Vec<_> = (0..CROWD)
            .map(|number| {
                let (server, key, barrier) =
                    (servers[number % servers.len()], key(number), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    execute(server, ID, &key).expect("the server answers")
                })
            })
            .collect();
        let answers = asked.into_iter().map(|one| one.join().expect("no panic"));
        answers.collect()
    })
}

/// Repeated requests with one key all get the same final response.
pub(crate) fn assert_one_for_all(servers: &[&Server], till: &Till) {
    for reply in execute_at_once(servers, |_| key(ID)) {
        assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
    }
    executed_until(servers[0], ID, "settled");
    let bodies: BTreeSet<String> = execute_at_once(servers, |_| key(ID))
        .iter()
        .map(Reply::text)
        .collect();
    assert_eq!(bodies.len(), 1);
    assert_eq!(till.heard("prepare"), 1, "it was begun once");
    assert_eq!((till.charges(), receipts(servers[0], ID).len()), (1, 1));
}

/// Of requests with different keys, one executes and the others are refused permanently.
pub(crate) fn assert_one_of_many(servers: &[&Server], till: &Till) {
    let answers = execute_at_once(servers, |number| format!("{}-{number}", key(ID)));
    let (begun, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|reply| reply.status < 300);
    assert_eq!(begun.len(), 1);
    for reply in refused {
        let told = (reply.status, reply.json()["error"].clone());
        assert_eq!(told, (409, "execution_limit_reached".into()));
    }
    wait_until_settled(servers[0], ID);
    assert_eq!((till.charges(), receipts(servers[0], ID).len()), (1, 1));
}

#[test]
fn at_041_at_043_a_crowd_with_one_key_pays_once_and_hears_one_answer() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let server = shop.start();
    authorize(&server, intent(ID));
    assert_one_for_all(&[&server], &till);
}

#[test]
fn at_042_a_crowd_with_as_many_keys_pays_once() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let server = shop.start();
    authorize(&server, intent(ID));
    assert_one_of_many(&[&server], &till);
}

/// A settled transaction is refunded once, however many requests arrive at the same moment. The records of the rail are
/// counted.
pub(crate) fn assert_one_refund(servers: &[&Server], rail: &Rail) {
    authorize(servers[0], intent(ID));
    executed_until(servers[0], ID, "settled");
    let barrier = Barrier::new(16);
    thread::scope(|scope| {
        for number in 0..16 {
            let (server, barrier) = (servers[number % servers.len()], &barrier);
            scope.spawn(move || {
                barrier.wait();
                let reply = compensate(server, ID).expect("the server answers");
                assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
            });
        }
    });
    compensated(servers[0], ID);
    assert_eq!((rail.charges(), rail.refunds()), (1, 1));
    if let Rail::Till(till) = rail {
        assert_eq!(till.heard("refund"), 1, "it was never asked for twice");
    }
    assert_eq!(receipts(servers[0], ID).len(), 2);
}

#[test]
fn at_074_a_crowd_that_wants_its_money_back_gets_it_once() {
    for rail in Rail::each() {
        let shop = Shop::at(&rail);
        let server = shop.start();
        assert_one_refund(&[&server], &rail);
    }
}

/// Whichever call of the rail misbehaves, once or for a while: there is one charge, and the receipt follows it.
#[test]
fn at_049_at_050_at_068_a_rail_that_misbehaves_is_asked_until_it_says_what_it_did() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let server = shop.start();
    let mut charged = 0;
    for verb in ["prepare", "confirm"] {
        for manner in [Manner::Mute, Manner::Garbage, Manner::Twice, Manner::Away] {
            let id = format!("int_{verb}_{manner:?}");
            authorize(&server, intent(&id));
            till.answer(verb, manner);
            // While the rail gives no clear answer, no outcome is reported.
            till.answer("lookup", Manner::Garbage);
            let told = execute(&server, &id, &key(&id)).expect("the server answers");
            let told = told.json();
            if manner != Manner::Twice {
                assert_eq!(told["state"], "executing", "{id}: {told}");
                assert!(receipts(&server, &id).is_empty());
            }
            till.be_plain();
            executed_until(&server, &id, "settled");
            charged += 1;
            let counted = (till.charges(), receipts(&server, &id).len());
            assert_eq!(counted, (charged, 1), "{id}: {:?}", till.payments());
        }
    }
}

/// Without a kill and without repeated requests: a waiting client gets a response in time, and the sweep queries the rail until
/// it responds.
#[test]
fn at_046_at_049_at_050_at_068_a_rail_that_never_answers_is_looked_up_until_it_speaks_again() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let options = shop.options().env("ATP_RAIL_TIMEOUT_SECONDS", "1.5");
    let server = start(&options.env("ATP_EXECUTE_WAIT_SECONDS", "0.5"));
    for (id, verb, times) in [("int_confirm", "confirm", 1), ("int_prepare", "prepare", 2)] {
        authorize(&server, intent(id));
        till.answer("lookup", Manner::Never);
        till.answer(verb, Manner::Never);
        let told = execute(&server, id, &key(id)).expect("the server answers");
        let state = told.json()["state"].clone();
        assert_eq!((told.status, state), (202, "executing".into()), "{id}");
        till.wait_until_heard(verb, times);
    }
    let looked = till.heard("lookup");
    till.wait_until_heard("lookup", looked + 3);
    for id in ["int_confirm", "int_prepare"] {
        assert_eq!(state(&server, id), "executing");
        assert!(receipts(&server, id).is_empty());
    }
    assert_eq!(till.charges(), 1, "one was paid without a word");
    till.be_plain();
    for id in ["int_confirm", "int_prepare"] {
        wait_until_settled(&server, id);
        assert_eq!(receipts(&server, id).len(), 1);
    }
    assert_eq!(till.charges(), 2);
    assert_eq!((till.heard("prepare"), till.heard("confirm")), (2, 2));
}

#[test]
fn at_046_a_rail_that_is_late_is_waited_for_and_settles_when_it_comes() {
    let till = Till::open(Keys::Honoured);
    let shop = Shop::at_till(&till);
    let server = shop.start();
    authorize(&server, intent(ID));
    till.answer("confirm", Manner::Late);
    let told = execute(&server, ID, &key(ID)).expect("the server answers");
    let state = told.json()["state"].clone();
    assert_eq!((told.status, state), (202, "executing".into()));
    assert_eq!(told.json()["receipt"], serde_json::Value::Null);
    assert_eq!((till.charges(), receipts(&server, ID).len()), (0, 0));
    till.be_plain();
    till.let_go();
    executed_until(&server, ID, "settled");
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
    assert_eq!(till.heard("prepare"), 1);
}
