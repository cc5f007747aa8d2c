//! Who may do what.

use super::*;
use crate::destination::DestinationKind;

fn key(byte: u8) -> MeshPublicKey {
    MeshPublicKey::from_bytes([byte; 32])
}

fn topic(name: &str) -> Destination {
    Destination::from_parts(DestinationKind::Topic, name).unwrap()
}

#[test]
fn words_read_back() {
    for role in TopicRole::ALL {
        assert_eq!(TopicRole::parse(role.as_str()), Some(*role));
    }
    assert_eq!(PresenceRole::ControlPlane.to_string(), "control-plane");
    assert_eq!(
        serde_json::to_string(&PeerGrant::StateRead).unwrap(),
        "\"state-read\""
    );
    assert_eq!(ClonePolicy::parse("newest"), None);
}

#[test]
fn only_members_that_are_no_observers_post() {
    assert!(may_post(Some(TopicRole::Lead)) && may_post(Some(TopicRole::Member)));
    assert!(!may_post(Some(TopicRole::Observer)) && !may_post(None));
}

#[test]
fn a_blocked_sender_learns_it_for_direct_messages_alone() {
    let blocks = PeerGrants([(key(1), Vec::new()), (key(2), vec![PeerGrant::Dm])].into());
    let direct = Destination::Member(key(9));
    assert_eq!(blocks.delivered([key(1)], &direct), Delivered::Refused);
    assert_eq!(
        blocks.delivered([key(1)], &Destination::Everyone),
        Delivered::Dropped
    );
    assert_eq!(blocks.delivered([key(1)], &topic("a")), Delivered::Dropped);
    assert_eq!(blocks.delivered([key(2)], &direct), Delivered::Yes);
    assert_eq!(blocks.delivered([key(2)], &topic("a")), Delivered::Dropped);
    assert_eq!(blocks.delivered([key(3)], &direct), Delivered::Yes);
    assert_eq!(blocks.delivered([key(3)], &topic("a")), Delivered::Yes);
}

#[test]
fn a_key_with_topics_sends_to_those_alone() {
    let scope = |capability, topics: Option<&str>| ApiScope {
        capabilities: vec![capability],
        topics: topics.map(|name| vec![TopicName::parse(name).unwrap()]),
    };
    let direct = Destination::Member(key(1));
    assert!(scope(ApiCapability::Send, None).may_send(&direct));
    assert!(scope(ApiCapability::Send, Some("a")).may_send(&topic("a")));
    assert!(!scope(ApiCapability::Send, Some("a")).may_send(&topic("b")));
    assert!(!scope(ApiCapability::Send, Some("a")).may_send(&direct));
    assert!(!scope(ApiCapability::Read, None).may_send(&direct));
}

#[test]
fn hooks_have_three_scopes_and_no_wildcards() {
    let sender = key(1);
    let reply = HookScope::parse("reply:event").unwrap();
    assert!(reply.covers(&Destination::Member(sender), Some(sender)));
    assert!(!reply.covers(&Destination::Member(key(2)), Some(sender)));
    assert!(!reply.covers(&Destination::Member(sender), None));
    let direct = HookScope::parse(&format!("dm:send:{sender}")).unwrap();
    assert!(direct.covers(&Destination::Member(sender), None));
    assert!(!direct.covers(&topic("a"), Some(sender)));
    let post = HookScope::parse("topic:a:post").unwrap();
    assert!(post.covers(&topic("a"), None) && !post.covers(&topic("b"), None));
    for other in [
        "",
        "*",
        "topic:*:post",
        "dm:send:*",
        "inbox:read",
        "topic:a:read",
        "topic::post",
    ] {
        assert_eq!(HookScope::parse(other), None, "{other}");
    }
}
