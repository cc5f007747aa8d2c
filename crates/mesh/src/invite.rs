//! Invites: who may join a mesh, signed by its owner.
//!
//! A token is base64url of the JSON payload, a link is `ic://join/` and the token. The token contains the root key of the
//! mesh, so it is a secret and `Debug` does not show it.
//! Invariant: a joining member that is in the mesh already uses nothing up, and every refusal has its own word.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use consign_kernel::plant::{self, Plant};
use serde::{Deserialize, Serialize};

use crate::keys::{MeshPrivateKey, MeshPublicKey};
use crate::role::MemberRole;
use crate::signed_text::{MeshSignedText, SignedInvite};

const LINK_PREFIX: &str = "ic://join/";

/// Longer texts are no invite.
const TOKEN_BYTES_MAX: usize = 4_096;

/// The version of payloads with a signature inside.
const PAYLOAD_VERSION: u32 = 1;

const PADDING_OPTIONAL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What an invite contains.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitePayload {
    pub v: u32,
    pub mesh_id: String,
    pub mesh_slug: String,
    pub broker_url: String,
    /// Seconds since 1970.
    pub expires_at: u64,
    pub mesh_root_key: String,
    pub role: MemberRole,
    pub owner_pubkey: String,
    pub signature: String,
}

/// The text is no invite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an invite: expected ic://join/TOKEN or the token")]
pub struct NotAnInvite;

impl InvitePayload {
    /// Signs a new invite. `signature` of the argument is replaced.
    #[must_use]
    pub fn signed(mut self, owner: &MeshPrivateKey) -> Self {
        self.v = PAYLOAD_VERSION;
        self.owner_pubkey = owner.public_key().to_string();
        self.signature = self.text().sign(owner);
        self
    }

    /// Reads a link or a token.
    pub fn parse(text: &str) -> Result<Self, NotAnInvite> {
        let text = text.trim();
        let token = text.strip_prefix(LINK_PREFIX).unwrap_or(text);
        if token.len() > TOKEN_BYTES_MAX {
            return Err(NotAnInvite);
        }
        let json = PADDING_OPTIONAL.decode(token).map_err(|_| NotAnInvite)?;
        let payload: Self = serde_json::from_slice(&json).map_err(|_| NotAnInvite)?;
        if payload.v == PAYLOAD_VERSION {
            Ok(payload)
        } else {
            Err(NotAnInvite)
        }
    }

    pub fn token(&self) -> String {
        let json = serde_json::to_vec(self).expect("strings and numbers are JSON");
        BASE64_URL_SAFE_NO_PAD.encode(json)
    }

    pub fn link(&self) -> String {
        format!("{LINK_PREFIX}{}", self.token())
    }

    /// Whether the key that the payload names signed it. That this key is the owner's is a separate question.
    pub fn is_signed(&self) -> bool {
        let owner = MeshPublicKey::parse(&self.owner_pubkey);
        owner.is_ok_and(|owner| self.text().verify(owner, &self.signature))
    }

    fn text(&self) -> MeshSignedText {
        MeshSignedText::invite(&SignedInvite {
            mesh_id: &self.mesh_id,
            mesh_slug: &self.mesh_slug,
            broker_url: &self.broker_url,
            expires_at_s: self.expires_at,
            mesh_root_key: &self.mesh_root_key,
            role: self.role.as_str(),
            owner_pubkey: &self.owner_pubkey,
        })
    }
}

impl fmt::Debug for InvitePayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvitePayload")
            .field("mesh_id", &self.mesh_id)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// An invite as the broker stored it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredInvite {
    pub mesh_id: String,
    pub expires_at_s: u64,
    pub uses_max: u32,
    pub uses: u32,
    pub is_revoked: bool,
}

/// What the broker knows when a member joins.
#[derive(Debug, Clone, Copy)]
pub struct JoinFacts<'a> {
    /// The mesh of the payload exists.
    pub mesh_exists: bool,
    /// Its owner's key.
    pub owner: Option<MeshPublicKey>,
    /// The row of the token.
    pub invite: Option<&'a StoredInvite>,
    /// The key that joins belongs to a member already.
    pub is_member: bool,
    pub now_s: u64,
}

/// What a valid request to join does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Adds the member and counts one use of the invite.
    Admit,
    /// Returns the member that exists.
    AlreadyMember,
}

/// Why a request to join is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinRefusal {
    MeshNotFound,
    MeshMissingOwnerKey,
    InviteNotFound,
    InviteExpired,
    InviteExhausted,
    InviteRevoked,
    InviteBadSignature,
    InviteMeshMismatch,
    InviteOwnerMismatch,
    /// The key was a member's, which has another one by now.
    KeyReplaced,
    MemberInsertFailed,
}

impl JoinRefusal {
    /// Whether the request had no invite that was handed out, so that it may be an attempt to guess.
    pub const fn is_wrong_credential(self) -> bool {
        match self {
            Self::MeshNotFound
            | Self::MeshMissingOwnerKey
            | Self::InviteNotFound
            | Self::InviteBadSignature
            | Self::InviteMeshMismatch
            | Self::InviteOwnerMismatch => true,
            Self::InviteExpired
            | Self::InviteExhausted
            | Self::InviteRevoked
            | Self::KeyReplaced
            | Self::MemberInsertFailed => false,
        }
    }

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MeshNotFound => "mesh_not_found",
            Self::MeshMissingOwnerKey => "mesh_missing_owner_key",
            Self::InviteNotFound => "invite_not_found",
            Self::InviteExpired => "invite_expired",
            Self::InviteExhausted => "invite_exhausted",
            Self::InviteRevoked => "invite_revoked",
            Self::InviteBadSignature => "invite_bad_signature",
            Self::InviteMeshMismatch => "invite_mesh_mismatch",
            Self::InviteOwnerMismatch => "invite_owner_mismatch",
            Self::KeyReplaced => "key_replaced",
            Self::MemberInsertFailed => "member_insert_failed",
        }
    }
}

/// Whether the owner of the mesh signed an invite. `owner` is its key; the outer `None` says that there is no such mesh.
///
/// It needs no more than the mesh, so what a stranger invents costs the ledger one read.
pub fn check_origin(
    payload: &InvitePayload,
    owner: Option<Option<MeshPublicKey>>,
) -> Result<(), JoinRefusal> {
    let owner = owner.ok_or(JoinRefusal::MeshNotFound)?;
    let owner = owner.ok_or(JoinRefusal::MeshMissingOwnerKey)?;
    if MeshPublicKey::parse(&payload.owner_pubkey) != Ok(owner) {
        return Err(JoinRefusal::InviteOwnerMismatch);
    }
    if !payload.is_signed() {
        return Err(JoinRefusal::InviteBadSignature);
    }
    Ok(())
}

/// Decides a request to join. The signature is checked before the row of the invite, so that a stranger learns nothing about
/// rows.
pub fn decide_join(payload: &InvitePayload, facts: &JoinFacts<'_>) -> Result<Join, JoinRefusal> {
    check_origin(payload, facts.mesh_exists.then_some(facts.owner))?;
    let invite = facts.invite.ok_or(JoinRefusal::InviteNotFound)?;
    if invite.mesh_id != payload.mesh_id {
        return Err(JoinRefusal::InviteMeshMismatch);
    }
    if invite.is_revoked {
        return Err(JoinRefusal::InviteRevoked);
    }
    if facts.now_s >= payload.expires_at.min(invite.expires_at_s) {
        return Err(JoinRefusal::InviteExpired);
    }
    if facts.is_member {
        return Ok(Join::AlreadyMember);
    }
    if invite.uses >= invite.uses_max && !plant::on(Plant::EndlessInvite) {
        return Err(JoinRefusal::InviteExhausted);
    }
    Ok(Join::Admit)
}
