//! The commands of Beam against a running server: their output for people and for programs, their exit codes, and errors that
//! name the next step.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::thread;

use consign_testkit::process::Server;
use serde_json::{Value, json};

use super::beam_world::{BeamAgent, INTENT, OPERATOR, next_intent, until};
use super::{Place, code, printed, start, text, word};

const ALICE: &str = "alice@acme.beam.directory";
const BOB: &str = "bob@acme.beam.directory";
const SECRET: (&str, &str) = (
    "BEAM_FEDERATION_SHARED_SECRET",
    "a-federation-secret-of-the-tests",
);

/// All commands, with arguments that need a server.
const COMMANDS: &[&[&str]] = &[
    &["agent", "register", "x", "--key", "x.json", "--dry-run"],
    &["agent", "list"],
    &["agent", "show", ALICE],
    &["agent", "rotate", "--key", "x.json"],
    &["agent", "revoke", "KEY", "--key", "x.json"],
    &["message", "send", "--from", "x.json", BOB, INTENT],
    &["message", "poll", BOB],
    &["message", "ack", "0"],
    &["message", "history"],
    &["message", "requeue", "0"],
    &["message", "stats"],
    &["message", "list"],
    &["message", "overview"],
    &["message", "errors"],
    &["message", "trace", "n-1"],
    &["peer", "add", "https://peer.example"],
    &["peer", "list"],
    &["peer", "remove", "https://peer.example"],
    &["acl", "allow", BOB, INTENT, ALICE],
    &["acl", "deny", BOB, INTENT, ALICE],
    &["acl", "list", BOB],
];

/// The path of an identity in the place of the test.
fn identity(place: &Place, name: &str) -> String {
    let path = place.path(&format!("{name}.beam.json"));
    path.to_string_lossy().into_owned()
}

/// Registers an agent of acme and returns the file of its identity.
fn register(place: &Place, name: &str) -> String {
    let file = identity(place, name);
    let args = ["agent", "register", name, "--org", "acme", "--key", &file];
    done(&place.consign(&args));
    file
}

/// The standard output of a command that succeeded.
#[track_caller]
pub(crate) fn done(output: &Output) -> String {
    assert_eq!(code(output), 0, "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A failure with its exit code, an error, and a hint that contains this text.
#[track_caller]
fn fails(output: &Output, exit: i32, error: &str, hint: &str) {
    let told = text(&output.stderr);
    assert_eq!(code(output), exit, "{told}");
    let mut lines = told.lines();
    let first = lines.next().unwrap_or_default();
    assert!(
        first.starts_with("error: ") && first.contains(error),
        "{told}"
    );
    let second = lines.next().unwrap_or_default();
    assert!(
        second.starts_with("hint: ") && second.contains(hint),
        "{told}"
    );
    assert_eq!(text(&output.stdout), "");
}

/// A line of a table or of a list of fields, which begins and ends with these words.
#[track_caller]
fn has_line(shown: &str, begins: &str, ends: &str) {
    let is_it = |line: &str| line.starts_with(begins) && line.trim_end().ends_with(ends);
    assert!(shown.lines().any(is_it), "{begins} … {ends}:\n{shown}");
}

/// Bob, connected, answers one intent with this result while the command runs.
fn answered(server: &Server, success: bool, run: impl FnOnce() -> Output) -> Output {
    let mut socket = BeamAgent::new("bob", 2).connect(server);
    let answering = thread::spawn(move || {
        let nonce = word(&next_intent(&mut socket)["nonce"]);
        let mut frame = json!({
            "v": "1", "success": success, "nonce": nonce, "timestamp": "2026-01-01T00:00:00.000Z",
        });
        if success {
            frame["payload"] = json!({"message": "hello back"});
        } else {
            frame["error"] = json!("sold out");
            frame["errorCode"] = json!("NO_STOCK");
        }
        socket
            .send_json(&json!({"type": "result", "frame": frame}))
            .unwrap();
        socket
    });
    let output = run();
    answering.join().unwrap();
    output
}

#[test]
fn agents_are_registered_listed_shown_and_rotated() {
    let place = Place::new();
    let server = place.start();
    let none = place.consign(&["agent", "list"]);
    assert_eq!(
        (done(&none).as_str(), text(&none.stderr).as_str()),
        ("", "no agents\n")
    );
    let file = identity(&place, "alice");
    let args = [
        "agent", "register", "Alice", "--org", "acme", "--key", &file,
    ];
    let dry = printed(&place.consign(&[&args[..], &["--dry-run", "--json"]].concat()));
    assert_eq!(
        (&dry["registered"], &dry["api_key"], &dry["beam_id"]),
        (&json!(false), &Value::Null, &json!(ALICE))
    );
    assert!(!place.path("alice.beam.json").exists());
    let more = ["--capability", "quote", "--public", "--json"];
    let made = printed(&place.consign(&[&args[..], &more].concat()));
    assert_eq!(made["identity_created"], true);
    assert!(word(&made["api_key"]).starts_with("bk_"));
    assert_eq!(super::mode(&place.path("alice.beam.json")), 0o600);
    let mut by_key = server
        .http()
        .header("x-api-key", &word(&made["api_key"]))
        .header("x-forwarded-for", "203.0.113.7");
    assert_eq!(by_key.get("/intents/recent").unwrap().status, 200);

    // Again, by its Beam-ID: name, capabilities and visibility stay, and the earlier API key ends.
    let again = place.consign(&["agent", "register", ALICE, "--key", &file]);
    has_line(&done(&again), "beam id", ALICE);
    assert!(text(&again.stderr).contains("no longer valid"));
    assert_eq!(by_key.get("/intents/recent").unwrap().status, 401);
    let shown = done(&place.consign(&["agent", "show", ALICE]));
    for (name, value) in [
        ("name", "Alice"),
        ("capabilities", "quote"),
        ("visibility", "public"),
        ("connected", "false"),
    ] {
        has_line(&shown, name, value);
    }
    let listed = done(&place.consign(&["agent", "list", "--org", "acme", "--capability", "quote"]));
    has_line(&listed, ALICE, "Alice");
    let other = printed(&place.consign(&["agent", "list", "--org", "other", "--json"]));
    assert_eq!(other["agents"], json!([]));

    let rotate = ["agent", "rotate", "--key", &file, "--json"];
    let dry = printed(&place.consign(&[&rotate[..], &["--dry-run"]].concat()));
    assert_eq!(
        (&dry["rotated"], &dry["public_key"]),
        (&json!(false), &Value::Null)
    );
    let rotated = printed(&place.consign(&rotate));
    assert_eq!(rotated["previous_key"], dry["previous_key"]);
    let shown = done(&place.consign(&["agent", "show", ALICE]));
    let (old, new) = (word(&rotated["previous_key"]), word(&rotated["public_key"]));
    has_line(&shown, &format!("{new}  active"), "Z");
    has_line(&shown, &format!("{old}  revoked"), "Z");
    has_line(&done(&place.consign(&rotate[..4])), "previous key", &new);

    // Keys that cannot be revoked.
    let current = printed(&place.consign(&["agent", "show", ALICE, "--json"]));
    let current = word(&current["keyState"]["active"]["publicKey"]);
    let revoke = |key: &str| place.consign(&["agent", "revoke", key, "--key", &file, "--yes"]);
    fails(&revoke(&current), 4, "current key", "consign agent rotate");
    assert_eq!(code(&revoke(&old)), 4);
    let asked = place.consign(&["agent", "revoke", &old, "--key", &file]);
    fails(&asked, 2, "confirmation", "--yes");
    let dry = [
        "agent",
        "revoke",
        &old,
        "--key",
        &file,
        "--dry-run",
        "--json",
    ];
    assert_eq!(printed(&place.consign(&dry))["revoked"], false);
}

#[test]
fn errors_about_agents_name_the_next_step() {
    let place = Place::new();
    let _server = place.start();
    let file = register(&place, "alice");
    let other = identity(&place, "other");
    let nobody = "nobody@acme.beam.directory";
    let show = |id: &str| place.consign(&["agent", "show", id]);
    fails(&show(nobody), 3, "not found", "consign agent list");
    fails(
        &show("alice"),
        4,
        "INVALID_BEAM_ID",
        "alice@acme.beam.directory",
    );
    let unnamed = place.consign(&["agent", "register", "!!!", "--key", &other]);
    fails(&unnamed, 2, "gives no Beam-ID", "letters or digits");
    let taken = place.consign(&["agent", "register", ALICE, "--key", &other]);
    fails(&taken, 4, "KEY_ROTATION_REQUIRED", "--key");
    assert!(
        !place.path("other.beam.json").exists(),
        "a refused key is not kept"
    );
    let mixed = place.consign(&["agent", "register", "bob", "--org", "acme", "--key", &file]);
    fails(&mixed, 2, "belongs to", "--key");
    let rotated = place.consign(&["agent", "rotate", "--key", &other]);
    fails(&rotated, 3, "file not found", "consign agent register");
    let endpoint = ["--http-endpoint", "http://127.0.0.1:9/"];
    let private = ["agent", "register", "x", "--org", "acme", "--key", &other];
    let private = place.consign(&[&private[..], &endpoint].concat());
    fails(&private, 4, "INVALID_HTTP_ENDPOINT", "BEAM_ALLOW_TARGETS");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let loose = place.consign(&["agent", "rotate", "--key", &file]);
    fails(&loose, 1, "open to other users", "chmod 600");
}

#[test]
fn an_intent_is_allowed_sent_and_traced() {
    let place = Place::new();
    let mut server = place.start();
    let alice = register(&place, "alice");
    register(&place, "bob");
    let message = r#"{"message":"hello"}"#;
    let nonce = "00000000-0000-4000-8000-000000000001";
    let send = [
        "message", "send", "--from", &alice, BOB, INTENT, message, "--nonce", nonce,
    ];
    fails(&place.consign(&send), 4, "ACL denied", "consign acl allow");

    let rule = [BOB, INTENT, "*@acme.beam.directory"];
    let acl =
        |verb: &str, more: &[&str]| place.consign(&[&["acl", verb][..], &rule, more].concat());
    let none = place.consign(&["acl", "list", BOB]);
    assert!(text(&none.stderr).contains("every sender is refused"));
    assert_eq!(code(&acl("allow", &["--dry-run"])), 0);
    fails(
        &acl("deny", &[]),
        3,
        "nothing was removed",
        "consign acl list",
    );
    assert_eq!(printed(&acl("allow", &["--json"]))["allowed_from"], rule[2]);
    let listed = done(&place.consign(&["acl", "list", BOB]));
    assert!(
        listed.contains(INTENT) && listed.contains(rule[2]),
        "{listed}"
    );
    let useless = place.consign(&["acl", "allow", BOB, INTENT, "alice"]);
    fails(&useless, 2, "matches no sender", "'*@acme.beam.directory'");
    let unknown = place.consign(&["acl", "allow", "eve@acme.beam.directory", INTENT, "*"]);
    fails(&unknown, 4, "not registered", "consign agent register");

    fails(&place.consign(&send), 1, "OFFLINE", "--bus");
    let dry = place.consign(&[&send[..], &["--dry-run"]].concat());
    let frame: Value = serde_json::from_str(&done(&dry)).unwrap();
    assert_eq!(
        (&frame["from"], &frame["nonce"]),
        (&json!(ALICE), &json!(nonce))
    );
    assert!(frame["signature"].is_string());
    let sent = done(&answered(&server, true, || place.consign(&send)));
    has_line(&sent, "success", "true");
    has_line(&sent, "payload", r#"{"message":"hello back"}"#);
    // The same nonce again: no recipient is needed.
    let again = printed(&place.consign(&[&send[..], &["--json"]].concat()));
    assert_eq!(again["payload"]["message"], "hello back");
    let refused = answered(&server, false, || place.consign(&send[..7]));
    assert_eq!(code(&refused), 1);
    has_line(&text(&refused.stdout), "error code", "NO_STOCK");
    let wrong = place.consign(&[&send[..6], &["{"]].concat());
    fails(&wrong, 2, "the payload is not JSON", "quote it");

    // Without operators, the command says which variable to set; with them, who may read.
    let trace = ["message", "trace", nonce];
    for more in [&[][..], &["--email", OPERATOR]] {
        let output = place.consign(&[&trace[..], more].concat());
        fails(&output, 1, "not configured", "BEAM_ADMIN_EMAILS");
    }
    server.kill9().unwrap();
    let _server = start(&place.options().env("BEAM_ADMIN_EMAILS", OPERATOR));
    fails(&place.consign(&trace), 4, "UNAUTHORIZED", "--email");
    let stranger = place.consign(&[&trace[..], &["--email", "eve@example.com"]].concat());
    fails(&stranger, 4, "not authorized", "BEAM_ADMIN_EMAILS");
    let by_operator = ["--email", OPERATOR];
    let shown = done(&place.consign(&[&trace[..], &by_operator].concat()));
    has_line(&shown, "status", "acked");
    for stage in ["received", "failed", "queued", "delivered", "acked"] {
        assert!(shown.contains(&format!("Z  {stage}")), "{stage}:\n{shown}");
    }
    let json = [&trace[..], &by_operator, &["--json"]].concat();
    let stages = printed(&place.consign(&json))["stages"].clone();
    assert_eq!(stages[0]["stage"], "received");
    let missing = ["message", "trace", "no-such-nonce", "--email", OPERATOR];
    assert_eq!(code(&place.consign(&missing)), 3);
    assert_eq!(printed(&acl("deny", &["--json"]))["removed"], true);
    assert_eq!(
        printed(&place.consign(&["acl", "list", BOB, "--json"]))["acl"],
        json!([])
    );
}

#[test]
fn a_message_of_the_bus_is_polled_acknowledged_and_requeued() {
    let place = Place::new();
    let mut server = place.start();
    let alice = register(&place, "alice");
    register(&place, "bob");
    done(&place.consign(&["acl", "allow", BOB, INTENT, ALICE]));
    let send = [
        "message",
        "send",
        "--from",
        &alice,
        BOB,
        INTENT,
        r#"{"message":"hello"}"#,
        "--bus",
    ];
    // The bus has no identity to sign with.
    let unsigned = place.consign(&send);
    assert_eq!(code(&unsigned), 1);
    has_line(&text(&unsigned.stdout), "status", "dead_letter");
    let told = text(&unsigned.stderr);
    assert!(told.contains("BEAM_BUS_IDENTITY_PATH"), "{told}");
    let history = printed(&place.consign(&["message", "history", "--json"]));
    let dead = word(&history["messages"][0]["id"]);
    server.kill9().unwrap();
    let identity: Value = serde_json::from_slice(&std::fs::read(&alice).unwrap()).unwrap();
    let bundle = place.path("bundle.json");
    std::fs::copy(&alice, &bundle).unwrap();
    std::fs::write(&bundle, json!({"alice": identity}).to_string()).unwrap();
    let options = place.options();
    let server = start(&options.env("BEAM_BUS_IDENTITY_PATH", &bundle.to_string_lossy()));

    let poll = ["message", "poll", BOB];
    let none = place.consign(&poll);
    assert_eq!(
        (code(&none), text(&none.stderr).as_str()),
        (3, "no messages\n")
    );
    let requeued = answered(&server, true, || {
        place.consign(&["message", "requeue", &dead])
    });
    has_line(&done(&requeued), "status", "delivered");
    let listed = done(&place.consign(&poll));
    has_line(&listed, &dead, r#"{"message":"hello"}"#);
    let id = |output: &Output| word(&printed(output)["message_id"]);
    let second = id(&answered(&server, true, || {
        place.consign(
            &[
                &send[..],
                &["--json", "--priority", "3", "--trace-id", "t-1"],
            ]
            .concat(),
        )
    }));
    let waiting = printed(&place.consign(&[&poll[..], &["--wait", "5", "--json"]].concat()));
    assert_eq!(waiting["messages"].as_array().map(Vec::len), Some(2));

    let acked = place.consign(&["message", "ack", &dead, "--response", r#"{"ok":true}"#]);
    assert_eq!(
        (done(&acked).as_str(), text(&acked.stderr)),
        ("", format!("message {dead} is acked\n"))
    );
    let failed = place.consign(&["message", "ack", &second, "--failed", "--json"]);
    assert_eq!(printed(&failed)["status"], "failed");
    assert_eq!(code(&place.consign(&poll)), 3);
    let wrong = place.consign(&["message", "ack", &dead, "--failed"]);
    fails(&wrong, 4, "INVALID_STATE", "consign message history");
    for verb in ["ack", "requeue"] {
        let missing = place.consign(&["message", verb, "00000000000000000000000000000000"]);
        fails(&missing, 3, "not found", "consign message history");
        assert_eq!(
            code(&place.consign(&["message", verb, &second, "--dry-run"])),
            0
        );
    }
    let history = done(&place.consign(&["message", "history", "--recipient", BOB]));
    let all = printed(&place.consign(&["message", "history", "--recipient", BOB, "--json"]));
    let nonce = all["messages"].as_array().unwrap().iter();
    let mut nonce = nonce.filter(|message| message["id"] == dead.as_str());
    let nonce = word(&nonce.next().unwrap()["nonce"]);
    has_line(&history, &format!("{dead}  acked"), &nonce);
    has_line(&history, &format!("{second}  failed"), "failed");
    let only = ["message", "history", "--status", "acked", "--json"];
    let only = printed(&place.consign(&only));
    assert_eq!(only["messages"].as_array().map(Vec::len), Some(1));
    let nonsense = place.consign(&["message", "history", "--status", "nonsense"]);
    assert_eq!(code(&nonsense), 2);
    assert!(text(&nonsense.stderr).contains("dead_letter"));
}

#[test]
fn peers_are_added_listed_and_removed() {
    let (place, other) = (Place::new(), Place::new());
    let far = start(&other.options().env(SECRET.0, SECRET.1));
    register(&other, "bob");
    let allowed = format!("{},127.0.0.1:1", far.authority());
    let options = place.options().env(SECRET.0, SECRET.1);
    let _near = start(&options.env("BEAM_ALLOW_TARGETS", &allowed));
    let url = far.base_url();
    let peer = |args: &[&str]| place.consign_with(&[&["peer"], args].concat(), &[SECRET]);
    fails(&place.consign(&["peer", "list"]), 2, "is missing", SECRET.0);
    // A token makes the secret optional; this one is no session of an administrator.
    let token = ["peer", "list", "--token", "not-a-session"];
    let token = place.consign(&token);
    fails(&token, 4, "FEDERATION_UNAUTHORIZED", SECRET.0);
    let wrong = place.consign_with(&["peer", "list"], &[(SECRET.0, "another")]);
    fails(&wrong, 4, "FEDERATION_UNAUTHORIZED", SECRET.0);
    assert_eq!(text(&peer(&["list"]).stderr), "no peers\n");
    assert_eq!(code(&peer(&["add", url, "--dry-run"])), 0);
    let added = printed(&peer(&["add", url, "--trust-level", "0.7", "--json"]));
    assert_eq!(
        (&added["directoryUrl"], &added["trustLevel"]),
        (&json!(url), &json!(0.7))
    );
    let listed = done(&peer(&["list"]));
    has_line(&listed, &format!("{url}  active  0.7"), "Z");
    fails(
        &peer(&["add", "http://127.0.0.1:2"]),
        4,
        "INVALID_PEER",
        "BEAM_ALLOW_TARGETS",
    );
    fails(
        &peer(&["add", "http://127.0.0.1:1"]),
        1,
        "FEDERATION_ERROR",
        "is registered",
    );
    let file = place.path("secret");
    std::fs::write(&file, SECRET.1).unwrap();
    let by_file = ["peer", "list", "--json", "--secret-file"];
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_string_lossy();
    let listed = printed(&place.consign(&[&by_file[..], &[&*file]].concat()));
    assert_eq!(listed["total"], 2);

    fails(&peer(&["remove", url]), 2, "confirmation", "--yes");
    assert_eq!(
        printed(&peer(&["remove", url, "--dry-run", "--json"]))["removed"],
        false
    );
    assert_eq!(
        printed(&peer(&["remove", url, "--yes", "--json"]))["removed"],
        true
    );
    fails(
        &peer(&["remove", url, "--yes"]),
        3,
        "not found",
        "consign peer list",
    );
    until("one peer is left", || {
        (printed(&peer(&["list", "--json"]))["total"] == 1).then_some(())
    });
}

#[test]
fn every_command_of_beam_has_an_example_and_says_that_no_server_runs() {
    let place = Place::new();
    for args in COMMANDS {
        let help = done(&place.consign(&[&args[..2], &["--help"]].concat()));
        assert!(
            help.contains(&format!("consign {} {}", args[0], args[1])),
            "{help}"
        );
        assert!(
            help.contains("Example:\n") && help.contains("--json"),
            "{help}"
        );
    }
    let server = place.start();
    let file = register(&place, "alice");
    drop(server);
    for args in COMMANDS {
        let args = args
            .iter()
            .map(|arg| if *arg == "x.json" { file.as_str() } else { arg });
        let args = args.filter(|arg| *arg != "--dry-run" && *arg != "x");
        let mut args: Vec<&str> = args.collect();
        if args[..2] == ["agent", "register"] {
            args.push(ALICE);
        }
        if ["revoke", "remove"].contains(&args[1]) {
            args.push("--yes");
        }
        let output = place.consign_with(&args, &[SECRET]);
        fails(&output, 5, "", "consign serve");
    }
}
