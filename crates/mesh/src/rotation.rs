//! Replacing the key of a member: both keys sign, so that neither a stolen session nor a foreign key can do it alone.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::frame::KeyRotationFrame;
use crate::keys::{MeshPrivateKey, MeshPublicKey};
use crate::limits::HELLO_SKEW_MS_MAX;
use crate::signed_text::{MeshSignedText, SignedRotation};

/// The member whose key is replaced.
#[derive(Debug, Clone, Copy)]
pub struct RotatingMember<'a> {
    pub mesh_id: &'a str,
    pub member_id: &'a str,
    pub key: MeshPublicKey,
}

/// Why a rotation is refused; the words are those of error frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RotationRefusal {
    #[error("timestamp_skew")]
    TimestampSkew,
    /// The new key is no key, the old one, or does not belong to its encryption key.
    #[error("malformed")]
    Malformed,
    #[error("bad_signature")]
    BadSignature,
}

/// The frame that replaces one key by another.
pub fn rotation_frame(
    member: &RotatingMember<'_>,
    old: &MeshPrivateKey,
    new: &MeshPrivateKey,
    key_id: &str,
    timestamp_ms: u64,
) -> KeyRotationFrame {
    let new_pubkey = new.public_key().to_string();
    let text = text(member, &new_pubkey, timestamp_ms);
    KeyRotationFrame {
        new_x25519_pubkey: BASE64_STANDARD.encode(new.to_x25519().public_key().to_bytes()),
        new_pubkey,
        key_id: key_id.to_owned(),
        timestamp: timestamp_ms,
        signature_old: text.sign(old),
        signature_new: text.sign(new),
    }
}

/// Returns the new key.
pub fn check_rotation(
    frame: &KeyRotationFrame,
    member: &RotatingMember<'_>,
    now_ms: u64,
) -> Result<MeshPublicKey, RotationRefusal> {
    if now_ms.abs_diff(frame.timestamp) > HELLO_SKEW_MS_MAX {
        return Err(RotationRefusal::TimestampSkew);
    }
    let new = MeshPublicKey::parse(&frame.new_pubkey).map_err(|_| RotationRefusal::Malformed)?;
    let encryption = new.to_x25519().ok_or(RotationRefusal::Malformed)?;
    let claimed = BASE64_STANDARD.decode(&frame.new_x25519_pubkey);
    let is_its_own = claimed.is_ok_and(|claimed| claimed == encryption.to_bytes());
    if new == member.key || !is_its_own {
        return Err(RotationRefusal::Malformed);
    }
    let text = text(member, &frame.new_pubkey, frame.timestamp);
    let is_signed =
        text.verify(member.key, &frame.signature_old) && text.verify(new, &frame.signature_new);
    if is_signed {
        Ok(new)
    } else {
        Err(RotationRefusal::BadSignature)
    }
}

fn text(member: &RotatingMember<'_>, new_pubkey: &str, timestamp_ms: u64) -> MeshSignedText {
    MeshSignedText::rotation(&SignedRotation {
        mesh_id: member.mesh_id,
        member_id: member.member_id,
        old_pubkey: &member.key.to_string(),
        new_pubkey,
        timestamp_ms,
    })
}
