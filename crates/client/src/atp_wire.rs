//! The answers of the transaction protocol, as plain data.
//!
//! Invariant: unknown fields are ignored, and fields that another server may leave out have a default. Receipts keep their
//! exact text, because a signature covers bytes.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A permission that was created.
#[derive(Debug, Clone, Deserialize)]
pub struct CreatedAtpIntent {
    pub intent_id: String,
    pub state: String,
    pub expires_at: String,
}

/// A permission with consent.
#[derive(Debug, Clone, Deserialize)]
pub struct AuthorizedIntent {
    pub intent_id: String,
    pub state: String,
    pub authorized_at: String,
    pub expires_at: String,
}

/// A permission and its transactions.
#[derive(Debug, Clone, Deserialize)]
pub struct AtpIntent {
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
    pub transactions: Vec<AtpTransaction>,
    /// Whether there are more transactions.
    #[serde(default)]
    pub more: bool,
    #[serde(default)]
    pub data: Option<IntentLimits>,
}

/// The limits of a permission, and how much of them is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct IntentLimits {
    pub purpose: String,
    /// Zero means no limit.
    pub spend_cap_cents: u64,
    pub spent_cents: u64,
    pub currency: String,
    pub max_executions: u32,
    pub executions: u32,
}

#[derive(Debug, Clone, Deserialize)]
pub struct AtpTransaction {
    pub intent_id: String,
    pub transaction_id: String,
    pub state: String,
    pub amount_cents: u64,
    pub currency: String,
    pub rail: AtpRail,
    #[serde(default)]
    pub receipt: Option<Box<RawValue>>,
    #[serde(default)]
    pub compensation_receipt: Option<Box<RawValue>>,
    #[serde(default)]
    pub failure: Option<FailureView>,
    pub created_at: String,
    pub updated_at: String,
    /// How often the rail was called; for operators only.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// Why an operator must look at it; for operators only.
    #[serde(default)]
    pub alert: Option<String>,
}

/// The payment rail of a transaction.
#[derive(Debug, Clone, Deserialize)]
pub struct AtpRail {
    pub name: String,
    pub reference: String,
    #[serde(default)]
    pub payment_id: Option<String>,
}

/// Why the rail failed.
#[derive(Debug, Clone, Deserialize)]
pub struct FailureView {
    pub code: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct TransactionList {
    pub transactions: Vec<AtpTransaction>,
    /// Where the next page begins, if there is one.
    #[serde(default)]
    pub next: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ResolvedTransaction {
    pub transaction: AtpTransaction,
}

#[derive(Debug, Clone, Deserialize)]
pub struct AtpReceiptList {
    pub receipts: Vec<Box<RawValue>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct AtpReceipt {
    pub receipt: Box<RawValue>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct VerifyReply {
    pub verification: VerificationView,
}

/// A site's verification of a document.
#[derive(Debug, Clone, Deserialize)]
pub struct VerificationView {
    pub ok: bool,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub key_id: Option<String>,
}

/// The public keys of a site.
#[derive(Debug, Clone, Deserialize)]
pub struct SiteKeyList {
    pub site: String,
    pub keys: Vec<SiteKeyView>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SiteKeyView {
    pub key_id: String,
    pub public_key: String,
    pub status: String,
    #[serde(default)]
    pub valid_from: Option<String>,
    #[serde(default)]
    pub valid_until: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SiteHealth {
    pub ok: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct AnnouncedKey {
    pub next_public_key: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RotatedKey {
    pub public_key: String,
}

/// A key that was revoked.
#[derive(Debug, Clone, Deserialize)]
pub struct RevokedKey {
    pub key_id: String,
}

/// The counts of a sweep.
#[derive(Debug, Clone, Deserialize)]
pub struct SweepReply {
    #[serde(default)]
    pub swept: serde_json::Value,
}
