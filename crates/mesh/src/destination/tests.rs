//! What callers may write, whom they mean, and what the broker compares.

use super::*;

const A: &str = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
const B: &str = "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394";
const C: &str = "ed4928c628d1c2c6eae90338905995612959273a5c63f93636c14614ac8737d1";

fn key(text: &str) -> MeshPublicKey {
    MeshPublicKey::parse(text).unwrap()
}

fn peers() -> Vec<KnownPeer> {
    let peer = |member, name: &str, sessions: &[&str]| KnownPeer {
        member: key(member),
        name: Some(name.to_owned()),
        sessions: sessions.iter().map(|text| key(text)).collect(),
    };
    vec![
        peer(A, "Worker", &[C]),
        peer(A, "worker", &[]),
        peer(B, "Builder", &[]),
    ]
}

fn resolved(text: &str) -> Result<Destination, ResolveError> {
    Recipient::parse(text).unwrap().resolve(&peers())
}

fn parts(text: &str) -> (&'static str, String) {
    let destination = resolved(text).unwrap();
    (destination.kind().as_str(), destination.reference())
}

#[test]
fn cm_054_every_form_of_a_recipient_resolves_before_it_is_hashed() {
    for (text, kind, reference) in [
        ("#alerts", "topic", "alerts"),
        (A, "dm", A),
        (&A.to_uppercase(), "dm", A),
        (&A[..16], "dm", A),
        (&A[..63], "dm", A),
        ("WORKER", "dm", A),
        (" builder ", "dm", B),
        // A session stands for its member.
        (C, "dm", A),
        (&C[..20], "dm", A),
        ("@all", "queue", "@all"),
        ("@ops/disk", "queue", "@ops/disk"),
        ("*", "queue", "*"),
        ("queue:q_1", "queue", "q_1"),
    ] {
        assert_eq!(parts(text), (kind, reference.to_owned()), "{text}");
    }
}

#[test]
fn cm_054_a_name_and_the_key_that_it_means_are_one_destination() {
    assert_eq!(resolved("worker"), resolved(A));
    let mut renamed = peers();
    renamed[2].name = Some("Worker".to_owned());
    let recipient = Recipient::parse("worker").unwrap();
    assert_eq!(recipient.resolve(&renamed), Err(ResolveError::Ambiguous));
}

#[test]
fn unknown_and_ambiguous_recipients_have_different_errors() {
    assert_eq!(resolved("stranger"), Err(ResolveError::NotFound));
    assert_eq!(resolved(&"0".repeat(16)), Err(ResolveError::NotFound));
    // Fewer than 16 digits are a name.
    assert_eq!(resolved(&A[..15]), Err(ResolveError::NotFound));
    let two = [A, &format!("{}{}", &A[..20], &B[20..])].map(|text| KnownPeer {
        member: key(text),
        name: None,
        sessions: Vec::new(),
    });
    let prefix = Recipient::parse(&A[..20]).unwrap();
    assert_eq!(prefix.resolve(&two), Err(ResolveError::Ambiguous));
    for invalid in ["", " ", "#", "#a b", "@", "@a//b", "queue:", "a\nb"] {
        assert_eq!(Recipient::parse(invalid), None, "{invalid:?}");
    }
}

#[test]
fn destinations_survive_their_stored_form() {
    for text in ["#alerts", A, "@ops", "*", "queue:q_1"] {
        let destination = resolved(text).unwrap();
        let read = Destination::from_parts(destination.kind(), &destination.reference());
        assert_eq!(read.as_ref(), Ok(&destination));
        let target = TargetSpec::parse(&destination.target().to_string());
        assert_eq!(target, Some(destination.target()));
    }
    for (kind, invalid) in [
        (DestinationKind::Topic, "a\0b"),
        (DestinationKind::Topic, ""),
        (DestinationKind::Dm, &A[1..]),
        (DestinationKind::Dm, &A.to_uppercase()),
        (DestinationKind::Queue, "@"),
        (DestinationKind::Queue, "a b"),
    ] {
        assert_eq!(
            Destination::from_parts(kind, invalid),
            Err(InvalidDestination(kind))
        );
    }
}

#[test]
fn targets_have_five_forms() {
    for text in [A, "@all", "#topic-id", "#büro", "*", "queue:q_1"] {
        assert_eq!(TargetSpec::parse(text).unwrap().to_string(), text);
    }
    for invalid in ["", "#", "# ", "@", "queue:", &A[1..], "worker", "**"] {
        assert_eq!(TargetSpec::parse(invalid), None, "{invalid}");
    }
}

#[test]
fn a_target_agrees_with_its_own_destination_alone() {
    let targets = [
        ResolvedTarget::Member(key(A)),
        ResolvedTarget::Topic(TopicName::parse("a").unwrap()),
        ResolvedTarget::Group(GroupName::parse("a").unwrap()),
        ResolvedTarget::Queue(QueueName::parse("a").unwrap()),
        ResolvedTarget::Everyone,
    ];
    for (at, target) in targets.iter().enumerate() {
        for (other_at, other) in targets.iter().enumerate() {
            assert_eq!(target.agrees_with(&other.destination()), at == other_at);
        }
    }
}

#[test]
fn the_broker_can_read_groups_broadcasts_and_topics_without_a_key() {
    let clear = |text: &str, version| resolved(text).unwrap().is_clear(version);
    assert!(clear("#alerts", 1) && !clear("#alerts", 2));
    assert!(clear("@ops", 1) && clear("*", 2));
    assert!(!clear(A, 1) && !clear("queue:q", 1));
}
