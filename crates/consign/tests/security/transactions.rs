//! Attacks on agent transactions by unauthenticated clients, with stolen documents and from web pages: rows S1, S2, S12, S13
//! and verify.

use std::time::SystemTime;

use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::json::canonical_value;
use consign_kernel::receipt::Signer;
use consign_testkit::process::{Http, Options, Reply, Server};
use consign_transactions::instant;
use data_encoding::BASE64;
use serde_json::{Value, json};

use super::place::{Place, code, printed, start, text, word};

const SITE: &str = "https://shop.example";
const VERBS: [&str; 4] = ["authorize", "execute", "compensate", "cancel"];

fn options(place: &Place, signed: bool) -> Options {
    place
        .options()
        .env("ATP_SITE", SITE)
        .env("ATP_RAIL", "null")
        .env("ATP_SIGNED_REQUESTS", if signed { "true" } else { "false" })
}

fn agent() -> Signer {
    Signer::from_seed(&[0x22; 32])
}

fn public(signer: &Signer) -> String {
    format!("ed25519:{}", BASE64.encode(&signer.public_key()))
}

fn at(seconds: i64) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let us = i64::try_from(since.expect("it is after 1970").as_micros())
        .expect("it is no later than 294000");
    instant::print(Micros(us + seconds * SECOND_US))
}

fn sign(mut document: Value, signer: &Signer) -> Value {
    document
        .as_object_mut()
        .expect("an object")
        .remove("signature");
    let bytes = canonical_value(&document).expect("it has one form");
    document["signature"] = BASE64.encode(&signer.sign_bytes(&bytes)).into();
    document
}

fn with(mut document: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().expect("an object") {
        document[name] = value.clone();
    }
    document
}

fn intent_of(signer: &Signer, id: &str, members: &Value) -> Value {
    let intent = json!({
        "type": "atp.intent.v1", "intent_id": id, "site": SITE, "agent_key": public(signer),
        "purpose": "a book", "scope": {"actions": ["pay"]}, "amount_cents": 1500, "currency": "EUR",
        "nonce": format!("nonce-of-{id}"), "issued_at": at(0), "expires_at": at(600),
    });
    sign(with(intent, members), signer)
}

fn intent(id: &str, members: &Value) -> Value {
    intent_of(&agent(), id, members)
}

/// A request signed by the agent.
fn request(verb: &str, key: &str, members: &Value) -> Value {
    let body = json!({
        "type": format!("atp.{verb}.v1"), "site": SITE, "issued_at": at(0), "idempotency_key": key,
    });
    sign(with(body, members), &agent())
}

fn about(id: &str) -> Value {
    json!({"intent_id": id, "nonce": format!("nonce-of-{id}"), "reason": "r"})
}

fn post(http: &mut Http, path: &str, key: &str, body: &Value) -> Reply {
    let headers = [("Idempotency-Key", key)];
    let reply = http.send("POST", &format!("/api/atp/{path}"), &headers, Some(body));
    reply.expect("the server answers")
}

fn key(name: &str) -> String {
    format!("the-key-of-the-agent-for-{name}")
}

#[track_caller]
fn done(reply: &Reply) -> Value {
    assert!(reply.status < 300, "{} {}", reply.status, reply.text());
    reply.json()
}

#[track_caller]
fn refused(reply: &Reply) {
    assert!((400..500).contains(&reply.status), "{}", reply.text());
    assert_eq!(reply.json()["ok"], false, "{}", reply.text());
}

fn executions(http: &mut Http, id: &str) -> (Value, Value) {
    let reply = http.get(&format!("/api/atp/intents/{id}"));
    let shown = reply.expect("the server answers").json();
    (
        shown["data"]["executions"].clone(),
        shown["data"]["spent_cents"].clone(),
    )
}

#[test]
fn s1_what_was_signed_for_one_operation_is_refused_for_every_other() {
    for signed in [true, false] {
        let place = Place::new();
        let mut server = start(&options(&place, signed));
        let mut http = server.http();
        let whole = intent("int_1", &json!({"max_executions": 5}));
        done(&post(&mut http, "intents", "", &whole));
        let consent = sign(
            json!({"intent_id": "int_1", "nonce": "nonce-of-int_1"}),
            &agent(),
        );
        done(&post(&mut http, "authorize", &key("a"), &consent));
        let settled = request("execute", &key("e"), &about("int_1"));
        let settled = done(&post(&mut http, "execute", &key("e"), &settled));
        let transaction = word(&settled["transaction_id"]);
        let mut documents = vec![whole, consent, settled["receipt"].clone()];
        documents.extend(VERBS.map(|verb| request(verb, &key("x"), &about("int_1"))));
        let named = [
            ("execute", "execute".to_owned()),
            ("compensate", "compensate".to_owned()),
            ("cancel", "cancel".to_owned()),
            (
                "compensate",
                format!("transactions/{transaction}/compensate"),
            ),
            ("cancel", "intents/int_1/revoke".to_owned()),
        ];
        for restart in [false, true] {
            if restart {
                server.kill9().expect("it can be killed");
                server = start(&options(&place, signed));
                http = server.http();
            }
            for (verb, path) in &named {
                let own = format!("atp.{verb}.v1");
                for document in documents.iter().filter(|one| one["type"] != own.as_str()) {
                    for key in [key("x"), key("y")] {
                        refused(&post(&mut http, path, &key, document));
                    }
                }
            }
            for verb in ["execute", "compensate", "cancel"] {
                let document = request(verb, &key("x"), &about("int_1"));
                refused(&post(&mut http, "authorize", &key("x"), &document));
            }
        }
        assert_eq!(executions(&mut http, "int_1"), (json!(1), json!(1500)));
    }
}

#[test]
fn s1_what_was_signed_is_good_for_one_key_one_site_one_time_and_one_target() {
    for signed in [true, false] {
        let place = Place::new();
        let server = start(&options(&place, signed));
        let mut http = server.http();
        let mut transactions = Vec::new();
        for id in ["int_1", "int_2"] {
            let whole = intent(id, &json!({"max_executions": 5}));
            done(&post(&mut http, "authorize", &key("a"), &whole));
            let settled = request("execute", &key("e"), &about(id));
            let settled = done(&post(&mut http, "execute", &key("e"), &settled));
            transactions.push(settled["transaction_id"].clone());
        }
        for verb in ["execute", "compensate", "cancel"] {
            let good = request(verb, &key("x"), &about("int_1"));
            refused(&post(&mut http, verb, &key("y"), &good));
            for wrong in [
                json!({"site": "https://other.example"}),
                json!({"issued_at": at(-330)}),
                json!({"issued_at": at(330)}),
                json!({"idempotency_key": key("y")}),
                json!({"idempotency_key": null}),
                json!({"issued_at": null}),
                json!({"site": null}),
                json!({"type": null}),
            ] {
                let signed_so = sign(with(good.clone(), &wrong), &agent());
                refused(&post(&mut http, verb, &key("x"), &signed_so));
            }
            refused(&post(
                &mut http,
                verb,
                &key("x"),
                &with(good, &json!({"intent_id": "int_2"})),
            ));
        }
        let undo = with(about("int_1"), &json!({"transaction_id": transactions[0]}));
        let undo = request("compensate", &key("x"), &undo);
        let path = format!("transactions/{}/compensate", word(&transactions[1]));
        refused(&post(&mut http, &path, &key("x"), &undo));
        for id in ["int_1", "int_2"] {
            assert_eq!(executions(&mut http, id), (json!(1), json!(1500)));
        }
        let undone = done(&post(&mut http, "compensate", &key("x"), &undo));
        assert_eq!(undone["state"], "compensated");
    }
}

#[test]
fn s1_the_command_line_sends_requests_that_are_signed_for_what_they_do() {
    let place = Place::new();
    let _server = start(&options(&place, true));
    let state = place.path("agent");
    let state = state.to_string_lossy();
    let tx =
        |args: &[&str]| place.consign(&[&["tx"], args, &["--json", "--state", &state]].concat());
    let create = [
        "create",
        "--purpose",
        "p",
        "--action",
        "pay",
        "--amount-cents",
        "1500",
    ];
    let id = word(&printed(&tx(&create))["intent_id"]);
    printed(&tx(&["authorize", &id]));
    assert_eq!(printed(&tx(&["execute", &id]))["state"], "settled");
    // A repeated command is signed again and gets the same response.
    assert_eq!(printed(&tx(&["execute", &id]))["state"], "settled");
    let more = tx(&["execute", &id, "--nth", "2"]);
    assert_eq!(code(&more), 4, "{more:?}");
    let undone = printed(&tx(&["compensate", &id, "--reason", "r"]));
    assert_eq!(undone["state"], "compensated");
    let other = word(&printed(&tx(&create))["intent_id"]);
    assert_eq!(
        printed(&tx(&["cancel", &other]))["expired_reason"],
        "cancelled"
    );
}

#[test]
fn s2_the_signed_amount_is_the_most_that_is_taken() {
    let place = Place::new();
    let server = start(&options(&place, false));
    let mut http = server.http();
    let three = intent("int_1", &json!({"max_executions": 3}));
    done(&post(&mut http, "authorize", &key("a"), &three));
    let asked = |cents: i64| json!({"intent_id": "int_1", "amount_cents": cents});
    for cents in [9_007_199_254_740_991, 150_000_000, 4_500, 1_501, -1] {
        refused(&post(&mut http, "execute", &key("e0"), &asked(cents)));
    }
    for (n, cents) in [(1, 1_500), (2, 0), (3, 1_499)] {
        let settled = post(&mut http, "execute", &key(&format!("e{n}")), &asked(cents));
        let receipt = done(&settled)["receipt"].clone();
        assert_eq!(receipt["intent"]["amount_cents"], 1500);
        assert_eq!(receipt["intent"]["spend_cap_cents"], 4500);
        assert_eq!(receipt["transaction"]["amount_cents"], cents);
    }
    refused(&post(&mut http, "execute", &key("e4"), &asked(1)));
    // The agent has signed no amount.
    for members in [
        json!({"amount_cents": null}),
        json!({"amount_cents": null, "max_spend_cents": 0}),
    ] {
        let unbounded = intent("int_2", &members);
        refused(&post(&mut http, "intents", "", &unbounded));
        refused(&post(&mut http, "authorize", &key("a"), &unbounded));
    }
    let more = intent("int_3", &json!({"max_spend_cents": 4000}));
    done(&post(&mut http, "authorize", &key("a"), &more));
    let asked = |more: &Value| with(json!({"intent_id": "int_3"}), more);
    for wrong in [
        json!({"amount_cents": 4001}),
        json!({"currency": "USD"}),
        json!({"action": "book"}),
        json!({"rail": "stripe"}),
        json!({"rail": {"name": "stripe"}}),
    ] {
        refused(&post(&mut http, "execute", &key("e"), &asked(&wrong)));
    }
    let most =
        asked(&json!({"amount_cents": 4000, "currency": "EUR", "action": "pay", "rail": "null"}));
    let settled = done(&post(&mut http, "execute", &key("e"), &most));
    assert_eq!(settled["receipt"]["intent"]["spend_cap_cents"], 4000);
    let elsewhere = intent("int_4", &json!({"rail": {"name": "stripe"}}));
    done(&post(&mut http, "authorize", &key("a"), &elsewhere));
    let here = json!({"intent_id": "int_4"});
    let reply = post(&mut http, "execute", &key("e"), &here);
    assert_eq!(reply.json()["error"], "rail_mismatch", "{}", reply.text());
}

#[test]
fn s2_an_agent_cannot_take_more_than_its_principal_consented_to() {
    let place = Place::new();
    let server = start(&options(&place, true));
    let mut http = server.http();
    let principal = Signer::from_seed(&[0x44; 32]);
    let members = json!({"principal_key": public(&principal)});
    done(&post(&mut http, "intents", "", &intent("int_1", &members)));
    let consent = request("authorize", &key("a"), &about("int_1"));
    refused(&post(&mut http, "authorize", &key("a"), &consent));
    let consent = sign(consent, &principal);
    refused(&post(&mut http, "execute", &key("a"), &consent));
    done(&post(&mut http, "authorize", &key("a"), &consent));
    let more = with(about("int_1"), &json!({"amount_cents": 150_000_000}));
    let more = request("execute", &key("e"), &more);
    let reply = post(&mut http, "execute", &key("e"), &more);
    assert_eq!(
        reply.json()["error"],
        "spend_cap_exceeded",
        "{}",
        reply.text()
    );
    let execute = request("execute", &key("e"), &about("int_1"));
    refused(&post(
        &mut http,
        "execute",
        &key("e"),
        &sign(execute.clone(), &principal),
    ));
    done(&post(&mut http, "execute", &key("e"), &execute));
}

#[test]
fn s12_a_stranger_cannot_take_the_action_of_somebody_elses_user() {
    let place = Place::new();
    let options = options(&place, false).env("ATP_DEDUP_WINDOW_SECONDS", "86400");
    let mut server = start(&options);
    let mut http = server.http();
    let members = json!({"user_id": "user-42", "action_dedup_key": "order-1"});
    let stranger = Signer::from_seed(&[0x55; 32]);
    let taken = intent_of(&stranger, "int_stranger", &members);
    done(&post(&mut http, "authorize", &key("a"), &taken));
    done(&post(
        &mut http,
        "authorize",
        &key("a"),
        &intent("int_1", &members),
    ));
    server.kill9().expect("it can be killed");
    let server = start(&options);
    let mut http = server.http();
    for (id, other, status) in [
        ("int_2", json!({}), 409),
        ("int_3", json!({"user_id": "user-43"}), 200),
        ("int_4", json!({"user_id": null}), 200),
        ("int_5", json!({"user_id": null}), 409),
    ] {
        let again = intent(id, &with(members.clone(), &other));
        let reply = post(&mut http, "authorize", &key("a"), &again);
        assert_eq!(reply.status, status, "{id}: {}", reply.text());
    }
}

/// A request with only these headers and its length.
fn raw(server: &Server, head: &str, body: &Value) -> u16 {
    use std::io::{Read as _, Write as _};
    let address = server.base_url().replace("http://", "");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let body = body.to_string();
    let sent = format!(
        "{head}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(sent.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.unwrap_or_default()
}

#[test]
fn s13_pages_of_other_sites_and_names_that_are_not_ours_change_nothing() {
    let place = Place::new();
    let server = start(&options(&place, false).env("ATP_HOSTS", "consign.internal"));
    let mut http = server.http();
    let id = "int_1";
    done(&post(
        &mut http,
        "authorize",
        &key("a"),
        &intent(id, &json!({"max_executions": 9})),
    ));
    let settled = json!({"intent_id": id});
    let settled = done(&post(&mut http, "execute", &key("e"), &settled));
    let transaction = word(&settled["transaction_id"]);
    let body = |n: usize| json!({"intent_id": id, "reason": "r", "idempotency_key": key(&format!("p{n}"))});
    let paths = [
        "intents".to_owned(),
        "authorize".to_owned(),
        "execute".to_owned(),
        "compensate".to_owned(),
        "cancel".to_owned(),
        format!("intents/{id}/revoke"),
        format!("transactions/{transaction}/compensate"),
        "admin/reconcile".to_owned(),
        "admin/keys/rotate".to_owned(),
        format!("admin/transactions/{transaction}/resolve"),
    ];
    let host = server.base_url().replace("http://", "");
    for path in &paths {
        for headers in [
            format!("Host: {host}\r\nOrigin: http://evil.example"),
            format!("Host: {host}\r\nOrigin: null"),
            format!("Host: {host}\r\nSec-Fetch-Site: cross-site"),
            format!("Host: {host}\r\nSec-Fetch-Site: same-site"),
            format!("Host: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: cross-site"),
            "Host: rebind.evil.example".to_owned(),
            "Host: rebind.evil.example\r\nOrigin: http://rebind.evil.example".to_owned(),
            "Host: localhost.evil.example:7070".to_owned(),
            "Host: rebind.evil.example\r\nX-Forwarded-Host: shop.example".to_owned(),
        ] {
            let head = format!("POST /api/atp/{path} HTTP/1.1\r\n{headers}");
            assert_eq!(raw(&server, &head, &body(0)), 403, "{head}");
        }
    }
    assert_eq!(executions(&mut http, id), (json!(1), json!(1500)));
    // Programs, pages of the site itself, and all names of the server still work.
    for (n, headers) in [
        format!("Host: {host}"),
        format!("Host: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin"),
        "Host: localhost:7070".to_owned(),
        "Host: shop.example".to_owned(),
        "Host: shop.example\r\nOrigin: https://shop.example".to_owned(),
        "Host: consign.internal:7070".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let head = format!("POST /api/atp/execute HTTP/1.1\r\n{headers}");
        assert_eq!(raw(&server, &head, &body(n + 1)), 200, "{head}");
    }
    // Requests without side effects are open to all clients, and a rail authenticates with its signature.
    for (path, status) in [("receipts/verify", 200), ("rails/null/callback", 400)] {
        let head = format!("POST /api/atp/{path} HTTP/1.1\r\nHost: hooks.example\r\nOrigin: null");
        let said = raw(&server, &head, &json!({"type": "x"}));
        assert!(
            said == status || (path.starts_with("rails") && said == 404),
            "{path} {said}"
        );
    }
}

#[test]
fn s13_requests_are_signed_on_every_rail_that_does_something() {
    let place = Place::new();
    let options = place
        .options()
        .env("ATP_SITE", SITE)
        .env("ATP_RAIL", "worker");
    let options = options.env("ATP_EXECUTE_WAIT_SECONDS", "0.1");
    let mut server = start(&options);
    let mut http = server.http();
    done(&post(
        &mut http,
        "authorize",
        &key("a"),
        &intent("int_1", &json!({})),
    ));
    let plain = json!({"intent_id": "int_1"});
    let reply = post(&mut http, "execute", &key("e"), &plain);
    assert_eq!(
        (reply.status, &reply.json()["error"]),
        (401, &json!("invalid_signature"))
    );
    server.terminate(super::place::PATIENCE).expect("it stops");
    let server = start(&options.env("ATP_SIGNED_REQUESTS", "false"));
    let said = server.stderr();
    assert!(said.contains("knows an intent's id"), "{said}");
    let reply = post(&mut server.http(), "execute", &key("e"), &plain);
    assert_eq!(reply.status, 202, "{}", reply.text());
}

#[test]
fn verify_says_with_one_word_whether_a_document_is_good() {
    let place = Place::new();
    let server = start(&options(&place, false));
    let mut http = server.http();
    let whole = intent("int_1", &json!({}));
    done(&post(&mut http, "authorize", &key("a"), &whole));
    let settled = json!({"intent_id": "int_1"});
    let receipt = done(&post(&mut http, "execute", &key("e"), &settled))["receipt"].clone();
    let id = receipt["receipt_id"].clone();
    let mut verified = |document: &Value| {
        let reply = post(&mut http, "receipts/verify", "", document);
        let told = reply.json();
        let inner = told["verification"]["ok"].clone();
        assert!(inner.is_null() || inner == told["ok"], "{}", reply.text());
        (reply.status, told["ok"].clone())
    };
    for good in [
        receipt.clone(),
        json!({"receipt": receipt}),
        json!({"receipt_id": id}),
        json!({"id": id}),
    ] {
        assert_eq!(verified(&good), (200, json!(true)));
    }
    let stranger = |document: &Value| sign(document.clone(), &Signer::from_seed(&[0x66; 32]));
    let changed = |members: Value| with(receipt.clone(), &members);
    for bad in [
        changed(json!({"transaction": {"amount_cents": 1}})),
        changed(json!({"signature": null})),
        changed(json!({"signature": "AAAA"})),
        changed(json!({"site": "https://other.example"})),
        with(
            receipt.clone(),
            &json!({"signature": {"algorithm": "rsa", "value": "x"}}),
        ),
        stranger(&receipt),
        stranger(&changed(json!({"type": "atp.intent.v1"}))),
        whole,
        json!({}),
        json!({"receipt": {}}),
    ] {
        assert_eq!(verified(&bad), (200, json!(false)), "{bad}");
    }
    assert_eq!(
        verified(&json!({"receipt_id": "atp_rcpt_none"})),
        (404, json!(false))
    );
    assert_eq!(verified(&json!({"receipt": "x"})), (400, json!(false)));
    // Documents signed with a revoked key are no longer valid.
    let rotated = printed(&place.consign(&["site", "key", "rotate", "--yes", "--json"]));
    assert_eq!(
        rotated["rotated"],
        true,
        "{}",
        text(rotated.to_string().as_bytes())
    );
    assert_eq!(verified(&receipt), (200, json!(true)));
    let old = word(&receipt["signature"]["key_id"]);
    printed(&place.consign(&["site", "key", "revoke", &old, "--yes", "--json"]));
    assert_eq!(verified(&receipt), (200, json!(false)));
    assert_eq!(verified(&json!({"receipt_id": id})), (200, json!(false)));
}
