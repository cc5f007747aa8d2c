//! Records: everything that is not an intent, as versioned values under a kind and a key.
//!
//! Invariant: a record past `expires_at` counts as absent, whether or not it was removed already.

use serde::{Deserialize, Serialize};

use crate::ids::{IntentId, Micros};
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
        /// An operator's step on all rows that match a filter, and how far it is.
        BulkJob = 70 => "bulk_job",
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

/// The value of an [`Kind::ApiKey`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}
