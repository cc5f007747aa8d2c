//! The exact texts that Ed25519 signatures of the mesh cover.
//!
//! Invariant: this module alone knows these texts. Fields are joined by `|` as they were sent; times are decimal
//! milliseconds, the end of an invite decimal seconds. Signatures are 128 hex digits.

#[cfg(test)]
mod tests;

use crate::keys::{MeshPrivateKey, MeshPublicKey};

/// A text to sign or to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSignedText(String);

/// The signed fields of an invite, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedInvite<'a> {
    pub mesh_id: &'a str,
    pub mesh_slug: &'a str,
    pub broker_url: &'a str,
    pub expires_at_s: u64,
    pub mesh_root_key: &'a str,
    pub role: &'a str,
    pub owner_pubkey: &'a str,
}

/// The signed fields of a key rotation, which the old and the new key sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedRotation<'a> {
    pub mesh_id: &'a str,
    pub member_id: &'a str,
    pub old_pubkey: &'a str,
    pub new_pubkey: &'a str,
    pub timestamp_ms: u64,
}

impl MeshSignedText {
    /// By the member's key.
    pub fn hello(mesh_id: &str, member_id: &str, pubkey: &str, timestamp_ms: u64) -> Self {
        Self(format!("{mesh_id}|{member_id}|{pubkey}|{timestamp_ms}"))
    }

    /// By the member's key, for one of its sessions.
    pub fn attestation(parent_pubkey: &str, session_pubkey: &str, expires_at_ms: u64) -> Self {
        Self(format!(
            "claudemesh-session-attest|{parent_pubkey}|{session_pubkey}|{expires_at_ms}"
        ))
    }

    /// By the session's key.
    pub fn session_hello(
        mesh_id: &str,
        parent_pubkey: &str,
        session_pubkey: &str,
        timestamp_ms: u64,
    ) -> Self {
        Self(format!(
            "claudemesh-session-hello|{mesh_id}|{parent_pubkey}|{session_pubkey}|{timestamp_ms}"
        ))
    }

    /// By the key of the mesh's owner.
    pub fn invite(invite: &SignedInvite<'_>) -> Self {
        let SignedInvite {
            mesh_id,
            mesh_slug,
            broker_url,
            expires_at_s,
            mesh_root_key,
            role,
            owner_pubkey,
        } = invite;
        Self(format!(
            "1|{mesh_id}|{mesh_slug}|{broker_url}|{expires_at_s}|{mesh_root_key}|{role}|{owner_pubkey}"
        ))
    }

    /// By the key of the mesh's owner, for invites without a key inside.
    pub fn invite_v2(
        mesh_id: &str,
        invite_id: &str,
        expires_at_s: u64,
        role: &str,
        owner_pubkey: &str,
    ) -> Self {
        Self(format!(
            "v=2|{mesh_id}|{invite_id}|{expires_at_s}|{role}|{owner_pubkey}"
        ))
    }

    /// By both keys.
    pub fn rotation(rotation: &SignedRotation<'_>) -> Self {
        let SignedRotation {
            mesh_id,
            member_id,
            old_pubkey,
            new_pubkey,
            timestamp_ms,
        } = rotation;
        Self(format!(
            "claudemesh-key-rotate|{mesh_id}|{member_id}|{old_pubkey}|{new_pubkey}|{timestamp_ms}"
        ))
    }

    /// By the member's key, for a request over HTTP.
    pub fn http(mesh_id: &str, pubkey: &str, method: &str, path: &str, timestamp_ms: u64) -> Self {
        Self(format!(
            "claudemesh-http|{mesh_id}|{pubkey}|{method}|{path}|{timestamp_ms}"
        ))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn sign(&self, key: &MeshPrivateKey) -> String {
        key.sign(self.0.as_bytes())
    }

    pub fn verify(&self, key: MeshPublicKey, signature: &str) -> bool {
        key.verify(self.0.as_bytes(), signature)
    }
}
