//! The cost of many rows, long waits and slow clients; and the operator's lists.

use std::time::{Duration, Instant};

use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::bank::{Mood, Payment};
use crate::world::{KEY, OTHER_KEY, World, body, name, response};

async fn left_open(world: &World, id: &str) {
    world.authorized(id).await;
    world.bank.be(Mood::Away);
    let told = body(&world.execute(id, KEY).await.unwrap());
    assert_eq!(told["state"], "executing");
}

/// For how long the one transaction is released.
async fn pause_s(world: &World) -> i64 {
    let dump = world.ledger.store.dump().await.unwrap();
    let is_open = |row: &&_| {
        let row: &consign_kernel::intent::Intent = row;
        row.profile == ProfileId::AtpTransaction && row.state == State::Dispatched
    };
    let row = dump.intents.iter().find(is_open).unwrap();
    let let_go = dump.facts.iter().rfind(|fact| fact.intent == row.seq);
    (row.run_at.0 - let_go.unwrap().at.0) / 1_000_000
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_open_is_looked_at_less_and_less_often() {
    let world = World::new().await;
    left_open(&world, "int_abc").await;
    let mut pauses = vec![pause_s(&world).await];
    for _ in 0..17 {
        world.site.reconcile().await.unwrap();
        pauses.push(pause_s(&world).await);
    }
    assert_eq!(pauses[..10], [60; 10]);
    assert_eq!(pauses[10..13], [120, 240, 480]);
    assert_eq!(pauses[16..], [3_600, 3_600]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_open_transaction_is_listed_first() {
    let world = World::new().await;
    for id in ["int_a", "int_b", "int_c"] {
        left_open(&world, id).await;
    }
    world.bank.be(Mood::Well);
    for id in ["int_d", "int_e"] {
        world.authorized(id).await;
        world.execute(id, KEY).await.unwrap();
    }
    let listed = async |state, limit| -> Vec<Value> {
        let shown = world.site.transactions_shown(state, limit, None).await;
        let shown = body(&shown.unwrap());
        let transactions = shown["transactions"].as_array().unwrap().iter();
        transactions.map(|one| one["intent_id"].clone()).collect()
    };
    assert_eq!(
        listed(None, 50).await,
        ["int_a", "int_b", "int_c", "int_e", "int_d"]
    );
    assert_eq!(listed(Some("executing"), 2).await, ["int_a", "int_b"]);
    assert_eq!(listed(Some("settled"), 1).await, ["int_e"]);
    let swept = world.site.reconcile().await.unwrap();
    assert_eq!((swept.looked_at, swept.settled), (3, 3));
}

/// One row more than the ledger returns at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_on_a_page_is_listed_and_swept_as_well() {
    const MANY: u32 = 501;
    let world = World::new().await;
    let id = |n: u32| format!("int_{n}");
    for n in 0..MANY {
        world.authorized(&id(n)).await;
    }
    let page = body(&world.site.intents(200, 300, None).await.unwrap());
    assert_eq!(page["data"].as_array().unwrap().len(), 200);
    let rest = world.site.intents(200, 0, page["next"].as_u64()).await;
    let rest = body(&rest.unwrap());
    assert_eq!(rest["data"].as_array().unwrap().len(), 1);
    assert_eq!(rest["data"][0]["intent_id"], "int_0");
    world.bank.be(Mood::Away);
    for n in 0..MANY {
        world.execute(&id(n), KEY).await.unwrap();
    }
    world.bank.be(Mood::Well);
    let swept = world.site.reconcile().await.unwrap();
    assert_eq!((swept.looked_at, swept.settled), (MANY, MANY));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_finds_no_place_to_wait_is_answered_at_once() {
    let world = World::with(|options| {
        options.waiting_max = 0;
        options.execute_wait = Duration::from_secs(20);
    })
    .await;
    left_open(&world, "int_abc").await;
    let asked = Instant::now();
    let again = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!((again.status, again.replayed), (202, true));
    world.bank.be(Mood::Well);
    world.site.reconcile().await.unwrap();
    world.bank.be(Mood::Away);
    for _ in 0..2 {
        let undone = world.compensate("int_abc", OTHER_KEY).await.unwrap();
        assert_eq!(undone.status, 202);
    }
    assert!(asked.elapsed() < Duration::from_secs(15), "nobody waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finds_no_place_is_not_begun_and_what_was_begun_is_still_told() {
    let world = World::new().await;
    let full = world.other(|options| options.drivers_max = 0).await;
    let undo = json!({"intent_id": "int_abc", "reason": "user_cancelled"}).to_string();
    let undo = || full.compensate(Some(KEY.as_bytes()), undo.as_bytes());
    world.authorized("int_abc").await;
    let refused = world.execute_at(&full, "int_abc", KEY).await;
    assert_eq!(name(&refused), "rate_limited");
    assert_eq!(world.bank.calls(), 0);
    let begun = world.execute("int_abc", KEY).await.unwrap();
    let again = world.execute_at(&full, "int_abc", KEY).await.unwrap();
    assert_eq!((again.replayed, again.body), (true, begun.body));
    assert_eq!(name(&undo().await), "rate_limited");
    assert_eq!(world.bank.refunds(), 0);
    let undone = world.compensate("int_abc", KEY).await.unwrap();
    let again = response(undo().await).unwrap();
    assert_eq!((again.replayed, again.body), (true, undone.body));
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_101_the_log_tells_the_steps_of_the_protocol_and_no_others() {
    let world = World::new().await;
    world.authorized("int_used").await;
    world.authorized("int_unused").await;
    world.execute("int_used", KEY).await.unwrap();
    world.compensate("int_used", KEY).await.unwrap();
    world.pass(601);
    world.engine.sweep().await.unwrap();
    let told = body(&world.site.audit(0).await.unwrap());
    let moves = |id: &str| -> Vec<(Value, Value)> {
        let all = told["transitions"].as_array().unwrap().iter();
        let own = all.filter(|one| one["intent_id"] == id);
        own.map(|one| (one["from"].clone(), one["to"].clone()))
            .collect()
    };
    let step = |from: &str, to: &str| (json!(from), json!(to));
    let first = (json!(null), json!("created"));
    assert_eq!(
        moves("int_used"),
        [
            first.clone(),
            step("created", "authorized"),
            step("authorized", "executing"),
            step("executing", "executed"),
            step("executed", "settled"),
            step("settled", "compensated"),
        ]
    );
    assert_eq!(
        moves("int_unused"),
        [
            first,
            step("created", "authorized"),
            step("authorized", "expired"),
        ]
    );
}

/// The whole log, page by page.
async fn log(world: &World) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = body(&world.site.audit(after).await.unwrap());
        all.extend(page["transitions"].as_array().unwrap().iter().cloned());
        if page["more"] == false {
            return all;
        }
        after = page["next"].as_u64().unwrap();
    }
}

/// Paths through the protocol, each under an intent of its own.
async fn every_way(world: &World) {
    for id in ["created", "cancelled_early"] {
        world.create(&world.signed(id)).await.unwrap();
    }
    for id in [
        "authorized",
        "cancelled",
        "settled",
        "undone",
        "declined",
        "late",
        "voided",
        "failed",
        "lost",
    ] {
        world.authorized(id).await;
    }
    world.cancel("cancelled_early").await.unwrap();
    world.cancel("cancelled").await.unwrap();
    for (id, mood) in [
        ("settled", Mood::Well),
        ("undone", Mood::Well),
        ("declined", Mood::Declines),
        ("voided", Mood::Slow),
        ("late", Mood::Slow),
        ("lost", Mood::Mute),
    ] {
        world.bank.be(mood);
        world.execute(id, KEY).await.unwrap();
        if id == "voided" {
            world.compensate(id, KEY).await.unwrap();
        }
    }
    world.bank.be(Mood::Well);
    world.bank.end_all(Payment::Paid);
    world.bank.be(Mood::Slow);
    world.execute("failed", KEY).await.unwrap();
    world.bank.be(Mood::Well);
    world.bank.end_all(Payment::Failed);
    world.compensate("undone", KEY).await.unwrap();
    // Repeatedly: reading changes nothing.
    let genuine = [("x-bank".to_owned(), "genuine".to_owned())];
    for _ in 0..2 {
        world.pass(60);
        world.site.reconcile().await.unwrap();
        for id in [
            "settled", "undone", "declined", "late", "voided", "failed", "lost",
        ] {
            world.execute(id, KEY).await.unwrap();
        }
        let heard = world.site.callback("bank", &genuine, b"e1 pay_1");
        heard.await.unwrap();
    }
    world.pass(601);
    world.engine.sweep().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_101_the_log_tells_every_way_once_and_in_order() {
    let world = World::new().await;
    every_way(&world).await;
    let log = log(&world).await;
    let numbers: Vec<_> = log.iter().map(|one| one["seq"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    // Numbers order the log. Times are in order for each intent: two writers of a database take their times independently.
    let mut last = std::collections::HashMap::new();
    for one in &log {
        let at = one["at"].as_str().unwrap();
        let before = last.insert(&one["intent_id"], at);
        assert!(before.is_none_or(|before| before <= at), "{one}");
    }
    for (id, way) in [
        ("created", "created expired"),
        ("cancelled_early", "created expired"),
        ("authorized", "created authorized expired"),
        ("cancelled", "created authorized expired"),
        ("settled", "created authorized executing executed settled"),
        (
            "undone",
            "created authorized executing executed settled compensated",
        ),
        ("declined", "created authorized executing compensated"),
        ("late", "created authorized executing executed settled"),
        (
            "voided",
            "created authorized executing executed compensated",
        ),
        (
            "failed",
            "created authorized executing executed compensated",
        ),
        ("lost", "created authorized executing executed settled"),
    ] {
        let own = log.iter().filter(|one| one["intent_id"] == id);
        let mut at = Value::Null;
        let mut went = Vec::new();
        for one in own {
            assert_eq!(one["from"], at, "{id}");
            at = one["to"].clone();
            went.push(at.as_str().unwrap().to_owned());
        }
        assert_eq!(went.join(" "), way, "{id}");
        assert_eq!(world.shown(id).await["state"], at, "{id}");
    }
    world.is_sound().await;
}
