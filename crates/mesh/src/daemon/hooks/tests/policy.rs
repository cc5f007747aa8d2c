//! What a hook can reach.

use super::super::*;
use super::world::*;

/// The names of the interfaces that the script sees.
const INTERFACES: &str = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' > $OUT/interfaces";

#[tokio::test]
async fn a_denied_network_is_empty_and_an_allowed_one_is_not() {
    let world = World::new();
    world.script("on-dm", INTERFACES);
    let mut allowed = world.load("[on-dm]\nnetwork_policy = \"allow\"\n");
    allowed.hooks.fire_message(&message(json!({"id": "e1"})));
    allowed.end().await;
    let all = world.read("interfaces");
    let mut denied = world.load("[on-dm]\n");
    denied.hooks.fire_message(&message(json!({"id": "e1"})));
    denied.end().await;
    let is_enforced = world.logged("hook_policy_unenforceable").is_empty();
    if is_enforced {
        assert_eq!(world.read("interfaces").trim(), "lo");
    } else {
        assert_eq!(world.read("interfaces"), all);
    }
}

#[tokio::test]
async fn cm_109_a_policy_that_cannot_be_enforced_is_counted_and_the_hook_runs() {
    let world = World::new();
    world.script("on-dm", "touch $OUT/ran");
    let mut options = world.options();
    // Programs that do not exist, and one that is not allowed to do it.
    options.programs = IsolationPrograms {
        unshare: std::path::PathBuf::from("/bin/false"),
        bubblewrap: world.path("none"),
        sandbox_exec: world.path("none"),
    };
    let count = |reason: &str| {
        world
            .metrics
            .get(DaemonMetric::HookUnenforceable, &["on-dm", reason])
    };
    for (settings, reasons) in [
        ("", &["network"][..]),
        (
            "network_policy = \"allowlist\"\nnetwork_allowlist = [\"10.0.0.1\"]",
            &["network_allowlist"],
        ),
        (
            "fs_policy = \"readonly\"\nnetwork_policy = \"allow\"",
            &["fs_policy"],
        ),
        ("sandbox = \"bubblewrap\"", &["sandbox", "network"]),
        (
            "sandbox = \"sandbox-exec\"\nnetwork_policy = \"allow\"",
            &["sandbox"],
        ),
    ] {
        let before: Vec<u64> = reasons.iter().map(|reason| count(reason)).collect();
        let warned = world.logged("hook_policy_unenforceable").len();
        let mut loaded = world.load_with(options.clone(), &format!("[on-dm]\n{settings}\n"));
        loaded.hooks.fire_message(&message(json!({"id": "e1"})));
        assert_eq!(loaded.end().await.audit.exit, 0, "{settings}");
        for (reason, before) in reasons.iter().zip(before) {
            assert_eq!(count(reason), before + 1, "{settings}");
        }
        let logged = world.logged("hook_policy_unenforceable");
        assert_eq!(logged.len(), warned + reasons.len(), "{settings}");
        for (line, reason) in logged[warned..].iter().zip(reasons) {
            assert_eq!(
                (&line["level"], &line["hook"], &line["reason"]),
                (&json!("warn"), &json!("on-dm"), &json!(reason)),
                "{settings}"
            );
            let text = world.metrics.to_text();
            let of_hook = |line: &&str| {
                line.starts_with("cm_daemon_hook_unenforceable_total{")
                    && line.contains("hook=\"on-dm\"")
                    && line.contains(&format!("reason=\"{reason}\""))
            };
            assert_eq!(text.lines().filter(of_hook).count(), 1, "{text}");
        }
        std::fs::remove_file(world.path("ran")).unwrap();
    }
    let mut loaded = world.load_with(options, "[on-dm]\nnetwork_policy = \"allow\"\n");
    let warned = world.logged("hook_policy_unenforceable").len();
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    loaded.end().await;
    assert_eq!(world.logged("hook_policy_unenforceable").len(), warned);
}

/// What the script finds that a sandbox must hide, and what it must show.
const FINDINGS: &str = r#"
found=""
for file in $OUT/keypair.json $OUT/local_token $OUT/secrets/config.json; do
  [ -e $file ] && found="$found $file"
done
[ -n "$(ls -A /run)" ] && found="$found run"
[ -n "$(ls -A /proc)" ] && found="$found proc"
[ -S $OUT/sock ] || found="$found no-socket"
touch $OUT/hooks/new 2> /dev/null && found="$found writable"
kill -0 DAEMON 2> /dev/null && found="$found process"
printf '{"reply":"found:%s"}' "$found"
"#;

#[tokio::test]
#[cfg(target_os = "linux")]
async fn cm_109_a_sandboxed_hook_sees_no_secrets_of_the_daemon_and_no_sockets_of_the_user() {
    assert!(
        IsolationPrograms::default().bubblewrap.exists(),
        "this test needs the Debian package bubblewrap"
    );
    // Not in `/tmp`, which is hidden anyway.
    let world = World::at(tempfile::tempdir_in("/var/tmp").unwrap());
    let pid = std::process::id().to_string();
    world.script("on-dm", &FINDINGS.replace("DAEMON", &pid));
    std::fs::create_dir(world.path("secrets")).unwrap();
    for name in ["keypair.json", "local_token", "secrets/config.json"] {
        std::fs::write(world.path(name), "a secret").unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(world.path("sock")).unwrap();
    let mut found = Vec::new();
    for settings in ["sandbox = \"bubblewrap\"", "fs_policy = \"sandbox\"", ""] {
        let settings = format!("[on-dm]\nallow_reply = true\n{settings}\n");
        let mut loaded = world.load(&settings);
        loaded.hooks.fire_message(&message(json!({"id": "e1"})));
        let run = loaded.end().await;
        assert_eq!(run.audit.exit, 0, "{settings}");
        found.push(run.reply.expect("the hook replies").message);
    }
    assert_eq!(found[..2], ["found:", "found:"]);
    // Outside of a sandbox a hook is the user.
    assert!(found[2].contains("keypair.json"), "{}", found[2]);
    assert_eq!(
        world
            .metrics
            .get(DaemonMetric::HookUnenforceable, &["on-dm", "sandbox"]),
        0
    );
}
