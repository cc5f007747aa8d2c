//! Permissions: created, authorized once, withdrawn, expired.

use consign_kernel::ids::SECOND_US;
use consign_kernel::receipt::Signer;
use consign_transactions::instant;
use consign_transactions::site::AgentKeys;
use consign_transactions::state::AtpState;
use serde_json::{Value, json};

use crate::bank::Mood;
use crate::world::{
    KEY, OTHER_KEY, SITE, World, agent, agent_key, body, key_id, name, response, sign,
};

#[tokio::test(flavor = "multi_thread")]
async fn at_001_a_signed_intent_is_created() {
    let world = World::new().await;
    let answer = world.create(&world.signed("int_abc")).await.unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(body(&answer)["state"], "created");
    assert_eq!(world.shown("int_abc").await["state"], "created");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_002_a_wrong_signature_leaves_nothing() {
    let world = World::new().await;
    let mut changed = world.signed("int_abc");
    changed["amount_cents"] = 1501.into();
    let refused = world.create(&changed).await;
    assert_eq!(name(&refused), "invalid_signature");
    let refused = world.authorize(&changed, KEY).await;
    assert_eq!(name(&refused), "invalid_signature");
    assert!(world.site.intent("int_abc").await.is_err());
    let dump = world.ledger.store.dump().await.unwrap();
    assert!(dump.intents.is_empty(), "no row and no nonce");
    assert_eq!(dump.records.len(), 1, "the site's key alone");
}

/// Every member that the protocol defines, an unknown one, and for each another valid value.
fn members(world: &World) -> Vec<(&'static str, Value, Value)> {
    let time = |seconds: i64| json!(instant::print(world.now().plus(seconds * SECOND_US)));
    let key = |seed: u8| json!(agent_key(&Signer::from_seed(&[seed; 32])));
    let after = |id: &str| json!([{"intent_id": id, "state": "settled"}]);
    let rail = |capture: &str| json!({"name": "bank", "capture": capture});
    vec![
        ("intent_id", json!("int_abc"), json!("int_abd")),
        ("site", json!(SITE), json!("https://other.example")),
        ("agent_id", json!("agent-7"), json!("agent-8")),
        ("agent_key", key(0x22), key(0x44)),
        ("principal_key", key(0x55), key(0x66)),
        ("user_id", json!("user-1"), json!("user-2")),
        ("purpose", json!("a book"), json!("two books")),
        (
            "scope",
            json!({"actions": ["pay"], "domains": ["a.example"]}),
            json!({"actions": ["pay"], "domains": ["b.example"]}),
        ),
        ("amount_cents", json!(1500), json!(1501)),
        ("currency", json!("EUR"), json!("USD")),
        ("max_spend_cents", json!(3000), json!(0)),
        ("max_executions", json!(1), json!(2)),
        ("nonce", json!("n1"), json!("n2")),
        ("issued_at", time(0), time(-1)),
        ("expires_at", time(600), time(601)),
        ("action_dedup_key", json!("cart-1"), json!("cart-2")),
        ("preconditions", after("int_1"), after("int_2")),
        ("rail", rail("manual"), rail("automatic")),
        ("metadata", json!({"note": "x"}), json!({"note": "y"})),
        ("unheard_of", json!([1, 2]), json!([2, 1])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn at_003_no_signed_member_can_be_changed_added_or_taken_away() {
    let world = World::new().await;
    let members = members(&world);
    let mut whole = json!({"type": "atp.intent.v1"});
    for (member, value, _) in &members {
        whole[*member] = value.clone();
    }
    let genuine = sign(whole.clone(), &agent());
    let before = world.ledger.store.dump().await.unwrap();
    for (member, _, other) in &members {
        let mut changed = genuine.clone();
        changed[*member] = other.clone();
        let mut lacking = genuine.clone();
        lacking.as_object_mut().unwrap().remove(*member);
        for body in [changed, lacking] {
            for refused in [world.create(&body).await, world.authorize(&body, KEY).await] {
                // The signature of an intent without a required member is not verified.
                let name = name(&refused);
                let expected = name == "invalid_signature" || body.get(*member).is_none();
                assert!(expected, "{member}: {name}");
            }
        }
    }
    let mut added = genuine.clone();
    added["another"] = json!(null);
    assert_eq!(name(&world.create(&added).await), "invalid_signature");
    let mut other_type = genuine.clone();
    other_type["type"] = "atp.intent.v2".into();
    assert_eq!(name(&world.create(&other_type).await), "invalid_request");
    assert_eq!(world.ledger.store.dump().await.unwrap(), before);
    assert_eq!(world.create(&genuine).await.unwrap().status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_009_an_intent_for_another_site_is_refused() {
    let world = World::new().await;
    let mut intent = world.intent("int_abc");
    intent["site"] = "https://other.example".into();
    let refused = world.create(&sign(intent, &agent())).await;
    assert_eq!(name(&refused), "site_mismatch");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_010_an_intent_is_fresh_for_five_minutes_before_and_after_it_was_issued() {
    let world = World::new().await;
    let issued = |id: &str, seconds: i64| {
        let mut intent = world.intent(id);
        let at = world.now().plus(seconds * SECOND_US);
        intent["issued_at"] = instant::print(at).into();
        intent["expires_at"] = instant::print(at.plus(600 * SECOND_US)).into();
        sign(intent, &agent())
    };
    for seconds in [-301, 310, -500, 86_400] {
        let intent = issued("int_abc", seconds);
        for refused in [
            world.create(&intent).await,
            world.authorize(&intent, KEY).await,
        ] {
            let problem = refused.unwrap_err();
            let told = (problem.status(), problem.name());
            assert_eq!(told, (401, "timestamp_out_of_window"), "{seconds}");
        }
    }
    let dump = world.ledger.store.dump().await.unwrap();
    assert!(dump.intents.is_empty(), "nothing is stored");
    // The edges of the window: one side moves closer while this runs, so the other side keeps a margin.
    for seconds in [-270, 0, 300] {
        let id = format!("int_{seconds}");
        world.create(&issued(&id, seconds)).await.unwrap();
        let id = format!("int_at_once_{seconds}");
        world.authorize(&issued(&id, seconds), KEY).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_011_the_same_intent_again_is_the_same_and_another_one_conflicts() {
    let world = World::new().await;
    let intent = world.signed("int_abc");
    let first = world.create(&intent).await.unwrap();
    let again = world.create(&intent).await.unwrap();
    assert_eq!((again.status, &again.body), (200, &first.body));
    let mut other = world.intent("int_abc");
    other["amount_cents"] = 2.into();
    let refused = world.create(&sign(other, &agent())).await;
    assert_eq!(name(&refused), "intent_conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_012_at_013_at_014_at_015_keys_are_needed_and_opaque() {
    let world = World::new().await;
    let intent = world.signed("int_abc");
    let text = intent.to_string();
    let refused = world.site.authorize(None, text.as_bytes()).await;
    assert_eq!(name(&refused), "idempotency_key_required");
    let refused = world
        .site
        .execute(None, br#"{"intent_id":"int_abc"}"#)
        .await;
    assert_eq!(name(&refused), "idempotency_key_required");
    for length in [15, 129] {
        let refused = world.authorize(&intent, &"k".repeat(length)).await;
        assert_eq!(name(&refused), "idempotency_key_invalid");
    }
    world.authorize(&intent, &"k".repeat(16)).await.unwrap();
    let refused = world.authorize(&intent, &"K".repeat(16)).await;
    assert_eq!(name(&refused), "nonce_consumed", "another key");
    let longest = world.signed("int_long");
    world.authorize(&longest, &"k".repeat(128)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_016_at_017_authorizing_is_answered_the_same_to_the_same_key() {
    let world = World::new().await;
    world.create(&world.signed("int_abc")).await.unwrap();
    let short = json!({"intent_id": "int_abc", "nonce": "nonce-of-int_abc"});
    let short = sign(short, &agent());
    let first = world.authorize(&short, KEY).await.unwrap();
    assert_eq!(first.status, 200);
    let told = body(&first);
    assert_eq!(told["state"], "authorized");
    assert!(told["authorized_at"].is_string());
    world.pass(700);
    let again = world.authorize(&short, KEY).await.unwrap();
    assert!(again.replayed, "also after it is over");
    assert_eq!((again.status, again.body), (first.status, first.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_018_at_019_at_020_at_024_at_098_a_nonce_is_consumed_once() {
    let world = World::new().await;
    let intent = world.signed("int_abc");
    let first = body(&world.authorize(&intent, KEY).await.unwrap());
    for refused in [
        world.authorize(&intent, OTHER_KEY).await,
        world.authorize(&intent, OTHER_KEY).await,
        world.create(&intent).await,
    ] {
        let problem = refused.unwrap_err();
        assert_eq!((problem.status(), problem.name()), (409, "nonce_consumed"));
        let told = serde_json::to_value(&problem).unwrap();
        assert_eq!(told["first_consumed_at"], first["authorized_at"]);
    }
    let mut second = world.intent("int_second");
    second["nonce"] = "nonce-of-int_abc".into();
    let refused = world.authorize(&sign(second, &agent()), OTHER_KEY).await;
    assert_eq!(name(&refused), "nonce_consumed");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_021_another_signer_may_use_the_same_nonce() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let stranger = Signer::from_seed(&[0x44; 32]);
    let mut intent = world.intent("int_other");
    intent["nonce"] = "nonce-of-int_abc".into();
    intent["agent_key"] = agent_key(&stranger).into();
    let intent = sign(intent, &stranger);
    let answer = world.authorize(&intent, OTHER_KEY).await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_022_a_forged_authorization_burns_nothing() {
    let world = World::new().await;
    world.create(&world.signed("int_abc")).await.unwrap();
    let short = json!({"intent_id": "int_abc", "nonce": "nonce-of-int_abc"});
    let forged = sign(short.clone(), &Signer::from_seed(&[0x44; 32]));
    let refused = world.authorize(&forged, KEY).await;
    assert_eq!(name(&refused), "invalid_signature");
    let mismatch = json!({"intent_id": "int_abc", "nonce": "n2"});
    let refused = world.authorize(&sign(mismatch, &agent()), KEY).await;
    assert_eq!(name(&refused), "nonce_mismatch");
    world.authorize(&sign(short, &agent()), KEY).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_023_at_101_one_step_creates_and_authorizes_and_both_are_told() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let dump = world.ledger.store.dump().await.unwrap();
    let told: Vec<_> = dump.facts.iter().map(|fact| fact.to.name()).collect();
    assert_eq!(told, ["received", "validated"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_must_consent_itself() {
    let world = World::new().await;
    let principal = Signer::from_seed(&[0x55; 32]);
    let mut intent = world.intent("int_abc");
    intent["principal_key"] = agent_key(&principal).into();
    let intent = sign(intent, &agent());
    let refused = world.authorize(&intent, KEY).await;
    assert_eq!(name(&refused), "invalid_signature");
    world.create(&intent).await.unwrap();
    let short = json!({"intent_id": "int_abc", "nonce": "nonce-of-int_abc"});
    let refused = world.authorize(&sign(short.clone(), &agent()), KEY).await;
    assert_eq!(name(&refused), "invalid_signature");
    world
        .authorize(&sign(short, &principal), KEY)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_025_at_026_at_027_at_028_what_is_over_is_over() {
    let world = World::new().await;
    world.create(&world.signed("int_created")).await.unwrap();
    world.authorized("int_authorized").await;
    world.pass(600);
    for id in ["int_created", "int_authorized"] {
        let shown = world.shown(id).await;
        assert_eq!(shown["state"], "expired");
        assert_eq!(shown["expired_reason"], "expired");
        let refused = world.execute(id, KEY).await.unwrap_err();
        assert_eq!((refused.status(), refused.name()), (410, "intent_expired"));
        let receipts = body(&world.site.receipts_of(id).await.unwrap());
        assert_eq!(receipts["receipts"], json!([]));
    }
    assert_eq!(world.bank.calls(), 0);
    let short = json!({"intent_id": "int_created", "nonce": "nonce-of-int_created"});
    let refused = world.authorize(&sign(short, &agent()), KEY).await;
    assert_eq!(name(&refused), "intent_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_027_an_end_is_shown_when_its_time_has_come_though_nothing_was_written() {
    let world = World::new().await;
    world.create(&world.signed("int_created")).await.unwrap();
    world.authorized("int_authorized").await;
    let before = world.ledger.store.dump().await.unwrap();
    let listed = async || body(&world.site.intents(10, 0, None).await.unwrap())["data"].clone();
    for (seconds, states) in [
        (0, ["authorized", "created"]),
        (570, ["authorized", "created"]),
        (30, ["expired", "expired"]),
    ] {
        world.pass(seconds);
        let told = listed().await;
        assert_eq!([&told[0]["state"], &told[1]["state"]], states);
        for (id, state) in [("int_authorized", states[0]), ("int_created", states[1])] {
            let answer = response(world.site.intent(id).await).unwrap();
            let shown = body(&answer);
            assert_eq!(
                (&shown["state"], &shown["data"]["status"]),
                (&json!(state), &json!(state))
            );
            assert_eq!(answer.state.map(AtpState::word), Some(state));
            let is_over = shown["expired_reason"] == "expired";
            assert_eq!(is_over, state == "expired");
        }
    }
    assert_eq!(world.ledger.store.dump().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_076_what_is_cancelled_is_over_at_once() {
    let world = World::new().await;
    world.create(&world.signed("int_created")).await.unwrap();
    world.authorized("int_authorized").await;
    for id in ["int_created", "int_authorized"] {
        let answer = world.cancel(id).await.unwrap();
        assert_eq!(body(&answer)["expired_reason"], "cancelled");
        assert_eq!(world.cancel(id).await.unwrap().body, answer.body);
        let refused = world.execute(id, KEY).await.unwrap_err();
        assert_eq!(refused.status(), 410);
        assert_eq!(
            serde_json::to_value(&refused).unwrap()["reason"],
            "cancelled"
        );
    }
    assert_eq!(name(&world.cancel("int_none").await), "intent_not_found");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_registered_agents_are_let_in() {
    let world = World::with(|options| {
        options.agent_keys = AgentKeys::Registered([key_id(0x22)].into());
    })
    .await;
    world.authorized("int_abc").await;
    let stranger = Signer::from_seed(&[0x44; 32]);
    let mut intent = world.intent("int_other");
    intent["agent_key"] = agent_key(&stranger).into();
    let refused = world.create(&sign(intent, &stranger)).await;
    assert_eq!(name(&refused), "unknown_agent_key");

    // A key that is removed from the list cannot continue.
    let created = world.signed("int_created");
    world.create(&created).await.unwrap();
    let strict = world
        .other(|options| options.agent_keys = AgentKeys::Registered([key_id(0x44)].into()))
        .await;
    let short = json!({"intent_id": "int_created", "nonce": created["nonce"]});
    let short = sign(short, &agent()).to_string();
    let refused = strict.authorize(Some(KEY.as_bytes()), short.as_bytes());
    assert_eq!(name(&refused.await), "unknown_agent_key");
    let refused = world.execute_at(&strict, "int_abc", KEY).await;
    assert_eq!(name(&refused), "unknown_agent_key");
    assert_eq!(world.bank.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_087_at_088_at_089_at_090_preconditions_are_asked_when_authorizing() {
    let world = World::new().await;
    let after = |id: &str, first: &str| {
        let mut intent = world.intent(id);
        intent["preconditions"] = json!([{"intent_id": first, "state": "settled"}]);
        sign(intent, &agent())
    };
    let waits = after("int_second", "int_first");
    let refused = world.authorize(&waits, KEY).await.unwrap_err();
    assert_eq!(
        (refused.status(), refused.name()),
        (412, "precondition_failed")
    );
    world.authorized("int_first").await;
    let refused = world.authorize(&waits, KEY).await.unwrap_err();
    assert_eq!(refused.status(), 425);
    assert_eq!(refused.retry_after_s(), Some(1));
    world.execute("int_first", KEY).await.unwrap();
    world.authorize(&waits, KEY).await.unwrap();
    // A later change of the first intent has no effect.
    world.compensate("int_first", OTHER_KEY).await.unwrap();
    let done = world.execute("int_second", KEY).await.unwrap();
    assert_eq!(body(&done)["state"], "settled");
    let late = after("int_third", "int_first");
    let refused = world.authorize(&late, KEY).await.unwrap_err();
    assert_eq!(refused.status(), 412, "compensated for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_089_what_waits_for_something_that_can_never_settle_is_told_so() {
    let world = World::new().await;
    let short_lived = |id: &str| {
        let mut intent = world.intent(id);
        intent["expires_at"] = instant::print(world.now().plus(60 * SECOND_US)).into();
        sign(intent, &agent())
    };
    let after = |first: &str| {
        let mut intent = world.intent(&format!("after_{first}"));
        intent["preconditions"] = json!([{"intent_id": first, "state": "settled"}]);
        sign(intent, &agent())
    };
    world.create(&short_lived("int_created")).await.unwrap();
    world
        .authorize(&short_lived("int_authorized"), KEY)
        .await
        .unwrap();
    world.authorized("int_cancelled").await;
    world.authorized("int_declined").await;
    let waiting: Vec<_> = [
        "int_created",
        "int_authorized",
        "int_cancelled",
        "int_declined",
    ]
    .map(|first| (first, after(first)))
    .into();
    for (first, intent) in &waiting {
        let refused = world.authorize(intent, KEY).await.unwrap_err();
        assert_eq!(refused.status(), 425, "{first} may come yet");
    }
    world.pass(61);
    world.cancel("int_cancelled").await.unwrap();
    world.bank.be(Mood::Declines);
    world.execute("int_declined", KEY).await.unwrap();
    for (first, intent) in &waiting {
        let refused = world.authorize(intent, KEY).await.unwrap_err();
        let told = (refused.status(), refused.name());
        assert_eq!(told, (412, "precondition_failed"), "{first}");
        let told = serde_json::to_value(&refused).unwrap().to_string();
        let state = if *first == "int_declined" {
            "compensated"
        } else {
            "expired"
        };
        assert!(told.contains(first) && told.contains(state), "{told}");
        // The nonce is still unused.
        world.create(intent).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_091_at_092_at_093_the_same_action_is_taken_once_within_the_window() {
    let twice = |world: &World, id: &str| {
        let mut intent = world.intent(id);
        intent["action_dedup_key"] = "cart-1".into();
        sign(intent, &agent())
    };
    let world = World::with(|options| options.dedup_window_s = 60).await;
    world.authorize(&twice(&world, "int_1"), KEY).await.unwrap();
    let second = twice(&world, "int_2");
    for refused in [
        world.authorize(&second, KEY).await,
        world.create(&second).await,
    ] {
        assert_eq!(name(&refused), "duplicate_action");
    }
    world.cancel("int_1").await.unwrap();
    world.authorize(&second, KEY).await.unwrap();
    let third = twice(&world, "int_3");
    let refused = world.authorize(&third, KEY).await;
    assert_eq!(name(&refused), "duplicate_action");
    world.pass(61);
    world.authorize(&third, KEY).await.unwrap();

    let world = World::new().await;
    world.authorize(&twice(&world, "int_1"), KEY).await.unwrap();
    world.authorize(&twice(&world, "int_2"), KEY).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_093_an_action_is_free_again_when_its_time_is_over_or_it_came_to_nothing() {
    let world = World::with(|options| options.dedup_window_s = 86_400).await;
    let same = |id: &str| {
        let mut intent = world.intent(id);
        intent["action_dedup_key"] = "cart-1".into();
        sign(intent, &agent())
    };
    let is_taken = async |id: &str| {
        let refused = world.authorize(&same(id), KEY).await;
        assert_eq!(name(&refused), "duplicate_action", "{id}");
    };
    world.authorize(&same("int_expires"), KEY).await.unwrap();
    world.pass(590);
    is_taken("int_early").await;
    world.pass(10);
    // The deduplication key is freed by expiry, without a sweep.
    world.authorize(&same("int_settles"), KEY).await.unwrap();
    world.execute("int_settles", KEY).await.unwrap();
    world.pass(700);
    is_taken("int_settled").await;
    world.compensate("int_settles", KEY).await.unwrap();
    // The deduplication key is freed by compensation on request.
    world.authorize(&same("int_declined"), KEY).await.unwrap();
    is_taken("int_meanwhile").await;
    world.bank.be(Mood::Declines);
    world.execute("int_declined", KEY).await.unwrap();
    // The deduplication key is freed by compensation after a decline.
    world.authorize(&same("int_last"), KEY).await.unwrap();
    is_taken("int_too_late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_094_of_many_at_once_one_takes_the_action() {
    let world = World::with(|options| options.dedup_window_s = 60).await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..8 {
        let mut intent = world.intent(&format!("int_{n}"));
        intent["action_dedup_key"] = "cart-1".into();
        let body = sign(intent, &agent()).to_string();
        let site = world.site.clone();
        asked.spawn(async move { site.authorize(Some(KEY.as_bytes()), body.as_bytes()).await });
    }
    let answers = asked.join_all().await;
    let passed = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(passed, 1);
    let refused = answers.iter().filter(|answer| answer.is_err());
    assert!(
        refused
            .into_iter()
            .all(|one| name(one) == "duplicate_action")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn at_017_a_replay_tells_the_state_of_now() {
    let world = World::new().await;
    let short = sign(
        json!({"intent_id": "int_two", "nonce": "nonce-of-int_two"}),
        &agent(),
    );
    world.create(&world.signed("int_two")).await.unwrap();
    let first = world.authorize(&short, KEY).await.unwrap();
    world.execute("int_two", KEY).await.unwrap();
    let again = world.authorize(&short, KEY).await.unwrap();
    assert_eq!(again.body, first.body);
    assert_eq!(
        (first.state, again.state),
        (Some(AtpState::Authorized), Some(AtpState::Settled))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn at_093_what_settled_under_several_executions_keeps_its_action() {
    let several = |world: &World, id: &str| {
        let mut intent = world.intent(id);
        intent["action_dedup_key"] = "cart-1".into();
        intent["max_executions"] = 2.into();
        sign(intent, &agent())
    };
    let world = World::with(|options| options.dedup_window_s = 3_600).await;
    world
        .authorize(&several(&world, "int_abc"), KEY)
        .await
        .unwrap();
    world.execute("int_abc", KEY).await.unwrap();
    world.pass(601);
    let other = world.authorize(&several(&world, "int_other"), KEY).await;
    assert_eq!(
        name(&other),
        "duplicate_action",
        "it is settled, though its time is over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn at_040_at_098_a_fresh_key_is_told_the_same_before_and_after_the_time() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.execute("int_abc", KEY).await.unwrap();
    for seconds in [0, 601] {
        world.pass(seconds);
        let refused = world.execute("int_abc", OTHER_KEY).await;
        assert_eq!(name(&refused), "execution_limit_reached");
    }
}
