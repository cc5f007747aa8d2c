//! Records: everything that is not an intent, as versioned values under a kind and a key.
//!
//! Invariant: a record past `expires_at` counts as absent, whether or not it was removed already.

use serde::{Deserialize, Serialize};

use crate::ids::Micros;
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
        /// A node that serves, as its last heartbeat told. Expires by itself when there are no more.
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
        /// What a plugin's one-time setup came to.
        PluginSetup = 13 => "plugin_setup",
        /// Up to which fact a face has followed up its own history.
        Watermark = 14 => "watermark",
        /// What an agent may have done, by the name it gave to that: the signed permission and what is used of it.
        Permission = 15 => "permission",
        /// A transaction under a permission, by its idempotency key: its body, where it stands at the rail, its receipts.
        Transaction = 16 => "transaction",
        /// A nonce that a signer has used up.
        SignerNonce = 17 => "signer_nonce",
        /// What was answered to a key of another operation than executing.
        KeptAnswer = 18 => "kept_answer",
        /// An action that is not to be taken twice within a while.
        ActionClaim = 19 => "action_claim",
        /// To which transaction a signed receipt belongs.
        SignedReceipt = 20 => "signed_receipt",
        /// To which transaction a reference or a payment of a rail belongs.
        RailReference = 21 => "rail_reference",
        /// A message of a rail that was heard already.
        RailEvent = 22 => "rail_event",
        /// The keys that sign for a site.
        SiteKey = 23 => "site_key",
        /// The id of an automation's job that is gone from the queue, by its number, which is what its facts know it by.
        PastJob = 24 => "past_job",
        /// A transaction that is settled, under a permission that allows several, by its idempotency key.
        SettledUnder = 25 => "settled_under",
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
