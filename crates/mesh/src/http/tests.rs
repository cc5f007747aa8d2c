//! Bodies of both routes.

use serde_json::{Value, json};

use super::*;
use crate::accept::{AcceptReason, AcceptRefusal, check_send};
use crate::destination::ResolvedTarget;
use crate::id::{MemberId, TopicName};
use crate::invite::{InvitePayload, JoinRefusal};
use crate::keys::MeshPrivateKey;
use crate::role::MemberRole;

fn payload() -> InvitePayload {
    let unsigned = InvitePayload {
        v: 1,
        mesh_id: "mesh-1".to_owned(),
        mesh_slug: "mesh-one".to_owned(),
        broker_url: "ws://127.0.0.1:7900/ws".to_owned(),
        expires_at: 1_800_000_000,
        mesh_root_key: "A".repeat(43),
        role: MemberRole::Member,
        owner_pubkey: String::new(),
        signature: String::new(),
    };
    unsigned.signed(&MeshPrivateKey::from_seed(&[9; 32]))
}

fn join(change: impl FnOnce(&mut Value)) -> Result<JoinRequest, InvalidBody> {
    let mut body = json!({
        "invite_token": payload().token(),
        "invite_payload": payload(),
        "peer_pubkey": "ab".repeat(32),
        "display_name": "worker",
    });
    change(&mut body);
    JoinRequest::parse(body.to_string().as_bytes())
}

#[test]
fn a_request_to_join_has_a_payload_beside_or_inside_of_its_token() {
    assert_eq!(join(|_| ()).unwrap().payload, payload());
    let inside = join(|body| drop(body.as_object_mut().unwrap().remove("invite_payload"))).unwrap();
    assert_eq!(inside.payload, payload());
    let random = join(|body| body["invite_token"] = json!("abc")).unwrap();
    assert_eq!(random.token, "abc");
    // The broker refuses a payload that the token does not contain.
    let beside = join(|body| body["invite_payload"]["role"] = json!("admin")).unwrap();
    assert_eq!(beside.payload.role, MemberRole::Admin);
    for (member, value) in [
        ("peer_pubkey", "ab"),
        ("display_name", ""),
        ("invite_payload", "x"),
    ] {
        assert!(
            join(|body| body[member] = json!(value)).is_err(),
            "{member}"
        );
    }
    let neither = br#"{"invite_token":"abc","peer_pubkey":"00","display_name":"d"}"#;
    assert!(JoinRequest::parse(neither).is_err());
}

#[test]
fn answers_to_join_have_upstreams_shape() {
    let member = MemberId::parse("m-a").unwrap();
    let text = |answer: &JoinAnswer| (answer.status(), serde_json::to_string(answer).unwrap());
    let joined = JoinAnswer::joined(&member, false);
    assert_eq!(
        text(&joined),
        (200, r#"{"ok":true,"memberId":"m-a"}"#.to_owned())
    );
    let again = JoinAnswer::joined(&member, true);
    assert_eq!(
        text(&again),
        (
            200,
            r#"{"ok":true,"memberId":"m-a","alreadyMember":true}"#.to_owned()
        )
    );
    let refused = JoinAnswer::refused(JoinRefusal::InviteExhausted);
    assert_eq!(
        text(&refused),
        (400, r#"{"ok":false,"error":"invite_exhausted"}"#.to_owned())
    );
}

fn post(body: &Value, header: Option<&str>) -> Result<MessagePost, InvalidBody> {
    MessagePost::parse(body.to_string().as_bytes(), header)
}

#[test]
fn both_shapes_of_a_message_become_the_same_send() {
    let upstream = post(
        &json!({"topic": "alerts", "ciphertext": "aGVsbG8=", "client_message_id": "c-1"}),
        None,
    )
    .unwrap();
    let own = json!({"destination_kind": "topic", "destination_ref": "alerts", "body": "hello"});
    let own = post(&own, Some("c-1")).unwrap();
    assert_eq!(own.send, upstream.send);
    assert_eq!(own.send.target_spec, "#alerts");
    let checked = check_send(&own.send).unwrap();
    let target = ResolvedTarget::Topic(TopicName::parse("alerts").unwrap());
    assert!(checked.key(&target).is_ok());
    let header_first = post(
        &json!({"topic": "a", "body": "m", "client_message_id": "body"}),
        Some("header"),
    )
    .unwrap();
    assert_eq!(
        header_first.send.client_message_id.as_deref(),
        Some("header")
    );
}

#[test]
fn a_message_has_one_destination_and_one_body() {
    for body in [
        json!({"body": "m"}),
        json!({"topic": "a"}),
        json!({"topic": "a", "destination_kind": "topic", "destination_ref": "a", "body": "m"}),
        json!({"destination_kind": "topic", "body": "m"}),
        json!({"destination_kind": "room", "destination_ref": "a", "body": "m"}),
        json!({"destination_kind": "dm", "destination_ref": "a", "body": "m"}),
        json!({"topic": "a", "body": "m", "ciphertext": "AAAA"}),
        json!({"topic": "a", "body": "m", "nonce": "AAAA"}),
        json!([]),
    ] {
        assert!(post(&body, None).is_err(), "{body}");
    }
}

#[test]
fn answers_have_the_status_of_an_ack_and_both_names() {
    let refusal = AcceptRefusal::new(AcceptReason::NotFound, "no such topic").to_ack(None, None);
    let answer = MessagePostAnswer::new(refusal);
    assert_eq!(answer.status(), 404);
    assert_eq!(
        serde_json::to_string(&answer).unwrap(),
        r#"{"error":"not_found"}"#
    );
    let accepted = crate::accept::Accepted {
        broker_message_id: crate::id::BrokerMessageId::from_bytes([1; 16]),
        history_id: crate::id::BrokerMessageId::from_bytes([2; 16]),
        client_message_id: None,
    };
    let answer = MessagePostAnswer::new(accepted.to_ack(None));
    let body: Value = serde_json::to_value(&answer).unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(body["messageId"], body["broker_message_id"]);
    assert_eq!(body["historyId"], body["history_id"]);
    assert_eq!(body["duplicate"], false);
}
