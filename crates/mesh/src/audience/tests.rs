//! Self-skip, nested groups, and clients that never acknowledge.

use super::*;
use crate::id::QueueName;

fn key(byte: u8) -> MeshPublicKey {
    MeshPublicKey::from_bytes([byte; 32])
}

fn connection(member: u8, session: Option<u8>) -> MeshConnection {
    MeshConnection {
        member: key(member),
        session: session.map(key),
        groups: vec![GroupName::parse("ops/disk").unwrap()],
        topics: vec![TopicName::parse("alerts").unwrap()],
        has_negotiated: false,
        has_acked: false,
    }
}

fn group(name: &str) -> Destination {
    Destination::Group(GroupName::parse(name).unwrap())
}

fn topic(name: &str) -> Destination {
    Destination::Topic(TopicName::parse(name).unwrap())
}

/// Whether the message of the first connection reaches the second.
fn reaches(
    from: &MeshConnection,
    to: &MeshConnection,
    destination: &Destination,
    target: Option<u8>,
) -> bool {
    let message = AddressedMessage {
        sender: from.member,
        destination,
        target: target.map(key),
    };
    to.receives(&message, from == to)
}

fn acked_on_write(to: &MeshConnection, destination: &Destination, target: Option<u8>) -> bool {
    to.is_acked_on_write(&AddressedMessage {
        sender: key(9),
        destination,
        target: target.map(key),
    })
}

#[test]
fn groups_and_broadcasts_skip_all_sessions_of_the_sender() {
    let (sender, sibling, other) = (
        connection(1, None),
        connection(1, Some(11)),
        connection(2, None),
    );
    for destination in [
        group("ops"),
        group("all"),
        Destination::Everyone,
        topic("alerts"),
    ] {
        assert!(
            !reaches(&sender, &sender, &destination, None),
            "{destination}"
        );
        assert!(
            !reaches(&sender, &sibling, &destination, None),
            "{destination}"
        );
        assert!(
            reaches(&sender, &other, &destination, None),
            "{destination}"
        );
    }
}

#[test]
fn a_nested_group_belongs_to_the_groups_above() {
    let (sender, other) = (connection(1, None), connection(2, None));
    for (name, receives) in [
        ("ops", true),
        ("ops/disk", true),
        ("ops/disk/a", false),
        ("op", false),
        ("disk", false),
    ] {
        assert_eq!(
            reaches(&sender, &other, &group(name), None),
            receives,
            "{name}"
        );
    }
    assert!(!reaches(&sender, &other, &topic("news"), None));
    let queue = Destination::Queue(QueueName::parse("q").unwrap());
    assert!(!reaches(&sender, &other, &queue, None));
}

#[test]
fn direct_messages_skip_the_sending_connection_alone() {
    let (daemon, session) = (connection(1, None), connection(1, Some(11)));
    let to_own_member = Destination::Member(key(1));
    assert!(!reaches(&daemon, &daemon, &to_own_member, Some(1)));
    assert!(reaches(&daemon, &session, &to_own_member, Some(1)));
    // A session's key reaches that session and not its daemon.
    let other = connection(2, None);
    assert!(reaches(&other, &session, &to_own_member, Some(11)));
    assert!(!reaches(&other, &daemon, &to_own_member, Some(11)));
    assert!(reaches(&other, &daemon, &to_own_member, Some(1)));
    assert!(!reaches(
        &other,
        &connection(3, None),
        &to_own_member,
        Some(1)
    ));
}

#[test]
fn only_sessions_that_never_acknowledge_are_acked_on_write() {
    let session = connection(1, Some(11));
    let to_member = Destination::Member(key(1));
    assert!(acked_on_write(&session, &to_member, Some(11)));
    assert!(acked_on_write(&session, &topic("alerts"), None));
    assert!(acked_on_write(&session, &Destination::Everyone, None));
    assert!(
        !acked_on_write(&session, &to_member, Some(1)),
        "mail of the daemon"
    );
    let daemon = connection(1, None);
    assert!(!acked_on_write(&daemon, &topic("alerts"), None));
    for acknowledging in [
        MeshConnection {
            has_acked: true,
            ..session.clone()
        },
        MeshConnection {
            has_negotiated: true,
            ..session
        },
    ] {
        assert!(!acked_on_write(&acknowledging, &to_member, Some(11)));
        assert!(!acked_on_write(&acknowledging, &topic("alerts"), None));
    }
}
