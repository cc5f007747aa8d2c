//! Whether a connection may join: the checks of `hello` and `session_hello`, in the order of the protocol.
//!
//! Invariant: the signature is checked before the member is looked up, so that a stranger learns nothing about members; a
//! refusal closes the connection with 1008 and its word, and a revoked member with 4002.

#[cfg(test)]
mod tests;

use crate::close::MeshCloseCode;
use crate::frame::{HelloFrame, SessionHello};
use crate::id::{MemberId, MeshId};
use crate::keys::MeshPublicKey;
use crate::limits::{ATTESTATION_MS_MAX, CONNECTIONS_PER_MESH_MAX, HELLO_SKEW_MS_MAX};
use crate::signed_text::MeshSignedText;

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloRefusal {
    BadSessionPubkey,
    Capacity,
    TimestampSkew,
    Malformed,
    BadSignature,
    Revoked,
    Unauthorized,
    /// The attestation has ended.
    Expired,
    /// The attestation ends more than a day ahead.
    TtlTooLong,
    AttestationMismatch,
    BadParentPubkey,
    ParentMemberIdMismatch,
}

impl HelloRefusal {
    /// The code of the error frame and the reason of the close frame.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadSessionPubkey => "bad_session_pubkey",
            Self::Capacity => "capacity",
            Self::TimestampSkew => "timestamp_skew",
            Self::Malformed => "malformed",
            Self::BadSignature => "bad_signature",
            Self::Revoked => "revoked",
            Self::Unauthorized => "unauthorized",
            Self::Expired => "expired",
            Self::TtlTooLong => "ttl_too_long",
            Self::AttestationMismatch => "attestation_mismatch",
            Self::BadParentPubkey => "bad_parent_pubkey",
            Self::ParentMemberIdMismatch => "parent_member_id_mismatch",
        }
    }

    pub const fn close_code(self) -> MeshCloseCode {
        match self {
            Self::Revoked => MeshCloseCode::Banned,
            Self::BadSessionPubkey
            | Self::Capacity
            | Self::TimestampSkew
            | Self::Malformed
            | Self::BadSignature
            | Self::Unauthorized
            | Self::Expired
            | Self::TtlTooLong
            | Self::AttestationMismatch
            | Self::BadParentPubkey
            | Self::ParentMemberIdMismatch => MeshCloseCode::HelloRefused,
        }
    }
}

/// Which member a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership<'a> {
    /// The id of an active member.
    Active(&'a str),
    Revoked,
    Stranger,
}

/// Checks all of a `hello` that needs no member. Returns the key that signed it.
///
/// `connections` are those of the mesh; one that the new connection replaces is not counted.
pub fn check_hello(
    hello: &HelloFrame,
    now_ms: u64,
    connections: usize,
) -> Result<MeshPublicKey, HelloRefusal> {
    if let Some(session) = &hello.session_pubkey {
        MeshPublicKey::parse(session).map_err(|_| HelloRefusal::BadSessionPubkey)?;
    }
    check_arrival(now_ms, hello.timestamp, connections)?;
    check_ids(&hello.mesh_id, &hello.member_id)?;
    let key = MeshPublicKey::parse(&hello.pubkey).map_err(|_| HelloRefusal::Malformed)?;
    let text = MeshSignedText::hello(
        &hello.mesh_id,
        &hello.member_id,
        &hello.pubkey,
        hello.timestamp,
    );
    check_signature(&text, key, &hello.signature)?;
    Ok(key)
}

/// Whether the key of a checked `hello` belongs to the member that it names.
pub fn check_member(member_id: &str, membership: Membership<'_>) -> Result<(), HelloRefusal> {
    match membership {
        Membership::Active(id) if id == member_id => Ok(()),
        Membership::Active(_) | Membership::Stranger => Err(HelloRefusal::Unauthorized),
        Membership::Revoked => Err(HelloRefusal::Revoked),
    }
}

/// Checks all of a `session_hello` that needs no member. Returns the key of the session and of its member.
pub fn check_session_hello(
    hello: &SessionHello,
    now_ms: u64,
    connections: usize,
) -> Result<(MeshPublicKey, MeshPublicKey), HelloRefusal> {
    let session =
        MeshPublicKey::parse(&hello.session_pubkey).map_err(|_| HelloRefusal::BadSessionPubkey)?;
    check_arrival(now_ms, hello.timestamp, connections)?;
    check_ids(&hello.mesh_id, &hello.parent_member_id)?;
    let parent = MeshPublicKey::parse(&hello.parent_member_pubkey)
        .map_err(|_| HelloRefusal::BadParentPubkey)?;
    let attestation = &hello.parent_attestation;
    let is_bound = attestation.session_pubkey == hello.session_pubkey
        && attestation.parent_member_pubkey == hello.parent_member_pubkey;
    if !is_bound {
        return Err(HelloRefusal::AttestationMismatch);
    }
    if attestation.expires_at <= now_ms {
        return Err(HelloRefusal::Expired);
    }
    if attestation.expires_at - now_ms > ATTESTATION_MS_MAX {
        return Err(HelloRefusal::TtlTooLong);
    }
    let attested = MeshSignedText::attestation(
        &hello.parent_member_pubkey,
        &hello.session_pubkey,
        attestation.expires_at,
    );
    check_signature(&attested, parent, &attestation.signature)?;
    let own = MeshSignedText::session_hello(
        &hello.mesh_id,
        &hello.parent_member_pubkey,
        &hello.session_pubkey,
        hello.timestamp,
    );
    check_signature(&own, session, &hello.signature)?;
    Ok((session, parent))
}

/// The same as [`check_member`] for the member of a session, whose other id has a word of its own.
pub fn check_parent(member_id: &str, membership: Membership<'_>) -> Result<(), HelloRefusal> {
    match membership {
        Membership::Active(id) if id != member_id => Err(HelloRefusal::ParentMemberIdMismatch),
        Membership::Active(_) | Membership::Revoked | Membership::Stranger => {
            check_member(member_id, membership)
        }
    }
}

fn check_arrival(now_ms: u64, timestamp_ms: u64, connections: usize) -> Result<(), HelloRefusal> {
    if connections >= CONNECTIONS_PER_MESH_MAX {
        return Err(HelloRefusal::Capacity);
    }
    if now_ms.abs_diff(timestamp_ms) > HELLO_SKEW_MS_MAX {
        return Err(HelloRefusal::TimestampSkew);
    }
    Ok(())
}

/// What no broker assigned is not looked up.
fn check_ids(mesh_id: &str, member_id: &str) -> Result<(), HelloRefusal> {
    let mesh = MeshId::parse(mesh_id).map(drop);
    let both = mesh.and_then(|()| MemberId::parse(member_id));
    both.map(drop).map_err(|_| HelloRefusal::Malformed)
}

fn check_signature(
    text: &MeshSignedText,
    key: MeshPublicKey,
    signature: &str,
) -> Result<(), HelloRefusal> {
    let is_hex = signature.len() == 128 && signature.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex {
        return Err(HelloRefusal::Malformed);
    }
    if text.verify(key, signature) {
        Ok(())
    } else {
        Err(HelloRefusal::BadSignature)
    }
}
