//! Two nodes on one ledger.

use serde_json::{Value, json};

use crate::client::{Client, body, message};
use crate::world::{World, operator, session_key};

/// Waits until a peer is listed.
async fn sees(client: &mut Client, pubkey: &str) {
    let has = |list: &Value| {
        let peers = list["peers"].as_array().unwrap();
        peers.iter().any(|peer| peer["pubkey"] == pubkey)
    };
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while !has(&client.request(json!({"type": "list_peers"})).await) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the peer is not listed in time"
        );
    }
}

#[tokio::test]
async fn messages_reach_members_and_sessions_of_another_node() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let (alice, bob) = (one.member("alice", 1).await, one.member("bob", 2).await);
    let mut sender = one.daemon(&alice).await;
    let (mut daemon, mut session) = (two.daemon(&bob).await, two.session(&bob, 60).await);
    let key = session_key(60).public_key().to_string();
    sees(&mut sender, &key).await;
    sender.deliver(&message(&bob.pubkey(), "direct")).await;
    assert_eq!(body(&daemon.take().await), "direct");
    assert_eq!(body(&session.push().await), "direct");
    sender.deliver(&message(&key, "to the session")).await;
    assert_eq!(body(&session.push().await), "to the session");
    sender.deliver(&message("#general", "post")).await;
    assert_eq!(body(&daemon.take().await), "post");
}

#[tokio::test]
async fn a_member_that_another_node_revokes_is_closed() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let alice = one.member("alice", 1).await;
    let mut client = two.daemon(&alice).await;
    let key = alice.key.public_key();
    one.broker
        .revoke_member(operator(), "acme", key)
        .await
        .unwrap();
    assert_eq!(client.closed().await, (4002, "banned".to_owned()));
}
