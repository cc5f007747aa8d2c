//! The clock by which a permission expires, and the removal of permissions without consent.

use consign_kernel::ids::SECOND_US;
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::ReadCounts;
use consign_transactions::instant;
use serde_json::{Value, json};

use crate::world::{KEY, OTHER_KEY, World, agent, agent_key, body, name, response, sign};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;

/// The same intent of another agent.
fn of_agent(world: &World, id: &str, seed: u8) -> Value {
    let agent = Signer::from_seed(&[seed; 32]);
    let mut intent = world.intent(id);
    intent["agent_key"] = agent_key(&agent).into();
    sign(intent, &agent)
}

fn consent(id: &str) -> Value {
    sign(
        json!({"intent_id": id, "nonce": format!("nonce-of-{id}")}),
        &agent(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_a_permission_is_over_when_the_time_of_day_says_so_though_engine_time_stood_still() {
    let world = World::new().await;
    world.create(&world.signed("int_created")).await.unwrap();
    world.authorized("int_abc").await;
    world.set_day_ahead(700);
    let over = [
        world.execute("int_abc", KEY).await,
        world.authorize(&consent("int_created"), OTHER_KEY).await,
        world.cancel("int_created").await,
    ];
    for refused in &over {
        assert_eq!(name(refused), "intent_expired");
    }
    for id in ["int_abc", "int_created"] {
        assert_eq!(world.shown(id).await["state"], "expired");
    }
    // An expiry that a client has seen is final, even if the clock is set back.
    world.set_day_ahead(0);
    let refused = world.execute("int_abc", KEY).await;
    assert_eq!(name(&refused), "intent_expired");
    assert!(world.bank.payments().is_empty());
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_a_clock_that_was_behind_and_is_set_right_refuses_nobody() {
    let world = World::new().await;
    // Engine time continues from the clock's value at the start of the server.
    world.set_day_ahead(20 * 60);
    world.create(&world.signed("int_new")).await.unwrap();
    world
        .authorize(&consent("int_new"), OTHER_KEY)
        .await
        .unwrap();
    world.authorized("int_whole").await;
    for id in ["int_new", "int_whole"] {
        let done = body(&world.execute(id, KEY).await.unwrap());
        assert_eq!(done["state"], "settled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_engine_time_that_is_ahead_ends_nothing_early_and_dates_no_receipt() {
    let world = World::new().await;
    world.set_day_ahead(-HOUR_S);
    world.create(&world.signed("int_new")).await.unwrap();
    world.engine.sweep().await.unwrap();
    world
        .authorize(&consent("int_new"), OTHER_KEY)
        .await
        .unwrap();
    world.engine.sweep().await.unwrap();
    assert_eq!(world.shown("int_new").await["state"], "authorized");
    let done = body(&world.execute("int_new", KEY).await.unwrap());
    let receipt = &done["receipt"];
    let moments = [
        &receipt["issued_at"],
        &receipt["intent"]["authorized_at"],
        &receipt["transaction"]["started_at"],
        &receipt["transaction"]["settled_at"],
        &receipt["steps"][0]["ended_at"],
    ];
    for moment in moments {
        let at = instant::parse(moment.as_str().unwrap()).unwrap();
        let apart_us = world.now().0.abs_diff(at.0);
        assert!(apart_us < 60 * SECOND_US.unsigned_abs(), "{moment}");
    }
    let refused = world.compensate("int_new", OTHER_KEY).await;
    assert!(refused.is_ok(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_what_the_ledger_has_ended_stays_ended_when_clocks_are_set_back() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.pass(700);
    world.engine.sweep().await.unwrap();
    // The clock is set back before any client has seen the expiry: only the ledger records it then.
    for ahead_s in [-DAY_S, 0, DAY_S, -DAY_S] {
        world.set_day_ahead(ahead_s);
        assert_eq!(
            world.shown("int_abc").await["state"],
            "expired",
            "{ahead_s}"
        );
        let refused = world.execute("int_abc", KEY).await;
        assert_eq!(name(&refused), "intent_expired", "{ahead_s}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_what_nobody_authorized_is_gone_an_hour_after_its_end_and_what_somebody_did_stays() {
    let world = World::new().await;
    world.create(&world.signed("int_left")).await.unwrap();
    world.create(&world.signed("int_cancelled")).await.unwrap();
    world.cancel("int_cancelled").await.unwrap();
    world.authorized("int_used").await;
    world.execute("int_used", KEY).await.unwrap();
    world.authorized("int_unused").await;
    world.pass(600);
    world.engine.sweep().await.unwrap();
    for id in ["int_left", "int_cancelled", "int_unused"] {
        assert_eq!(world.shown(id).await["state"], "expired");
    }
    world.pass(HOUR_S - 10);
    world.engine.sweep().await.unwrap();
    assert_eq!(world.shown("int_left").await["state"], "expired");
    world.pass(20);
    world.engine.sweep().await.unwrap();
    for id in ["int_left", "int_cancelled"] {
        assert_eq!(name(&world.site.intent(id).await), "intent_not_found");
    }
    world.pass(30 * DAY_S);
    world.engine.sweep().await.unwrap();
    assert_eq!(world.shown("int_unused").await["state"], "expired");
    assert_eq!(world.shown("int_used").await["state"], "settled");
    let again = world.execute("int_used", KEY).await.unwrap();
    assert!(again.replayed);
    // Its nonce is still consumed.
    let refused = world
        .authorize(&consent("int_used"), "yet-another-key-of-it")
        .await;
    assert_eq!(name(&refused), "nonce_consumed");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_intents_without_consent_are_bounded_for_each_key_and_in_all() {
    let world = World::with(|options| {
        options.open_per_key = 2;
        options.open_max = 3;
    })
    .await;
    let first = world.signed("int_1");
    for intent in [&first, &world.signed("int_2")] {
        world.create(intent).await.unwrap();
    }
    let full = world.create(&world.signed("int_3")).await.unwrap_err();
    assert_eq!((full.status(), full.name()), (429, "too_many_open"));
    assert!(full.retry_after_s().is_some());
    // A repetition does not count, and an intent that is authorized at once does not stay open.
    assert!(world.create(&first).await.is_ok());
    world.authorized("int_whole").await;
    world
        .create(&of_agent(&world, "int_4", 0x33))
        .await
        .unwrap();
    let full = world.create(&of_agent(&world, "int_5", 0x44)).await;
    let full = full.unwrap_err();
    assert_eq!((full.status(), full.name()), (503, "too_many_open"));
    assert!(full.retry_after_s().is_some());
    // Consent frees a slot; a withdrawal does not until the permission is removed.
    world.cancel("int_2").await.unwrap();
    assert!(world.create(&world.signed("int_3")).await.is_err());
    world.authorize(&consent("int_1"), OTHER_KEY).await.unwrap();
    world.create(&world.signed("int_3")).await.unwrap();
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_users_of_the_compatibility_profile_are_bounded_each_and_their_lists_forget_drafts() {
    let world = World::with(|options| options.open_per_key = 2).await;
    let draft = json!({"purpose": "a book", "scope": {"actions": ["pay"]}, "ttl_seconds": 30});
    let draft = draft.to_string();
    let (one, other) = (world.site.for_user("one"), world.site.for_user("other"));
    for _ in 0..2 {
        one.create(draft.as_bytes()).await.unwrap();
    }
    let full = response(one.create(draft.as_bytes()).await).unwrap_err();
    assert_eq!((full.status(), full.name()), (429, "too_many_open"));
    let kept = body(&other.create(draft.as_bytes()).await.unwrap());
    let kept = kept["data"]["id"].as_str().unwrap();
    other.create(draft.as_bytes()).await.unwrap();
    other.authorize(kept).await.unwrap();
    world.pass(HOUR_S + 31);
    world.engine.sweep().await.unwrap();
    world.engine.sweep().await.unwrap();
    let listed =
        |answer: &consign_transactions::site::compat::UserIntentList| body(answer)["data"].clone();
    assert_eq!(listed(&one.intents(None, None).await.unwrap()), json!([]));
    let others = listed(&other.intents(None, None).await.unwrap());
    assert_eq!(others.as_array().unwrap().len(), 1);
    one.create(draft.as_bytes()).await.unwrap();
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_precondition_is_judged_by_what_is_noted_and_not_by_a_walk() {
    let world = World::new().await;
    let several = |id: &str| {
        let mut intent = world.intent(id);
        intent["max_executions"] = 10.into();
        intent["max_spend_cents"] = 15_000.into();
        sign(intent, &agent())
    };
    let after = |id: &str| {
        let mut intent = world.intent(id);
        intent["preconditions"] = json!([{"intent_id": "int_first", "state": "settled"}]);
        sign(intent, &agent())
    };
    let key = |n: usize| format!("a-key-of-the-same-agent-{n}");
    world.authorize(&several("int_first"), KEY).await.unwrap();
    let mut done = Vec::new();
    for n in 0..3 {
        let executed = world.execute("int_first", &key(n)).await.unwrap();
        done.push(body(&executed)["transaction_id"].clone());
    }
    let store = &world.ledger.store;
    let noted = || async {
        let dump = store.dump().await.unwrap();
        let kind = consign_kernel::record::Kind::SettledUnder;
        let notes = dump.records.into_iter().filter(|one| one.key.kind == kind);
        notes.count()
    };
    assert_eq!(noted().await, 3);
    let counts = reads_for_precondition(&world, "int_first", None).await;
    assert_eq!(counts.transactions, 0, "{counts:?}");
    for (n, id) in done.iter().enumerate() {
        let asked = json!({"intent_id": "int_first", "transaction_id": id, "reason": "no"});
        let key = format!("a-key-for-undoing-it-{n}");
        let site = &world.site;
        site.compensate(Some(key.as_bytes()), asked.to_string().as_bytes())
            .await
            .unwrap();
    }
    assert_eq!(noted().await, 0);
    // Another execution may still settle.
    let counts = reads_for_precondition(&world, "int_first", Some(425)).await;
    assert_eq!(counts.transactions, 0, "{counts:?}");
    world.execute("int_first", &key(9)).await.unwrap();
    world.authorize(&after("int_last"), KEY).await.unwrap();
    world.is_sound().await;
}

/// An intent with this many executions, each compensated if `undone` is set.
async fn executed_often(world: &World, id: &str, times: usize, undone: bool) {
    let mut intent = world.intent(id);
    intent["max_executions"] = 100.into();
    intent["max_spend_cents"] = 150_000.into();
    world.authorize(&sign(intent, &agent()), KEY).await.unwrap();
    for n in 0..times {
        let key = format!("execution-{n}-of-{id}-and-long-enough");
        let done = body(&world.execute(id, &key).await.unwrap());
        assert_eq!(done["state"], "settled");
        if undone {
            let undo =
                json!({"intent_id": id, "transaction_id": done["transaction_id"], "reason": "no"});
            let key = format!("undoing-{n}-of-{id}-and-long-enough");
            let undone = world
                .site
                .compensate(Some(key.as_bytes()), undo.to_string().as_bytes())
                .await;
            undone.unwrap();
        }
    }
}

/// The reads for an intent that depends on another: the minimum of several tries, because background loops read as well.
async fn reads_for_precondition(world: &World, on: &str, status: Option<u16>) -> ReadCounts {
    let mut least = None;
    for n in 0..5 {
        let answered = status.unwrap_or(200);
        let mut intent = world.intent(&format!("int_{n}_{answered}_after_{on}"));
        intent["preconditions"] = json!([{"intent_id": on, "state": "settled"}]);
        let intent = sign(intent, &agent());
        world.reads.take();
        let judged = world.authorize(&intent, KEY).await;
        let counts = world.reads.take();
        assert_eq!(judged.err().map(|problem| problem.status()), status);
        let smaller = |known: ReadCounts| {
            if known.calls < counts.calls {
                known
            } else {
                counts
            }
        };
        least = Some(least.map_or(counts, smaller));
    }
    least.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_precondition_costs_the_same_reads_however_many_executions_there_are() {
    let world = World::new().await;
    for (undone, status) in [(false, None), (true, Some(425))] {
        let [few, many] = [1, 25].map(|times| (format!("int_{times}_{undone}"), times));
        for (id, times) in [&few, &many] {
            executed_often(&world, id, *times, undone).await;
        }
        let few = reads_for_precondition(&world, &few.0, status).await;
        let many = reads_for_precondition(&world, &many.0, status).await;
        assert_eq!(few, many, "undone: {undone}");
        // No transaction is read, because its body may be large.
        assert_eq!(many.transactions, 0, "{many:?}");
        assert!(many.calls <= 10, "{many:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_an_intent_from_before_its_transactions_were_noted_still_counts() {
    let world = World::new().await;
    let mut intent = world.intent("int_first");
    intent["max_executions"] = 10.into();
    world.authorize(&sign(intent, &agent()), KEY).await.unwrap();
    world.execute("int_first", KEY).await.unwrap();
    forget_notes(&world).await;
    let mut intent = world.intent("int_second");
    intent["preconditions"] = json!([{"intent_id": "int_first", "state": "settled"}]);
    world.authorize(&sign(intent, &agent()), KEY).await.unwrap();
}

/// Restores the records to the form that earlier versions wrote.
async fn forget_notes(world: &World) {
    use consign_kernel::command::Command;
    use consign_kernel::record::{Kind, Put};
    let dump = world.ledger.store.dump().await.unwrap();
    for record in dump.records {
        let step = if record.key.kind == Kind::SettledUnder {
            Command::Delete(record.key)
        } else if record.key.kind == Kind::Permission {
            let mut value: Value = serde_json::from_str(&record.value).unwrap();
            value.as_object_mut().unwrap().remove("undone").unwrap();
            Command::Put(Put {
                key: record.key,
                value: value.to_string(),
                expires_at: None,
                expect: None,
            })
        } else {
            continue;
        };
        world.engine.apply(None, step).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_only_currencies_that_payments_are_made_in_are_taken() {
    let world = World::new().await;
    for currency in ["XXX", "ZZZ", "XTS", "XAU", "DEM", "eur", "jpy"] {
        let mut intent = world.intent("int_abc");
        intent["currency"] = currency.into();
        let intent = sign(intent, &agent());
        for refused in [
            world.create(&intent).await,
            world.authorize(&intent, KEY).await,
        ] {
            assert_eq!(name(&refused), "invalid_request", "{currency}");
        }
        let draft = json!({
            "purpose": "a book", "scope": {"actions": ["pay"]}, "currency": currency,
        });
        let user = world.site.for_user("one");
        let refused = user.create(draft.to_string().as_bytes()).await;
        assert_eq!(name(&refused), "invalid_request", "{currency}");
    }
    for currency in ["JPY", "KWD", "USD", "ISK"] {
        let mut intent = world.intent(&format!("int_{currency}"));
        intent["currency"] = currency.into();
        world.create(&sign(intent, &agent())).await.unwrap();
    }
}
