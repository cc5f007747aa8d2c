//! Keys for the tests of the daemon's modules.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::Map;

use crate::joined::JoinedMesh;
use crate::key_files::ArchivedKey;
use crate::keys::MeshPrivateKey;

pub(super) fn key(number: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[number; 32])
}

/// Rotated out in the order of the numbers.
pub(super) fn archived(number: u8) -> ArchivedKey {
    let at = |second: i64| Timestamp::from_second(1_900_000_000 + second).unwrap();
    let key = key(number);
    let secret = key.to_x25519();
    ArchivedKey {
        ed25519_pubkey: BASE64_STANDARD.encode(key.public_key().to_bytes()),
        x25519_pubkey: BASE64_STANDARD.encode(secret.public_key().to_bytes()),
        x25519_privkey: BASE64_STANDARD.encode(*secret.reveal()),
        key_id: format!("k_{number}"),
        created_at: at(0),
        rotated_out_at: at(i64::from(number)),
        expires_at: at(1_000 + i64::from(number)),
    }
}

pub(super) fn joined(number: u8) -> JoinedMesh {
    let key = key(number);
    JoinedMesh {
        mesh_id: "mesh-1".to_owned(),
        member_id: "m-a".to_owned(),
        slug: "team".to_owned(),
        name: "Team".to_owned(),
        pubkey: key.public_key().to_string(),
        secret_key: key.reveal(),
        broker_url: "ws://127.0.0.1:1/ws".to_owned(),
        joined_at: "2026-01-01T00:00:00.000Z".to_owned(),
        rest: Map::new(),
    }
}
