//! The clients in Python, JavaScript and Go against a running daemon, and their copies of the shared corpus.
//! `cargo xtask test --only tools` installs the three languages.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::mesh_world::{MESH, MeshUser, MeshWorld, wait_for};
use super::{printed, text};

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

#[track_caller]
fn run(mut command: Command) -> String {
    let program = command.get_program().to_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; install it with: cargo xtask test --only tools",
                program.display()
            )
        });
    let shown = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown:?}");
    shown.0
}

/// A program in one of the languages, in the environment of a user.
fn program(user: &MeshUser, name: &str, folder: &str) -> Command {
    let mut command = Command::new(name);
    command
        .current_dir(clients().join(folder))
        .env("HOME", &user.home)
        .env_remove("CLAUDEMESH_CONFIG_DIR")
        .env_remove("CLAUDEMESH_DAEMON_DIR")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

const PYTHON: &str = r#"
import sys
from consign_mesh import ApiError, MeshDaemon, NotRunning
for transport in ("unix", "tcp"):
    daemon = MeshDaemon("team", transport=transport)
    events = daemon.events(timeout=30)
    to = daemon.health()["member_pubkey"]
    sent = daemon.send("bob", "from python", meta={"b": 1, "a": 1.0}, client_message_id=f"py-{transport}")
    assert sent["client_message_id"] == f"py-{transport}", sent
    try:
        daemon.send("bob", "other", client_message_id=f"py-{transport}")
        sys.exit("an id was used twice")
    except ApiError as error:
        assert error.status == 409 and error.body["error"] == "idempotency_key_reused", error
    daemon.topic.post("general", "to all", client_message_id=f"py-post-{transport}")
    published = daemon.publish("mail", {"from": transport}, priority=7, client_message_id=f"py-intent-{transport}")
    assert published["client_message_id"] == f"py-intent-{transport}", published
    assert any(peer["displayName"] == "bob" for peer in daemon.peers())
    assert isinstance(daemon.inbox(limit=5), list)
    events.close()
try:
    MeshDaemon(directory="/nonexistent").health()
    sys.exit("no daemon runs there")
except NotRunning:
    pass
"#;

const PYTHON_EVENTS: &str = r#"
from consign_mesh import MeshDaemon
daemon = MeshDaemon()
events = daemon.events(timeout=30)
print("ready", flush=True)
for event in events:
    # The post to the topic may come first.
    if event["event"] == "message" and event["data"]["body"] == "from python":
        print("received", flush=True)
        break
"#;

const NODE: &str = r#"
import assert from "node:assert/strict";
import { ApiError, MeshDaemon, NotRunning } from "./index.js";
for (const transport of ["unix", "tcp"]) {
  const daemon = new MeshDaemon({ mesh: "team", transport });
  const stop = new AbortController();
  const events = daemon.events({ signal: stop.signal });
  const next = events.next();
  const id = `node-${transport}`;
  const sent = await daemon.send("bob", "from node", { meta: { b: 1, a: 1.5 }, clientMessageId: id });
  assert.equal(sent.client_message_id, id);
  await assert.rejects(daemon.send("bob", "other", { clientMessageId: id }), (error) =>
    error instanceof ApiError && error.status === 409);
  await daemon.topic.post("general", "to all", { clientMessageId: `node-post-${transport}` });
  const published = await daemon.publish("mail", { from: transport }, { priority: 7, clientMessageId: `node-intent-${transport}` });
  assert.equal(published.client_message_id, `node-intent-${transport}`);
  assert.ok((await daemon.peers()).some((peer) => peer.displayName === "bob"));
  assert.ok(Array.isArray(await daemon.inbox({ limit: 5 })));
  stop.abort();
  await next.catch(() => undefined);
}
await assert.rejects(new MeshDaemon({ directory: "/nonexistent" }).health(), NotRunning);
"#;

const GO: &str = r#"package main

import (
	"context"
	"errors"
	"log"

	"consign.invalid/clients/meshdaemon"
)

func main() {
	ctx := context.Background()
	for name, transport := range map[string]meshdaemon.Transport{"unix": meshdaemon.Unix, "tcp": meshdaemon.TCP} {
		daemon, err := meshdaemon.Find("team")
		check(err)
		daemon.Transport = transport
		events, err := daemon.Events(ctx)
		check(err)
		_, err = daemon.Send(ctx, "bob", "from go", meshdaemon.SendOptions{
			ClientMessageID: "go-" + name, Meta: map[string]any{"b": 1, "a": 1.5},
		})
		check(err)
		_, err = daemon.Send(ctx, "bob", "other", meshdaemon.SendOptions{ClientMessageID: "go-" + name})
		var refusal *meshdaemon.APIError
		if !errors.As(err, &refusal) || refusal.Status != 409 {
			log.Fatal("an id was used twice: ", err)
		}
		_, err = daemon.PostTopic(ctx, "general", "to all", meshdaemon.SendOptions{})
		check(err)
		_, err = daemon.Publish(ctx, "mail", map[string]any{"from": name}, meshdaemon.PublishOptions{ClientMessageID: "go-intent-" + name})
		check(err)
		peers, err := daemon.Peers(ctx)
		check(err)
		if len(peers) == 0 {
			log.Fatal("no peers")
		}
		_, err = daemon.Inbox(ctx, meshdaemon.InboxFilter{Limit: 5})
		check(err)
		check(events.Close())
	}
	_, err := (&meshdaemon.Daemon{Directory: "/nonexistent"}).Health(ctx)
	if !errors.Is(err, meshdaemon.ErrNotRunning) {
		log.Fatal("no daemon runs there: ", err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
"#;

fn world() -> (MeshWorld, MeshUser, MeshUser) {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let mut alice = world.join("alice");
    // Also where the tests run in a container.
    alice.configure("[ipc]\ntcp_enabled = true\n[intents]\napi_key_file = \"intents_key\"\n");
    alice.write_intents_key(&world.main_key());
    alice.up();
    alice.wait_connected();
    for member in [&alice, &bob] {
        printed(&member.daemon(&["topic", "subscribe", "general"]));
    }
    (world, alice, bob)
}

fn wait_published(user: &MeshUser, ids: [&str; 2]) {
    for id in ids {
        wait_for("the intent is published", || {
            user.outbox_status(id) == "done"
        });
    }
}

#[test]
fn cm_023_cm_028_cm_029_cm_120_the_python_client_works_over_both_transports() {
    let (_world, alice, bob) = world();
    let mut listening = program(&bob, "python3", "python");
    listening.args(["-c", PYTHON_EVENTS]).stdout(Stdio::piped());
    let mut listening = listening.spawn().unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(listening.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let mut python = program(&alice, "python3", "python");
    python.args(["-c", PYTHON]);
    run(python);
    for id in ["py-unix", "py-tcp", "py-post-unix", "py-post-tcp"] {
        bob.wait_received(id);
    }
    wait_published(&alice, ["py-intent-unix", "py-intent-tcp"]);
    assert_eq!(lines.next().unwrap().unwrap(), "received");
    assert!(listening.wait().unwrap().success());
    let mut corpus = program(&alice, "python3", "python");
    corpus.args(["-m", "unittest", "-q", "test_jcs"]);
    run(corpus);
}

#[test]
fn cm_120_the_javascript_client_works_over_both_transports() {
    let (_world, alice, bob) = world();
    let mut node = program(&alice, "node", "typescript");
    node.args(["--input-type=module", "-e", NODE]);
    run(node);
    for id in ["node-unix", "node-tcp", "node-post-unix", "node-post-tcp"] {
        bob.wait_received(id);
    }
    wait_published(&alice, ["node-intent-unix", "node-intent-tcp"]);
    let mut corpus = program(&alice, "node", "typescript");
    corpus.arg("--test");
    run(corpus);
}

#[test]
fn cm_120_the_go_client_works_over_both_transports() {
    let (world, alice, bob) = world();
    let folder = world.place.path("program");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("main.go"), GO).unwrap();
    let library = std::fs::canonicalize(clients().join("go")).unwrap();
    let module = format!(
        "module program\n\ngo 1.19\n\nrequire consign.invalid/clients/meshdaemon v0.0.0\n\nreplace consign.invalid/clients/meshdaemon => {}\n",
        library.display()
    );
    std::fs::write(folder.join("go.mod"), module).unwrap();
    let go = |folder: &Path, args: &[&str]| {
        let mut command = program(&alice, "go", "go");
        command
            .current_dir(folder)
            .args(args)
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off");
        run(command);
    };
    go(&folder, &["run", "."]);
    for id in ["go-unix", "go-tcp"] {
        bob.wait_received(id);
    }
    wait_published(&alice, ["go-intent-unix", "go-intent-tcp"]);
    go(&library, &["test", "./..."]);
}

#[test]
fn cm_047_cm_120_the_corpus_of_the_clients_is_that_of_the_daemon() {
    use consign_mesh::meta::CanonicalMeta;
    let text = std::fs::read_to_string(clients().join("jcs-corpus.json")).unwrap();
    let corpus: serde_json::Value = serde_json::from_str(&text).unwrap();
    for case in corpus["canonical"].as_array().unwrap() {
        let meta = CanonicalMeta::parse(case["in"].as_str()).unwrap();
        assert_eq!(
            meta.to_member().unwrap_or_default(),
            case["out"].as_str().unwrap()
        );
    }
    for case in corpus["refused"].as_array().unwrap() {
        assert!(CanonicalMeta::parse(case["in"].as_str()).is_err(), "{case}");
    }
    assert_eq!(corpus["fingerprints"].as_array().unwrap().len(), 10);
    assert_eq!(MESH, "team", "the programs name it");
}
