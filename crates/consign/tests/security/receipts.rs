//! Row receipts: a receipt names the receipt that it supersedes, online verification names the superseding one, and commands do
//! not report success for objects that do not exist.

use std::fs;

use consign_testkit::process::Server;
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place, code, get, main_client, printed, published, text, word};

const NOTHING: i32 = 3;

fn operate(server: &Server, id: &str, verb: &str) {
    let mut admin = server.admin_client().expect("the server made its token");
    let uri = format!("/admin/intents/{id}/{verb}");
    let forced = json!({"force": true});
    let reply = admin.post(&uri, &forced).expect("the server answers");
    assert_eq!(reply.status, 200, "{}", reply.text());
}

fn receipt(server: &Server, id: &str) -> String {
    let reply = get(&mut main_client(server), &format!("/intents/{id}/receipt"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text()
}

fn fulfil(server: &Server, id: &str) {
    let mut http = main_client(server);
    let claimed = http.post("/claim", &json!({})).expect("the server answers");
    assert_eq!(claimed.json()["id"], id, "{}", claimed.text());
    let done = json!({"claim_token": claimed.json()["claim_token"], "result": 1});
    let settled = http.post(&format!("/fulfill/{id}"), &done);
    assert_eq!(settled.expect("the server answers").status, 200);
}

fn member(document: &str, name: &str) -> Value {
    let document: Value = serde_json::from_str(document).expect("a receipt is JSON");
    document[name].clone()
}

/// The result of `consign receipt verify` with these arguments.
fn verify(place: &Place, document: &str, args: &[&str]) -> Value {
    let file = place.path("receipt.json");
    fs::write(&file, document).expect("it can be written");
    let file = file.to_string_lossy();
    printed(&place.consign(&[&["receipt", "verify", &file, "--json"], args].concat()))
}

#[test]
fn receipts_name_the_settlement_they_supersede_and_verification_names_what_superseded_them() {
    let place = Place::new();
    let mut server = place.start();
    let id = published(&mut main_client(&server), "work");
    fulfil(&server, &id);
    let first = receipt(&server, &id);
    assert_eq!(member(&first, "supersedes"), Value::Null);
    let found = verify(&place, &first, &["--online"]);
    assert_eq!(
        (&found["valid"], &found["standing"]),
        (&json!(true), &json!("current"))
    );
    assert_eq!(found["superseded_by"], Value::Null);

    // The receipt of this settlement is never requested, and the server restarts in between.
    operate(&server, &id, "cancel");
    operate(&server, &id, "retry");
    server.terminate(PATIENCE).expect("it stops");
    let server = place.start();
    fulfil(&server, &id);
    let third = receipt(&server, &id);
    let second = word(&member(&third, "supersedes"));
    assert!(second.starts_with(&format!("rcp_{id}_")), "{second}");
    assert_ne!(second, word(&member(&first, "id")));

    operate(&server, &id, "cancel");
    let fourth = receipt(&server, &id);
    assert_eq!(member(&fourth, "supersedes"), member(&third, "id"));
    let named = ["--server", server.base_url()];
    for args in [&["--online"][..], &named] {
        let found = verify(&place, &first, args);
        assert_eq!(found["valid"], true);
        assert_eq!(found["superseded_by"], second, "{found}");
        let found = verify(&place, &third, args);
        assert_eq!(found["superseded_by"], member(&fourth, "id"), "{found}");
        let found = verify(&place, &fourth, args);
        assert_eq!(found["standing"], "current", "{found}");
        assert_eq!(found["statement"]["supersedes"], member(&third, "id"));
    }
    // Offline verification has no information about later receipts and reports none.
    let offline = verify(&place, &first, &[]);
    assert_eq!(
        (&offline["valid"], &offline["superseded_by"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(offline["standing"], Value::Null);
    // An issued receipt does not change.
    assert_eq!(receipt(&server, &id), fourth);

    operate(&server, &id, "retry");
    let found = verify(&place, &fourth, &["--online"]);
    assert_eq!(found["standing"], "reopened", "{found}");
}

#[test]
fn receipts_key_revoke_of_an_unknown_key_says_so_and_exits_3() {
    let place = Place::new();
    let server = place.start();
    let main = server.secret("bus_secret").expect("it made one");
    let made = printed(&place.consign(&["key", "create", "--owner", "ada", "--json"]));
    let key = word(&made["api_key"]);
    let unknown = |key: &str| {
        let output = place.consign(&["key", "revoke", key, "--yes"]);
        assert_eq!(code(&output), NOTHING, "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("nothing was revoked"), "{said}");
        assert!(!said.contains("is revoked"), "{said}");
        assert!(
            !said.contains(&key[key.len() / 2..]),
            "the key is shown: {said}"
        );
        let output = place.consign(&["key", "revoke", key, "--yes", "--json"]);
        assert_eq!(code(&output), NOTHING, "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        assert_eq!(told["revoked"], false);
    };
    unknown("tk_0123456789012345678901234567890123456789");
    unknown(&format!("{key}0"));
    unknown(&main);
    let revoke = ["key", "revoke", &key, "--yes", "--json"];
    assert_eq!(printed(&place.consign(&revoke))["revoked"], true);
    unknown(&key);
    published(&mut main_client(&server), "the main key still works");
}

#[test]
fn receipts_no_command_reports_success_about_what_does_not_exist() {
    let place = Place::new();
    let options = place.options().env("ATP_SITE", "https://shop.example");
    let _server = crate::place::start(&options.env("ATP_AGENT_KEYS", "open"));
    let id = "01a1dea803707330800005a06ad96f6b";
    let commands: [&[&str]; 15] = [
        &["intent", "show", id],
        &["intent", "show", "nonsense"],
        &["intent", "show", id, "--receipt"],
        &["intent", "show", id, "--timeline"],
        &["intent", "fulfil", id, "--token", "x"],
        &["intent", "fail", id, "--token", "x", "--error", "e"],
        &["node", "drain", "nobody"],
        &["node", "resume", "nobody"],
        &["tx", "show", "int_0123456789abcdef"],
        &["tx", "resolve", "atp_tx_0123", "charged", "--reason", "r"],
        &["tx", "cancel", "int_0123"],
        &["tx", "execute", "int_0123"],
        &["site", "key", "revoke", "unknown", "--yes"],
        &["receipt", "show", "atp_rcpt_0123"],
        &["receipt", "list", "int_0123456789abcdef"],
    ];
    for args in commands {
        let output = place.consign(args);
        assert_eq!(code(&output), NOTHING, "{args:?}: {output:?}");
    }
}
