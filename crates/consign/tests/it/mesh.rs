//! Broker and daemons as processes: joining, sending, and what a kill at any moment leaves behind.

use std::os::unix::fs::PermissionsExt;

use super::mesh_world::{MESH, MeshUser, MeshWorld, failed, wait_for};
use super::{code, mode, printed, text};

#[test]
fn cm_022_cm_040_two_daemons_exchange_a_message_under_its_own_id() {
    let world = MeshWorld::new();
    let (alice, bob) = (world.member("alice"), world.member("bob"));
    let sent = printed(&alice.send("bob", "hello", "first-1"));
    assert_eq!(sent["client_message_id"], "first-1");
    bob.wait_received("first-1");
    let inbox = printed(&bob.daemon(&["inbox"]));
    let item = &inbox["items"][0];
    assert_eq!(
        (&item["body"], &item["sender_name"]),
        (&"hello".into(), &"alice".into())
    );
    assert_eq!(item["sender_pubkey"], alice.pubkey());
    wait_for("the row is done", || {
        alice.outbox_status("first-1") == "done"
    });
    let peers = printed(&alice.daemon(&["peers"]));
    let names: Vec<&str> = peers["peers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|peer| peer["displayName"].as_str())
        .collect();
    assert!(names.contains(&"bob"), "{names:?}");
}

#[test]
fn cm_038_a_message_answered_202_survives_a_kill() {
    let mut world = MeshWorld::new();
    let mut bob = world.member("bob");
    let mut alice = world.member("alice");
    world.kill_broker();
    let to = bob.pubkey();
    for number in 0..5 {
        let sent = printed(&alice.send(&to, "kept", &format!("kept-{number}")));
        assert_eq!(sent["status"], "queued");
        alice.kill();
        alice.up();
    }
    world.start_broker();
    for number in 0..5 {
        bob.wait_received(&format!("kept-{number}"));
    }
    bob.kill();
    bob.up();
    let expected: Vec<String> = (0..5).map(|number| format!("kept-{number}")).collect();
    assert_eq!(
        bob.accepted_ids(),
        expected,
        "each once, in the order of acceptance"
    );
}

#[test]
fn cm_071_each_message_arrives_once_when_the_broker_is_killed_between_them() {
    let mut world = MeshWorld::new();
    let bob = world.member("bob");
    let alice = world.member("alice");
    let to = bob.pubkey();
    let mut expected = Vec::new();
    for round in 0..3 {
        for number in 0..10 {
            let id = format!("m-{round}-{number}");
            printed(&alice.send(&to, "text", &id));
            expected.push(id);
        }
        // Some of them are on their way now.
        world.kill_broker();
        world.start_broker();
    }
    for id in &expected {
        bob.wait_received(id);
    }
    wait_for("all rows are done", || {
        let left = printed(&alice.daemon(&["status"]));
        left["queue_depth"] == 0 && left["inflight"] == 0 && left["dead"] == 0
    });
    let mut received = bob.inbox_ids();
    received.sort();
    expected.sort();
    assert_eq!(received, expected);
}

#[test]
fn cm_003_a_second_start_fails_and_names_the_running_pid() {
    let world = MeshWorld::new();
    let alice = world.member("alice");
    let pid = alice.pid().to_string();
    for flags in [&["up", "--foreground"][..], &["up"]] {
        let (status, error) = failed(&alice.daemon(flags));
        assert_eq!(status, 1);
        assert!(error.contains(&pid), "{error}");
    }
    assert!(
        alice.daemon(&["status"]).status.success(),
        "the first one still runs"
    );
}

#[test]
fn cm_004_files_of_a_killed_daemon_do_not_hinder_the_next() {
    let world = MeshWorld::new();
    let mut alice = world.member("alice");
    alice.kill();
    assert!(alice.folder().join("sock").exists());
    let (status, error) = failed(&alice.daemon(&["status"]));
    assert_eq!(status, 5);
    assert!(
        error.contains("no daemon of the mesh team is running"),
        "{error}"
    );
    alice.up();
}

#[test]
fn cm_001_cm_002_a_daemon_that_detaches_is_ready_and_its_files_are_private() {
    let world = MeshWorld::new();
    let alice = world.join("alice");
    let started = printed(&alice.daemon(&["up"]));
    assert_eq!(started["ok"], true);
    assert!(alice.daemon(&["status"]).status.success());
    let folder = alice.folder();
    assert_eq!(mode(&folder), 0o700);
    for (name, expected) in [
        ("pid", 0o600),
        ("sock", 0o600),
        ("local_token", 0o600),
        ("keypair.json", 0o600),
        ("host_fingerprint.json", 0o600),
        ("config.toml", 0o644),
        ("outbox.db", 0o600),
        ("outbox.db-wal", 0o600),
        ("inbox.db", 0o600),
        ("schema_version", 0o644),
        ("daemon.log", 0o644),
        ("hooks", 0o700),
    ] {
        assert_eq!(mode(&folder.join(name)), expected, "{name}");
    }
    let listed = printed(&alice.consign(&["daemon", "ps", "--json"]));
    assert_eq!(listed["daemons"][0]["state"], "running");
    let restarted = printed(&alice.daemon(&["restart"]));
    assert_ne!(restarted["pid"], started["pid"]);
    assert_eq!(printed(&alice.daemon(&["down"]))["stopped"], true);
    assert_eq!(failed(&alice.daemon(&["down"])).0, 5);
}

#[test]
fn cm_064_cm_065_an_id_with_another_body_is_refused_and_changes_nothing() {
    let mut world = MeshWorld::new();
    let alice = world.member("alice");
    let to = alice.pubkey();
    world.kill_broker();
    printed(&alice.send(&to, "one", "same"));
    assert_eq!(printed(&alice.send(&to, "one", "same"))["status"], "queued");
    let (status, error) = failed(&alice.send(&to, "two", "same"));
    assert_eq!(status, 4);
    assert!(
        error.contains("idempotency_key_reused: outbox_pending_fingerprint_mismatch"),
        "{error}"
    );
    let outbox = printed(&alice.daemon(&["outbox"]));
    assert_eq!(outbox["items"].as_array().unwrap().len(), 1);
}

#[test]
fn cm_127_a_revoked_member_stops_with_5_and_cannot_return() {
    let world = MeshWorld::new();
    let mut alice = world.member("alice");
    world.revoke(&alice);
    assert_eq!(alice.exit_status(), 5);
    assert_eq!(
        failed(&alice.daemon(&["status"])).0,
        5,
        "nothing is served any more"
    );
    alice.spawn(&[]);
    assert_eq!(alice.exit_status(), 5);
}

#[test]
fn cm_079_cm_080_cm_081_requeue_retires_a_row_and_sends_a_new_one() {
    let mut world = MeshWorld::new();
    let (alice, bob) = (world.member("alice"), world.member("bob"));
    world.kill_broker();
    let to = bob.pubkey();
    printed(&alice.send(&to, "again", "old"));
    let row = printed(&alice.daemon(&["outbox", "--pending"]))["items"][0]["id"].clone();
    let row = row.as_str().unwrap();
    let args = ["outbox", "requeue", row, "--new-client-id", "new"];
    let requeued = printed(&alice.daemon(&args));
    assert_eq!(requeued["aborted_row_id"], row);
    assert_eq!(requeued["new_client_message_id"], "new");
    let (status, error) = failed(&alice.daemon(&["outbox", "requeue", "--new-id", row]));
    assert_eq!(status, 4, "{error}");
    let chain = printed(&alice.daemon(&["outbox", "inspect", row]));
    assert_eq!(chain["items"].as_array().unwrap().len(), 2, "{chain}");
    let (_, error) = failed(&alice.send(&to, "again", "old"));
    assert!(
        error.contains("outbox_aborted_fingerprint_match"),
        "{error}"
    );
    world.start_broker();
    bob.wait_received("new");
    assert_eq!(bob.inbox_ids(), ["new"]);
}

#[test]
fn cm_160_a_refused_invite_names_the_code_and_writes_nothing() {
    let world = MeshWorld::new();
    let args = ["mesh", "invite", MESH, "--uses", "1", "--json"];
    let link = printed(&world.place.consign(&args))["link"].clone();
    let join = [
        "mesh",
        "join",
        link.as_str().unwrap(),
        "--name",
        "one",
        "--json",
    ];
    let first = world.stranger("first");
    let joined = printed(&first.consign(&join));
    assert_eq!(mode(&first.home.join(".claudemesh/config.json")), 0o600);
    assert_eq!(
        printed(&first.consign(&join)),
        joined,
        "joining again costs no use"
    );
    let second = world.stranger("second");
    let (status, error) = failed(&second.consign(&join));
    assert_eq!(status, 4);
    assert!(error.contains("invite_exhausted"), "{error}");
    assert!(!second.home.join(".claudemesh/config.json").exists());
    let (status, error) = failed(&second.consign(&["mesh", "join", "nonsense", "--name", "two"]));
    assert_eq!(status, 2, "{error}");
}

#[test]
fn a_user_without_a_mesh_gets_the_next_step() {
    let world = MeshWorld::new();
    let user = world.stranger("carol");
    let (status, error) = failed(&user.daemon(&["up"]));
    assert_eq!(status, 2);
    assert!(error.contains("consign mesh join"), "{error}");
}

#[test]
fn cm_112_all_daemons_start_unless_they_are_too_many() {
    let world = MeshWorld::new();
    let alice = world.join("alice");
    let other = printed(&world.place.consign(&["mesh", "create", "other", "--json"]));
    assert_ne!(other["mesh_id"], "");
    let link =
        printed(&world.place.consign(&["mesh", "invite", "other", "--json"]))["link"].clone();
    printed(&alice.consign(&[
        "mesh",
        "join",
        link.as_str().unwrap(),
        "--name",
        "alice",
        "--json",
    ]));
    alice.configure("[fleet]\nmax_daemons = 1\n");
    let (status, error) = failed(&alice.consign(&["daemon", "up", "--all", "--json"]));
    assert_eq!(status, 1);
    assert!(error.contains("max_daemons"), "{error}");
    // One by one they are counted, too; the one that runs stays.
    printed(&alice.consign(&["daemon", "up", "--mesh", "other", "--json"]));
    for flags in [&["up"][..], &["up", "--foreground"]] {
        let (status, error) = failed(&alice.daemon(flags));
        assert_eq!(status, 1);
        assert!(error.contains("fleet.max_daemons = 1"), "{error}");
    }
    printed(&alice.consign(&["daemon", "down", "--mesh", "other", "--json"]));
    printed(&alice.daemon(&["up"]));
    printed(&alice.daemon(&["down"]));
    alice.configure("");
    let started = printed(&alice.consign(&["daemon", "up", "--all", "--json"]));
    assert_eq!(started["daemons"].as_array().unwrap().len(), 2);
    let again = printed(&alice.consign(&["daemon", "up", "--all", "--json"]));
    assert_eq!(again["daemons"][0]["state"], "already_running");
    let stopped = printed(&alice.consign(&["daemon", "down", "--all", "--json"]));
    assert_eq!(stopped["stopped"].as_array().unwrap().len(), 2);
}

#[test]
fn cm_114_a_service_is_written_and_refused_in_ci() {
    let world = MeshWorld::new();
    let alice = world.join("alice");
    let alias = printed(&alice.daemon(&["install", "--no-start"]));
    let installed = printed(&alice.daemon(&["install-service", "--no-start"]));
    assert_eq!(alias, installed, "the shorter word does the same");
    let unit = std::fs::read_to_string(installed["path"].as_str().unwrap()).unwrap();
    for line in [
        "Restart=on-failure",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
    ] {
        assert!(unit.contains(line), "{unit}");
    }
    assert!(
        unit.contains("daemon up --mesh team --foreground"),
        "{unit}"
    );
    printed(&alice.daemon(&["uninstall-service", "--no-start"]));
    let mut command = alice.command(&["daemon", "install-service", "--mesh", MESH]);
    let refused = command.env("CI", "true").output().unwrap();
    assert_eq!(code(&refused), 1);
    let error = text(&refused.stderr);
    assert!(
        error.contains("Refusing to install persistent service in CI; ephemeral mode only."),
        "{error}"
    );
}

#[test]
fn cm_009_cm_128_a_backup_brings_the_keys_to_another_home_without_the_token() {
    let world = MeshWorld::new();
    let mut alice = world.member("alice");
    let (file, secret) = (
        world.place.path("backup.json"),
        world.place.path("passphrase"),
    );
    let (file, secret) = (file.to_str().unwrap(), secret.to_str().unwrap());
    std::fs::write(secret, "correct horse\n").unwrap();
    printed(&alice.daemon(&["backup", "--out", file, "--passphrase-file", secret]));
    assert_eq!(mode(std::path::Path::new(file)), 0o600);
    let token = std::fs::read_to_string(alice.folder().join("local_token")).unwrap();
    assert!(
        !std::fs::read_to_string(file)
            .unwrap()
            .contains(token.trim())
    );
    let (status, error) =
        failed(&alice.daemon(&["restore", "--in", file, "--passphrase-file", secret]));
    assert_eq!(status, 4, "a running daemon keeps its files: {error}");
    alice.kill();
    let mut moved = world.stranger("moved");
    printed(&moved.daemon(&["restore", "--in", file, "--passphrase-file", secret]));
    assert_eq!(moved.pubkey(), alice.pubkey());
    moved.up();
    let health = printed(&moved.daemon(&["status"]));
    assert_eq!(health["member_pubkey"], alice.pubkey());
    let own = std::fs::read_to_string(moved.folder().join("local_token")).unwrap();
    assert_ne!(own, token);
}

#[test]
fn cm_015_another_machine_is_refused_with_4_until_it_is_accepted() {
    let world = MeshWorld::new();
    let mut alice = world.join("alice");
    alice.configure("[host_fingerprint]\nid_override = \"linux:one\"\n");
    alice.up();
    alice.wait_connected();
    alice.kill();
    alice.configure("[host_fingerprint]\nid_override = \"linux:two\"\n");
    let (status, error) = failed(&alice.daemon(&["up"]));
    assert_eq!(status, 4);
    assert!(
        error.contains("accept-host") && error.contains("remint"),
        "{error}"
    );
    assert_eq!(printed(&alice.daemon(&["accept-host"]))["accepted"], true);
    let suspected = || {
        let listed = printed(&world.place.consign(&["mesh", "members", MESH, "--json"]));
        listed["members"][0]["clone_suspected_at"].is_i64()
    };
    wait_for("the first machine is known to the broker", || {
        let listed = printed(&world.place.consign(&["mesh", "members", MESH, "--json"]));
        listed["members"][0]["last_seen_host_fingerprint"].is_string()
    });
    assert!(!suspected());
    alice.up();
    wait_for("the broker has noticed the other machine", suspected);
    let health = printed(&alice.daemon(&["status"]));
    assert_eq!(health["broker_version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn cm_130_damaged_databases_are_reported_and_set_aside() {
    let world = MeshWorld::new();
    let mut alice = world.member("alice");
    alice.kill();
    let outbox = alice.folder().join("outbox.db");
    for side in ["outbox.db-wal", "outbox.db-shm"] {
        let _ = std::fs::remove_file(alice.folder().join(side));
    }
    std::fs::write(&outbox, vec![7; 16_384]).unwrap();
    std::fs::set_permissions(&outbox, PermissionsExt::from_mode(0o600)).unwrap();
    let (status, error) = failed(&alice.daemon(&["up"]));
    assert_ne!(status, 0);
    assert!(error.contains("daemon recover"), "{error}");
    let checked = alice.daemon(&["recover"]);
    assert_eq!(code(&checked), 1);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert!(report["outbox_damage"].is_string(), "{report}");
    assert_eq!(report["ways"].as_array().unwrap().len(), 3);
    let recovered = printed(&alice.daemon(&["recover", "--way", "fresh", "--yes"]));
    assert_eq!(recovered["way"], "fresh");
    alice.up();
}

#[test]
fn cm_113_a_message_goes_through_a_usable_daemon_and_otherwise_to_the_broker() {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let mut alice = world.join("alice");
    let send = |alice: &super::mesh_world::MeshUser, id: &str| {
        let args = ["mesh", "send", "bob", "hello", "--id", id, "--json"];
        printed(&alice.consign(&args))["via"].clone()
    };
    assert_eq!(send(&alice, "cold"), "broker");
    bob.wait_received("cold");
    // Neither a pid file nor a socket without a server is a daemon.
    std::fs::create_dir_all(alice.folder()).unwrap();
    std::fs::write(alice.folder().join("pid"), "1\n").unwrap();
    let stale = std::os::unix::net::UnixListener::bind(alice.folder().join("sock")).unwrap();
    drop(stale);
    assert_eq!(send(&alice, "stale"), "broker");
    bob.wait_received("stale");
    alice.up();
    alice.wait_connected();
    assert_eq!(send(&alice, "warm"), "daemon");
    bob.wait_received("warm");
    let inbox = printed(&bob.daemon(&["inbox"]));
    for item in inbox["items"].as_array().unwrap() {
        assert_eq!(item["body"], "hello", "{item}");
        assert_eq!(item["sender_name"], "alice", "{item}");
    }
    assert!(
        alice.daemon(&["status"]).status.success(),
        "a session does not replace the daemon"
    );
}

#[test]
fn a_link_named_claudemesh_has_the_commands_of_members() {
    let world = MeshWorld::new();
    let alice = world.member("alice");
    let link = world.place.path("claudemesh");
    std::os::unix::fs::symlink(super::binary(), &link).unwrap();
    let run = |args: &[&str]| {
        let mut command = consign_testkit::process::cleaned(&link);
        command
            .args(args)
            .env("HOME", &alice.home)
            .env("CONSIGN_DATA", world.place.data());
        consign_testkit::process::run(command, super::PATIENCE).unwrap()
    };
    assert_eq!(
        printed(&run(&["daemon", "status", "--json"]))["connected"],
        true
    );
    let hint = text(&run(&["install"]).stdout);
    assert!(
        hint.contains("daemon install-service --mesh team"),
        "{hint}"
    );
    let revoked = printed(&run(&["member", "revoke", &alice.pubkey(), "--json"]));
    assert_eq!(revoked["revoked"], true);
    assert_eq!(code(&run(&["serve"])), 2, "it is no server");
}

#[test]
fn cm_035_cm_158_a_topic_is_created_subscribed_twice_and_read() {
    let world = MeshWorld::new();
    let (alice, bob) = (world.member("alice"), world.member("bob"));
    assert_eq!(
        printed(&alice.daemon(&["topic", "create", "alerts"]))["created"],
        true
    );
    assert_eq!(
        printed(&alice.daemon(&["topic", "create", "alerts"]))["created"],
        false
    );
    for _ in 0..2 {
        let answer = printed(&bob.daemon(&["topic", "subscribe", "alerts"]));
        assert_eq!(answer["subscribed"], true);
    }
    printed(&alice.daemon(&["topic", "post", "alerts", "fire", "--id", "post-1"]));
    bob.wait_received("post-1");
    let inbox = printed(&bob.daemon(&["inbox", "--topic", "alerts"]));
    assert_eq!(inbox["items"][0]["topic"], "alerts");
}

#[test]
fn cm_010_an_ephemeral_daemon_with_an_invite_is_a_member_until_it_ends() {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let invite = printed(&world.place.consign(&["mesh", "invite", MESH, "--json"]));
    let link = invite["link"].as_str().unwrap();
    let names = || {
        let listed = printed(&world.place.consign(&["mesh", "members", MESH, "--json"]));
        let members = listed["members"].as_array().unwrap().iter();
        let mut names: Vec<String> = members.map(|one| super::word(&one["name"])).collect();
        names.sort();
        names
    };
    let mut guest = world.stranger("guest");
    guest.spawn(&["--ephemeral", "--invite", link, "--name", "guest"]);
    wait_for("the daemon is ready", || {
        guest.daemon(&["status"]).status.success()
    });
    guest.wait_connected();
    assert_eq!(names(), ["bob", "guest"]);
    printed(&guest.send(&bob.pubkey(), "hello", "guest-1"));
    bob.wait_received("guest-1");
    assert_eq!(printed(&guest.daemon(&["down"]))["stopped"], true);
    assert_eq!(guest.exit_status(), 0);
    wait_for("the guest has left", || names() == ["bob"]);
    assert!(!guest.home.join(".claudemesh/config.json").exists());
    assert!(!guest.folder().join("keypair.json").exists());

    // Whoever is a member is no guest.
    let (status, error) = failed(&bob.daemon(&[
        "up",
        "--foreground",
        "--ephemeral",
        "--invite",
        link,
        "--name",
        "other",
    ]));
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("joined already"), "{error}");
}

#[test]
fn cm_155_a_member_blocks_another_one_and_allows_it_again() {
    let world = MeshWorld::new();
    let (alice, bob) = (world.member("alice"), world.member("bob"));
    let own = |user: &super::mesh_world::MeshUser, args: &[&str]| {
        printed(&user.consign(&[&["mesh"], args, &["--mesh", MESH, "--json"]].concat()))
    };
    let blocked = own(&bob, &["grant", "alice", "--block"]);
    assert_eq!(blocked["grants"][alice.pubkey()], serde_json::json!([]));
    assert_eq!(own(&bob, &["grants"]), blocked);
    let to = bob.pubkey();
    printed(&alice.send(&to, "hello", "blocked-1"));
    wait_for("the row is dead", || {
        alice.outbox_status("blocked-1") == "dead"
    });
    let args = [
        "mesh",
        "set-grants",
        MESH,
        &to,
        &alice.pubkey(),
        "dm",
        "--json",
    ];
    let set = printed(&world.place.consign(&args));
    assert_eq!(set["grants"][0]["grants"], serde_json::json!(["dm"]));
    printed(&alice.send(&to, "hello", "allowed-1"));
    bob.wait_received("allowed-1");
    assert_eq!(
        own(&bob, &["grant", "alice", "--default"])["grants"],
        serde_json::json!({})
    );
    let (status, _) = failed(&bob.consign(&["mesh", "grant", "alice", "everything"]));
    assert_eq!(status, 2);
}

#[test]
fn cm_129_uninstall_tells_the_broker_and_reset_does_not() {
    let world = MeshWorld::new();
    let (mut alice, mut bob) = (world.member("alice"), world.member("bob"));
    let members = || {
        let listed = printed(&world.place.consign(&["mesh", "members", MESH, "--json"]));
        listed["members"].as_array().unwrap().len()
    };
    assert_eq!(members(), 2);
    bob.kill();
    printed(&bob.daemon(&["reset", "--yes"]));
    assert!(!bob.folder().exists());
    assert_eq!(members(), 2, "the membership stays");
    bob.up();
    printed(&alice.daemon(&["uninstall", "--yes"]));
    assert_eq!(alice.exit_status(), 0);
    assert!(!alice.folder().exists());
    assert_eq!(members(), 1);
    assert_eq!(
        failed(&alice.daemon(&["up"])).0,
        2,
        "the mesh is no longer joined"
    );
}

#[test]
fn cm_014_a_later_start_with_rename_changes_the_name_for_all() {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let mut alice = world.member("alice");
    let members = || {
        let listed = printed(&world.place.consign(&["mesh", "members", MESH, "--json"]));
        names(&listed["members"], "name")
    };
    let peers = || names(&printed(&bob.daemon(&["peers"]))["peers"], "displayName");
    let start = |alice: &mut MeshUser, flags: &[&str]| {
        alice.kill();
        alice.spawn(flags);
        wait_for("the daemon is connected", || {
            let status = alice.daemon(&["status"]);
            status.status.success() && printed(&status)["connected"] == true
        });
    };
    start(&mut alice, &["--name", "ignored"]);
    printed(&alice.send("bob", "hello", "n-1"));
    bob.wait_received("n-1");
    assert_eq!(members(), ["alice", "bob"]);
    start(&mut alice, &["--name", "worker", "--rename"]);
    wait_for("the broker knows the new name", || {
        members() == ["bob", "worker"]
    });
    wait_for("peers see the new name", || peers() == ["bob", "worker"]);
    // It is the name of the member, which a message is sent to.
    printed(&bob.send("worker", "hello", "n-2"));
    alice.wait_received("n-2");
    start(&mut alice, &[]);
    assert_eq!(members(), ["bob", "worker"]);
}

fn names(list: &serde_json::Value, key: &str) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    let mut names: Vec<String> = items.map(|item| super::word(&item[key])).collect();
    names.sort();
    names.dedup();
    names
}
