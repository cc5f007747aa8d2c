//! What the transaction protocol answers, as plain data.
//!
//! Invariant: unknown fields are ignored and fields that another server may leave out have a default. Receipts stay the very
//! text that came, because a signature covers bytes.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A permission that was made.
#[derive(Debug, Clone, Deserialize)]
pub struct Created {
    pub intent_id: String,
    pub state: String,
    pub expires_at: String,
}

/// A permission that was consented to.
#[derive(Debug, Clone, Deserialize)]
pub struct Authorized {
    pub intent_id: String,
    pub state: String,
    pub authorized_at: String,
    pub expires_at: String,
}

/// A permission and what was done under it.
#[derive(Debug, Clone, Deserialize)]
pub struct Permission {
    pub intent_id: String,
    pub state: String,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub authorized_at: Option<String>,
    #[serde(default)]
    pub expires_at: Option<String>,
    #[serde(default)]
    pub expired_reason: Option<String>,
    #[serde(default)]
    pub transactions: Vec<Transaction>,
    /// Whether there are more transactions than these.
    #[serde(default)]
    pub more: bool,
    #[serde(default)]
    pub data: Option<Allowed>,
}

/// What a permission allows, and how much of it is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Allowed {
    pub purpose: String,
    /// Zero stands for no limit.
    pub spend_cap_cents: u64,
    pub spent_cents: u64,
    pub currency: String,
    pub max_executions: u32,
    pub executions: u32,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Transaction {
    pub intent_id: String,
    pub transaction_id: String,
    pub state: String,
    pub amount_cents: u64,
    pub currency: String,
    pub rail: Rail,
    #[serde(default)]
    pub receipt: Option<Box<RawValue>>,
    #[serde(default)]
    pub compensation_receipt: Option<Box<RawValue>>,
    #[serde(default)]
    pub failure: Option<Failure>,
    pub created_at: String,
    pub updated_at: String,
    /// How often the rail was asked; told to operators.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// Why nobody but an operator can help; told to operators.
    #[serde(default)]
    pub alert: Option<String>,
}

/// Where the money moves.
#[derive(Debug, Clone, Deserialize)]
pub struct Rail {
    pub name: String,
    pub reference: String,
    #[serde(default)]
    pub payment_id: Option<String>,
}

/// Why the rail did not do it.
#[derive(Debug, Clone, Deserialize)]
pub struct Failure {
    pub code: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct TransactionList {
    pub transactions: Vec<Transaction>,
    /// Where to go on, if there are more.
    #[serde(default)]
    pub next: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Resolved {
    pub transaction: Transaction,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Receipts {
    pub receipts: Vec<Box<RawValue>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ReceiptShown {
    pub receipt: Box<RawValue>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Verified {
    pub verification: Verdict,
}

/// What a site says of a document.
#[derive(Debug, Clone, Deserialize)]
pub struct Verdict {
    pub ok: bool,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub key_id: Option<String>,
}

/// The public keys of a site.
#[derive(Debug, Clone, Deserialize)]
pub struct KeyList {
    pub site: String,
    pub keys: Vec<SiteKey>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SiteKey {
    pub key_id: String,
    pub public_key: String,
    pub status: String,
    #[serde(default)]
    pub valid_from: Option<String>,
    #[serde(default)]
    pub valid_until: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Health {
    pub ok: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Announced {
    pub next_public_key: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Rotated {
    pub public_key: String,
}

/// The key that signs nothing good any more.
#[derive(Debug, Clone, Deserialize)]
pub struct Revoked {
    pub key_id: String,
}

/// How many transactions a sweep looked at.
#[derive(Debug, Clone, Deserialize)]
pub struct Swept {
    #[serde(default)]
    pub swept: serde_json::Value,
}
