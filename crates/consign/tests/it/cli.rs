//! The command line against a running server: output and exit codes.

use super::{Place, code, main_client, printed, published, text, word};

#[test]
fn an_intent_goes_all_the_way_on_the_command_line() {
    let place = Place::new();
    let _server = place.start();
    let args = ["intent", "publish", "greet", r#"{"to":"me"}"#, "--json"];
    let once = [&args[..], &["--idempotency-key", "k1"]].concat();
    let made = printed(&place.consign(&once));
    assert_eq!(printed(&place.consign(&once))["id"], made["id"]);
    let id = word(&made["id"]);

    let claimed = printed(&place.consign(&["intent", "claim", "--json"]));
    assert_eq!(
        (&claimed["id"], &claimed["payload"]["to"]),
        (&made["id"], &"me".into())
    );
    let token = word(&claimed["claim_token"]);
    let nothing = place.consign(&["intent", "claim"]);
    assert_eq!((code(&nothing), text(&nothing.stdout).as_str()), (3, ""));

    let wrong = "0".repeat(token.len());
    let late = place.consign(&["intent", "fulfil", &id, "--token", &wrong]);
    assert_eq!(code(&late), 3, "{}", text(&late.stderr));
    let result = [
        "intent",
        "fulfil",
        &id,
        "--token",
        &token,
        "--result",
        r#"{"ok":1}"#,
    ];
    let done = printed(&place.consign(&[&result[..], &["--json"]].concat()));
    assert_eq!(done["ok"], true);

    let shown = printed(&place.consign(&["intent", "show", &id, "--json"]));
    assert_eq!(
        (&shown["status"], &shown["result"]["ok"]),
        (&"fulfilled".into(), &1.into())
    );
    let history = printed(&place.consign(&["intent", "show", &id, "--timeline", "--json"]));
    assert_eq!(history["facts"].as_array().map(Vec::len), Some(3));
    let listed = printed(&place.consign(&["intent", "list", "--status", "fulfilled", "--json"]));
    assert_eq!(listed["intents"][0]["id"], made["id"]);
    assert_eq!(
        code(&place.consign(&["intent", "show", "nothing-like-it"])),
        3
    );
}

#[test]
fn a_failed_intent_can_be_followed_to_the_dead_letters() {
    let place = Place::new();
    let _server = place.start();
    let args = [
        "intent",
        "publish",
        "doomed",
        "{}",
        "--max-attempts",
        "1",
        "--json",
    ];
    let id = word(&printed(&place.consign(&args))["id"]);
    let claimed = printed(&place.consign(&["intent", "claim", "--json"]));
    let token = word(&claimed["claim_token"]);
    let args = [
        "intent", "fail", &id, "--token", &token, "--error", "no luck", "--json",
    ];
    assert_eq!(printed(&place.consign(&args))["ok"], true);
    let shown = printed(&place.consign(&["intent", "show", &id, "--json"]));
    assert_eq!(
        (&shown["status"], &shown["error"]),
        (&"dead".into(), &"no luck".into())
    );
}

#[test]
fn a_lease_is_extended_and_a_failure_says_what_follows() {
    let place = Place::new();
    let _server = place.start();
    let claim = || {
        let args = ["intent", "publish", "g", "{}", "--json"];
        let id = word(&printed(&place.consign(&args))["id"]);
        let args = ["intent", "claim", "--worker-id", "w-7", "--json"];
        let claimed = printed(&place.consign(&args));
        assert_eq!(claimed["id"], id.as_str());
        (id, word(&claimed["claim_token"]))
    };
    let (id, token) = claim();
    let extend = |lease: &str| {
        let args = ["intent", "extend", &id, "--token", &token, "--lease", lease];
        place.consign(&args)
    };
    let extended = extend("5m");
    assert_eq!(code(&extended), 0);
    assert!(text(&extended.stderr).contains("ends in 5m\n"));
    assert!(text(&extend("1s").stderr).contains("ends in 10s, the nearest"));
    assert_eq!(code(&extend("soon")), 2);

    let long = place.path("error");
    let lines = "a line of a long error\n".repeat(4_000);
    std::fs::write(&long, format!("{lines}KeyError: x\n")).expect("a file");
    let long = format!("@{}", long.display());
    let fail = |id: &str, token: &str, more: &[&str]| {
        let args = ["intent", "fail", id, "--token", token, "--error", &long];
        place.consign(&[&args[..], more].concat())
    };
    assert_eq!(
        code(&fail(&id, &token, &["--no-retry", "--retry-in", "5"])),
        2
    );
    let failed = fail(&id, &token, &["--retry-in", "2h"]);
    let said = text(&failed.stderr);
    assert!(
        said.contains("begins in 2h") && said.contains("its end are kept"),
        "{said}"
    );
    let shown = printed(&place.consign(&["intent", "show", &id, "--json"]));
    assert_eq!(shown["status"], "open");
    assert!(word(&shown["error"]).ends_with("KeyError: x"));
    let shown = text(&place.consign(&["intent", "show", &id]).stdout);
    assert!(
        shown.contains("\nerror\n    a line of a long error\n"),
        "{shown}"
    );
    let history = place.consign(&["intent", "show", &id, "--timeline"]);
    let history = text(&history.stdout);
    assert!(
        history.contains("ACTOR  WORKER") && history.contains("w-7"),
        "{history}"
    );

    let (id, token) = claim();
    let failed = printed(&fail(&id, &token, &["--no-retry", "--json"]));
    assert_eq!(failed["error_truncated"], true);
    let listed = text(
        &place
            .consign(&["intent", "list", "--status", "dead"])
            .stdout,
    );
    assert!(listed.contains(&id) && listed.contains("w-7"), "{listed}");
}

#[test]
fn a_delay_may_be_given_with_a_unit() {
    let place = Place::new();
    let _server = place.start();
    let publish = |delay: &str| {
        let args = [
            "intent",
            "publish",
            "g",
            "{}",
            "--dry-run",
            "--json",
            "--delay",
            delay,
        ];
        place.consign(&args)
    };
    for (delay, seconds) in [("90", 90.0), ("0.5", 0.5), ("2h", 7_200.0)] {
        assert_eq!(printed(&publish(delay))["body"]["delay"], seconds);
    }
    let refused = publish("soon");
    assert_eq!(code(&refused), 2);
    assert!(text(&refused.stderr).contains("30s, 5m, 2h or 2d"));
}

#[test]
fn a_dry_run_sends_nothing() {
    let place = Place::new();
    let server = place.start();
    let shown = place.consign(&["intent", "publish", "g", "{}", "--dry-run", "--json"]);
    assert_eq!(printed(&shown)["path"], "/intent");
    let listed = super::get(&mut main_client(&server), "/intents").json();
    assert_eq!(listed["intents"], serde_json::json!([]));
    assert_eq!(
        code(&place.consign(&["intent", "publish", "g", "not json"])),
        2
    );
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let place = Place::new();
    let server = place.start();
    let made = printed(&place.consign(&["key", "create", "--owner", "ann", "--json"]));
    let key = word(&made["api_key"]);
    let mut http = server.http().header("X-API-KEY", &key);
    published(&mut http, "with a key");
    let listed = place.consign(&["key", "list", "--json"]);
    assert_eq!(printed(&listed)[0]["owner"], "ann");
    assert!(!text(&listed.stdout).contains(&key));
    let dry = place.consign(&["key", "revoke", &key, "--dry-run", "--json"]);
    assert_eq!(printed(&dry)["revoked"], false);
    assert_eq!(super::publish(&mut http, "still").status, 201);
    let revoked = place.consign(&["key", "revoke", &key, "--yes", "--json"]);
    assert_eq!(printed(&revoked)["revoked"], true);
    assert_eq!(super::publish(&mut http, "no more").status, 401);
}

#[test]
fn a_key_that_does_not_exist_is_not_revoked() {
    let place = Place::new();
    let server = place.start();
    let made = printed(&place.consign(&["key", "create", "--owner", "bob", "--json"]));
    let key = word(&made["api_key"]);
    let listed = printed(&place.consign(&["key", "list", "--json"]));
    let id = word(&listed[0]["id"]);
    let never = format!("tk_{}", "dead".repeat(10));
    for name in ["bob", &never, "k_0000000000000000"] {
        for how in ["--yes", "--dry-run"] {
            let refused = place.consign(&["key", "revoke", name, how, "--json"]);
            let said = text(&refused.stderr);
            assert_eq!(code(&refused), 3, "{name} {how}: {said}");
            assert!(said.contains("nothing was revoked"), "{said}");
            assert!(said.contains("consign key list"), "{said}");
            let printed: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
            assert_eq!(printed["revoked"], false);
        }
        let mut admin = server.admin_client().unwrap();
        let body = serde_json::json!({"api_key": name});
        let answer = admin.post("/admin/revoke_key", &body).unwrap();
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    let mut http = server.http().header("X-API-KEY", &key);
    published(&mut http, "the key is still there");
    assert_eq!(
        code(&place.consign(&["key", "revoke", &id, "--dry-run"])),
        0
    );
    assert_eq!(code(&place.consign(&["key", "revoke", &id, "--yes"])), 0);
    assert_eq!(super::publish(&mut http, "revoked by its id").status, 401);
}

#[test]
fn a_receipt_is_verified_offline_and_a_tampered_one_is_not() {
    let place = Place::new();
    let mut server = place.start();
    let id = published(&mut main_client(&server), "prove it");
    let token = word(&printed(&place.consign(&["intent", "claim", "--json"]))["claim_token"]);
    assert_eq!(
        code(&place.consign(&["intent", "fulfil", &id, "--token", &token])),
        0
    );
    let receipt = text(&place.consign(&["intent", "show", &id, "--receipt"]).stdout);
    let jwks = super::get(&mut server.http(), "/.well-known/jwks.json").text();
    assert!(server.terminate(super::PATIENCE).unwrap().success());

    let (kept, keys) = (place.path("receipt.json"), place.path("jwks.json"));
    std::fs::write(&kept, &receipt).unwrap();
    std::fs::write(&keys, jwks).unwrap();
    let verify = |path: &std::path::Path| {
        let (path, keys) = (path.to_string_lossy(), keys.to_string_lossy());
        place.consign(&["receipt", "verify", &path, "--jwks", &keys, "--json"])
    };
    let verified = printed(&verify(&kept));
    assert_eq!(
        (&verified["valid"], &verified["statement"]["intent"]),
        (&true.into(), &id.into())
    );
    let own = place.consign(&["receipt", "verify", &kept.to_string_lossy(), "--json"]);
    assert_eq!(printed(&own)["valid"], true);

    let forged = place.path("forged.json");
    std::fs::write(&forged, receipt.replace("prove it", "prove me")).unwrap();
    let refused = verify(&forged);
    assert_eq!(code(&refused), 1);
    let said: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(said["valid"], false);
}

#[test]
fn exit_codes_tell_what_kind_of_failure_it_was() {
    let place = Place::new();
    assert_eq!(code(&place.consign(&["intent", "list"])), 5);
    assert_eq!(code(&place.consign(&["intent", "wish"])), 2);
    let server = place.start();
    let refused = place.consign(&["intent", "list", "--key", "wrong"]);
    assert_eq!(code(&refused), 4);
    assert!(text(&refused.stderr).starts_with("error: "));
    let stranger = place.consign(&["intent", "list", "--server", "http://127.0.0.1:1"]);
    assert_eq!(code(&stranger), 2, "a local key is not for another server");
    drop(server);
    assert_eq!(code(&place.consign(&["intent", "list"])), 5);
}
