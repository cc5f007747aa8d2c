//! Keys with settings, users and the audit log on the command line, against a running server.

use super::{Place, code, printed, published, text, word};

#[test]
fn a_key_is_made_changed_and_rotated_with_settings() {
    let place = Place::new();
    let server = place.start();
    let create = [
        "key",
        "create",
        "--name",
        "mailer",
        "--scope",
        "publish",
        "--scope",
        "read",
        "--namespace",
        "mail*",
        "--rate",
        "600",
        "--open-max",
        "50000",
        "--expires",
        "90d",
    ];
    let dry = place.consign(&[&create[..], &["--dry-run"]].concat());
    let said = text(&dry.stderr);
    assert!(
        said.contains("would create") && said.contains("7776000"),
        "{said}"
    );
    assert_eq!(
        printed(&place.consign(&["key", "list", "--json"]))
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    let made = printed(&place.consign(&[&create[..], &["--json"]].concat()));
    let (id, key) = (word(&made["id"]), word(&made["api_key"]));

    let shown = printed(&place.consign(&["key", "show", &id, "--json"]));
    assert_eq!(shown["name"], "mailer");
    assert_eq!(shown["owner"], "mailer");
    assert_eq!(shown["scopes"], serde_json::json!(["publish", "read"]));
    assert_eq!(
        (&shown["rate"], &shown["open_max"]),
        (&600.into(), &50_000.into())
    );
    let life = shown["expires_at"].as_f64().unwrap() - shown["created_at"].as_f64().unwrap();
    assert!((life - 7_776_000.0).abs() < 60.0, "{life}");
    let listed = text(&place.consign(&["key", "list"]).stdout);
    for part in ["NAMESPACES", "mailer", "publish,read", "mail*", "600"] {
        assert!(listed.contains(part), "{listed}");
    }
    let human = text(&place.consign(&["key", "show", &id]).stdout);
    assert!(
        human.contains("600 requests a minute") && human.contains("last used"),
        "{human}"
    );

    let mut http = server.http().header("X-API-KEY", &key);
    assert_eq!(
        super::publish(&mut http, "elsewhere").status,
        403,
        "another namespace"
    );
    let nothing = place.consign(&["key", "change", &id]);
    assert_eq!(code(&nothing), 2, "{}", text(&nothing.stderr));
    let change = ["key", "change", &id, "--namespace", "*", "--json"];
    let changed = printed(&place.consign(&change));
    assert_eq!(changed["namespaces"], serde_json::json!(["*"]));
    assert_eq!(changed["rate"], 600, "it stays");
    published(&mut http, "now it may");

    let rotated = place.consign(&["key", "rotate", &id]);
    let new = text(&rotated.stdout).trim().to_owned();
    assert!(new.starts_with("tk_") && new != key, "{new}");
    assert!(text(&rotated.stderr).contains("86400 s longer"));
    published(&mut http, "the old secret within the overlap");
    let mut renewed = server.http().header("X-API-KEY", &new);
    published(&mut renewed, "the new secret");
    let at_once = ["key", "rotate", &id, "--overlap", "0"];
    assert_eq!(code(&place.consign(&at_once)), 2, "it needs --yes");
    let last = printed(&place.consign(&[&at_once[..], &["--yes", "--json"]].concat()));
    assert_eq!(super::publish(&mut renewed, "no more").status, 401);
    let mut newest = server.http().header("X-API-KEY", &word(&last["api_key"]));
    published(&mut newest, "the newest secret");
    let unknown = place.consign(&["key", "show", "k_0000000000000000"]);
    assert_eq!(code(&unknown), 3, "{}", text(&unknown.stderr));
    for wrong in [["--scope", "write"], ["--expires", "soon"], ["--rate", "0"]] {
        let refused = place.consign(&[&["key", "create", "--name", "x"][..], &wrong].concat());
        assert_eq!(code(&refused), 2, "{}", text(&refused.stderr));
    }
}

#[test]
fn users_sign_in_by_role_and_what_they_do_is_in_the_audit_log() {
    let place = Place::new();
    let server = place.start();
    let add = place.consign(&["user", "add", "ann", "--role", "viewer"]);
    assert_eq!(code(&add), 0, "{}", text(&add.stderr));
    let password = text(&add.stdout).trim().to_owned();
    assert!(password.starts_with("cu_"), "{password}");
    let again = place.consign(&["user", "add", "ann", "--role", "admin"]);
    let said = text(&again.stderr);
    assert!(code(&again) == 4 && said.contains("set-role"), "{said}");
    let sign_in = |password: &str| {
        let basic = data_encoding::BASE64.encode(format!("ann:{password}").as_bytes());
        server
            .http()
            .header("Authorization", &format!("Basic {basic}"))
    };
    let dashboard = |password: &str| super::get(&mut sign_in(password), "/admin/dashboard").status;
    let cleanup = |password: &str| {
        let body = serde_json::json!({});
        sign_in(password)
            .post("/admin/cleanup", &body)
            .unwrap()
            .status
    };
    assert_eq!((dashboard(&password), cleanup(&password)), (200, 403));
    let role = place.consign(&["user", "set-role", "ann", "operator"]);
    assert_eq!(code(&role), 0, "{}", text(&role.stderr));
    assert_eq!(cleanup(&password), 200);

    let file = place.path("password");
    std::fs::write(&file, "a password from a file\n").unwrap();
    let file = file.to_str().unwrap();
    let set = place.consign(&["user", "set-password", "ann", "--password-file", file]);
    assert_eq!((code(&set), text(&set.stdout).as_str()), (0, ""));
    assert_eq!(dashboard(&password), 401);
    assert_eq!(dashboard("a password from a file"), 200);
    let listed = text(&place.consign(&["user", "list"]).stdout);
    assert!(
        listed.contains("ann") && listed.contains("operator"),
        "{listed}"
    );
    let dry = place.consign(&["user", "remove", "ann", "--dry-run"]);
    assert_eq!(code(&dry), 0);
    let removed = printed(&place.consign(&["user", "remove", "ann", "--yes", "--json"]));
    assert_eq!(removed["removed"], true);
    assert_eq!(dashboard("a password from a file"), 401);
    assert_eq!(code(&place.consign(&["user", "remove", "ann", "--yes"])), 3);

    // A key with a scope of operators takes the place of the admin token, as far as the scope goes.
    let reader = [
        "key",
        "create",
        "--name",
        "r",
        "--scope",
        "admin-read",
        "--json",
    ];
    let reader = word(&printed(&place.consign(&reader))["api_key"]);
    let as_reader = |args: &[&str]| place.consign_with(args, &[("CONSIGN_ADMIN_TOKEN", &reader)]);
    let listed = as_reader(&["key", "list"]);
    assert_eq!(code(&listed), 0, "{}", text(&listed.stderr));
    let refused = as_reader(&["user", "add", "eve", "--role", "admin"]);
    let said = text(&refused.stderr);
    assert!(
        code(&refused) == 4 && said.contains("the scope admin"),
        "{said}"
    );

    let log = text(&place.consign(&["audit", "list", "--since", "1h"]).stdout);
    for part in [
        "user.add",
        "user ann",
        "cleanup.run",
        "forbidden",
        "admin-token",
        "user.remove",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let exported = text(
        &place
            .consign(&["audit", "export", "--action", "user"])
            .stdout,
    );
    let actions: Vec<String> = exported
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            word(&entry["action"])
        })
        .collect();
    let expected = [
        "user.add",
        "user.remove",
        "user.remove",
        "user.change",
        "user.change",
        "user.add",
        "user.add",
    ];
    assert_eq!(actions, expected);
    assert!(!exported.contains(&password) && !exported.contains("from a file"));
    // Guesses at the passwords of users count like all others.
    assert!((0..12).any(|_| dashboard("a guess") == 429));
}
