//! Tokens, and every refusal.

use super::*;

fn owner() -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[9; 32])
}

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
    unsigned.signed(&owner())
}

fn row() -> StoredInvite {
    StoredInvite {
        mesh_id: "mesh-1".to_owned(),
        expires_at_s: 1_800_000_000,
        uses_max: 2,
        uses: 1,
        is_revoked: false,
    }
}

fn facts(invite: &StoredInvite) -> JoinFacts<'_> {
    JoinFacts {
        mesh_exists: true,
        owner: Some(owner().public_key()),
        invite: Some(invite),
        is_member: false,
        now_s: 1_799_999_999,
    }
}

#[test]
fn a_token_reads_back_as_the_signed_payload() {
    let payload = payload();
    assert!(payload.signature.starts_with("685d61f19b25d06a"));
    for text in [
        payload.token(),
        payload.link(),
        format!(" {}\n", payload.link()),
    ] {
        let read = InvitePayload::parse(&text).unwrap();
        assert_eq!(read, payload);
        assert!(read.is_signed());
    }
    assert!(!payload.token().contains(['+', '/', '=']));
}

#[test]
fn other_texts_are_no_invite() {
    let mut newer = payload();
    newer.v = 2;
    for text in [
        "",
        "ic://join/",
        "x!",
        "e30",
        &newer.token(),
        &"A".repeat(5_000),
    ] {
        assert_eq!(InvitePayload::parse(text), Err(NotAnInvite));
    }
}

#[test]
fn the_root_key_is_not_printed() {
    assert!(!format!("{:?}", payload()).contains("AAAA"));
}

#[test]
fn a_valid_invite_admits_and_a_member_uses_nothing_up() {
    let full = StoredInvite { uses: 2, ..row() };
    assert_eq!(decide_join(&payload(), &facts(&row())), Ok(Join::Admit));
    let again = JoinFacts {
        is_member: true,
        ..facts(&full)
    };
    assert_eq!(decide_join(&payload(), &again), Ok(Join::AlreadyMember));
}

#[test]
fn every_refusal_has_its_cause() {
    let row = row();
    let refused = |payload: &InvitePayload, facts: JoinFacts<'_>| {
        decide_join(payload, &facts).unwrap_err().as_str()
    };
    let valid = payload();
    let known = facts(&row);
    assert_eq!(
        refused(
            &valid,
            JoinFacts {
                mesh_exists: false,
                ..known
            }
        ),
        "mesh_not_found"
    );
    assert_eq!(
        refused(
            &valid,
            JoinFacts {
                owner: None,
                ..known
            }
        ),
        "mesh_missing_owner_key"
    );
    assert_eq!(
        refused(
            &valid,
            JoinFacts {
                invite: None,
                ..known
            }
        ),
        "invite_not_found"
    );
    assert_eq!(
        refused(
            &valid,
            JoinFacts {
                now_s: 1_800_000_000,
                ..known
            }
        ),
        "invite_expired"
    );
    let ended = StoredInvite {
        expires_at_s: 5,
        ..row.clone()
    };
    assert_eq!(refused(&valid, facts(&ended)), "invite_expired");
    let full = StoredInvite {
        uses: 2,
        ..row.clone()
    };
    assert_eq!(refused(&valid, facts(&full)), "invite_exhausted");
    let revoked = StoredInvite {
        is_revoked: true,
        ..row.clone()
    };
    assert_eq!(refused(&valid, facts(&revoked)), "invite_revoked");
    let of_another = StoredInvite {
        mesh_id: "mesh-2".to_owned(),
        ..row.clone()
    };
    assert_eq!(refused(&valid, facts(&of_another)), "invite_mesh_mismatch");
    let mut promoted = valid.clone();
    promoted.role = MemberRole::Admin;
    assert_eq!(refused(&promoted, known), "invite_bad_signature");
    let forged = valid.signed(&MeshPrivateKey::from_seed(&[8; 32]));
    assert_eq!(refused(&forged, known), "invite_owner_mismatch");
}
