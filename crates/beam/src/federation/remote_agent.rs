//! An agent as a directory describes it to others.
//!
//! Invariant: a description that was read from a peer has a valid Beam-ID and a valid key, and all its texts have limited
//! lengths. What a peer says about the trust in its agent counts by half, and its verification does not count.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::beam_id::BeamId;
use crate::directory::records::Agent;
use crate::keys::BeamPublicKey;
use crate::timestamp;
use crate::trust::{self, TrustFacts, VerificationTier};

/// How long a description counts; a peer may state a shorter time.
pub(super) const TTL_MAX: Duration = Duration::from_mins(5);
const NAME_BYTES_MAX: usize = 512;
const CAPABILITIES_MAX: usize = 100;
const CAPABILITY_BYTES_MAX: usize = 256;

/// The public part of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FederatedAgent {
    pub beam_id: String,
    pub org: String,
    pub display_name: String,
    pub capabilities: Vec<String>,
    /// SPKI as base64; absent if all keys of the agent are revoked.
    pub public_key: Option<String>,
    pub trust_score: f64,
    pub verified: bool,
    /// Milliseconds of the wall clock.
    pub created_at: Option<i64>,
    pub last_seen: Option<i64>,
}

/// Why a description of an agent is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteAgentError {
    #[error("the description is not an object")]
    NotAnObject,
    #[error("the description has no valid Beam-ID")]
    BeamId,
    #[error("the description has no valid key")]
    Key,
    #[error("the description is too long")]
    TooLong,
}

/// A description from a peer, and how long it counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Description {
    pub(super) agent: FederatedAgent,
    pub(super) ttl: Duration,
}

impl FederatedAgent {
    /// An agent of this directory.
    pub(super) fn local(agent: &Agent, now_ms: i64) -> Self {
        let tier = VerificationTier::parse(&agent.verification_tier);
        let facts = TrustFacts {
            flagged: agent.flagged,
            verified: agent.verified,
            tier: tier.unwrap_or(VerificationTier::Basic),
            unseen_ms: now_ms - agent.last_seen,
            age_ms: now_ms - agent.created_at,
        };
        Self {
            beam_id: agent.beam_id.clone(),
            org: org_of(&agent.beam_id),
            display_name: agent.display_name.clone(),
            capabilities: agent.capabilities.clone(),
            public_key: agent.active_key().map(|key| key.public_key.clone()),
            trust_score: trust::trust_score(&facts),
            verified: agent.verified,
            created_at: Some(agent.created_at),
            last_seen: Some(agent.last_seen),
        }
    }
}

impl Description {
    /// Reads what a peer sent, with the names of either spelling.
    pub(super) fn parse(value: &Value) -> Result<Self, RemoteAgentError> {
        if !value.is_object() {
            return Err(RemoteAgentError::NotAnObject);
        }
        let either = |one: &str, other: &str| value.get(one).or_else(|| value.get(other));
        let text = |one, other| either(one, other).and_then(Value::as_str);
        let beam_id = text("beam_id", "beamId").and_then(|text| BeamId::parse(text).ok());
        let beam_id = beam_id.ok_or(RemoteAgentError::BeamId)?;
        let key = text("public_key", "publicKey").and_then(|key| BeamPublicKey::parse(key).ok());
        let key = key.ok_or(RemoteAgentError::Key)?;
        let display_name = text("display_name", "displayName").unwrap_or(beam_id.as_str());
        let capabilities = value.get("capabilities").and_then(Value::as_array);
        let capabilities: Vec<&str> = capabilities
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let fits = display_name.len() <= NAME_BYTES_MAX
            && capabilities.len() <= CAPABILITIES_MAX
            && capabilities
                .iter()
                .all(|one| one.len() <= CAPABILITY_BYTES_MAX);
        if !fits {
            return Err(RemoteAgentError::TooLong);
        }
        let asserted = either("trust_score", "trustScore").and_then(Value::as_f64);
        let at = |one, other| {
            text(one, other)
                .and_then(timestamp::parse)
                .map(|at| at.0 / 1_000)
        };
        let agent = FederatedAgent {
            org: beam_id.org().to_owned(),
            display_name: display_name.to_owned(),
            capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            public_key: Some(key.to_string()),
            trust_score: trust::effective_trust(asserted.unwrap_or(0.0), 1),
            verified: false,
            created_at: at("created_at", "createdAt"),
            last_seen: at("last_seen", "lastSeen"),
            beam_id: beam_id.into(),
        };
        let ttl = value.get("ttl").and_then(Value::as_f64);
        let ttl = ttl.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(1.0)).ok());
        Ok(Self {
            agent,
            ttl: ttl.unwrap_or(TTL_MAX).min(TTL_MAX),
        })
    }
}

fn org_of(beam_id: &str) -> String {
    let parsed = BeamId::parse(beam_id);
    parsed.map_or_else(|_| String::new(), |id| id.org().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::keys::BeamPrivateKey;

    fn described() -> Value {
        let key = BeamPrivateKey::from_seed(&[1; 32]).public_key().to_string();
        json!({
            "beam_id": "carol@other.beam.directory",
            "display_name": "Carol",
            "capabilities": ["a", 1, "b"],
            "public_key": key,
            "trust_score": 0.9,
            "verified": true,
            "created_at": "2026-01-01T00:00:00.000Z",
            "last_seen": "yesterday",
        })
    }

    #[test]
    fn a_description_is_read_and_its_claims_are_reduced() {
        let read = Description::parse(&described()).expect("it is valid");
        assert_eq!(read.ttl, TTL_MAX);
        let agent = read.agent;
        assert_eq!((agent.org.as_str(), agent.verified), ("other", false));
        assert_eq!(agent.capabilities, ["a", "b"]);
        assert!((agent.trust_score - 0.45).abs() < 1e-9);
        assert_eq!(agent.created_at, Some(1_767_225_600_000));
        assert_eq!(agent.last_seen, None);
    }

    #[test]
    fn a_wrong_description_is_refused() {
        let with = |name: &str, value: Value| {
            let mut changed = described();
            changed[name] = value;
            Description::parse(&changed).map(|_| ())
        };
        assert_eq!(
            with("beam_id", json!("../../x")),
            Err(RemoteAgentError::BeamId)
        );
        assert_eq!(with("beam_id", json!(7)), Err(RemoteAgentError::BeamId));
        assert_eq!(
            with("public_key", json!("AAAA")),
            Err(RemoteAgentError::Key)
        );
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(
            with("display_name", json!(long)),
            Err(RemoteAgentError::TooLong)
        );
        let many = vec!["x"; CAPABILITIES_MAX + 1];
        assert_eq!(
            with("capabilities", json!(many)),
            Err(RemoteAgentError::TooLong)
        );
        assert_eq!(with("trust_score", json!("high")), Ok(()));
        let list = Description::parse(&json!([]));
        assert_eq!(list, Err(RemoteAgentError::NotAnObject));
    }

    #[test]
    fn a_peer_can_shorten_the_time_and_not_extend_it() {
        for (ttl, seconds) in [
            (json!(10), 10),
            (json!(1e300), 300),
            (json!(86_400), 300),
            (json!(-5), 1),
            (json!("x"), 300),
        ] {
            let mut given = described();
            given["ttl"] = ttl;
            let read = Description::parse(&given).expect("it is valid");
            assert_eq!(read.ttl, Duration::from_secs(seconds));
        }
    }
}
