//! Which messages are computed again, which are refused, and what repeated ids get.

use super::*;
use crate::client_message_id::ClientMessageId;
use crate::destination::{Destination, DestinationKind, ResolvedTarget};
use crate::fingerprint::{BodyHash, FingerprintInput, RequestFingerprint};
use crate::frame::{AckFrame, RawJson, SendFrame};
use crate::id::{BrokerMessageId, MemberId, TopicName};
use crate::keys::MeshPublicKey;
use crate::meta::CanonicalMeta;
use crate::priority::MeshPriority;

/// Vector V1: topic `alerts`, body `hello`.
const V1: &str = "732ac0065588670239d605eb525efd30389dcb985216d01cad4169dbcaf3dd79";
const KEY: &str = "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394";

fn post() -> SendFrame {
    let text = |text: &str| Some(text.to_owned());
    SendFrame {
        id: text("1"),
        target_spec: "#alerts".to_owned(),
        ciphertext: "aGVsbG8=".to_owned(),
        client_message_id: text("c-1"),
        request_fingerprint: text(V1),
        destination_kind: text("topic"),
        destination_ref: text("alerts"),
        envelope_version: Some(1),
        body_sha256: Some(BodyHash::of(b"hello").to_string()),
        ..SendFrame::default()
    }
}

fn alerts() -> ResolvedTarget {
    ResolvedTarget::Topic(TopicName::parse("alerts").unwrap())
}

fn key_of(send: &SendFrame, target: &ResolvedTarget) -> Result<SendKey, AcceptRefusal> {
    check_send(send)?.key(target)
}

fn fingerprint(send: &SendFrame, target: &ResolvedTarget) -> String {
    match key_of(send, target).unwrap() {
        SendKey::Keyed { fingerprint, .. } => fingerprint.to_string(),
        SendKey::Unkeyed => "none".to_owned(),
    }
}

fn refused(send: &SendFrame) -> (u16, &'static str) {
    let refusal = key_of(send, &alerts()).unwrap_err();
    (refusal.reason.status(), refusal.reason.as_str())
}

#[test]
fn a_message_with_all_parts_is_computed_again() {
    assert_eq!(fingerprint(&post(), &alerts()), V1);
    let unclaimed = SendFrame {
        request_fingerprint: None,
        ..post()
    };
    assert_eq!(fingerprint(&unclaimed, &alerts()), V1);
    let with_default = SendFrame {
        priority: Some("next".to_owned()),
        ..post()
    };
    assert_eq!(fingerprint(&with_default, &alerts()), V1);
}

#[test]
fn cm_053_drift_is_a_conflict_that_shows_the_brokers_own_prefix() {
    consign_testkit::plants::from_environment();
    let drifted = SendFrame {
        priority: Some("now".to_owned()),
        ..post()
    };
    let refusal = key_of(&drifted, &alerts()).unwrap_err();
    let ack = refusal.to_ack(Some("1"), Some(&ClientMessageId::parse("c-1").unwrap()));
    // The prefix of V4, which is V1 with the priority `now`.
    assert_eq!(
        ack.broker_fingerprint_prefix.as_deref(),
        Some("dcf5997bdfd7a492")
    );
    assert_eq!(
        (ack.code, ack.queued, ack.message_id.as_str()),
        (Some(409), false, "")
    );
    assert_eq!(
        ack.conflict.as_deref(),
        Some("request_fingerprint_mismatch")
    );
    assert_eq!(ack.client_message_id.as_deref(), Some("c-1"));
}

#[test]
fn upstreams_fingerprint_is_taken_as_it_is() {
    let opaque = "19e516b0".repeat(8);
    let send = SendFrame {
        request_fingerprint: Some(opaque.clone()),
        body_sha256: None,
        destination_kind: None,
        destination_ref: None,
        ..post()
    };
    assert_eq!(fingerprint(&send, &alerts()), opaque);
    let alone = SendFrame {
        request_fingerprint: None,
        ..send.clone()
    };
    assert_eq!(fingerprint(&alone, &alerts()), V1, "over the visible bytes");
    let unkeyed = SendFrame {
        client_message_id: None,
        ..send
    };
    assert_eq!(fingerprint(&unkeyed, &alerts()), "none");
}

#[test]
fn cm_056_a_clear_body_must_have_its_hash() {
    consign_testkit::plants::from_environment();
    let send = SendFrame {
        ciphertext: "aGVsbG8h".to_owned(),
        ..post()
    };
    assert_eq!(refused(&send), (400, "body_hash_mismatch"));
    // A sealed body cannot be compared.
    let sealed = SendFrame {
        body_version: Some(2),
        ..send
    };
    assert_eq!(fingerprint(&sealed, &alerts()), V1);
}

#[test]
fn kind_and_reference_must_agree_with_the_target() {
    let other = SendFrame {
        destination_ref: Some("ops".to_owned()),
        ..post()
    };
    assert_eq!(refused(&other), (400, "invalid_destination"));
    let half = SendFrame {
        destination_ref: None,
        ..post()
    };
    assert_eq!(refused(&half), (400, "invalid_destination"));
    // A session key in the target, its member's key as the reference.
    let member = ResolvedTarget::Member(MeshPublicKey::parse(KEY).unwrap());
    let direct = SendFrame {
        target_spec: "ab".repeat(32),
        destination_kind: Some("dm".to_owned()),
        destination_ref: Some(KEY.to_owned()),
        request_fingerprint: Some(
            "66c01d76c5468600dc51408236d116f16779adf6b27bda6e7723582b8b5873de".to_owned(),
        ),
        priority: Some("now".to_owned()),
        body_sha256: Some(BodyHash::of(b"hi").to_string()),
        nonce: "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".to_owned(),
        ..post()
    };
    assert!(key_of(&direct, &member).is_ok());
}

#[test]
fn cm_049_cm_050_malformed_parts_are_400_with_their_word() {
    let text = |text: &str| Some(text.to_owned());
    let raw = |text: &str| Some(RawJson::parse(text).unwrap());
    let cases = [
        (
            SendFrame {
                target_spec: "worker".to_owned(),
                ..post()
            },
            "invalid_destination",
        ),
        (
            SendFrame {
                priority: text("urgent"),
                ..post()
            },
            "invalid_priority",
        ),
        (
            SendFrame {
                ciphertext: "a".to_owned(),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                nonce: "AAAA".to_owned(),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                body_version: Some(3),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                mentions: Some(vec![String::new(); 17]),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                reply_to_id: text("a"),
                hashed_reply_to_id: text("b"),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                reply_to_id: text("a\0"),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                client_message_id: text("a b"),
                ..post()
            },
            "invalid_client_message_id",
        ),
        (
            SendFrame {
                request_fingerprint: text("ab"),
                ..post()
            },
            "invalid_request_fingerprint",
        ),
        (
            SendFrame {
                body_sha256: text("ab"),
                ..post()
            },
            "invalid_request_fingerprint",
        ),
        (
            SendFrame {
                destination_kind: text("room"),
                ..post()
            },
            "invalid_destination",
        ),
        (
            SendFrame {
                destination_ref: text("a\0b"),
                ..post()
            },
            "invalid_destination",
        ),
        (
            SendFrame {
                meta: raw("[]"),
                ..post()
            },
            "invalid_frame",
        ),
        (
            SendFrame {
                meta: raw(r#"{"a":1,"a":2}"#),
                ..post()
            },
            "meta_not_canonical",
        ),
        (
            SendFrame {
                meta: raw(r#"{"a":"\ud800"}"#),
                ..post()
            },
            "meta_not_canonical",
        ),
        (
            SendFrame {
                meta: raw(r#"{"a":9007199254740993}"#),
                ..post()
            },
            "meta_not_canonical",
        ),
    ];
    for (send, word) in cases {
        assert_eq!(refused(&send), (400, word));
    }
    let long = SendFrame {
        ciphertext: "AAAA".repeat(16_010),
        ..post()
    };
    assert_eq!(refused(&long), (413, "payload_too_large"));
}

#[test]
fn upstreams_daemon_recognises_permanent_refusals_by_their_words() {
    let permanent = [
        "payload_too_large",
        "forbidden",
        "not_found",
        "invalid",
        "schema",
        "auth",
        "signature",
    ];
    for reason in AcceptReason::ALL {
        let error = AcceptRefusal::new(*reason, "x").error();
        assert!(error.starts_with(reason.as_str()));
        let is_permanent = permanent.iter().any(|word| error.contains(word));
        assert_eq!(is_permanent, reason.status() < 429, "{error}");
    }
}

fn member(id: &str) -> MemberId {
    MemberId::parse(id).unwrap()
}

fn first(history_available: bool) -> FirstAccept {
    FirstAccept {
        broker_message_id: BrokerMessageId::from_bytes([1; 16]),
        history_id: BrokerMessageId::from_bytes([2; 16]),
        fingerprint: RequestFingerprint::parse(V1).unwrap(),
        sender: member("m-a"),
        destination: Destination::from_parts(DestinationKind::Topic, "alerts").unwrap(),
        first_seen_at: "2026-01-01T00:00:00.000Z".to_owned(),
        history_available,
    }
}

fn ack_of(repeated: &Repeated<'_>) -> AckFrame {
    repeated.to_ack(Some("1"), &ClientMessageId::parse("c-1").unwrap())
}

#[test]
fn a_first_accept_is_201_with_three_ids() {
    let accepted = Accepted {
        broker_message_id: BrokerMessageId::from_bytes([1; 16]),
        history_id: BrokerMessageId::from_bytes([2; 16]),
        client_message_id: Some(ClientMessageId::parse("c-1").unwrap()),
    };
    let ack = accepted.to_ack(Some("1"));
    assert_eq!(
        (ack.code, ack.queued, ack.duplicate),
        (Some(201), true, Some(false))
    );
    assert_eq!(Some(&ack.message_id), ack.broker_message_id.as_ref());
    assert_eq!(ack.client_message_id.as_deref(), Some("c-1"));
    assert!(ack.history_id.is_some() && ack.to_error().is_none());
}

#[test]
fn an_equal_request_is_a_duplicate_of_the_first() {
    for history_available in [true, false] {
        let first = first(history_available);
        let found = repeated(&first, &member("m-a"), first.fingerprint);
        let ack = ack_of(&found);
        assert_eq!(
            (ack.code, ack.queued, ack.duplicate),
            (Some(200), true, Some(true))
        );
        assert_eq!(ack.message_id, first.broker_message_id.to_string());
        assert_eq!(ack.history_available, Some(history_available));
        assert_eq!(
            ack.first_seen_at.as_deref(),
            Some("2026-01-01T00:00:00.000Z")
        );
        assert_eq!(ack.destination_ref.as_deref(), Some("alerts"));
    }
}

#[test]
fn another_request_is_a_conflict_with_a_prefix_of_16_digits() {
    let first = first(true);
    let found = repeated(
        &first,
        &member("m-a"),
        RequestFingerprint::from_bytes([0; 32]),
    );
    let ack = ack_of(&found);
    assert_eq!((ack.code, ack.queued), (Some(409), false));
    assert_eq!(
        ack.broker_fingerprint_prefix.as_deref(),
        Some("732ac00655886702")
    );
    assert_eq!(
        ack.conflict.as_deref(),
        Some("request_fingerprint_mismatch")
    );
    assert_eq!(
        (ack.broker_message_id.as_ref(), ack.history_id.as_ref()),
        (None, None)
    );
    let error = ack.to_error().unwrap();
    assert_eq!(
        (error.code.as_str(), error.id.as_deref()),
        ("idempotency_key_reused", Some("1"))
    );
}

#[test]
fn another_member_learns_nothing_of_the_first_message() {
    let first = first(true);
    let text = |fingerprint| {
        serde_json::to_string(&ack_of(&repeated(&first, &member("m-b"), fingerprint))).unwrap()
    };
    let equal = text(first.fingerprint);
    assert_eq!(equal, text(RequestFingerprint::from_bytes([0; 32])));
    for hidden in [
        "732ac0",
        &first.broker_message_id.to_string(),
        "alerts",
        "2026",
    ] {
        assert!(!equal.contains(hidden), "{equal}");
    }
}

#[test]
fn a_sender_and_the_broker_compute_the_same_fingerprint() {
    let meta = CanonicalMeta::parse(Some(r#"{"b":[1.0],"a":"é"}"#)).unwrap();
    let body = b"grouped";
    let input = FingerprintInput {
        envelope_version: 1,
        destination_kind: DestinationKind::Queue,
        destination_ref: "@ops",
        reply_to_id: Some("r-1"),
        priority: MeshPriority::Low,
        meta: &meta,
        body_hash: BodyHash::of(body),
    };
    let claimed = input.fingerprint().unwrap();
    let send = SendFrame {
        target_spec: "@ops".to_owned(),
        destination_kind: Some("queue".to_owned()),
        destination_ref: Some("@ops".to_owned()),
        reply_to_id: Some("r-1".to_owned()),
        priority: Some("low".to_owned()),
        meta: RawJson::parse(r#"{ "a":"\u00e9", "b":[1] }"#),
        body_sha256: Some(BodyHash::of(body).to_string()),
        ciphertext: crate::body::CarriedBody::clear(body).ciphertext,
        request_fingerprint: Some(claimed.to_string()),
        ..post()
    };
    let target = ResolvedTarget::Group(crate::id::GroupName::parse("ops").unwrap());
    assert_eq!(fingerprint(&send, &target), claimed.to_string());
}
