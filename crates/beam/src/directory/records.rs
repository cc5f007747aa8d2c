//! The records of the directory: their values and their keys.
//!
//! Times are milliseconds of the wall clock.

use std::cmp::Reverse;

use consign_engine::{Engine, Error};
use consign_kernel::plant::{self, Plant};
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use crate::trust::{self, TrustFacts, VerificationTier};

/// Lists of all agents are read in pages of this size, so that memory does not depend on their number.
pub const PAGE: u32 = 500;

/// The visibility of an agent that the list of the directory shows, and of one that it does not show.
pub const PUBLIC: &str = "public";
pub const UNLISTED: &str = "unlisted";

/// An agent and everything that belongs to it alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    pub beam_id: String,
    pub display_name: String,
    pub capabilities: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(default)]
    pub email_verified: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logo_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website: Option<String>,
    /// Set by an operator only.
    #[serde(default)]
    pub verified: bool,
    /// `basic` unless an operator sets another one.
    pub verification_tier: String,
    #[serde(default)]
    pub flagged: bool,
    /// `public` or `unlisted`.
    pub visibility: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dh_public_key: Option<String>,
    pub created_at: i64,
    /// Engine time of the registration in microseconds. What is older belongs to an earlier agent with this id. Zero for
    /// imported agents, which come with their intents.
    #[serde(default)]
    pub since_us: i64,
    pub last_seen: i64,
    /// SHA-256 of the API key, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_hash: Option<String>,
    /// The current key first among those that are not revoked.
    pub keys: Vec<AgentKey>,
}

/// A public key of an agent, SPKI as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentKey {
    pub id: u64,
    pub public_key: String,
    pub created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
}

impl Agent {
    /// The key that signs for the agent now.
    pub fn active_key(&self) -> Option<&AgentKey> {
        self.keys.iter().find(|key| key.revoked_at.is_none())
    }

    /// All keys: the active one, then the newest first.
    pub fn sorted_keys(&self) -> Vec<&AgentKey> {
        let mut keys: Vec<&AgentKey> = self.keys.iter().collect();
        keys.sort_by_key(|key| (key.revoked_at.is_some(), Reverse((key.created_at, key.id))));
        keys
    }

    pub fn is_revoked(&self, public_key: &str) -> bool {
        if plant::on(Plant::RevokedKeyReturns) {
            return false;
        }
        let mut revoked = self.keys.iter().filter(|key| key.revoked_at.is_some());
        revoked.any(|key| key.public_key == public_key)
    }

    pub fn tier(&self) -> VerificationTier {
        VerificationTier::parse(&self.verification_tier).unwrap_or(VerificationTier::Basic)
    }

    /// Whether an operator has verified the agent, or the organisation behind it.
    pub fn is_verified(&self) -> bool {
        self.verified || self.tier() != VerificationTier::Basic
    }

    pub fn is_public(&self) -> bool {
        self.visibility == PUBLIC
    }

    /// The trust in the agent at this time.
    pub fn trust_score(&self, now_ms: i64) -> f64 {
        trust::trust_score(&TrustFacts {
            flagged: self.flagged,
            verified: self.verified,
            tier: self.tier(),
            unseen_ms: now_ms.saturating_sub(self.last_seen),
            age_ms: now_ms.saturating_sub(self.created_at),
        })
    }

    pub fn key(beam_id: &str) -> Key {
        named(Kind::BeamAgent, beam_id)
    }
}

/// Who may send what to one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclList {
    pub rules: Vec<AclRule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclRule {
    pub id: u64,
    pub intent_type: String,
    pub allowed_from: String,
    pub created_at: i64,
}

impl AclList {
    pub fn key(target: &str) -> Key {
        named(Kind::BeamAcl, target)
    }

    /// Under which the target of a rule is found by the number of the rule.
    pub fn number_key(id: u64) -> Key {
        named(Kind::BeamAclNumber, &id.to_string())
    }
}

/// What one agent allows others to send in its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationList {
    pub granted: Vec<Delegation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    pub id: u64,
    pub grantee: String,
    /// `*` or the name of one intent.
    pub scope: String,
    pub expires_at: i64,
    pub created_at: i64,
    pub signature: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
}

impl DelegationList {
    pub fn key(grantor: &str) -> Key {
        named(Kind::BeamDelegations, grantor)
    }

    /// Whether `grantee` may send this intent for the grantor now.
    pub fn allows(&self, grantee: &str, intent: &str, now_ms: i64) -> bool {
        self.granted.iter().any(|granted| {
            granted.grantee == grantee
                && granted.revoked_at.is_none()
                && granted.expires_at > now_ms
                && (granted.scope == "*"
                    || granted.scope == intent
                    || plant::on(Plant::ScopeIgnored))
        })
    }
}

/// Another directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeamPeer {
    pub id: u64,
    pub directory_url: String,
    pub public_key: String,
    pub trust_level: f64,
    pub status: String,
    pub created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<i64>,
    /// How many agents belong to it for good.
    #[serde(default)]
    pub agents: u64,
}

impl BeamPeer {
    pub fn key(directory_url: &str) -> Key {
        named(Kind::BeamPeer, directory_url)
    }
}

/// The node to which an agent is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeamPresence {
    /// The number of the node on the ledger.
    pub node: i64,
    /// Tells a connection from a later one of the same agent.
    pub connection: u64,
}

impl BeamPresence {
    pub fn key(beam_id: &str) -> Key {
        named(Kind::BeamPresence, beam_id)
    }
}

/// A record that is found by its name alone.
pub fn named(kind: Kind, name: &str) -> Key {
    Key {
        kind,
        owner: String::new(),
        name: name.to_owned(),
    }
}

/// The next number of a sequence, never given twice.
pub async fn next_number(engine: &Engine, sequence: &str) -> Result<u64, Error> {
    let key = named(Kind::BeamNumber, sequence);
    engine
        .update(key, |last: &mut u64| -> Result<u64, Error> {
            *last += 1;
            Ok(*last)
        })
        .await
}
