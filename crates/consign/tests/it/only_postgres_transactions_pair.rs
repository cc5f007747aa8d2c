//! Two servers on one database complete each other's transactions, and never process the same one at once.
#![cfg(feature = "planted")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{self, Server};
use serde_json::json;

use super::start;
use super::transactions_crowd::{assert_one_for_all, assert_one_of_many, assert_one_refund};
use super::transactions_till::{Keys, Manner, Payment, Till};
use super::transactions_world::{
    Rail, Shop, ask, authorize, execute, intent, key, state, wait_until_settled,
};

const ID: &str = "int_abc";

/// The second server has its own data directory with the secrets of the first.
fn nodes(shop: &Shop, variables: &[(&str, &str)]) -> [Server; 2] {
    let told = |options: process::Options| {
        let variables = variables.iter();
        variables.fold(options, |options, (name, value)| options.env(name, value))
    };
    let one = start(&told(shop.options()));
    let second = shop.place.path("second");
    process::copy_secrets(&shop.place.data(), &second).expect("there are secrets to copy");
    let two = start(&told(shop.node("two", shop.place.options_with(second))));
    [one, two]
}

#[test]
fn at_041_at_043_a_crowd_with_one_key_at_two_servers_pays_once() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let [one, two] = nodes(&shop, &[]);
    authorize(&one, intent(ID));
    assert_one_for_all(&[&one, &two], &till);
}

#[test]
fn at_042_a_crowd_with_as_many_keys_at_two_servers_pays_once() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let [one, two] = nodes(&shop, &[]);
    authorize(&two, intent(ID));
    assert_one_of_many(&[&one, &two], &till);
}

#[test]
fn at_074_a_crowd_at_two_servers_that_wants_its_money_back_gets_it_once() {
    let rail = Rail::Till(Till::open(Keys::Ignored));
    let shop = Shop::at(&rail);
    let [one, two] = nodes(&shop, &[]);
    assert_one_refund(&[&one, &two], &rail);
}

/// One server receives an execute request and the other a cancel request at the same moment. One of them is refused, and the
/// rail is consistent with that.
#[test]
fn at_076_at_077_what_is_cancelled_at_one_server_is_not_charged_by_the_other() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let [one, two] = nodes(&shop, &[]);
    let mut charged = 0;
    for number in 0..12 {
        let id = format!("int_{number}");
        authorize(&one, intent(&id));
        let barrier = Barrier::new(2);
        let (executed, cancelled) = thread::scope(|scope| {
            let executing = scope.spawn(|| {
                barrier.wait();
                execute(&one, &id, &key(&id)).expect("the server answers")
            });
            barrier.wait();
            let mut http = two.http();
            let body = json!({"intent_id": id});
            let cancelled = ask(&mut http, "cancel", &key(&id), &body);
            let executed = executing.join().expect("no panic");
            (
                executed.status,
                cancelled.expect("the server answers").status,
            )
        });
        match (executed, cancelled) {
            (200 | 202, 409) => {
                wait_until_settled(&two, &id);
                charged += 1;
            }
            (410, 200) => assert_eq!(state(&one, &id), "expired"),
            other => panic!("{id}: {other:?}"),
        }
        assert_eq!(till.charges(), charged, "{id}");
    }
}

/// A name is a label, and replicas may share it. The leases of a stopped server are identified by its data directory.
#[test]
fn at_061_a_server_that_starts_under_the_name_of_another_takes_nothing_from_it() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let one = start(&shop.options());
    authorize(&one, intent(ID));
    till.answer("prepare", Manner::Late);
    std::thread::scope(|scope| {
        scope.spawn(|| execute(&one, ID, &key(ID)));
        till.wait_until_heard("prepare", 1);
        let second = shop.place.path("second");
        process::copy_secrets(&shop.place.data(), &second).expect("there are secrets to copy");
        let two = start(&shop.node("one", shop.place.options_with(second)));
        // The second server sweeps every 0.2 seconds and queries the rail for every transaction that it has leased.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(till.heard(""), 1, "the second asks, too");
        till.be_plain();
        till.let_go();
        wait_until_settled(&two, ID);
    });
    assert_eq!(till.payments(), [Payment::Paid]);
    assert!(!one.stderr().contains("lost the lease"), "{}", one.stderr());
}

/// Only a test binary allows such a short lease.
mod taken_over {
    use super::super::PATIENCE;
    use super::super::transactions_world::{executed_until, receipts};
    use super::*;

    const SHORT_LEASE: (&str, &str) = ("CONSIGN_SITE_LEASE_MS", "1500");

    /// The first server is suspended while the rail prepares the payment. The second one completes the transaction. Then the
    /// first one receives a payment that it must not confirm.
    #[test]
    fn at_061_at_095_a_server_that_slept_through_its_lease_neither_pays_nor_settles() {
        let till = Till::open(Keys::Ignored);
        let shop = Shop::at_till(&till);
        let [one, two] = nodes(&shop, &[SHORT_LEASE]);
        authorize(&one, intent(ID));
        till.answer("prepare", Manner::Late);
        std::thread::scope(|scope| {
            scope.spawn(|| execute(&one, ID, &key(ID)));
            till.wait_until_heard("prepare", 1);
            one.signal("STOP").expect("it can be stopped");
            till.be_plain();
            wait_until_settled(&two, ID);
            let settled = executed_until(&two, ID, "settled");
            assert_eq!(till.charges(), 1);
            let confirmed = till.heard("confirm");

            till.let_go();
            one.signal("CONT").expect("it can go on");
            let began = Instant::now();
            while !one.stderr().contains("lost the lease") {
                assert_eq!(till.charges(), 1, "both have paid");
                assert!(began.elapsed() < 2 * PATIENCE, "it does not notice");
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(till.heard("confirm"), confirmed);
            assert_eq!(executed_until(&one, ID, "settled"), settled);
        });
        assert_eq!((till.charges(), receipts(&two, ID).len()), (1, 1));
        // The payment that it prepared and must not confirm is cancelled.
        assert_eq!(till.payments(), [Payment::Paid, Payment::Cancelled]);
    }

    #[test]
    fn at_062_at_095_what_a_killed_server_has_charged_is_settled_by_the_other() {
        let till = Till::open(Keys::Ignored);
        let shop = Shop::at_till(&till);
        let [mut one, two] = nodes(&shop, &[SHORT_LEASE]);
        authorize(&one, intent(ID));
        till.answer("confirm", Manner::Never);
        std::thread::scope(|scope| {
            scope.spawn(|| execute(&one, ID, &key(ID)));
            till.wait_until_heard("confirm", 1);
            one.signal("KILL").expect("it can be killed");
        });
        one.wait(PATIENCE).expect("it is dead");
        till.be_plain();
        wait_until_settled(&two, ID);
        assert_eq!((till.charges(), receipts(&two, ID).len()), (1, 1));
    }
}
