//! Records: everything that is not an intent, as versioned values under a kind and a key.
//!
//! Invariant: a record past `expires_at` counts as absent, whether or not it was removed already.

use serde::{Deserialize, Serialize};

use crate::ids::{IntentId, Micros};
use crate::limits;
use crate::state::stored;

stored! {
    /// What a record is. Codes are stored.
    Kind {
        /// An API key of the Intent Protocol with its allowance.
        ApiKey = 1 => "api_key",
        /// An entry of the Intent Protocol's key-value store.
        Kv = 2 => "kv",
        /// A signed receipt, kept from the moment it was first asked for.
        Receipt = 3 => "receipt",
        /// A running node as of its last heartbeat. Expires when the heartbeats end.
        Node = 4 => "node",
        /// What all nodes of one ledger must agree on.
        Site = 5 => "site",
        /// One attempt of an automation's job: its outcome, its answer and what it printed.
        JobLog = 6 => "job_log",
        /// What a plugin remembers from one run to the next.
        PluginState = 7 => "plugin_state",
        /// A lasting observation of a plugin.
        PluginFact = 8 => "plugin_fact",
        /// The circuit breaker of a plugin's command, and each of its changes.
        Breaker = 9 => "breaker",
        BreakerChange = 10 => "breaker_change",
        /// The baggage that a pipeline had gathered at a step.
        EventContext = 11 => "event_context",
        /// Where a schedule stands.
        Schedule = 12 => "schedule",
        /// The outcome of a plugin's one-time setup.
        PluginSetup = 13 => "plugin_setup",
        /// The last fact that a face has processed of its own history.
        Watermark = 14 => "watermark",
        /// A signed permission under the intent id that the agent chose, and how much of it is used.
        Permission = 15 => "permission",
        /// A transaction under a permission, by its idempotency key: its body, where it stands at the rail, its receipts.
        Transaction = 16 => "transaction",
        /// A nonce that a signer has used up.
        SignerNonce = 17 => "signer_nonce",
        /// The answer to an idempotency key of another operation than execute.
        KeptAnswer = 18 => "kept_answer",
        /// An action that must not be repeated within a window.
        ActionClaim = 19 => "action_claim",
        /// To which transaction a signed receipt belongs.
        SignedReceipt = 20 => "signed_receipt",
        /// To which transaction a reference or a payment of a rail belongs.
        RailReference = 21 => "rail_reference",
        /// An event of a rail that was processed already.
        RailEvent = 22 => "rail_event",
        /// The keys that sign for a site.
        SiteKey = 23 => "site_key",
        /// The id of an automation job that was removed, under its number, by which facts refer to it.
        PastJob = 24 => "past_job",
        /// A transaction that is settled, under a permission that allows several, by its idempotency key.
        SettledUnder = 25 => "settled_under",
        /// An agent of a Beam directory: its profile, its keys and the hash of its API key.
        BeamAgent = 26 => "beam_agent",
        /// Who may send which intents to an agent.
        BeamAcl = 27 => "beam_acl",
        /// The agent whose list has the access rule with this number.
        BeamAclNumber = 28 => "beam_acl_number",
        /// The delegations that an agent has granted.
        BeamDelegations = 29 => "beam_delegations",
        /// Another Beam directory.
        BeamPeer = 30 => "beam_peer",
        /// An agent of another directory, as that directory described it.
        BeamRemoteAgent = 31 => "beam_remote_agent",
        /// The node to which an agent is connected.
        BeamPresence = 32 => "beam_presence",
        /// A login of an operator that was asked for, and a session that began.
        BeamLogin = 33 => "beam_login",
        BeamSession = 34 => "beam_session",
        /// The last number of a sequence.
        BeamNumber = 35 => "beam_number",
        /// A nonce of a signed request that is not an intent.
        BeamUsedNonce = 36 => "beam_used_nonce",
        /// A key that was revoked, by the time of its revocation.
        BeamRevokedKey = 37 => "beam_revoked_key",
        /// What other directories say about the trust in an agent.
        BeamTrust = 38 => "beam_trust",
        /// An intent for an agent that is connected to another node.
        BeamHandover = 39 => "beam_handover",
        /// The permission of an API key to claim in a reserved namespace.
        Grant = 40 => "grant",
        /// The sender and the number of a mesh message, by mesh and message. It outlives the message.
        MeshHistory = 41 => "mesh_history",
        /// A mesh and its settings.
        Mesh = 50 => "mesh",
        /// The mesh that has this slug.
        MeshSlug = 51 => "mesh_slug",
        /// A member of a mesh.
        MeshMember = 52 => "mesh_member",
        /// The member that has this key.
        MeshMemberKey = 53 => "mesh_member_key",
        /// An invite to a mesh, by the digest of its token.
        MeshInvite = 54 => "mesh_invite",
        /// Written with every change of the members of a mesh, so that its version names a list of members.
        MeshRoster = 55 => "mesh_roster",
        /// A topic of a mesh and its members.
        MeshTopic = 56 => "mesh_topic",
        /// The topic of a mesh that has this name.
        MeshTopicName = 57 => "mesh_topic_name",
        /// How far a member has read a topic.
        MeshTopicRead = 58 => "mesh_topic_read",
        /// A value that the members of a mesh share.
        MeshState = 59 => "mesh_state",
        /// A connection to a mesh, for the other nodes.
        MeshPresence = 60 => "mesh_presence",
        /// A key with which a program acts as a member of a mesh, under the digest of the key.
        MeshApiKey = 61 => "mesh_api_key",
        /// A file that members of a mesh share.
        MeshBlob = 62 => "mesh_blob",
        /// The key id that a secret made by a rotation belongs to, under the id that follows from the secret.
        ApiKeyAlias = 70 => "api_key_alias",
        /// A person who signs in with a name and a password, by name.
        User = 71 => "user",
        /// What somebody did through the routes of operators. Names sort from the newest to the oldest.
        AuditEntry = 72 => "audit_entry",
        /// An operator's step on all rows that match a filter, and how far it is.
        BulkJob = 73 => "bulk_job",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub kind: Kind,
    /// Whom it belongs to; keys of different owners never meet.
    pub owner: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Key,
    /// Grows by one with each write; zero means "never written".
    pub version: u64,
    pub value: String,
    pub expires_at: Option<Micros>,
}

/// A write of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Key,
    pub value: String,
    pub expires_at: Option<Micros>,
    /// `Some(n)`: only if the stored version is `n` (zero: only if absent).
    pub expect: Option<u64>,
}

/// What a key, or somebody who signs in, may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyScope {
    /// Publish intents and set values.
    Publish,
    /// Claim intents and settle what it claimed.
    Claim,
    /// Read its own intents, their histories and events, and its values.
    Read,
    /// Read through the routes of operators.
    AdminRead,
    /// Use the routes of operators.
    Admin,
}

impl KeyScope {
    pub const ALL: [Self; 5] = [
        Self::Publish,
        Self::Claim,
        Self::Read,
        Self::AdminRead,
        Self::Admin,
    ];

    /// Those of a key that was made without scopes.
    pub const DEFAULT: [Self; 3] = [Self::Publish, Self::Claim, Self::Read];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Claim => "claim",
            Self::Read => "read",
            Self::AdminRead => "admin-read",
            Self::Admin => "admin",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// The value of an [`Kind::ApiKey`] record. Members with a default were added later: a record without them reads as a key
/// of that time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// SHA-256 of the key, hex.
    pub digest: String,
    /// The key itself, encrypted with the seal key.
    pub sealed: String,
    pub label: String,
    pub created_at: i64,
    pub total_requests: u64,
    /// Start of the rate window, and what it holds.
    pub window_at: i64,
    pub window_count: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Empty: [`KeyScope::DEFAULT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<KeyScope>,
    /// Names, or beginnings of names followed by `*`. Empty: all that are not reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Requests per window; absent: [`limits::RATE_REQUESTS_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Absent: [`limits::OPEN_INTENTS_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// The last request that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<i64>,
    /// Secrets before the last rotation that are still accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_secrets: Vec<PastSecret>,
}

/// A secret that a rotation replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastSecret {
    /// SHA-256, hex.
    pub digest: String,
    pub until: i64,
}

/// The value of a [`Kind::ApiKeyAlias`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyAlias {
    pub key_id: String,
}

impl ApiKeyAlias {
    /// `secret_id` is the id that a key made with this secret would have.
    pub fn key(secret_id: &str) -> Key {
        Key {
            kind: Kind::ApiKeyAlias,
            owner: String::new(),
            name: secret_id.to_owned(),
        }
    }
}

/// The value of a [`Kind::Grant`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub granted_at: i64,
}

impl Grant {
    /// Namespaces and key ids contain no slash. All grants live under one owner, sorted by namespace, so that they can be
    /// listed, and those of one namespace found at once.
    pub fn key(namespace: &str, key_id: &str) -> Key {
        Key {
            kind: Kind::Grant,
            owner: String::new(),
            name: format!("{namespace}/{key_id}"),
        }
    }

    /// The namespace and the key id of a grant.
    pub fn parts(name: &str) -> Option<(&str, &str)> {
        name.split_once('/')
    }
}

/// The value of a [`Kind::MeshHistory`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageHistory {
    /// The member that sent it.
    pub sender: String,
    /// Its number in the order of admission.
    pub seq: u64,
    /// In microseconds.
    pub created_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
}

impl MessageHistory {
    pub fn key(mesh: &str, message: IntentId) -> Key {
        Key {
            kind: Kind::MeshHistory,
            owner: mesh.to_owned(),
            name: message.to_string(),
        }
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }
}

impl ApiKey {
    /// All API keys live under one owner, so that they can be listed.
    pub fn key(id: &str) -> Key {
        Key {
            kind: Kind::ApiKey,
            owner: String::new(),
            name: id.to_owned(),
        }
    }

    pub fn scopes(&self) -> &[KeyScope] {
        if self.scopes.is_empty() {
            &KeyScope::DEFAULT
        } else {
            &self.scopes
        }
    }

    pub fn rate(&self) -> u32 {
        self.rate.unwrap_or(limits::RATE_REQUESTS_MAX)
    }

    pub fn open_max(&self) -> u64 {
        self.open_max.unwrap_or(limits::OPEN_INTENTS_MAX)
    }

    pub fn is_expired(&self, now: Micros) -> bool {
        self.expires_at.is_some_and(|end| end <= now.0)
    }
}

/// Whether a list of names and beginnings of names contains a namespace. An empty list contains all.
pub fn is_in_namespaces(listed: &[String], namespace: &str) -> bool {
    listed.is_empty()
        || listed
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => namespace.starts_with(beginning),
                None => pattern == namespace,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_BEFORE: &str = r#"{"digest":"aa","sealed":"bb","label":"alice","created_at":1,"total_requests":2,"window_at":3,"window_count":4}"#;

    #[test]
    fn a_key_of_before_reads_as_one_without_restrictions_and_is_written_as_it_was() {
        let key: ApiKey = serde_json::from_str(OF_BEFORE).unwrap();
        assert_eq!(key.scopes(), KeyScope::DEFAULT);
        assert_eq!((key.rate(), key.open_max()), (60, 2_000));
        assert!(!key.is_expired(Micros(i64::MAX)));
        assert_eq!(serde_json::to_string(&key).unwrap(), OF_BEFORE);
    }

    #[test]
    fn a_scope_has_the_same_name_everywhere() {
        for scope in KeyScope::ALL {
            assert_eq!(KeyScope::of_name(scope.name()), Some(scope));
            let stored = serde_json::to_string(&scope).unwrap();
            assert_eq!(stored, format!("\"{}\"", scope.name()));
        }
        assert_eq!(KeyScope::of_name("Admin"), None);
    }

    #[test]
    fn namespaces_are_listed_by_name_or_by_beginning() {
        let check = |listed: &[&str], namespace, expected| {
            let listed: Vec<String> = listed.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(
                is_in_namespaces(&listed, namespace),
                expected,
                "{listed:?} {namespace}"
            );
        };
        check(&[], "any", true);
        check(&["*"], "any", true);
        check(&["mail"], "mail", true);
        check(&["mail"], "mail2", false);
        check(&["mail", "web.*"], "web.a", true);
        check(&["web.*"], "web", false);
        check(&["web*"], "web", true);
    }
}
