//! Each refusal, and which of several is reported.

use super::*;
use crate::frame::SessionAttestation;
use crate::keys::MeshPrivateKey;

const NOW: u64 = 1_700_000_000_000;
const DAY_MS: u64 = 86_400_000;

fn key(byte: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[byte; 32])
}

fn hello(timestamp: u64) -> HelloFrame {
    let pubkey = key(1).public_key().to_string();
    HelloFrame {
        mesh_id: "mesh-1".to_owned(),
        member_id: "m-a".to_owned(),
        signature: MeshSignedText::hello("mesh-1", "m-a", &pubkey, timestamp).sign(&key(1)),
        pubkey,
        timestamp,
        ..HelloFrame::default()
    }
}

fn refused(hello: &HelloFrame, connections: usize) -> &'static str {
    check_hello(hello, NOW, connections).unwrap_err().as_str()
}

#[test]
fn a_signed_hello_within_a_minute_passes() {
    for timestamp in [NOW, NOW - 60_000, NOW + 60_000] {
        let key = check_hello(&hello(timestamp), NOW, 99).unwrap();
        assert_eq!(key.to_string(), hello(timestamp).pubkey);
    }
}

#[test]
fn refusals_are_reported_in_the_order_of_the_protocol() {
    // Everything is wrong at first; each step repairs what was reported.
    let mut wrong = HelloFrame {
        session_pubkey: Some("x".to_owned()),
        pubkey: "x".to_owned(),
        signature: "x".to_owned(),
        ..hello(NOW - 60_001)
    };
    assert_eq!(refused(&wrong, 100), "bad_session_pubkey");
    wrong.session_pubkey = Some(key(3).public_key().to_string());
    assert_eq!(refused(&wrong, 100), "capacity");
    assert_eq!(refused(&wrong, 99), "timestamp_skew");
    wrong.timestamp = NOW;
    assert_eq!(refused(&wrong, 99), "malformed");
    wrong.pubkey = key(1).public_key().to_string();
    assert_eq!(refused(&wrong, 99), "malformed");
    wrong.signature = "00".repeat(64);
    assert_eq!(refused(&wrong, 99), "bad_signature");
    wrong.signature = hello(NOW).signature;
    assert!(check_hello(&wrong, NOW, 99).is_ok());
}

#[test]
fn revoked_members_are_banned_and_others_unauthorized() {
    let decided = |membership| {
        check_member("m-a", membership)
            .map_err(|refusal| (refusal.as_str(), refusal.close_code().code()))
    };
    assert_eq!(decided(Membership::Active("m-a")), Ok(()));
    assert_eq!(decided(Membership::Revoked), Err(("revoked", 4002)));
    assert_eq!(decided(Membership::Stranger), Err(("unauthorized", 1008)));
    assert_eq!(
        decided(Membership::Active("m-b")),
        Err(("unauthorized", 1008))
    );
}

fn attested(expires_at: u64, signer: u8) -> SessionHello {
    let [parent, session] = [1, 3].map(|byte| key(byte).public_key().to_string());
    SessionHello {
        mesh_id: "mesh-1".to_owned(),
        parent_member_id: "m-a".to_owned(),
        parent_attestation: SessionAttestation {
            session_pubkey: session.clone(),
            parent_member_pubkey: parent.clone(),
            expires_at,
            signature: MeshSignedText::attestation(&parent, &session, expires_at)
                .sign(&key(signer)),
        },
        signature: MeshSignedText::session_hello("mesh-1", &parent, &session, NOW).sign(&key(3)),
        parent_member_pubkey: parent,
        session_pubkey: session,
        timestamp: NOW,
        ..SessionHello::default()
    }
}

fn session_refused(hello: &SessionHello) -> &'static str {
    check_session_hello(hello, NOW, 0).unwrap_err().as_str()
}

#[test]
fn cm_149_an_attestation_holds_for_a_day_at_most() {
    for expires_at in [NOW + 1, NOW + DAY_MS] {
        let (session, parent) = check_session_hello(&attested(expires_at, 1), NOW, 0).unwrap();
        assert_eq!(session, key(3).public_key());
        assert_eq!(parent, key(1).public_key());
    }
    assert_eq!(session_refused(&attested(NOW, 1)), "expired");
    assert_eq!(
        session_refused(&attested(NOW + DAY_MS + 1, 1)),
        "ttl_too_long"
    );
}

#[test]
fn cm_149_attestation_and_session_are_signed_by_their_own_keys() {
    assert_eq!(session_refused(&attested(NOW + 1, 2)), "bad_signature");
    let valid = attested(NOW + 1, 1);
    let mut by_parent = valid.clone();
    by_parent.signature = MeshSignedText::session_hello(
        "mesh-1",
        &valid.parent_member_pubkey,
        &valid.session_pubkey,
        NOW,
    )
    .sign(&key(1));
    assert_eq!(session_refused(&by_parent), "bad_signature");
    let mut malformed = valid;
    malformed.parent_attestation.signature = "00".to_owned();
    assert_eq!(session_refused(&malformed), "malformed");
}

#[test]
fn cm_149_an_attestation_binds_one_session_to_one_member() {
    let valid = attested(NOW + 1, 1);
    let stranger = key(4).public_key().to_string();
    let mut other = valid.clone();
    other.session_pubkey.clone_from(&stranger);
    assert_eq!(session_refused(&other), "attestation_mismatch");
    let mut other = valid.clone();
    other.parent_member_pubkey = stranger;
    assert_eq!(session_refused(&other), "attestation_mismatch");
    let mut other = valid.clone();
    other.parent_member_pubkey = "x".to_owned();
    assert_eq!(session_refused(&other), "bad_parent_pubkey");
    let mut other = valid;
    other.session_pubkey = "x".to_owned();
    assert_eq!(session_refused(&other), "bad_session_pubkey");
    let of = |membership| check_parent("m-a", membership).map_err(HelloRefusal::as_str);
    assert_eq!(of(Membership::Active("m-a")), Ok(()));
    assert_eq!(
        of(Membership::Active("m-b")),
        Err("parent_member_id_mismatch")
    );
    assert_eq!(of(Membership::Revoked), Err("revoked"));
    assert_eq!(of(Membership::Stranger), Err("unauthorized"));
}
