//! How an operator finds intents and puts them right, on the command line.

use consign_testkit::process::Http;
use serde_json::Value;

use super::{Place, code, main_client, printed, published, text, word};

/// A dead letter with this error.
fn dead(place: &Place, goal: &str, error: &str) -> String {
    let args = [
        "intent",
        "publish",
        goal,
        r#"{"n":17}"#,
        "--max-attempts",
        "1",
        "--json",
    ];
    let id = word(&printed(&place.consign(&args))["id"]);
    let claimed = printed(&place.consign(&["intent", "claim", "--goal", goal, "--json"]));
    let token = word(&claimed["claim_token"]);
    let args = [
        "intent", "fail", &id, "--token", &token, "--error", error, "--json",
    ];
    assert_eq!(printed(&place.consign(&args))["ok"], true);
    id
}

#[test]
fn an_operator_finds_sees_and_retries_what_died() {
    let place = Place::new();
    let server = place.start();
    let id = dead(&place, "mail.send", "smtp: connection refused");
    published(&mut main_client(&server), "print");
    let find = |filter: &str| place.consign(&["intent", "list", "--filter", filter, "--json"]);
    let found = printed(&find("state:dead goal:mail.* payload.n=17"));
    assert_eq!(found["intents"][0]["id"], id.as_str());
    assert_eq!(found["intents"].as_array().map(Vec::len), Some(1));
    let table = place.consign(&["intent", "list", "-f", "state:dead"]);
    let table = text(&table.stdout);
    assert!(table.contains("STATE  AGE  ATTEMPTS"), "{table}");
    assert!(table.contains("smtp: connection refused"), "{table}");
    let none = place.consign(&["intent", "list", "-f", "goal:nothing"]);
    assert_eq!(code(&none), 0);
    assert!(text(&none.stderr).starts_with("nothing matches; 2 rows were examined"));
    let wrong = find("state:dad");
    assert_eq!(code(&wrong), 2);
    assert!(
        text(&wrong.stderr).contains("column 7\n  state:dad\n        ^ expected a state"),
        "{}",
        text(&wrong.stderr)
    );

    let shown = text(&place.consign(&["intent", "show", &id]).stdout);
    for part in [
        "attempts      1 of 1",
        "payload       {\"n\":17}",
        "publisher     main",
        "ago)",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let letters = printed(&place.consign(&["dead", "list", "--json"]));
    assert_eq!(letters["dead"][0]["intent_id"], id.as_str());
    let letter = text(&place.consign(&["dead", "show", &id]).stdout);
    assert!(letter.contains("smtp: connection refused"), "{letter}");

    let watched = place.consign(&["intent", "watch", &id]);
    assert_eq!(code(&watched), 1, "a dead intent has ended");
    let dry = printed(&place.consign(&["intent", "retry", &id, "--dry-run", "--json"]));
    assert_eq!(dry["items"][0]["result"], "would retry it; it is dead");
    let missing = "0".repeat(32);
    let retried = place.consign(&["intent", "retry", &id, &missing, "--json"]);
    assert_eq!(code(&retried), 3, "one of the two does not exist");
    let retried: Value = serde_json::from_slice(&retried.stdout).unwrap();
    assert_eq!(retried["items"][0]["result"], "retried, now open");
    assert_eq!(retried["items"][1]["code"], "not_found");
    let timeline = text(&place.consign(&["intent", "timeline", &id]).stdout);
    assert!(timeline.contains("requeued"), "{timeline}");
    assert_eq!(
        code(&place.consign(&["intent", "delete", &id])),
        2,
        "it asks, and there is no terminal"
    );
    assert_eq!(code(&place.consign(&["intent", "delete", &id, "--yes"])), 0);
    assert_eq!(code(&place.consign(&["intent", "show", &id])), 3);
}

#[test]
fn a_bulk_job_is_counted_confirmed_and_followed() {
    let place = Place::new();
    let _server = place.start();
    for _ in 0..3 {
        dead(&place, "mail", "smtp down");
    }
    let bulk = |more: &[&str]| {
        place.consign(&[&["intent", "retry", "--filter", "state:dead"], more].concat())
    };
    let dry = bulk(&["--dry-run"]);
    assert_eq!((code(&dry), text(&dry.stdout).trim()), (0, "3"));
    let unasked = bulk(&[]);
    assert_eq!(code(&unasked), 2, "{}", text(&unasked.stderr));
    let done = bulk(&["--yes"]);
    assert_eq!(
        (code(&done), text(&done.stdout).trim()),
        (0, "3 retried"),
        "{}",
        text(&done.stderr)
    );
    assert_eq!(code(&bulk(&["--yes"])), 3, "nothing is dead any more");
    let cancelled = ["intent", "cancel", "-f", "goal:mail", "--yes", "--detach"];
    let id = text(&place.consign(&cancelled).stdout).trim().to_owned();
    let watched = printed(&place.consign(&["bulk", "watch", &id, "--json"]));
    assert_eq!(
        (&watched["state"], &watched["done"]),
        (&"done".into(), &3.into())
    );
    let listed = printed(&place.consign(&["bulk", "list", "--json"]));
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    let shown = text(&place.consign(&["bulk", "show", &id]).stdout);
    assert!(shown.contains("action          cancel"), "{shown}");
    let empty = place.consign(&["intent", "retry", "-f", " ", "--yes"]);
    assert_eq!(code(&empty), 2);
}

#[test]
fn a_bulk_job_continues_after_a_kill_and_publishing_goes_on() {
    let place = Place::new();
    let mut server = place.start();
    let mut admin = server.admin_client().unwrap();
    let mut http = main_client(&server);
    let batch: Vec<Value> = (0..100)
        .map(|n| serde_json::json!({"goal": "old", "payload": n}))
        .collect();
    for _ in 0..20 {
        let body = serde_json::json!({"intents": batch});
        assert_eq!(http.post("/intents", &body).unwrap().status, 201);
    }
    let begin = |admin: &mut Http, action: &str, filter: &str| {
        let body = serde_json::json!({"action": action, "filter": filter, "confirm": true});
        let reply = admin.post("/admin/bulk", &body).unwrap();
        assert_eq!(reply.status, 202);
        word(&reply.json()["id"])
    };
    let id = begin(&mut admin, "cancel", "goal:old");
    loop {
        let reply = admin.get(&format!("/admin/bulk/{id}")).unwrap();
        if reply.json()["done"].as_u64().unwrap() >= 100 {
            break;
        }
    }
    published(&mut http, "new");
    server.kill9().unwrap();
    let server = place.start();
    let shown = printed(&place.consign(&["bulk", "watch", &id, "--json", "--timeout", "60"]));
    assert_eq!(
        (&shown["state"], &shown["done"]),
        (&"done".into(), &2_000.into()),
        "{shown}"
    );
    let mut admin = server.admin_client().unwrap();
    let count = |admin: &mut Http, filter: &str| {
        let reply = admin
            .get(&format!("/admin/intents/count?filter={filter}"))
            .unwrap();
        reply.json()["count"].as_u64().unwrap()
    };
    assert_eq!(count(&mut admin, "state:dead"), 2_000);
    assert_eq!(
        count(&mut admin, "state:open"),
        1,
        "what was published later"
    );
}
