//! Limits on the data that unauthenticated clients can store through agent transactions, the clock by which a permission ends,
//! and valid amounts.

use std::time::{Duration, Instant, SystemTime};

use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::json::canonical_value;
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::Backend;
use consign_testkit::process::{Options, Reply, Server};
use consign_testkit::shim::Shim;
use consign_transactions::instant;
use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place, get, main_client, published, start};

const SITE: &str = "https://shop.example";
const MINUTE_S: i64 = 60;

fn shop(options: Options) -> Options {
    options.env("ATP_SITE", SITE).env("ATP_RAIL", "null")
}

/// The real time, independent of the clock of a server under the shim.
fn now() -> Micros {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.expect("it is after 1970").as_micros();
    Micros(i64::try_from(since).expect("it is before the year 294000"))
}

/// An intent with a lifetime of ten minutes, signed by the agent with this seed.
fn intent(id: &str, seed: u8, more: &Value) -> Value {
    let agent = Signer::from_seed(&[seed; 32]);
    let now = now();
    let mut intent = json!({
        "type": "atp.intent.v1",
        "intent_id": id,
        "site": SITE,
        "agent_key": format!("ed25519:{}", BASE64.encode(&agent.public_key())),
        "purpose": "a book",
        "scope": {"actions": ["pay"]},
        "amount_cents": 1500,
        "max_spend_cents": 1500,
        "currency": "EUR",
        "nonce": format!("nonce-of-{id}"),
        "issued_at": instant::print(now),
        "expires_at": instant::print(now.plus(10 * MINUTE_S * SECOND_US)),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        intent[name] = value.clone();
    }
    signed(intent, &agent)
}

fn signed(mut document: Value, signer: &Signer) -> Value {
    let bytes = canonical_value(&document).expect("it has a canonical form");
    document["signature"] = BASE64.encode(&signer.sign_bytes(&bytes)).into();
    document
}

fn sent(server: &Server, route: &str, id: &str, body: &Value) -> Reply {
    let key = format!("{route}-of-{id}-and-long-enough");
    let mut http = server.http().header("Idempotency-Key", &key);
    let reply = http.post(&format!("/api/atp/{route}"), body);
    reply.expect("the server answers")
}

fn created(server: &Server, intent: &Value) -> Reply {
    let id = intent["intent_id"].as_str().expect("it has a name");
    sent(server, "intents", id, intent)
}

fn executed(server: &Server, id: &str) -> Reply {
    sent(server, "execute", id, &json!({"intent_id": id}))
}

fn shown(server: &Server, id: &str) -> Reply {
    let reply = server.http().get(&format!("/api/atp/intents/{id}"));
    reply.expect("the server answers")
}

fn told(reply: &Reply) -> (u16, String) {
    let body = reply.json();
    let word = body["error"].as_str().or(body["state"].as_str());
    (reply.status, word.unwrap_or_default().to_owned())
}

fn refusal(status: u16, name: &str) -> (u16, String) {
    (status, name.to_owned())
}

#[test]
fn s6_intents_without_consent_are_bounded_and_the_bound_survives_a_restart() {
    let place = Place::new();
    let options = shop(place.options())
        .env("ATP_OPEN_PER_KEY", "3")
        .env("ATP_OPEN_MAX", "5");
    let mut server = start(&options);
    let none = json!({});
    for n in 0..3 {
        let reply = created(&server, &intent(&format!("int_{n}"), 1, &none));
        assert_eq!(reply.status, 201, "{}", reply.text());
    }
    let full = created(&server, &intent("int_3", 1, &none));
    assert_eq!(told(&full), refusal(429, "too_many_open"));
    assert!(full.header("retry-after").is_some());
    server.terminate(PATIENCE).expect("it ends");
    let server = start(&options);
    let full = created(&server, &intent("int_3", 1, &none));
    assert_eq!(told(&full), refusal(429, "too_many_open"));
    for (id, seed) in [("int_4", 2), ("int_5", 3)] {
        assert_eq!(created(&server, &intent(id, seed, &none)).status, 201);
    }
    let full = created(&server, &intent("int_6", 4, &none));
    assert_eq!(told(&full), refusal(503, "too_many_open"));
    assert!(full.header("retry-after").is_some());
    // An intent that is authorized at once does not stay open.
    let whole = sent(&server, "authorize", "int_6", &intent("int_6", 4, &none));
    assert_eq!(whole.status, 200, "{}", whole.text());
}

#[test]
fn s6_an_address_has_an_allowance_in_bytes() {
    let place = Place::new();
    let options = shop(place.options()).env("ATP_WRITE_BYTES_PER_MINUTE", "100000");
    let server = start(&options);
    let long = json!({"metadata": {"note": "x".repeat(30_000)}});
    let mut statuses = Vec::new();
    for n in 0..5 {
        let reply = created(&server, &intent(&format!("int_{n}"), 1, &long));
        if reply.status == 429 {
            assert!(reply.header("retry-after").is_some());
        }
        statuses.push(reply.status);
    }
    assert_eq!(statuses, [201, 201, 201, 429, 429]);
    // The limit counts bytes and not requests: a short intent still fits, and reads are not limited.
    assert_eq!(
        created(&server, &intent("int_short", 1, &json!({}))).status,
        201
    );
    assert_eq!(shown(&server, "int_0").status, 200);
}

fn until_gone(server: &Server, id: &str) {
    let began = Instant::now();
    while shown(server, id).status != 404 {
        assert!(began.elapsed() < PATIENCE, "{id} is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// PostgreSQL uses the clock of the database, which the shim does not move. The tests of the site and the store cover it.
#[test]
fn s6_what_nobody_authorized_is_gone_an_hour_after_its_end() {
    if crate::backend() == Backend::Postgres {
        return;
    }
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(shop(place.options()), "consign.db"));
    let none = json!({});
    assert_eq!(created(&server, &intent("int_left", 1, &none)).status, 201);
    let kept = sent(
        &server,
        "authorize",
        "int_kept",
        &intent("int_kept", 1, &none),
    );
    assert_eq!(kept.status, 200, "{}", kept.text());
    shim.let_pass(11 * MINUTE_S).expect("the shim listens");
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(told(&shown(&server, "int_left")), refusal(200, "expired"));
    shim.let_pass(61 * MINUTE_S).expect("the shim listens");
    until_gone(&server, "int_left");
    assert_eq!(told(&shown(&server, "int_kept")), refusal(200, "expired"));
}

/// The shim does not move the clock of a database, so these tests run on SQLite only.
fn alone() -> Option<(Place, Shim)> {
    if crate::backend() == Backend::Postgres {
        return None;
    }
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    Some((place, shim))
}

#[test]
fn s7_a_clock_that_was_behind_at_the_start_and_is_set_right_refuses_nobody() {
    let Some((place, shim)) = alone() else { return };
    shim.move_clock(-20 * MINUTE_S).expect("the shim listens");
    let server = start(&shim.under(shop(place.options()), "consign.db"));
    shim.move_clock(0).expect("the shim listens");
    let none = json!({});
    let reply = created(&server, &intent("int_new", 1, &none));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let reply = sent(
        &server,
        "authorize",
        "int_abc",
        &intent("int_abc", 1, &none),
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(told(&executed(&server, "int_abc")), refusal(200, "settled"));
}

#[test]
fn s7_a_permission_cannot_be_used_after_its_end_though_the_machine_slept() {
    let Some((place, shim)) = alone() else { return };
    let server = start(&shim.under(shop(place.options()), "consign.db"));
    let none = json!({});
    for id in ["int_abc", "int_late"] {
        let reply = sent(&server, "authorize", id, &intent(id, 1, &none));
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(created(&server, &intent("int_new", 1, &none)).status, 201);
    // Only the wall clock advances while a machine is suspended.
    shim.move_clock(61 * MINUTE_S).expect("the shim listens");
    let over = refusal(410, "intent_expired");
    assert_eq!(told(&executed(&server, "int_abc")), over);
    assert_eq!(told(&shown(&server, "int_abc")), refusal(200, "expired"));
    let agent = Signer::from_seed(&[1; 32]);
    let consent = signed(
        json!({"intent_id": "int_new", "nonce": "nonce-of-int_new"}),
        &agent,
    );
    assert_eq!(told(&sent(&server, "authorize", "int_new", &consent)), over);
    // An intent that was reported as expired stays expired.
    shim.move_clock(0).expect("the shim listens");
    assert_eq!(told(&executed(&server, "int_abc")), over);
}

#[test]
fn s7_engine_time_that_is_ahead_ends_no_permission_early_and_dates_no_receipt() {
    let Some((place, shim)) = alone() else { return };
    shim.move_clock(20 * MINUTE_S).expect("the shim listens");
    let server = start(&shim.under(shop(place.options()), "consign.db"));
    shim.move_clock(0).expect("the shim listens");
    let none = json!({});
    assert_eq!(created(&server, &intent("int_abc", 1, &none)).status, 201);
    // Long enough for one tick of the timekeeper.
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(told(&shown(&server, "int_abc")), refusal(200, "created"));
    let agent = Signer::from_seed(&[1; 32]);
    let consent = signed(
        json!({"intent_id": "int_abc", "nonce": "nonce-of-int_abc"}),
        &agent,
    );
    let reply = sent(&server, "authorize", "int_abc", &consent);
    assert_eq!(told(&reply), refusal(200, "authorized"), "{}", reply.text());
    let done = executed(&server, "int_abc");
    assert_eq!(told(&done), refusal(200, "settled"));
    let issued_at = done.json()["receipt"]["issued_at"].clone();
    let issued_at = instant::parse(issued_at.as_str().expect("a time")).expect("a time");
    let apart_us = now().0.abs_diff(issued_at.0);
    assert!(apart_us < 60 * SECOND_US.unsigned_abs(), "{apart_us} µs");
}

/// Receipts and timelines of the Intent Protocol show the wall clock, although leases use engine time.
#[test]
fn s7_receipts_of_intents_show_the_wall_clock_when_engine_time_differs() {
    let Some((place, shim)) = alone() else { return };
    shim.move_clock(-20 * MINUTE_S).expect("the shim listens");
    let server = start(&shim.under(place.options(), "consign.db"));
    // Engine time starts 20 minutes behind and catches up by one percent.
    shim.move_clock(0).expect("the shim listens");
    let mut http = main_client(&server);
    let id = published(&mut http, "work");
    let claimed = http.post("/claim", &json!({})).expect("the server answers");
    let done = json!({"claim_token": claimed.json()["claim_token"], "result": 1});
    let settled = http.post(&format!("/fulfill/{id}"), &done);
    assert_eq!(settled.expect("the server answers").status, 200);
    let now_s = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("it is after 1970")
        .as_secs_f64();
    let near = |at: &Value, what: &str| {
        let seconds = at.as_f64().expect("a number");
        let unit = if seconds > 1e12 { 1e6 } else { 1.0 };
        let apart_s = (seconds / unit - now_s).abs();
        assert!(
            apart_s < 60.0,
            "{what} is {apart_s} s away from the wall clock"
        );
    };
    // The receipt is created while the clock is wrong again.
    shim.move_clock(-60 * MINUTE_S).expect("the shim listens");
    let receipt = get(&mut http, &format!("/intents/{id}/receipt")).json();
    near(&receipt["created_at"], "created_at");
    near(&receipt["settled_at"], "settled_at");
    let timeline = get(&mut http, &format!("/intents/{id}/timeline")).json();
    let facts = timeline["facts"].as_array().expect("a list");
    assert_eq!(facts.len(), 3, "{timeline}");
    for fact in facts {
        near(&fact["at"], "a fact");
    }
}

/// A restart continues the interval of the cleanup pass, so a server that restarts often still deletes expired rows.
#[test]
fn s18_a_restart_does_not_put_off_the_cleanup_pass() {
    let Some((place, shim)) = alone() else { return };
    let options = place.options().env("BUS_CLEANUP_INTERVAL_SECONDS", "86400");
    let mut server = start(&shim.under(options.clone(), "consign.db"));
    let mut http = main_client(&server);
    let id = published(&mut http, "work");
    let claimed = http.post("/claim", &json!({})).expect("the server answers");
    let done = json!({"claim_token": claimed.json()["claim_token"], "result": 1});
    let settled = http.post(&format!("/fulfill/{id}"), &done);
    assert_eq!(settled.expect("the server answers").status, 200);
    // Beyond the retention of seven days, with a restart every 23 hours and no request in between.
    for _ in 0..8 {
        server.terminate(PATIENCE).expect("it stops");
        shim.let_pass(23 * 60 * MINUTE_S).expect("the shim listens");
        server = start(&shim.under(options.clone(), "consign.db"));
    }
    // A pass waits a minute after a start. This is the first request, and it is answered before the next check of the loop.
    let status = |server: &Server| get(&mut main_client(server), &format!("/status/{id}")).status;
    assert_eq!(status(&server), 200);
    shim.let_pass(61).expect("the shim listens");
    let began = Instant::now();
    while status(&server) != 404 {
        assert!(
            began.elapsed() < PATIENCE,
            "the fulfilled intent is still there"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn s18_currencies_that_nobody_pays_in_are_refused() {
    let place = Place::new();
    let server = start(&shop(place.options()));
    for currency in ["XXX", "ZZZ", "XAU", "jpy", "Eur", "EURO"] {
        let intent = intent("int_abc", 1, &json!({"currency": currency}));
        for route in ["intents", "authorize"] {
            let reply = sent(&server, route, "int_abc", &intent);
            assert_eq!(told(&reply), refusal(400, "invalid_request"), "{currency}");
            assert_eq!(reply.json()["field"], "currency");
        }
    }
    for currency in ["JPY", "KRW", "KWD", "USD"] {
        let id = format!("int_{currency}");
        let intent = intent(&id, 1, &json!({"currency": currency}));
        assert_eq!(created(&server, &intent).status, 201, "{currency}");
    }
}
