//! Time jumps and changed clocks: an expired intent stays expired, and a transaction in progress is completed.
#![cfg(feature = "planted")]

use std::io;
use std::time::{Duration, Instant};

use consign_testkit::ledger::Backend;
use consign_testkit::process::{Reply, Server};
use consign_testkit::shim::Shim;

use super::transactions_till::{Keys, Manner, Till};
use super::transactions_world::{Shop, authorize, execute, executed_until, intent, key, receipts};
use super::{PATIENCE, start};

const DAY_S: i32 = 86_400;
/// Longer than the lifetime of an intent in these tests.
const OVER_S: i64 = 700;

fn under_shim(shop: &Shop) -> (Server, Shim) {
    let shim = Shim::build(shop.place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(shop.options(), "consign.db"));
    (server, shim)
}

#[test]
fn at_026_at_028_a_jump_over_the_end_refuses_to_begin_and_setting_clocks_back_revives_nothing() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let (server, shim) = under_shim(&shop);
    authorize(&server, intent("int_abc"));
    shim.let_pass(OVER_S).expect("the shim listens");
    for ahead_s in [0, -DAY_S, DAY_S] {
        shim.move_clock(ahead_s.into()).expect("the shim listens");
        let refused = asked_again(|| execute(&server, "int_abc", &key("int_abc")));
        let told = (refused.status, refused.json()["error"].clone());
        assert_eq!(told, (410, "intent_expired".into()), "{ahead_s}");
        let shown = asked_again(|| server.http().get("/api/atp/intents/int_abc"));
        assert_eq!(shown.json()["state"], "expired");
    }
    assert_eq!((till.heard(""), receipts(&server, "int_abc").len()), (0, 0));
}

/// A connection to the database that is being opened during the clock jump counts as unresponsive, and no other one is opened
/// for a second. The request is repeated after a 503.
fn asked_again(ask: impl Fn() -> io::Result<Reply>) -> Reply {
    let began = Instant::now();
    loop {
        let told = ask().expect("the server answers");
        if told.status != 503 || began.elapsed() > PATIENCE {
            return told;
        }
        assert_eq!(told.json()["error"], "store_unavailable");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The ledger uses the time of the database, by which nothing has expired. A server with a wrong clock does not process
/// transactions, and any other server does.
fn left_to_others(shop: &Shop, mut server: Server, till: &Till) {
    let began = Instant::now();
    while !server.stderr().contains("clock differs") {
        assert!(began.elapsed() < PATIENCE, "it does not notice");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Requests that were in progress have ended by then.
    std::thread::sleep(Duration::from_millis(500));
    till.be_plain();
    let asked = till.heard("");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(till.heard(""), asked, "nobody knows here what is due");
    server.terminate(PATIENCE).expect("it ends");
    // The node recorded facts with the time that it jumped to. Without the option, a ledger far ahead of the clock is refused.
    let server = start(&shop.options().arg("--clock-ahead"));
    for id in ["int_paid", "int_unheard"] {
        executed_until(&server, id, "settled");
    }
    assert_eq!(till.charges(), 2);
}

#[test]
fn at_067_what_is_executing_when_time_jumps_ends_as_the_rail_says() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let (server, shim) = under_shim(&shop);
    for (id, manner) in [("int_paid", Manner::Mute), ("int_unheard", Manner::Away)] {
        authorize(&server, intent(id));
        till.answer(
            if manner == Manner::Mute {
                "confirm"
            } else {
                "prepare"
            },
            manner,
        );
        till.answer("lookup", Manner::Away);
        let told = execute(&server, id, &key(id)).expect("the server answers");
        assert_eq!(told.json()["state"], "executing", "{}", told.text());
        till.answer("prepare", Manner::Plain);
        till.answer("confirm", Manner::Plain);
    }
    shim.let_pass(OVER_S).expect("the shim listens");
    for id in ["int_paid", "int_unheard"] {
        let shown = asked_again(|| server.http().get(&format!("/api/atp/intents/{id}")));
        assert_eq!(shown.json()["state"], "executing", "it does not expire");
    }
    if crate::backend() == Backend::Postgres {
        return left_to_others(&shop, server, &till);
    }
    till.be_plain();
    executed_until(&server, "int_paid", "settled");
    // The intent has expired, so no payment is started for it.
    let told = executed_until(&server, "int_unheard", "compensated");
    assert_eq!(told["compensation_receipt"]["outcome"], "not_charged");
    assert_eq!(till.charges(), 1);
}
