//! Agent transactions on the command line: from an intent to a publicly verifiable receipt, with failures at every step.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use consign_testkit::process::{self, Server};
use consign_transactions::document::AgentSigner;
use serde_json::{Value, json};

use super::{Place, binary, code, get, mode, printed, start, text, word};

const SITE: &str = "https://shop.example";
const CREATE: [&str; 8] = [
    "tx",
    "create",
    "--purpose",
    "a book",
    "--action",
    "pay",
    "--amount-cents",
    "1500",
];

fn serve(place: &Place, rail: &str) -> Server {
    let options = place.options().env("ATP_SITE", SITE).env("ATP_RAIL", rail);
    start(&options.env("ATP_EXECUTE_WAIT_SECONDS", "0.1"))
}

/// Runs a command of the agent whose state directory is `agent` in this place.
fn tx(place: &Place, args: &[&str]) -> Output {
    let state = place.path("agent");
    place.consign(&[args, &["--state", &state.to_string_lossy()]].concat())
}

fn created(place: &Place, more: &[&str]) -> String {
    let made = tx(place, &[&CREATE, more, &["--json"]].concat());
    word(&printed(&made)["intent_id"])
}

fn authorized(place: &Place, more: &[&str]) -> String {
    let id = created(place, more);
    let consent = printed(&tx(place, &["tx", "authorize", &id, "--json"]));
    assert_eq!(consent["state"], "authorized");
    id
}

fn settled(place: &Place) -> (String, Value) {
    let id = authorized(place, &[]);
    let row = printed(&tx(place, &["tx", "execute", &id, "--json"]));
    assert_eq!(row["state"], "settled");
    (id, row)
}

/// Writes a file in this place and returns its path.
fn saved(place: &Place, name: &str, content: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn a_receipt_of_a_transaction_is_checked_offline_and_only_by_a_pinned_key() {
    let place = Place::new();
    let mut server = serve(&place, "null");
    let (id, row) = settled(&place);
    created(&place, &["--id", "int_other"]);
    let shown = place.consign(&["receipt", "show", &word(&row["receipt"]["receipt_id"])]);
    let receipt = text(&shown.stdout);
    let keys = place.consign(&["site", "key", "show", "--json"]);
    let public = word(&printed(&keys)["keys"][0]["public_key"]);
    let keys = saved(&place, "keys.json", &text(&keys.stdout));
    let manifest = get(&mut server.http(), "/.well-known/wab.json").text();
    let manifest = saved(&place, "wab.json", &manifest);
    assert!(server.terminate(super::PATIENCE).unwrap().success());

    let file = saved(&place, "receipt.json", &receipt);
    let verify = |file: &str, pin: &[&str]| {
        place.consign(&[&["receipt", "verify", file, "--json"], pin].concat())
    };
    let pins = [
        ["--site-keys", &keys],
        ["--site-keys", &manifest],
        ["--site-key", &public],
    ];
    for pin in pins {
        let verified = printed(&verify(&file, &pin));
        assert_eq!(
            (
                &verified["valid"],
                &verified["receipt"]["transaction"]["amount_cents"]
            ),
            (&true.into(), &1500.into())
        );
    }
    let whole = saved(&place, "row.json", &row.to_string());
    assert_eq!(printed(&verify(&whole, &pins[0]))["valid"], true);

    let [own, other] = [id, "int_other".to_owned()].map(|id| {
        let path = place.path("agent").join(format!("intent-{id}/intent.json"));
        path.to_string_lossy().into_owned()
    });
    let about = |intent: &str| verify(&file, &["--site-keys", &keys, "--intent", intent]);
    assert_eq!(printed(&about(&own))["valid"], true);
    assert_eq!(code(&about(&other)), 1, "a receipt of something else");

    let unpinned = verify(&file, &[]);
    assert_eq!(code(&unpinned), 2, "{unpinned:?}");
    let altered = saved(&place, "altered.json", &receipt.replace("1500", "1400"));
    let forged = saved(&place, "forged.json", &forged(&receipt));
    for (file, reason) in [(&altered, "signature_mismatch"), (&forged, "unknown_key")] {
        for pin in pins {
            let refused = verify(file, &pin);
            assert_eq!(code(&refused), 1, "{refused:?}");
            let said: Value = serde_json::from_slice(&refused.stdout).unwrap();
            assert_eq!(
                (&said["valid"], &said["reason"]),
                (&false.into(), &reason.into())
            );
        }
    }
}

/// The same claims, signed with the key of an attacker, which is included.
fn forged(receipt: &str) -> String {
    let mut receipt: Value = serde_json::from_str(receipt).unwrap();
    receipt.as_object_mut().unwrap().remove("signature");
    let stranger = AgentSigner::from_seed(&[7; 32]);
    let signed: Value = serde_json::from_str(&stranger.sign(&receipt).unwrap()).unwrap();
    receipt["signature"] = json!({
        "algorithm": "ed25519",
        "value": signed["signature"],
        "key_id": stranger.public().id(),
        "public_key": stranger.public().to_string(),
    });
    receipt.to_string()
}

#[test]
fn what_was_done_is_undone_once_and_both_receipts_stay_good_after_a_rotation() {
    let place = Place::new();
    let _server = serve(&place, "null");
    let (id, _) = settled(&place);
    let undo = [
        "tx",
        "compensate",
        &id,
        "--reason",
        "changed my mind",
        "--json",
    ];
    let undone = printed(&tx(&place, &undo));
    assert_eq!(undone["state"], "compensated");
    assert_eq!(
        printed(&tx(&place, &undo)),
        undone,
        "the same again is the same"
    );
    let again = tx(&place, &["tx", "execute", &id, "--json"]);
    assert_eq!(code(&again), 1, "what is undone is no success");

    let rotate = ["site", "key", "rotate", "--json"];
    assert_eq!(code(&place.consign(&rotate)), 2, "a script must say --yes");
    let dry = printed(&place.consign(&[&rotate[..], &["--dry-run"]].concat()));
    let new = printed(&place.consign(&[&rotate[..], &["--yes"]].concat()));
    assert_eq!(
        (&dry["rotated"], &new["rotated"]),
        (&false.into(), &true.into())
    );
    assert_ne!(dry["public_key"], new["public_key"]);

    let keys = place.consign(&["site", "key", "show", "--json"]);
    assert_eq!(printed(&keys)["keys"].as_array().map(Vec::len), Some(2));
    let keys = saved(&place, "keys.json", &text(&keys.stdout));
    let listed = printed(&place.consign(&["receipt", "list", &id, "--json"]));
    let all = printed(&place.consign(&["receipt", "list", "--json"]));
    assert_eq!(listed, all);
    for (at, kind) in ["atp.receipt.v1", "atp.compensation.v1"].iter().enumerate() {
        assert_eq!(listed[at]["type"], *kind);
        let file = saved(&place, "receipt.json", &listed[at].to_string());
        let verified = place.consign(&["receipt", "verify", &file, "--site-keys", &keys, "--json"]);
        assert_eq!(printed(&verified)["key_status"], "previous");
    }
    let [settlement, undo] =
        [0, 1].map(|at| saved(&place, &format!("{at}.json"), &listed[at].to_string()));
    for (original, ended) in [(&settlement, 0), (&undo, 1)] {
        let verify = ["receipt", "verify", &undo, "--site-keys", &keys];
        let verified = place.consign(&[&verify[..], &["--original", original]].concat());
        assert_eq!(code(&verified), ended, "{verified:?}");
    }
}

#[test]
fn a_key_is_announced_once_and_signs_after_the_rotation() {
    let place = Place::new();
    let _server = serve(&place, "null");
    let announce = |more: &[&str]| {
        let args = [&["site", "key", "announce"], more].concat();
        place.consign(&args)
    };
    let dry = printed(&announce(&["--dry-run", "--json"]));
    assert_eq!(
        (&dry["announced"], &dry["next_public_key"]),
        (&false.into(), &Value::Null)
    );
    let human = announce(&["--dry-run"]);
    assert!(
        text(&human.stderr).contains("nothing was sent"),
        "{human:?}"
    );
    let statuses = || {
        let keys = printed(&place.consign(&["site", "key", "show", "--json"]));
        let keys = keys["keys"].as_array().unwrap().clone();
        keys.iter()
            .map(|key| word(&key["status"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(), ["current"], "a dry run makes nothing");

    let announced = printed(&announce(&["--json"]));
    assert_eq!(announced["announced"], true);
    let next = word(&announced["next_public_key"]);
    assert!(statuses().contains(&"next".to_owned()));
    let again = announce(&[]);
    assert_eq!(text(&again.stdout).trim(), next, "it stays the same one");
    let dry = printed(&announce(&["--dry-run", "--json"]));
    assert_eq!(dry["next_public_key"], next.as_str());
    let stranger = announce(&["--admin-token", "wrong"]);
    assert_eq!(code(&stranger), 4, "{stranger:?}");

    let rotate = ["site", "key", "rotate", "--yes", "--json"];
    let rotated = printed(&place.consign(&rotate));
    assert_eq!(rotated["public_key"], next.as_str());
}

#[test]
fn at_085_a_key_that_somebody_else_has_is_revoked() {
    let place = Place::new();
    let _server = serve(&place, "null");
    let id = authorized(&place, &[]);
    let settled = printed(&tx(&place, &["tx", "execute", &id, "--json"]));
    let receipt = saved(&place, "receipt.json", &settled["receipt"].to_string());
    let keys = || printed(&place.consign(&["site", "key", "show", "--json"]))["keys"].clone();
    let old = word(&keys()[0]["key_id"]);
    let revoke = |id: &str, more: &[&str]| {
        let args = [&["site", "key", "revoke", id, "--json"], more].concat();
        place.consign(&args)
    };
    let current = revoke(&old, &["--yes"]);
    assert_eq!(code(&current), 2, "it signs");
    assert!(text(&current.stderr).contains("site key rotate"));
    assert_eq!(code(&revoke("nobodys", &["--yes"])), 3);
    printed(&place.consign(&["site", "key", "rotate", "--yes", "--json"]));
    assert_eq!(code(&revoke(&old, &[])), 2, "a script must say --yes");
    let dry = printed(&revoke(&old, &["--dry-run"]));
    assert_eq!(dry["revoked"], false);
    let verified = || {
        let kept = text(&place.consign(&["site", "key", "show", "--json"]).stdout);
        let kept = saved(&place, "keys.json", &kept);
        code(&place.consign(&["receipt", "verify", &receipt, "--site-keys", &kept]))
    };
    assert_eq!(verified(), 0, "nothing was sent");
    let done = printed(&revoke(&old, &["--yes"]));
    assert_eq!(
        (&done["revoked"], word(&done["key_id"])),
        (&true.into(), old)
    );
    assert_ne!(verified(), 0);
}

#[test]
fn whoever_takes_real_money_from_anybody_is_warned_once() {
    let place = Place::new();
    let real = || {
        let options = place
            .options()
            .env("ATP_SITE", SITE)
            .env("ATP_RAIL", "http");
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        options
            .env("ATP_HTTP_BASE", "http://127.0.0.1:9")
            .env("ATP_HTTP_SECRET", secret)
    };
    let warnings = |server: &Server| server.stderr().matches("any agent key").count();
    let mut server = start(&real());
    let said = server.stderr();
    assert_eq!(warnings(&server), 1, "{said}");
    assert!(said.contains("ATP_AGENT_KEYS=registered"), "{said}");
    assert!(!said.contains("knows an intent's id"), "{said}");
    server.terminate(super::PATIENCE).unwrap();
    let agent = "ed25519:oJql9HpnWYAv+VX43C0qFKXJnSO+l/hkEn/5ODRVpPA=";
    let registered = || {
        let options = real().env("ATP_AGENT_KEYS", "registered");
        options.env("ATP_REGISTERED_KEYS", agent)
    };
    let mut server = start(&registered());
    // The log of this server is appended to that of the first one.
    let unsigned = |server: &Server| server.stderr().matches("knows an intent's id").count();
    let said = server.stderr();
    assert_eq!((warnings(&server), unsigned(&server)), (1, 0), "{said}");
    server.terminate(super::PATIENCE).unwrap();
    let server = start(&registered().env("ATP_SIGNED_REQUESTS", "false"));
    let said = server.stderr();
    assert_eq!((warnings(&server), unsigned(&server)), (1, 1), "{said}");
    assert!(said.contains("ATP_SIGNED_REQUESTS=false"), "{said}");
}

#[test]
fn operators_see_what_is_not_over_first_and_anybody_what_he_knows_the_id_of() {
    let place = Place::new();
    let _server = serve(&place, "worker");
    let id = authorized(&place, &[]);
    let open = tx(&place, &["tx", "execute", &id, "--wait", "0", "--json"]);
    assert_eq!(code(&open), 1);
    assert!(text(&open.stderr).contains("still in progress"), "{open:?}");
    let row: Value = serde_json::from_slice(&open.stdout).unwrap();
    assert_eq!(row["state"], "executing");

    let listed = printed(&place.consign(&["tx", "list", "--state", "executing", "--json"]));
    assert_eq!(
        listed["transactions"][0]["transaction_id"],
        row["transaction_id"]
    );
    let human = text(&place.consign(&["tx", "list"]).stdout);
    assert!(human.starts_with("TRANSACTION "), "{human}");
    let shown = printed(&place.consign(&["tx", "show", &word(&row["transaction_id"]), "--json"]));
    assert_eq!(shown["intent_id"], row["intent_id"]);
    let shown = printed(&place.consign(&["tx", "show", &id, "--json"]));
    assert_eq!(shown["state"], "executing");
    assert_eq!(code(&place.consign(&["tx", "show", "int_nobody"])), 3);
    let stranger = place.consign(&["tx", "list", "--admin-token", "wrong"]);
    assert_eq!(code(&stranger), 4);
}

#[test]
fn an_intent_that_was_withdrawn_is_over_and_its_id_means_one_thing() {
    let place = Place::new();
    let _server = serve(&place, "null");
    let id = created(&place, &["--id", "int_one"]);
    assert_eq!(
        created(&place, &["--id", "int_one"]),
        id,
        "the same again is the same"
    );
    let other = tx(
        &place,
        &[&CREATE[..], &["--id", "int_one", "--user-id", "u"]].concat(),
    );
    assert_eq!(code(&other), 2, "{other:?}");
    assert_eq!(
        code(&tx(&place, &["tx", "execute", &id])),
        4,
        "nobody consented"
    );
    let withdrawn = printed(&tx(&place, &["tx", "cancel", &id, "--json"]));
    assert_eq!(withdrawn["expired_reason"], "cancelled");
    let late = tx(&place, &["tx", "authorize", &id]);
    assert_eq!(code(&late), 4);
    assert!(text(&late.stderr).contains("intent_expired"), "{late:?}");
}

#[test]
fn the_agents_key_is_made_once_for_its_owner_alone_and_never_shown() {
    let place = Place::new();
    let first = tx(&place, &["tx", "key", "--json"]);
    let path = place.path("agent").join("agent_key");
    let secret = std::fs::read_to_string(&path).unwrap();
    assert_eq!((secret.trim().len(), mode(&path)), (64, 0o600));
    assert!(text(&first.stderr).contains("made the agent's secret key"));
    let again = tx(&place, &["tx", "key", "--json"]);
    assert_eq!(printed(&again)["public_key"], printed(&first)["public_key"]);
    assert_eq!(text(&again.stderr), "");
    for said in [&first.stdout, &first.stderr] {
        assert!(!text(said).contains(secret.trim()));
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&path, open).unwrap();
    assert_eq!(
        code(&tx(&place, &["tx", "key"])),
        1,
        "others may have read it"
    );
}

#[test]
fn a_dry_run_begins_nothing() {
    let place = Place::new();
    let _server = serve(&place, "null");
    let shown = printed(&tx(
        &place,
        &[&CREATE[..], &["--dry-run", "--json"]].concat(),
    ));
    assert_eq!(shown["body"]["site"], SITE);
    assert_eq!(shown["body"]["max_spend_cents"], 1500);
    assert!(!place.path("agent").exists());
    let id = authorized(&place, &[]);
    let execute = ["tx", "execute", &id, "--dry-run", "--json"];
    for _ in 0..2 {
        let shown = printed(&tx(&place, &execute));
        assert_eq!(
            (&shown["path"], &shown["begun"]),
            (&"/api/atp/execute".into(), &false.into())
        );
        let body = &shown["body"];
        assert_eq!(
            (&body["type"], &body["site"]),
            (&"atp.execute.v1".into(), &SITE.into())
        );
        assert!(
            body.get("signature").is_none(),
            "whoever reads it could send it"
        );
    }
}

#[test]
fn a_server_without_a_site_is_told_from_one_that_refuses() {
    let place = Place::new();
    let _server = place.start();
    let execute = ["tx", "execute", "int_1"];
    for args in [
        &CREATE[..],
        &execute,
        &["tx", "list"],
        &["site", "key", "show"],
    ] {
        let refused = place.consign_with(args, &[("CONSIGN_AGENT_STATE", "/nowhere")]);
        assert_eq!(code(&refused), 1, "{refused:?}");
        assert!(text(&refused.stderr).contains("serves no agent transactions"));
    }
}

/// The command of the agent as a process that is killed before it ends.
fn spawned(place: &Place, args: &[&str]) -> Child {
    let mut command = process::cleaned(&binary());
    command
        .args(args)
        .arg("--state")
        .arg(place.path("agent"))
        .env("CONSIGN_DATA", place.data())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads one complete request.
fn request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "it hung up in the middle of {text}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        if body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

/// Forwards a request and reads the beginning of its response, so that it is certainly executed.
fn forward(server: &Server, request: &str) {
    let mut stream = TcpStream::connect(server.authority()).unwrap();
    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut status = String::new();
    BufReader::new(&stream).read_line(&mut status).unwrap();
    assert!(status.starts_with("HTTP/1.1 20"), "{status}");
}

/// The point at which the client is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    BeforeTheServerHeard,
    BeforeTheAnswerCame,
}

/// Runs the command through a proxy of the test and kills it at this point. Returns the request that it sent.
fn killed(place: &Place, server: &Server, args: &[&str], at: Killed) -> String {
    let wire = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", wire.local_addr().unwrap());
    let mut child = spawned(place, &[args, &["--server", &address]].concat());
    let (mut stream, _) = wire.accept().unwrap();
    let sent = request(&mut stream);
    match at {
        Killed::BeforeTheServerHeard => {}
        Killed::BeforeTheAnswerCame => forward(server, &sent),
    }
    child.kill().unwrap();
    child.wait().unwrap();
    unsigned(&sent.replace(&address.replace("http://", ""), "SERVER"))
}

/// A request without the members that differ for each signature, and with its signed key.
fn unsigned(sent: &str) -> String {
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let mut body: Value = serde_json::from_str(body).unwrap();
    let members = body.as_object_mut().unwrap();
    for name in ["signature", "issued_at"] {
        assert!(members.remove(name).is_some(), "{sent}");
    }
    let key = members["idempotency_key"].as_str().unwrap();
    assert!(head.contains(&format!("idempotency-key: {key}")), "{sent}");
    let lines = head
        .lines()
        .filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    format!("{}\n{body}", lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_client_that_is_killed_anywhere_and_called_again_charges_once() {
    let place = Place::new();
    let server = serve(&place, "worker");
    // Five executions are allowed, so only the key prevents a repeated request from charging again.
    let id = created(&place, &["--max-executions", "5"]);
    let authorize = ["tx", "authorize", &id];
    let execute = ["tx", "execute", &id, "--wait", "0", "--json"];
    for args in [&authorize[..], &execute[..]] {
        let ways = [Killed::BeforeTheServerHeard, Killed::BeforeTheAnswerCame];
        let [unheard, unanswered] = ways.map(|at| killed(&place, &server, args, at));
        assert!(unheard.contains("idempotency-key: "), "{unheard}");
        assert_eq!(unheard, unanswered, "the same request, under the same key");
        let direct = tx(&place, args);
        assert!(code(&direct) < 2, "{direct:?}");
    }
    assert_eq!(effects(&place).len(), 1);

    let claimed = printed(&place.consign(&["intent", "claim", "--goal", "atp.effect", "--json"]));
    let (effect, token) = (word(&claimed["id"]), word(&claimed["claim_token"]));
    let done = place.consign(&["intent", "fulfil", &effect, "--token", &token]);
    assert_eq!(code(&done), 0, "{done:?}");
    let settled = printed(&tx(&place, &["tx", "execute", &id, "--json"]));
    assert_eq!(settled["state"], "settled");

    let undo = ["tx", "compensate", &id, "--reason", "no", "--wait", "0"];
    let first = killed(&place, &server, &undo, Killed::BeforeTheAnswerCame);
    let again = killed(&place, &server, &undo, Killed::BeforeTheAnswerCame);
    assert_eq!(first, again, "a refund is asked for once too");
    let goals: Vec<String> = effects(&place);
    assert_eq!(goals, ["atp.effect.refund", "atp.effect"]);
}

/// The goals of all requests to the rail, newest first. A request that is listed twice would be executed twice.
fn effects(place: &Place) -> Vec<String> {
    let listed = printed(&place.consign(&["intent", "list", "--json"]));
    let intents = listed["intents"].as_array().unwrap();
    intents.iter().map(|intent| word(&intent["goal"])).collect()
}

#[test]
fn an_execution_waits_for_a_server_that_comes_back() {
    let place = Place::new();
    let mut server = serve(&place, "null");
    let id = authorized(&place, &[]);
    let authority = server.authority().to_owned();
    server.kill9().unwrap();
    let mut waiting = spawned(&place, &["tx", "execute", &id, "--json", "--wait", "50"]);
    let mut said = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.ends_with("; trying again\n"), "{line}");
    let options = place.options().listen(&authority);
    let _server = start(&options.env("ATP_SITE", SITE).env("ATP_RAIL", "null"));
    let mut row = String::new();
    waiting
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut row)
        .unwrap();
    assert!(waiting.wait().unwrap().success());
    assert_eq!(
        serde_json::from_str::<Value>(&row).unwrap()["state"],
        "settled"
    );
}

/// The rail of the site was replaced while a transaction was in progress, so the old rail cannot be queried.
#[test]
fn an_operator_finds_what_is_in_doubt_and_says_what_became_of_it() {
    let place = Place::new();
    let options = place
        .options()
        .env("ATP_SITE", SITE)
        .env("ATP_RAIL", "http");
    // No process listens on this port.
    let options = options.env("ATP_HTTP_BASE", "http://127.0.0.1:9/atp");
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let options = options.env("ATP_HTTP_SECRET", secret);
    let mut server = start(&options.env("ATP_EXECUTE_WAIT_SECONDS", "0.1"));
    let ids: Vec<String> = (0..2)
        .map(|_| {
            let id = authorized(&place, &[]);
            let begun = tx(&place, &["tx", "execute", &id, "--wait", "1", "--json"]);
            assert!(!begun.status.success(), "{begun:?}");
            let shown = printed(&place.consign(&["tx", "show", &id, "--json"]));
            word(&shown["transactions"][0]["transaction_id"])
        })
        .collect();
    let early = [
        "tx",
        "resolve",
        &ids[0],
        "not_charged",
        "--reason",
        "impatient",
    ];
    let early = place.consign(&early);
    assert!(text(&early.stderr).contains("has no alert"), "{early:?}");
    server.terminate(Duration::from_secs(20)).unwrap();

    let _server = serve(&place, "null");
    let swept = printed(&place.consign(&["tx", "reconcile", "--json"]));
    assert_eq!(swept["swept"]["settled"], 0, "{swept}");
    // The server also checks by itself when it starts.
    let begun = Instant::now();
    let is_alarming = |one: &Value| {
        let alert = one["alert"].as_str();
        alert.is_some_and(|alert| alert.contains("ATP_RAIL=http"))
    };
    loop {
        let listed = printed(&place.consign(&["tx", "list", "--json"]));
        if listed["transactions"]
            .as_array()
            .unwrap()
            .iter()
            .all(is_alarming)
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{listed}");
    }
    let page = ["tx", "list", "--state", "executing", "--limit", "1"];
    let page = place.consign(&page);
    assert!(text(&page.stderr).contains("more: consign tx list --state executing --from "));
    let none = place.consign(&["receipt", "list"]);
    assert!(text(&none.stderr).contains("no receipts"), "{none:?}");

    let dry = [
        "tx",
        "resolve",
        &ids[0],
        "charged",
        "--reason",
        "seen",
        "--dry-run",
        "--json",
    ];
    assert_eq!(printed(&place.consign(&dry))["body"]["outcome"], "charged");
    for (id, said, state) in [
        (&ids[0], "charged", "settled"),
        (&ids[1], "not_charged", "compensated"),
    ] {
        let say = [
            "tx",
            "resolve",
            id,
            said,
            "--reason",
            "seen at the shop",
            "--json",
        ];
        let told = printed(&place.consign(&say));
        assert_eq!(told["transaction"]["state"], state, "{told}");
    }
    let receipts = printed(&place.consign(&["receipt", "list", "--json"]));
    assert_eq!(receipts.as_array().unwrap().len(), 2, "{receipts}");
}

#[test]
fn a_site_is_set_up_by_a_file() {
    let place = Place::new();
    let file = place.path("site.conf");
    let settings =
        "# of our shop\nATP_SITE=https://nowhere.example\nATP_RAIL=http\nATP_HTTP_SECRET=whsec_x\n";
    std::fs::write(&file, settings).unwrap();
    let path = file.to_string_lossy().into_owned();
    let refused = place.consign(&["serve", "--listen", "127.0.0.1:0", "--site-file", &path]);
    assert!(
        text(&refused.stderr).contains("open to other users"),
        "{refused:?}"
    );
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    // The environment takes precedence.
    let options = place
        .options()
        .env("ATP_FILE", &path)
        .env("ATP_RAIL", "null");
    let _server = start(&options.env("ATP_SITE", SITE));
    let (_, row) = settled(&place);
    assert_eq!(row["rail"]["name"], "null");
}

#[test]
fn nothing_of_an_agent_is_readable_by_others() {
    let place = Place::new();
    let _server = serve(&place, "null");
    let (id, _) = settled(&place);
    let folder = place.path("agent").join(format!("intent-{id}"));
    let mode_of = |path: &Path| mode(path) & 0o077;
    assert_eq!(mode_of(&folder), 0);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode_of(&path), 0, "{path:?}");
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["authorize", "execute-1", "intent.json"]);
}
