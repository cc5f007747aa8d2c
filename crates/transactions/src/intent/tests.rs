//! The rules of the fields one by one, starting from a valid intent.

use consign_kernel::receipt::Signer;
use data_encoding::BASE64;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::document::REQUEST_BYTES_MAX;

const AGENT_SEED: [u8; 32] = [0x22; 32];
const PRINCIPAL_SEED: [u8; 32] = [0x44; 32];

fn public(seed: &[u8; 32]) -> AtpPublicKey {
    AtpPublicKey::from(Signer::from_seed(seed).public().clone())
}

fn minimal() -> Value {
    json!({
        "type": "atp.intent.v1",
        "intent_id": "int_abc",
        "site": "https://shop.example",
        "agent_key": public(&AGENT_SEED).to_string(),
        "purpose": "Buy a book",
        "scope": {"actions": ["pay"]},
        "nonce": "n1",
        "issued_at": "2026-05-25T12:00:00.000Z",
        "expires_at": "2026-05-25T12:10:00.000Z",
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut intent = minimal();
    intent[path] = value;
    intent
}

fn document(value: &Value) -> AtpDocument {
    AtpDocument::read(value.to_string().as_bytes(), REQUEST_BYTES_MAX).unwrap()
}

fn signed(seed: &[u8; 32], mut value: Value) -> AtpDocument {
    let signature = Signer::from_seed(seed).sign_bytes(document(&value).signed_bytes());
    value["signature"] = BASE64.encode(&signature).into();
    document(&value)
}

fn read(value: &Value) -> Result<SignedIntent, Problem> {
    SignedIntent::read(document(value))
}

/// The member that the error names.
#[track_caller]
fn refused(value: &Value) -> String {
    let problem = read(value).unwrap_err();
    let Problem::InvalidRequest {
        field: Some(field), ..
    } = problem
    else {
        panic!("{problem:?}");
    };
    field
}

#[track_caller]
fn check(field: &str, good: &[Value], bad: &[Value]) {
    for value in good {
        assert!(
            read(&with(field, value.clone())).is_ok(),
            "{field}: {value}"
        );
    }
    for value in bad {
        let named = refused(&with(field, value.clone()));
        assert!(
            named.starts_with(field),
            "{named} instead of {field}: {value}"
        );
    }
}

fn text(chars: usize) -> Value {
    "é".repeat(chars).into()
}

#[test]
fn what_is_left_out_has_its_default() {
    let intent = read(&minimal()).unwrap();
    assert_eq!(intent.currency, Currency::EUR);
    assert_eq!(intent.max_executions, 1);
    assert_eq!(intent.spend_cap, SpendCap::new(Cents::ZERO));
    assert_eq!(intent.amount, None);
    assert_eq!(intent.scope.domains, None);
    assert_eq!(intent.capture(), Capture::Automatic);
    assert!(intent.preconditions.is_empty());
    assert_eq!(intent.dedup_subject(), public(&AGENT_SEED).to_string());
    assert_eq!(
        read(&with("user_id", json!("u"))).unwrap().dedup_subject(),
        format!("{} u", public(&AGENT_SEED)),
        "another agent with the same user name is another subject"
    );
}

#[test]
fn every_required_member_is_missed_by_name() {
    for name in minimal().as_object().unwrap().keys() {
        let mut intent = minimal();
        intent.as_object_mut().unwrap().remove(name);
        assert_eq!(refused(&intent), *name);
        assert_eq!(refused(&with(name, Value::Null)), *name);
    }
    assert_eq!(refused(&with("scope", json!({}))), "scope.actions");
}

#[test]
fn texts_keep_their_lengths() {
    check(
        "purpose",
        &[text(1), text(500)],
        &[text(0), text(501), json!(7)],
    );
    check(
        "nonce",
        &[text(1), text(128)],
        &[text(0), text(129), json!(["n1"])],
    );
    for name in ["agent_id", "user_id", "action_dedup_key"] {
        check(
            name,
            &[text(1), text(128), Value::Null],
            &[text(0), text(129), json!(1)],
        );
    }
    check("type", &[], &[json!("atp.intent.v2"), json!(1)]);
    check("site", &[], &[json!(""), json!(1)]);
}

#[test]
fn an_id_is_of_letters_digits_and_four_marks() {
    let longest = "x".repeat(128);
    check(
        "intent_id",
        &[json!("a.B_9:-"), json!(longest)],
        &[
            json!(""),
            json!(format!("{longest}x")),
            json!("a b"),
            json!("a/b"),
            json!("é"),
            json!("a\n"),
            json!(1),
        ],
    );
}

#[test]
fn keys_are_written_with_their_algorithm() {
    let key = public(&PRINCIPAL_SEED).to_string();
    let bare = key.strip_prefix("ed25519:").unwrap();
    for name in ["agent_key", "principal_key"] {
        check(
            name,
            &[json!(key)],
            &[json!(bare), json!("ed25519:AAAA"), json!(1), json!("")],
        );
    }
}

#[test]
fn at_008_the_scope_names_known_actions_and_at_least_one() {
    let all: Vec<_> = ScopeAction::ALL
        .iter()
        .map(|action| action.word())
        .collect();
    assert_eq!(serde_json::to_value(ScopeAction::ALL).unwrap(), json!(all));
    let scope = |actions: Value| json!({"actions": actions});
    check(
        "scope",
        &[scope(json!(all))],
        &[
            scope(json!([])),
            scope(json!(["cart.add"])),
            scope(json!(["pay", "PAY"])),
            scope(json!(["pay", "pay"])),
            scope(json!(["pay", 1])),
            scope(json!("pay")),
            json!([]),
        ],
    );
    let domains = |domains: Value| json!({"actions": ["pay"], "domains": domains});
    check(
        "scope",
        &[
            domains(json!([])),
            domains(json!(["shop.example", "*.a-b.example", "x".repeat(253)])),
            domains(json!(vec!["shop.example"; 64])),
        ],
        &[
            domains(json!(vec!["shop.example"; 65])),
            domains(json!("shop.example")),
            domains(json!([""])),
            domains(json!(["x".repeat(254)])),
            domains(json!(["https://shop.example"])),
            domains(json!(["a b"])),
            domains(json!([7])),
        ],
    );
    assert_eq!(
        refused(&with("scope", domains(json!([""])))),
        "scope.domains"
    );
}

#[test]
fn the_signed_amount_is_the_most_that_may_be_spent_unless_a_total_is_signed() {
    let max = Cents::MAX.get();
    let intent = |amount: Value, cap: Value, executions: u16| {
        let mut intent = with("amount_cents", amount);
        intent["max_spend_cents"] = cap;
        intent["max_executions"] = executions.into();
        read(&intent).unwrap()
    };
    let cents = |cents: u64| Cents::new(cents).unwrap();
    // amount, total, executions; committed, amount of the next; whether it is allowed
    for (amount, cap, executions, committed, next, allowed) in [
        (json!(1_500), json!(null), 3, 0, 1_500, true),
        (json!(1_500), json!(null), 3, 0, 0, true),
        (json!(1_500), json!(null), 3, 0, 1_501, false),
        (json!(1_500), json!(null), 3, 0, max, false),
        (json!(1_500), json!(null), 3, 3_000, 1_500, true),
        (json!(1_500), json!(null), 3, 3_001, 1_500, false),
        (json!(1_500), json!(0), 1, 0, 1_501, false),
        (json!(0), json!(null), 5, 0, 0, true),
        (json!(0), json!(null), 5, 0, 1, false),
        (json!(max), json!(null), 1_000, 0, max, true),
        (json!(max), json!(null), 1_000, 1, max, false),
        (json!(1_500), json!(3_000), 1, 0, 3_000, true),
        (json!(1_500), json!(3_000), 1, 0, 3_001, false),
        (json!(1_500), json!(3_000), 5, 1_501, 1_500, false),
        // A total that is not more than the amount for each execution does not raise the maximum of
        // one.
        (json!(1_500), json!(4_500), 3, 0, 1_501, false),
        (json!(1_500), json!(4_000), 3, 0, 1_501, false),
        (json!(1_500), json!(4_501), 3, 0, 4_501, true),
        (json!(1_500), json!(1_000), 1, 0, 1_500, false),
        (json!(null), json!(3_000), 2, 1_000, 2_000, true),
        (json!(null), json!(3_000), 2, 1_000, 2_001, false),
        (json!(null), json!(null), 1, 0, max, true),
        (json!(null), json!(null), 1, 1, max, false),
    ] {
        let what = format!("{amount} {cap} {executions} {committed} {next}");
        let intent = intent(amount, cap, executions);
        assert_eq!(
            intent.allows(cents(committed), cents(next)),
            allowed,
            "{what}"
        );
    }
    let told = |intent: SignedIntent| intent.spend_max().map(Cents::get);
    assert_eq!(told(intent(json!(1_500), json!(null), 3)), Some(4_500));
    assert_eq!(told(intent(json!(1_500), json!(2_000), 3)), Some(2_000));
    assert_eq!(told(intent(json!(max), json!(null), 2)), Some(max));
    for none in [json!(null), json!(0)] {
        let unbounded = intent(json!(null), none, 1);
        assert_eq!(told(unbounded.clone()), None);
        assert!(unbounded.check_bounded().is_err());
    }
    assert_eq!(intent(json!(0), json!(null), 1).check_bounded(), Ok(()));
}

#[test]
fn amounts_are_integers_that_are_exact_everywhere() {
    for name in ["amount_cents", "max_spend_cents", "spend_cap_cents"] {
        check(
            name,
            &[json!(0), json!(9_007_199_254_740_991_u64), json!(15.0)],
            &[json!(-1), json!(1.5), json!("15"), json!(1e16), json!(true)],
        );
    }
    let both = |cap: u64| {
        let mut intent = with("max_spend_cents", json!(3_000));
        intent["spend_cap_cents"] = json!(cap);
        intent
    };
    assert_eq!(read(&both(3_000)).unwrap().spend_cap.get().get(), 3_000);
    assert_eq!(refused(&both(3_001)), "spend_cap_cents");
    assert_eq!(
        read(&with("spend_cap_cents", json!(7)))
            .unwrap()
            .spend_cap
            .get()
            .get(),
        7
    );
    check(
        "currency",
        &[json!("USD")],
        &[json!("usd"), json!("EURO"), json!("")],
    );
    check(
        "max_executions",
        &[json!(1), json!(1_000)],
        &[json!(0), json!(1_001), json!("1"), json!(1.5)],
    );
}

#[test]
fn an_intent_lives_at_most_seven_days_after_it_was_issued() {
    check(
        "expires_at",
        &[
            json!("2026-05-25T12:00:00.001Z"),
            json!("2026-06-01T12:00:00Z"),
        ],
        &[
            json!("2026-05-25T12:00:00.000Z"),
            json!("2026-05-25T11:00:00Z"),
            json!("2026-06-01T12:00:00.001Z"),
            json!("tomorrow"),
            json!(1_779_710_400),
        ],
    );
    check(
        "issued_at",
        &[json!("2026-05-25T13:00:00+01:00")],
        &[json!("2026-05-25 12:00:00Z"), json!(0)],
    );
}

#[test]
fn preconditions_are_other_intents_that_must_be_settled() {
    let entry = |id: &str| json!({"intent_id": id, "state": "settled"});
    let many = |count: usize| {
        (0..count)
            .map(|n| entry(&format!("int_{n}")))
            .collect::<Value>()
    };
    check(
        "preconditions",
        &[json!([]), many(16)],
        &[
            many(17),
            json!([entry("int_x"), entry("int_x")]),
            json!([entry("int_abc")]),
            json!([{"intent_id": "int_x"}]),
            json!([{"intent_id": "int_x", "state": "executed"}]),
            json!([{"state": "settled"}]),
            json!(["int_x"]),
            json!({}),
        ],
    );
    let second = json!([entry("int_x"), {"intent_id": "a b", "state": "settled"}]);
    assert_eq!(
        refused(&with("preconditions", second)),
        "preconditions[1].intent_id"
    );
    assert_eq!(
        read(&with("preconditions", many(2))).unwrap().preconditions,
        ["int_0", "int_1"]
    );
}

#[test]
fn a_rail_has_a_name_and_captures_unless_told_otherwise() {
    check(
        "rail",
        &[
            json!({"name": "stripe"}),
            json!({"name": "null", "capture": "manual"}),
        ],
        &[
            json!({}),
            json!({"name": ""}),
            json!({"name": "stripe", "capture": "later"}),
            json!({"name": "stripe", "payment_method": 1}),
            json!("stripe"),
        ],
    );
    let manual = read(&with(
        "rail",
        json!({"name": "stripe", "capture": "manual"}),
    ))
    .unwrap();
    assert_eq!(manual.capture(), Capture::Manual);
    check(
        "metadata",
        &[json!({"any": ["thing"]})],
        &[json!([]), json!("x")],
    );
}

#[test]
fn at_004_order_and_white_space_do_not_affect_the_signature() {
    let document = signed(&AGENT_SEED, minimal());
    let mut sent: Value = serde_json::from_slice(document.sent()).unwrap();
    let signature = sent["signature"].take();
    let members = sent
        .as_object()
        .unwrap()
        .iter()
        .rev()
        .filter(|(_, value)| !value.is_null());
    let members: Vec<_> = members
        .map(|(name, value)| format!("\n\t{} : {value:#}", json!(name)))
        .collect();
    let shuffled = format!("{{ \"signature\" : {signature},{} }}", members.join(" ,"));
    let shuffled = AtpDocument::read(shuffled.as_bytes(), REQUEST_BYTES_MAX).unwrap();
    assert_ne!(shuffled.sent(), document.sent());
    assert_eq!(
        SignedIntent::read(shuffled).unwrap().check_signature(),
        Ok(())
    );
}

#[test]
fn at_003_changing_any_signed_member_is_noticed() {
    let genuine = signed(&AGENT_SEED, with("metadata", json!({"note": "x"})));
    let genuine: Value = serde_json::from_slice(genuine.sent()).unwrap();
    for (name, value) in [
        ("intent_id", json!("int_abd")),
        ("site", json!("https://other.example")),
        ("agent_id", json!("agent-8")),
        ("agent_key", json!(public(&PRINCIPAL_SEED).to_string())),
        ("purpose", json!("Buy two books")),
        ("scope", json!({"actions": ["pay", "book"]})),
        ("amount_cents", json!(1)),
        ("nonce", json!("n2")),
        ("issued_at", json!("2026-05-25T12:00:00.001Z")),
        ("expires_at", json!("2026-05-25T12:10:00.001Z")),
        ("metadata", json!({"note": "y"})),
        ("a member nobody knows", json!(null)),
    ] {
        let mut changed = genuine.clone();
        changed[name] = value;
        let problem = read(&changed).unwrap().check_signature().unwrap_err();
        assert!(
            matches!(problem, Problem::InvalidSignature { .. }),
            "{name}: {problem:?}"
        );
    }
    assert_eq!(read(&genuine).unwrap().check_signature(), Ok(()));
    assert!(read(&minimal()).unwrap().check_signature().is_err());
}

#[test]
fn the_object_form_must_name_the_agents_own_key() {
    let genuine: Value = serde_json::from_slice(signed(&AGENT_SEED, minimal()).sent()).unwrap();
    let claimed = |key_id: &str, public_key: &str| {
        let mut intent = genuine.clone();
        intent["signature"] = json!({
            "algorithm": "ed25519", "value": genuine["signature"], "key_id": key_id, "public_key": public_key,
        });
        read(&intent).unwrap().check_signature().is_ok()
    };
    let (agent, other) = (public(&AGENT_SEED), public(&PRINCIPAL_SEED));
    assert!(claimed(agent.id(), &agent.to_string()));
    assert!(!claimed(other.id(), &agent.to_string()));
    assert!(!claimed(agent.id(), &other.to_string()));
    assert!(!claimed(agent.id(), "no key"));
}

#[test]
fn at_009_at_010_site_and_clock_are_checked() {
    let intent = read(&minimal()).unwrap();
    assert_eq!(intent.check_site("https://shop.example"), Ok(()));
    let problem = intent.check_site("https://shop.example:8443").unwrap_err();
    assert_eq!(problem, Problem::SiteMismatch);

    let at = |seconds: i64| intent.issued_at.plus(seconds * SECOND_US);
    for seconds in [-300, 0, 300] {
        assert_eq!(intent.check_freshness(at(seconds), FRESHNESS_S), Ok(()));
    }
    for now in [
        at(-300).minus(1),
        at(300).plus(1),
        Micros(i64::MIN),
        Micros::MAX,
    ] {
        let problem = intent.check_freshness(now, FRESHNESS_S).unwrap_err();
        let window_s = FRESHNESS_S;
        assert_eq!(problem, Problem::TimestampOutOfWindow { window_s });
    }
}

#[test]
fn an_intent_is_over_at_the_very_moment_it_expires() {
    let intent = read(&minimal()).unwrap();
    assert_eq!(intent.check_unexpired(intent.expires_at.minus(1)), Ok(()));
    let problem = intent.check_unexpired(intent.expires_at).unwrap_err();
    let expired = Problem::IntentExpired {
        expires_at: intent.expires_at,
        reason: ExpiredReason::Time,
    };
    assert_eq!(problem, expired);
}

#[test]
fn the_agent_authorizes_by_signing_the_body_or_by_its_signature_of_the_intent() {
    let intent = SignedIntent::read(signed(&AGENT_SEED, minimal())).unwrap();
    let body = json!({"intent_id": "int_abc", "nonce": "n1"});
    assert_eq!(
        intent.check_authorization(&signed(&AGENT_SEED, body.clone())),
        Ok(())
    );
    assert!(
        intent
            .check_authorization(&signed(&PRINCIPAL_SEED, body.clone()))
            .is_err()
    );
    assert!(intent.check_authorization(&document(&body)).is_err());
    // The whole intent again, and its signature on the short body.
    assert_eq!(intent.check_authorization(intent.document()), Ok(()));
    let sent: Value = serde_json::from_slice(intent.document().sent()).unwrap();
    let mut short = body;
    short["signature"] = sent["signature"].clone();
    assert_eq!(intent.check_authorization(&document(&short)), Ok(()));
}

#[test]
fn where_there_is_a_principal_nobody_else_authorizes() {
    let principal = public(&PRINCIPAL_SEED).to_string();
    let intent =
        SignedIntent::read(signed(&AGENT_SEED, with("principal_key", json!(principal)))).unwrap();
    assert_eq!(intent.check_signature(), Ok(()));
    let body = json!({"intent_id": "int_abc", "nonce": "n1"});
    assert_eq!(
        intent.check_authorization(&signed(&PRINCIPAL_SEED, body.clone())),
        Ok(())
    );
    assert!(
        intent
            .check_authorization(&signed(&AGENT_SEED, body))
            .is_err()
    );
    assert!(intent.check_authorization(intent.document()).is_err());
}

proptest! {
    #[test]
    fn no_document_makes_reading_panic(
        name in "type|intent_id|scope|rail|preconditions|issued_at|amount_cents|signature|agent_key",
        text in "\\PC{0,20}",
        number in any::<f64>(),
    ) {
        for value in [json!(text), json!(number), json!([text]), json!({"actions": [text], "name": number})] {
            let mut intent = minimal();
            intent[&name] = value;
            if let Ok(document) = AtpDocument::read(intent.to_string().as_bytes(), REQUEST_BYTES_MAX) {
                let _ = SignedIntent::read(document).map(|intent| intent.check_signature());
            }
        }
    }
}
