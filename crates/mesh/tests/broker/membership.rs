//! Meshes, invites and members.

use consign_mesh::broker::{BrokerError, NewMember};
use consign_mesh::id::DisplayName;
use consign_mesh::invite::{InvitePayload, JoinRefusal};
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::role::MemberRole;

use crate::world::{URL, key, new_mesh, operator, world};

fn refusal<T: std::fmt::Debug>(joined: Result<T, BrokerError>) -> JoinRefusal {
    match joined {
        Err(BrokerError::Join(refusal)) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn a_slug_belongs_to_one_mesh() {
    let world = world();
    world.mesh("acme").await;
    world.mesh("other").await;
    let again = world.broker.create_mesh(operator(), new_mesh("acme")).await;
    assert!(matches!(again, Err(BrokerError::SlugTaken(slug)) if slug == "acme"));
    let meshes = world.broker.meshes(operator()).await.unwrap();
    let slugs: Vec<&str> = meshes.iter().map(|mesh| &*mesh.slug).collect();
    assert_eq!(slugs, ["acme", "other"]);
    assert_ne!(meshes[0].owner_pubkey, meshes[1].owner_pubkey);
    let found = world.broker.mesh_by_slug("acme").await.unwrap();
    assert_eq!(found, meshes[0]);
    let missing = world.broker.mesh_by_slug("none").await;
    assert!(matches!(missing, Err(BrokerError::NoSuchMesh(slug)) if slug == "none"));
}

#[tokio::test]
async fn an_invite_admits_a_member_with_its_role() {
    let world = world();
    world.mesh("acme").await;
    let invite = world.invite("acme", 1).await;
    assert_eq!((&*invite.mesh_slug, &*invite.broker_url), ("acme", URL));
    let joined = world.join(&invite, key(1)).await.unwrap();
    assert!(!joined.already_member);
    let members = world.broker.members(operator(), "acme").await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(
        (&members[0].id, members[0].pubkey),
        (&joined.member_id, key(1))
    );
    assert_eq!(members[0].role, MemberRole::Member);
}

#[tokio::test]
async fn a_member_that_joins_again_uses_nothing_up_cm_160() {
    let world = world();
    world.mesh("acme").await;
    let invite = world.invite("acme", 2).await;
    let first = world.join(&invite, key(1)).await.unwrap();
    for _ in 0..3 {
        let again = world.join(&invite, key(1)).await.unwrap();
        assert!(again.already_member);
        assert_eq!(again.member_id, first.member_id);
    }
    world.join(&invite, key(2)).await.unwrap();
    let third = world.join(&invite, key(3)).await;
    assert_eq!(refusal(third), JoinRefusal::InviteExhausted);
}

#[tokio::test]
async fn an_invite_that_does_not_hold_is_refused_with_its_reason_cm_160() {
    let world = world();
    world.mesh("acme").await;
    world.mesh("other").await;
    let invite = world.invite("acme", 9).await;
    let join = async |change: &dyn Fn(&mut InvitePayload)| {
        let mut changed = invite.clone();
        change(&mut changed);
        refusal(world.join(&changed, key(1)).await)
    };
    let unknown = join(&|invite| "no-such-mesh".clone_into(&mut invite.mesh_id)).await;
    assert_eq!(unknown, JoinRefusal::MeshNotFound);
    let forged = join(&|invite| invite.role = MemberRole::Admin).await;
    assert_eq!(forged, JoinRefusal::InviteBadSignature);
    let stranger = MeshPrivateKey::from_seed(&[99; 32]);
    let by_stranger = join(&|invite| *invite = invite.clone().signed(&stranger)).await;
    assert_eq!(by_stranger, JoinRefusal::InviteOwnerMismatch);

    // A signed payload that was never handed out: the token is another invite's.
    let other = world.invite("acme", 9).await;
    let swapped = NewMember {
        token: other.token(),
        payload: invite.clone(),
        pubkey: key(1),
        display_name: DisplayName::parse("guest").unwrap(),
    };
    let swapped = refusal(world.broker.join(&swapped).await);
    assert_eq!(swapped, JoinRefusal::InviteNotFound);

    world.clock.advance_s(601);
    let late = refusal(world.join(&invite, key(1)).await);
    assert_eq!(late, JoinRefusal::InviteExpired);
    let members = world.broker.members(operator(), "acme").await.unwrap();
    assert_eq!(members, []);
}

#[tokio::test]
async fn of_two_guests_with_the_last_use_one_joins() {
    let world = world();
    world.mesh("acme").await;
    for round in 0..8_u8 {
        let invite = world.invite("acme", 1).await;
        let (one, other) = (key(10 + 2 * round), key(11 + 2 * round));
        let (one, other) = tokio::join!(world.join(&invite, one), world.join(&invite, other));
        let refused = match (one, other) {
            (Ok(_), Err(error)) | (Err(error), Ok(_)) => error,
            both => panic!("one joins, but {both:?}"),
        };
        assert!(matches!(
            refused,
            BrokerError::Join(JoinRefusal::InviteExhausted)
        ));
    }
    let members = world.broker.members(operator(), "acme").await.unwrap();
    assert_eq!(members.len(), 8);
}

#[tokio::test]
async fn a_revoked_member_is_revoked_for_good() {
    let world = world();
    world.mesh("acme").await;
    let invite = world.invite("acme", 2).await;
    let first = world.join(&invite, key(1)).await.unwrap();
    let broker = &world.broker;
    let revoked = broker.revoke_member(operator(), "acme", key(1)).await;
    let revoked_at = revoked.unwrap().revoked_at;
    assert!(revoked_at.is_some());
    world.clock.advance_s(1);
    let again = broker.revoke_member(operator(), "acme", key(1)).await;
    assert_eq!(
        again.unwrap().revoked_at,
        revoked_at,
        "the first time counts"
    );

    // The same key may join again, and is another member then.
    let second = world.join(&invite, key(1)).await.unwrap();
    assert_ne!(second.member_id, first.member_id);
    let members = broker.members(operator(), "acme").await.unwrap();
    let states: Vec<_> = members
        .iter()
        .map(|member| (&member.id, member.revoked_at))
        .collect();
    assert_eq!(
        states,
        [(&first.member_id, revoked_at), (&second.member_id, None)]
    );
    let stranger = broker.revoke_member(operator(), "acme", key(9)).await;
    assert!(matches!(stranger, Err(BrokerError::NoSuchMember(_))));
}

#[tokio::test]
async fn the_database_contains_no_secret_of_a_mesh() {
    let world = world();
    world.mesh("acme").await;
    let invite = world.invite("acme", 1).await;
    let rows = world.ledger.sql("SELECT value FROM records").join("\n");
    assert!(rows.contains("acme"));
    assert!(!rows.contains(&invite.mesh_root_key));
    assert!(!rows.contains(&invite.token()));
    assert!(!rows.contains(&invite.signature));
}
