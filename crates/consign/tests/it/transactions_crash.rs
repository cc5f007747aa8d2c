//! A server that crashes at the worst moments of a transaction and restarts. The records of the rail decide: one charge, one
//! receipt, and a settled transaction. Only a binary with failpoints can exit at such a point.
#![cfg(feature = "planted")]

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use consign_testkit::process::Server;
use serde_json::{Value, json};

use super::transactions_till::{Keys, Manner, Payment, Till};
use super::transactions_world::{
    Rail, Shop, ask, authorize, compensate, compensated, execute, executed_until, intent, key,
    receipts, signed, state, wait_until_settled,
};
use super::{PATIENCE, start};

const FAILPOINT: &str = "CONSIGN_FAILPOINT";
const ID: &str = "int_abc";

/// Crashes a server at a failpoint of its first execution. Returns the number of charges until then.
fn die_executing(shop: &Shop, rail: &Rail, failpoint: &str) -> usize {
    let mut server = start(&shop.options().env(FAILPOINT, &format!("{failpoint}:1")));
    authorize(&server, intent(ID));
    let lost = execute(&server, ID, &key(ID));
    assert!(lost.is_err(), "answered by the dead: {lost:?}");
    assert_aborted(&mut server);
    rail.charges()
}

fn assert_aborted(server: &mut Server) {
    let ended = server.wait(PATIENCE).expect("it dies");
    assert!(ended.signal().is_some(), "{ended:?}");
}

/// The agent repeats its request with the same key, and the records of the rail are checked.
fn assert_paid_once(server: &Server, rail: &Rail, id: &str) -> Value {
    let told = executed_until(server, id, "settled");
    assert_eq!(rail.charges(), 1);
    assert_eq!(receipts(server, id), [told["receipt"].clone()]);
    told
}

/// Crashes at this failpoint with each rail, and the restarted server recovers.
fn dies_and_recovers(failpoint: &str, charged_before: usize) {
    for rail in Rail::each() {
        let shop = Shop::at(&rail);
        assert_eq!(die_executing(&shop, &rail, failpoint), charged_before);
        let server = shop.start();
        let told = assert_paid_once(&server, &rail, ID);
        let again = execute(&server, ID, &key(ID)).expect("the server answers");
        assert_eq!(again.json(), told, "and it stays so");
        if let Rail::Till(till) = &rail {
            assert_eq!(till.payments(), [Payment::Paid], "nothing else lies about");
        }
    }
}

#[test]
fn at_059_a_crash_before_the_commit_leaves_nothing_and_the_retry_pays_once() {
    for rail in Rail::each() {
        let shop = Shop::at(&rail);
        assert_eq!(die_executing(&shop, &rail, "before-execution"), 0);
        if let Rail::Till(till) = &rail {
            assert_eq!(till.heard(""), 0, "the rail hears of what is committed");
        }
        let server = shop.start();
        assert_eq!(state(&server, ID), "authorized");
        assert_paid_once(&server, &rail, ID);
    }
}

#[test]
fn at_060_a_crash_before_the_rail_is_called_pays_once() {
    dies_and_recovers("before-rail", 0);
}

#[test]
fn at_061_a_crash_before_the_payment_s_id_is_kept_pays_once() {
    dies_and_recovers("after-prepare", 0);
}

#[test]
fn at_062_a_crash_after_the_charge_pays_once() {
    dies_and_recovers("after-charge", 1);
}

#[test]
fn at_063_a_crash_before_the_answer_gives_the_stored_receipt_to_the_retry() {
    dies_and_recovers("before-answer", 1);
}

/// One transaction in each state when the server is killed, and a rail that reports nothing new afterwards.
#[test]
fn at_065_after_a_kill_nothing_is_in_an_earlier_state_than_before() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let mut server = shop.start();
    let ids = ["int_new", "int_open", "int_paying", "int_paid", "int_back"];
    for id in ids {
        authorize(&server, intent(id));
    }
    executed_until(&server, "int_paid", "settled");
    executed_until(&server, "int_back", "settled");
    compensated(&server, "int_back");
    till.answer("confirm", Manner::Processing);
    executed_until(&server, "int_paying", "executed");
    till.answer("prepare", Manner::Away);
    till.answer("lookup", Manner::Away);
    executed_until(&server, "int_open", "executing");
    let states = |server: &Server| ids.map(|id| state(server, id));
    let before = states(&server);
    let words = [
        "authorized",
        "executing",
        "executed",
        "settled",
        "compensated",
    ];
    assert_eq!(before, words.map(Value::from));
    server.signal("KILL").expect("it can be killed");
    server.wait(PATIENCE).expect("it is dead");
    let looked = till.heard("lookup");
    let server = shop.start();
    // The restarted server has queried the rail for both open transactions and learned nothing.
    till.wait_until_heard("lookup", looked + 4);
    assert_eq!(states(&server), before);
}

/// Without another request: the restarted server finds the transaction by itself.
#[test]
fn at_066_a_start_looks_at_what_the_last_one_left() {
    for failpoint in ["before-rail", "after-charge"] {
        let rail = Rail::Till(Till::open(Keys::Ignored));
        let shop = Shop::at(&rail);
        die_executing(&shop, &rail, failpoint);
        let server = shop.start();
        wait_until_settled(&server, ID);
        assert_eq!((rail.charges(), receipts(&server, ID).len()), (1, 1));
    }
}

/// Kills the server during a request to the rail, before and after the rail has executed it.
fn is_killed_during_calls(keys: Keys) {
    for verb in ["prepare", "confirm"] {
        for manner in [Manner::Late, Manner::Never] {
            let till = Till::open(keys);
            let shop = Shop::at_till(&till);
            let mut server = shop.start();
            authorize(&server, intent(ID));
            till.answer(verb, manner);
            let told = std::thread::scope(|scope| {
                let asked = scope.spawn(|| execute(&server, ID, &key(ID)));
                till.wait_until_heard(verb, 1);
                server.signal("KILL").expect("it can be killed");
                asked.join().expect("no panic")
            });
            assert!(told.is_err(), "{told:?}");
            server.wait(PATIENCE).expect("it is dead");
            till.be_plain();
            let server = shop.start();
            executed_until(&server, ID, "settled");
            // The client of the request is dead, and the rail executes it nevertheless.
            till.let_go();
            let counted = (till.charges(), receipts(&server, ID).len());
            assert_eq!(counted, (1, 1), "{verb}, {manner:?}: {:?}", till.payments());
        }
    }
}

#[test]
fn at_060_at_061_at_062_a_kill_during_any_call_of_a_rail_that_honours_keys_pays_once() {
    is_killed_during_calls(Keys::Honoured);
}

#[test]
fn at_060_at_061_at_062_a_kill_during_any_call_of_a_rail_that_ignores_keys_pays_once() {
    is_killed_during_calls(Keys::Ignored);
}

/// The rail executes the request of the killed server after the restarted server has repeated it.
#[test]
fn at_061_an_orphan_of_the_dead_is_called_off_when_the_payment_is_settled() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let mut server = shop.start();
    authorize(&server, intent(ID));
    till.answer("prepare", Manner::Late);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| execute(&server, ID, &key(ID)));
        till.wait_until_heard("prepare", 1);
        server.signal("KILL").expect("it can be killed");
        assert!(asked.join().expect("no panic").is_err());
    });
    server.wait(PATIENCE).expect("it is dead");
    till.be_plain();
    till.answer("confirm", Manner::Processing);
    let server = shop.start();
    executed_until(&server, ID, "executed");
    till.let_go();
    assert_eq!(till.payments(), [Payment::Processing, Payment::Prepared]);
    till.take_the_money();
    executed_until(&server, ID, "settled");
    let began = Instant::now();
    while till.payments() != [Payment::Paid, Payment::Cancelled] {
        let payments = till.payments();
        assert!(
            began.elapsed() < 2 * PATIENCE,
            "it lies about: {payments:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
}

#[test]
fn at_064_a_crash_after_the_refund_pays_back_once() {
    for rail in Rail::each() {
        let shop = Shop::at(&rail);
        let mut server = start(&shop.options().env(FAILPOINT, "after-refund:1"));
        authorize(&server, intent(ID));
        let receipt = executed_until(&server, ID, "settled")["receipt"].clone();
        let lost = compensate(&server, ID);
        assert!(lost.is_err(), "answered by the dead: {lost:?}");
        assert_aborted(&mut server);
        assert_eq!(rail.refunds(), 1);
        let server = shop.start();
        let told = compensated(&server, ID);
        assert_eq!((rail.charges(), rail.refunds()), (1, 1));
        let both = [receipt, told["compensation_receipt"].clone()];
        assert_eq!(receipts(&server, ID), both);
    }
}

#[test]
fn at_064_a_kill_during_the_refund_pays_back_once() {
    for (keys, manner) in [
        (Keys::Honoured, Manner::Never),
        (Keys::Ignored, Manner::Never),
        (Keys::Ignored, Manner::Late),
    ] {
        let till = Till::open(keys);
        let shop = Shop::at_till(&till);
        let mut server = shop.start();
        authorize(&server, intent(ID));
        executed_until(&server, ID, "settled");
        till.answer("refund", manner);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| compensate(&server, ID));
            till.wait_until_heard("refund", 1);
            server.signal("KILL").expect("it can be killed");
            assert!(asked.join().expect("no panic").is_err());
        });
        server.wait(PATIENCE).expect("it is dead");
        till.be_plain();
        let server = shop.start();
        compensated(&server, ID);
        till.let_go();
        assert_eq!((till.charges(), till.refunds()), (1, 1));
        assert_eq!(receipts(&server, ID).len(), 2);
        assert_eq!(till.payments(), [Payment::Paid]);
    }
}

/// A request and its first response.
struct Answered {
    verb: &'static str,
    body: Value,
    first: (u16, String),
}

impl Answered {
    fn ask(server: &Server, verb: &'static str, body: Value) -> Self {
        let first = answer(server, verb, &body);
        Self { verb, body, first }
    }

    fn assert_same(&self, server: &Server) {
        let again = answer(server, self.verb, &self.body);
        assert_eq!(again, self.first, "{}", self.verb);
    }
}

fn answer(server: &Server, verb: &str, body: &Value) -> (u16, String) {
    let mut http = server.http();
    let reply = ask(&mut http, verb, "the-one-key-of-these-tests", body);
    let reply = reply.expect("the server answers");
    (reply.status, reply.text())
}

#[test]
fn at_035_after_every_kill_and_every_stop_a_replay_is_what_was_answered_at_first() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let mut server = shop.start();
    let mut answered = Vec::new();
    for id in ["int_settled", "int_undone", "int_open"] {
        answered.push(Answered::ask(&server, "authorize", signed(intent(id))));
        if id == "int_open" {
            till.answer("confirm", Manner::Processing);
        }
        let executed = Answered::ask(&server, "execute", json!({"intent_id": id}));
        if id == "int_undone" {
            let body = json!({"intent_id": id, "reason": "changed my mind"});
            answered.push(Answered::ask(&server, "compensate", body));
        } else {
            answered.push(executed);
        }
    }
    let statuses: Vec<u16> = answered.iter().map(|one| one.first.0).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 202]);
    // Open transactions stay open, because the rail cannot be queried.
    till.answer("lookup", Manner::Away);
    for kill in [true, false, true] {
        if kill {
            server.kill9().expect("it can be killed");
        } else {
            assert!(server.terminate(PATIENCE).expect("it stops").success());
        }
        server = shop.start();
        for one in &answered {
            one.assert_same(&server);
        }
    }
    let heard = ["prepare", "confirm", "refund"].map(|verb| till.heard(verb));
    assert_eq!(heard, [3, 3, 1], "a replay asks the rail for nothing");
}

/// The position of a state in the life cycle.
fn rank(state: &Value) -> usize {
    const WAY: [&str; 7] = [
        "created",
        "authorized",
        "executing",
        "executed",
        "settled",
        "compensated",
        "expired",
    ];
    let found = WAY.iter().position(|word| state == *word);
    found.unwrap_or_else(|| panic!("{state} is no state"))
}

/// Updates these states and asserts that none is earlier than before.
fn look(server: &Server, before: &mut [(&'static str, Value)]) {
    for (id, known) in before {
        let now = state(server, id);
        assert!(rank(&now) >= rank(known), "{id}: {known} became {now}");
        *known = now;
    }
}

const ALL_CALLS: [&str; 5] = ["prepare", "confirm", "lookup", "cancel", "refund"];

/// One transaction in each state, and one that is being refunded.
fn one_in_each_state(server: &Server, till: &Till) -> Vec<(&'static str, Value)> {
    let about = |id: &str| json!({"intent_id": id, "reason": "changed my mind"});
    let execute = |id: &str| answer(server, "execute", &json!({"intent_id": id}));
    for id in ["int_created", "int_expired"] {
        assert_eq!(answer(server, "intents", &signed(intent(id))).0, 201);
    }
    answer(server, "cancel", &about("int_expired"));
    for id in [
        "int_authorized",
        "int_executing",
        "int_executed",
        "int_settled",
        "int_compensated",
        "int_refunded",
    ] {
        authorize(server, intent(id));
    }
    for id in ["int_settled", "int_compensated", "int_refunded"] {
        execute(id);
    }
    answer(server, "compensate", &about("int_compensated"));
    till.answer("confirm", Manner::Processing);
    execute("int_executed");
    for verb in ALL_CALLS {
        till.answer(verb, Manner::Away);
    }
    execute("int_executing");
    assert_eq!(answer(server, "compensate", &about("int_refunded")).0, 202);
    let expected = [
        ("int_created", "created"),
        ("int_authorized", "authorized"),
        ("int_executing", "executing"),
        ("int_executed", "executed"),
        ("int_settled", "settled"),
        ("int_refunded", "settled"),
        ("int_compensated", "compensated"),
        ("int_expired", "expired"),
    ];
    expected.map(|(id, state)| (id, state.into())).into()
}

#[test]
fn at_065_no_kill_sets_anything_back() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let mut server = shop.start();
    let mut states = one_in_each_state(&server, &till);
    let told = states.clone();
    look(&server, &mut states);
    assert_eq!(states, told);
    let documents = |server: &Server| {
        let ids = ["int_settled", "int_refunded", "int_compensated"];
        ids.map(|id| receipts(server, id))
    };
    let before = documents(&server);
    for _ in 0..2 {
        server.kill9().expect("it can be killed");
        let asked = till.heard("");
        server = shop.start();
        look(&server, &mut states);
        assert_eq!(
            states, told,
            "the rail is away, so nothing can have happened"
        );
        assert_eq!(documents(&server), before);
        // The sweep has also checked the open transactions.
        till.wait_until_heard("", asked + 2);
        look(&server, &mut states);
        assert_eq!(states, told);
    }
    till.be_plain();
    till.take_the_money();
    for _ in 0..4 {
        look(&server, &mut states);
        server.kill9().expect("it can be killed");
        server = shop.start();
        look(&server, &mut states);
    }
    for (id, end) in [
        ("int_executing", "settled"),
        ("int_executed", "settled"),
        ("int_refunded", "compensated"),
    ] {
        let began = Instant::now();
        while state(&server, id) != end {
            look(&server, &mut states);
            assert!(began.elapsed() < 2 * PATIENCE, "{id} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    look(&server, &mut states);
    assert_eq!((till.charges(), till.refunds()), (5, 2));
}

/// Kills at arbitrary moments, repeatedly over one ledger.
#[test]
fn at_059_at_060_at_062_at_063_kills_at_any_moment_pay_once_each() {
    const ROUNDS: u64 = 6;
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let mut ids = Vec::new();
    for round in 0..ROUNDS {
        let mut server = shop.start();
        let own: Vec<String> = (0..3).map(|n| format!("int_{round}_{n}")).collect();
        for id in &own {
            authorize(&server, intent(id));
        }
        std::thread::scope(|scope| {
            for id in &own {
                // The response may be lost.
                scope.spawn(|| execute(&server, id, &key(id)));
            }
            std::thread::sleep(Duration::from_millis(round * 37 % 23));
            server.signal("KILL").expect("it can be killed");
        });
        server.wait(PATIENCE).expect("it is dead");
        ids.extend(own);
    }
    let server = shop.start();
    for id in &ids {
        executed_until(&server, id, "settled");
        assert_eq!(receipts(&server, id).len(), 1);
    }
    assert_eq!(till.charges(), ids.len());
}
