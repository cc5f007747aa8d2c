//! Members of a mesh with fixed keys: their hello and their messages, for campaigns and the simulation.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_mesh::destination::DestinationKind;
use consign_mesh::fingerprint::{BodyHash, ENVELOPE_VERSION, FingerprintInput};
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::meta::CanonicalMeta;
use consign_mesh::priority::MeshPriority;
use consign_mesh::signed_text::MeshSignedText;
use serde_json::{Value, json};

/// As long as a nonce; messages here are not encrypted, and brokers cannot know.
const NONCE: [u8; 24] = [0; 24];

#[derive(Debug)]
pub struct TestMember {
    pub name: String,
    key: MeshPrivateKey,
}

/// What the broker assigned when the member joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub mesh_id: String,
    pub member_id: String,
}

impl TestMember {
    /// Members with different seeds have different keys.
    pub fn new(name: &str, seed: u8) -> Self {
        Self {
            name: name.to_owned(),
            key: MeshPrivateKey::from_seed(&[seed; 32]),
        }
    }

    /// 64 hex digits.
    pub fn pubkey(&self) -> String {
        self.key.public_key().to_string()
    }

    /// The hello of the member's daemon.
    pub fn hello(&self, membership: &Membership, now_ms: u64) -> Value {
        let Membership { mesh_id, member_id } = membership;
        let pubkey = self.pubkey();
        let text = MeshSignedText::hello(mesh_id, member_id, &pubkey, now_ms);
        json!({
            "type": "hello",
            "meshId": mesh_id,
            "memberId": member_id,
            "pubkey": pubkey,
            "displayName": self.name,
            "sessionId": self.name,
            "timestamp": now_ms,
            "signature": text.sign(&self.key),
        })
    }

    /// The body of `POST /join`.
    pub fn join(&self, token: &str) -> Value {
        json!({"invite_token": token, "peer_pubkey": self.pubkey(), "display_name": self.name})
    }
}

/// What a daemon demands of its broker.
pub fn negotiation() -> Value {
    json!({
        "type": "feature_negotiation_request",
        "require": ["client_message_id_dedupe", "concurrent_connection_policy"],
        "optional": [],
    })
}

/// A direct message under an id of its sender.
pub fn direct_message(to: &str, id: &str, body: &str) -> Value {
    let body_hash = BodyHash::of(body.as_bytes());
    let input = FingerprintInput {
        envelope_version: ENVELOPE_VERSION,
        destination_kind: DestinationKind::Dm,
        destination_ref: to,
        reply_to_id: None,
        priority: MeshPriority::Next,
        meta: &CanonicalMeta::default(),
        body_hash,
    };
    let fingerprint = input.fingerprint().expect("no part has a zero byte");
    json!({
        "type": "send",
        "id": id,
        "targetSpec": to,
        "priority": MeshPriority::Next.as_str(),
        "nonce": BASE64_STANDARD.encode(NONCE),
        "ciphertext": BASE64_STANDARD.encode(body),
        "client_message_id": id,
        "envelope_version": ENVELOPE_VERSION,
        "destination_kind": "dm",
        "destination_ref": to,
        "body_sha256": body_hash.to_string(),
        "request_fingerprint": fingerprint.to_string(),
    })
}

/// The body of a push of such a message.
pub fn pushed_body(push: &Value) -> Option<String> {
    let text = push["ciphertext"].as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()
}
