//! The gate before a message is sent.

use super::super::*;
use super::world::*;
use crate::id::MeshSlug;
use crate::ipc::IpcSend;

fn request() -> IpcSend {
    let body = br##"{"to":"#alerts","message":"hello","meta":{"a":1}}"##;
    IpcSend::parse_send(body, None, &MeshSlug::parse("team").unwrap()).unwrap()
}

async fn pass(world: &World, script: &str) -> Result<IpcSend, IpcRefusal> {
    world.script("pre-send", script);
    let loaded = world.load("[pre-send]\ntimeout_s = 1\nnetwork_policy = \"allow\"\n");
    loaded.hooks.pre_send(request(), "#alerts").await
}

#[tokio::test]
async fn cm_111_the_gate_passes_changes_or_refuses_a_message() {
    let world = World::new();
    let unchanged = pass(&world, "cat > $OUT/input").await.unwrap();
    assert_eq!(unchanged, request());
    let input: Value = serde_json::from_str(&world.read("input")).unwrap();
    assert_eq!(input["message"], "hello");
    assert_eq!(input["to"], "#alerts");
    assert_eq!(input["meta"], json!({"a": 1}));
    assert_eq!(input["priority"], "next");
    let changed =
        r#"echo '{"message": "HELLO", "priority": "now", "meta": {"b": 9007199254740991}}'"#;
    let changed = pass(&world, changed).await.unwrap();
    assert_eq!(changed.message, "HELLO");
    assert_eq!(changed.priority.as_str(), "now");
    assert_eq!(changed.meta.as_str(), r#"{"b":9007199254740991}"#);
    let other = pass(&world, "echo '{\"reply\": \"x\"}'").await.unwrap();
    assert_eq!(other, request());
    for broken in [
        "exit 1",
        "echo no",
        "echo '{\"message\": 5}'",
        "echo '{\"message\": \"\"}'",
        "echo '{\"priority\": \"soon\"}'",
        "echo '{\"meta\": {\"a\": 9007199254740993}}'",
        "head -c 70000 /dev/zero | tr '\\0' ' '",
        "sleep 30",
    ] {
        let refusal = pass(&world, broken).await.unwrap_err();
        assert_eq!(
            (refusal.status, refusal.error.as_str()),
            (422, "rejected_by_hook"),
            "{broken}"
        );
    }
}

#[tokio::test]
async fn cm_111_the_fingerprint_covers_what_the_gate_left() {
    let world = World::new();
    let destination = Destination::Topic(crate::id::TopicName::parse("alerts").unwrap());
    let before = request().fingerprint(&destination).unwrap();
    let sent = pass(&world, "echo '{\"message\": \"HELLO\"}'")
        .await
        .unwrap();
    assert_ne!(sent.fingerprint(&destination).unwrap(), before);
}

#[tokio::test]
async fn without_a_gate_messages_pass() {
    let world = World::new();
    let loaded = world.load("[on-dm]\n");
    assert!(!loaded.hooks.has_pre_send());
    let sent = loaded.hooks.pre_send(request(), "#alerts").await;
    assert_eq!(sent.unwrap(), request());
}

#[tokio::test]
async fn a_reload_divides_the_places_anew() {
    let world = World::new();
    world.script("pre-send", "exit 0");
    world.script("on-dm", "exit 0");
    let mut options = world.options();
    options.concurrency = 4;
    let loaded = world.load_with(options, "[on-dm]\n");
    let free = || {
        let shared = &loaded.hooks.0;
        (
            shared.places.available_permits(),
            shared.send_places.available_permits(),
        )
    };
    assert_eq!(free(), (4, 1));
    let settings = world.path(HOOKS_FOLDER).join(HOOKS_FILE);
    // A place that a running hook has is taken away later.
    let running = loaded.hooks.0.places.clone().acquire_many_owned(3).await;
    std::fs::write(&settings, "[on-dm]\n[pre-send]\n").unwrap();
    loaded.hooks.reload().unwrap();
    tokio::task::yield_now().await;
    assert_eq!(free(), (0, 2));
    drop(running);
    until("the places are divided", || free() == (2, 2)).await;
    std::fs::write(&settings, "[on-dm]\n").unwrap();
    loaded.hooks.reload().unwrap();
    until("the places are divided", || free() == (4, 1)).await;
}
