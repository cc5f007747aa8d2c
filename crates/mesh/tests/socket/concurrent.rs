//! A member that connects twice, and the features of the broker.

use consign_mesh::broker::DedupeRetention;
use consign_mesh::role::ClonePolicy;
use serde_json::json;

use crate::client::{Client, body, hello, message};
use crate::world::{MESH, Member, World, operator};

/// A daemon of another run.
async fn daemon_of_run(world: &World, member: &Member, run: &str) -> Client {
    let mut client = world.connect().await;
    let mut frame = hello(member, None);
    frame["sessionId"] = json!(run);
    client.say_hello(&frame).await;
    client
}

#[tokio::test]
async fn cm_019_the_newest_daemon_replaces_the_older_one() {
    let world = World::with_policy(ClonePolicy::PreferNewest).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut watching = world.daemon(&bob).await;
    let mut older = daemon_of_run(&world, &alice, "one").await;
    older.negotiate().await;
    watching.event("peer_joined").await;
    let mut newer = daemon_of_run(&world, &alice, "two").await;
    older.settle().await;
    newer.negotiate().await;
    let closed = older.closed().await;
    assert_eq!(closed, (4003, "replaced_by_newer_connection".to_owned()));
    watching.deliver(&message(&alice.pubkey(), "hello")).await;
    assert_eq!(body(&newer.take().await), "hello");
    watching.settle().await;
    assert!(
        watching.unread("push").is_empty(),
        "the member was there all the time"
    );
}

#[tokio::test]
async fn cm_020_the_oldest_daemon_stays_or_both_do() {
    let world = World::with_policy(ClonePolicy::PreferOldest).await;
    let alice = world.member("alice", 1).await;
    let mut older = daemon_of_run(&world, &alice, "one").await;
    older.negotiate().await;
    let mut newer = daemon_of_run(&world, &alice, "two").await;
    newer
        .send(&json!({"type": "feature_negotiation_request"}))
        .await;
    let closed = newer.closed().await;
    assert_eq!(closed, (4004, "member_already_connected".to_owned()));
    older.settle().await;

    let world = World::with_policy(ClonePolicy::AllowConcurrent).await;
    let alice = world.member("alice", 1).await;
    let mut one = daemon_of_run(&world, &alice, "one").await;
    one.negotiate().await;
    let mut two = daemon_of_run(&world, &alice, "two").await;
    let answer = two.negotiate().await;
    let policy = &answer["supported"]["concurrent_connection_policy"]["params"];
    assert_eq!(policy["default_policy"], "allow_concurrent");
    one.settle().await;
    two.settle().await;
}

#[tokio::test]
async fn cm_021_sessions_never_trigger_the_policy() {
    for policy in [ClonePolicy::PreferNewest, ClonePolicy::PreferOldest] {
        let world = World::with_policy(policy).await;
        let alice = world.member("alice", 1).await;
        let mut daemon = world.daemon(&alice).await;
        let mut first = world.session(&alice, 60).await;
        let mut second = world.session(&alice, 61).await;
        second.negotiate().await;
        first.negotiate().await;
        for client in [&mut daemon, &mut first, &mut second] {
            client.settle().await;
        }
    }
}

#[tokio::test]
async fn a_daemon_that_connects_again_replaces_its_own_connection() {
    let world = World::with_policy(ClonePolicy::PreferOldest).await;
    let alice = world.member("alice", 1).await;
    let mut first = world.daemon(&alice).await;
    let mut second = world.daemon(&alice).await;
    assert_eq!(first.closed().await, (1000, "session_replaced".to_owned()));
    second.settle().await;
}

#[tokio::test]
async fn a_daemon_from_another_machine_is_admitted_and_reported_to_the_admins() {
    for policy in ClonePolicy::ALL {
        let world = World::with_policy(*policy).await;
        let root = world.admin("root", 9).await;
        let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
        let (mut admin, mut other) = (world.daemon(&root).await, world.daemon(&bob).await);
        let machines = ["a", "a", "b", "b"].map(|digit| digit.repeat(64));
        for machine in &machines {
            let mut client = world.connect().await;
            let mut frame = hello(&alice, None);
            frame["hostFingerprint"] = json!(machine);
            client.say_hello(&frame).await;
            client.negotiate().await;
            client.settle().await;
        }
        // Sessions run anywhere, and what is no hash is ignored.
        let mut session = world.connect().await;
        let mut frame = hello(&alice, Some(&crate::world::session_key(60)));
        frame["hostFingerprint"] = json!("c".repeat(64));
        session.say_hello(&frame).await;
        let mut client = world.connect().await;
        let mut frame = hello(&alice, None);
        frame["hostFingerprint"] = json!("é".repeat(32));
        client.say_hello(&frame).await;

        let report = admin.event("member_clone_suspected").await;
        let data = &report["eventData"];
        assert_eq!(data["pubkey"], alice.pubkey());
        assert_eq!(data["policy"], policy.as_str());
        assert_eq!(data["last_host_fingerprint_prefix"], "a".repeat(16));
        assert_eq!(data["host_fingerprint_prefix"], "b".repeat(16));
        for client in [&mut admin, &mut other] {
            client.settle().await;
            let unread = client.unread("push").into_iter();
            let reports = unread.filter(|push| push["event"] == "member_clone_suspected");
            assert_eq!(reports.count(), 0, "once, and to admins alone");
        }
        let members = world.broker.members(operator(), MESH).await.unwrap();
        let stored = members.iter().find(|member| member.id == alice.id).unwrap();
        assert_eq!(stored.last_seen_host_fingerprint, Some("b".repeat(64)));
        assert!(stored.clone_suspected_at.is_some());
    }
}

#[tokio::test]
async fn cm_133_cm_134_features_are_answered_with_parameters_and_what_is_missing() {
    let world = World::with(|_| (), |mesh| mesh.dedupe = DedupeRetention::Days(30)).await;
    let alice = world.member("alice", 1).await;
    let mut client = world.plain(&alice).await;
    let request = json!({
        "type": "feature_negotiation_request",
        "require": ["client_message_id_dedupe", "teleport"],
        "optional": ["mcp_host"],
    });
    let answer = client.request(request).await;
    assert_eq!(answer["type"], "feature_negotiation_response");
    assert_eq!(answer["missing_required"], json!(["teleport"]));
    let supported = &answer["supported"];
    assert_eq!(
        supported["client_message_id_dedupe"]["params"],
        json!({"version": 2, "mode": "retention_scoped", "dedupe_retention_days": 30, "request_fingerprint": true})
    );
    assert_eq!(supported["max_payload"]["params"]["inline_bytes"], 48_000);
    assert_eq!(
        supported["member_keypair_rotated_event"]["params"]["version"],
        1
    );
    assert_eq!(
        supported["concurrent_connection_policy"]["params"]["default_policy"],
        "prefer_newest"
    );
}

#[tokio::test]
async fn cm_143_without_enforcement_the_feature_is_not_offered_and_ids_are_not_compared() {
    let world = World::with(|settings| settings.dedupe_is_enforced = false, |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.plain(&alice).await, world.plain(&bob).await);
    let answer = sender.negotiate().await;
    assert_eq!(
        answer["missing_required"],
        json!(["client_message_id_dedupe"])
    );
    let mut frame = message(&bob.pubkey(), "hello");
    frame["client_message_id"] = json!("c-1");
    for _ in 0..2 {
        assert_eq!(sender.deliver(&frame).await["code"], 201);
        assert_eq!(receiver.take().await["client_message_id"], "c-1");
    }
}
