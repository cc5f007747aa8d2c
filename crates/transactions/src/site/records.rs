//! The ledger records of permissions and transactions, and of nonces, answers and references.
//!
//! Invariant: a record and its row change in one commit, so both have the same state. The kernel decides the transitions of
//! a row; the record has the content.

use std::ops::{Deref, DerefMut};

use consign_engine::Versioned;
use consign_kernel::command::{Begin, Hold, NewIntent, Within};
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::Ties;
use consign_kernel::limits;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::ProfileId;
use consign_kernel::record::{Key, Kind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{OWNER, Site, SiteCaller, damaged, unavailable};
use crate::document::AtpDocument;
use crate::ids;
use crate::instant;
use crate::intent::{RailChoice, SignedIntent};
use crate::key::{IdempotencyKey, RailReference};
use crate::money::{Cents, Currency};
use crate::problem::{ExpiredReason, Problem};
use crate::rail::{Charge, RailFailure, ReportedStatus};
use crate::state::AtpState;

/// The namespace of the rows of this face.
pub(super) const NAMESPACE: &str = "atp";

/// A transaction's record with the version that was read.
#[derive(Clone, Debug)]
pub(super) struct StoredTransaction(pub(super) Versioned<TransactionRecord>);

impl Deref for StoredTransaction {
    type Target = Versioned<TransactionRecord>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for StoredTransaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A permission of an agent, and how much of it is used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PermissionRecord {
    pub(super) row: String,
    /// The document as it was sent.
    pub(super) document: String,
    pub(super) created_at: i64,
    pub(super) authorized_at: Option<i64>,
    pub(super) cancelled: bool,
    /// Expiry was reported to a client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) ended: bool,
    /// Executions that were begun, whatever their outcome.
    pub(super) executions: u16,
    /// The amount that is spent or reserved.
    pub(super) committed_cents: u64,
    /// Executions without effect or compensated; none in records from before these were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undone: Option<u16>,
    /// The user for whom the site created it; none if an agent signed it. See `compat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
}

impl PermissionRecord {
    /// A permission of a user is accessible to that user alone, and a user has access to nothing else.
    pub(super) fn check_caller(&self, caller: SiteCaller<'_>) -> Result<(), Problem> {
        match (caller, self.user.as_deref()) {
            (SiteCaller::Operator, _) | (SiteCaller::Agent, None) => Ok(()),
            (SiteCaller::Agent, Some(_)) => Err(Problem::Unauthorized),
            (SiteCaller::User(id), Some(owner)) if id == owner => Ok(()),
            (SiteCaller::User(_), _) => Err(Problem::Forbidden),
        }
    }

    pub(super) fn intent(&self) -> Result<SignedIntent, Problem> {
        let document = AtpDocument::read(self.document.as_bytes(), usize::MAX);
        document
            .and_then(SignedIntent::read)
            .map_err(|_| damaged("intent"))
    }

    pub(super) fn row(&self) -> Result<IntentId, Problem> {
        self.row.parse().map_err(|_| damaged("row"))
    }

    /// The state of the permission itself, regardless of its transactions.
    pub(super) fn state(&self, intent: &SignedIntent, now: Micros) -> AtpState {
        if self.expired(intent, now).is_some() {
            AtpState::Expired
        } else if self.authorized_at.is_some() {
            AtpState::Authorized
        } else {
            AtpState::Created
        }
    }

    pub(super) fn expired(&self, intent: &SignedIntent, now: Micros) -> Option<ExpiredReason> {
        if self.cancelled {
            Some(ExpiredReason::Cancelled)
        } else {
            let over = self.ended || intent.is_expired(now);
            over.then_some(ExpiredReason::Time)
        }
    }

    pub(super) fn check_unexpired(
        &self,
        intent: &SignedIntent,
        now: Micros,
    ) -> Result<(), Problem> {
        match self.expired(intent, now) {
            None => Ok(()),
            Some(reason) => Err(Problem::IntentExpired {
                expires_at: intent.expires_at,
                reason,
            }),
        }
    }
}

/// One execution under a permission. The view `transactions` shows its members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TransactionRecord {
    pub(super) row: String,
    pub(super) state: String,
    pub(super) fingerprint: String,
    /// The request as it was sent.
    pub(super) body: Box<RawValue>,
    pub(super) amount_cents: u64,
    pub(super) currency: String,
    pub(super) action: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) rail: String,
    pub(super) reference: String,
    pub(super) payment_id: Option<String>,
    pub(super) receipt: Option<Box<RawValue>>,
    pub(super) compensation_receipt: Option<Box<RawValue>>,
    pub(super) failure: Option<RailFailure>,
    pub(super) compensation: Option<CompensationRecord>,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    /// When the rail acknowledged the payment.
    pub(super) completed_at: Option<String>,
    /// Since when the rail has reported that it does not know the payment.
    pub(super) missing_since: Option<i64>,
    /// A second payment was requested, so there may be several under the reference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) resubmitted: bool,
    /// When a refund was last requested, until its outcome is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refund_sent_at: Option<i64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) refunds_refused: u32,
    /// Why an operator must look at it.
    pub(super) alert: Option<String>,
    /// The caller's reports, if no rail of the site executes the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) manual: Option<ManualRecord>,
    /// The operator's verdict, if the rail could not report the outcome.
    #[serde(default, rename = "word", skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<OperatorVerdict>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An operator's verdict on the outcome of an effect or its refund. See `resolve`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OperatorVerdict {
    pub(super) outcome: VerdictOutcome,
    pub(super) reason: String,
    pub(super) at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VerdictOutcome {
    Charged,
    NotCharged,
    Refunded,
    NotRefunded,
}

impl VerdictOutcome {
    pub(super) const ALL: [Self; 4] = [
        Self::Charged,
        Self::NotCharged,
        Self::Refunded,
        Self::NotRefunded,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::NotCharged => "not_charged",
            Self::Refunded => "refunded",
            Self::NotRefunded => "not_refunded",
        }
    }

    /// Whether the verdict is about the refund and not about the payment.
    pub(super) const fn is_about_refund(self) -> bool {
        matches!(self, Self::Refunded | Self::NotRefunded)
    }
}

impl OperatorVerdict {
    /// The name of the step in a receipt.
    pub(super) const STEP: &str = "operator_resolved";
    pub(super) const BY: &str = "operator";
}

/// The caller's own reports on an effect. See `compat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ManualRecord {
    pub(super) reported: ReportedStatus,
    pub(super) error: Option<String>,
    pub(super) started_at: Option<String>,
    pub(super) settled_at: Option<String>,
    pub(super) steps: Vec<ReportedStep>,
}

/// A step that the caller reported.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReportedStep {
    pub(super) action: String,
    pub(super) at: i64,
    pub(super) evidence: Option<Box<RawValue>>,
    pub(super) before: Option<Box<RawValue>>,
    pub(super) after: Option<Box<RawValue>>,
    pub(super) compensation: Option<Box<RawValue>>,
}

/// A requested compensation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CompensationRecord {
    pub(super) key: String,
    pub(super) reason: String,
    pub(super) requested_at: String,
    /// The row of the refund; its lease holder drives the compensation.
    pub(super) row: String,
    /// The rail refused; another request may try again.
    pub(super) refused: bool,
}

/// A compensation request, stored under its idempotency key without expiry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CompensationRequest {
    pub(super) fingerprint: String,
    /// The key of the transaction to undo.
    pub(super) transaction: String,
    pub(super) row: String,
    /// Why the rail refused.
    pub(super) failure: Option<RailFailure>,
}

impl TransactionRecord {
    pub(super) fn state(&self) -> Result<AtpState, Problem> {
        AtpState::parse(&self.state).ok_or_else(|| damaged("state"))
    }

    pub(super) fn row(&self) -> Result<IntentId, Problem> {
        self.row.parse().map_err(|_| damaged("row"))
    }

    pub(super) fn id(&self) -> String {
        ids::transaction(&self.row)
    }

    pub(super) fn amount(&self) -> Result<Cents, Problem> {
        Cents::new(self.amount_cents).ok_or_else(|| damaged("amount"))
    }

    pub(super) fn currency(&self) -> Result<Currency, Problem> {
        self.currency.parse().map_err(|_| damaged("currency"))
    }

    pub(super) fn charge(&self, intent: &SignedIntent) -> Result<Charge, Problem> {
        let method = |rail: &RailChoice| rail.payment_method.clone();
        Ok(Charge {
            intent_id: intent.intent_id.clone(),
            transaction_id: self.id(),
            reference: RailReference::stored(&self.reference),
            amount: self.amount()?,
            currency: self.currency()?,
            action: self.action.clone(),
            summary: self.summary.clone(),
            payment_method: intent.rail.as_ref().and_then(method),
            capture: intent.capture(),
            refunds_refused: self.refunds_refused,
        })
    }

    /// Whether the outcome rests on this verdict of an operator.
    pub(super) fn rests_on_verdict(&self, said: VerdictOutcome) -> bool {
        self.verdict
            .as_ref()
            .is_some_and(|word| word.outcome == said)
    }

    /// Whether a compensation was requested and is neither done nor refused.
    pub(super) fn is_being_compensated(&self) -> bool {
        let asked = self.compensation.as_ref();
        asked.is_some_and(|asked| !asked.refused) && self.state != AtpState::Compensated.word()
    }

    pub(super) fn set_state(&mut self, state: AtpState, now: Micros) {
        if state.is_terminal() {
            self.alert = None;
        }
        state.word().clone_into(&mut self.state);
        self.updated_at = instant::print(now);
    }
}

/// The payload of a row of this face.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RowPayload {
    pub(super) intent_id: String,
    pub(super) key: String,
}

/// A nonce that was used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct UsedNonce {
    pub(super) intent_id: String,
    pub(super) at: i64,
}

/// The intent that has claimed an action.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ActionClaim {
    pub(super) intent_id: String,
    pub(super) at: i64,
}

/// The transaction that a receipt, payment or rail reference belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TransactionRef {
    pub(super) intent_id: String,
    pub(super) key: String,
}

fn key(kind: Kind, owner: &str, name: impl Into<String>) -> Key {
    Key {
        kind,
        owner: owner.to_owned(),
        name: name.into(),
    }
}

pub(super) fn permission_key(intent_id: &str) -> Key {
    key(Kind::Permission, "", intent_id)
}

/// By user, latest first.
pub(super) fn listing_key(user: &str, created_at: Micros, intent_id: &str) -> Key {
    let before_the_end = i64::MAX - created_at.0;
    key(
        Kind::Permission,
        user,
        format!("{before_the_end:016x}:{intent_id}"),
    )
}

pub(super) fn transaction_key(intent_id: &str, idempotency: &IdempotencyKey) -> Key {
    if plant::on(Plant::KeyWithoutIntent) {
        return key(Kind::Transaction, "", idempotency.reveal());
    }
    key(Kind::Transaction, intent_id, idempotency.reveal())
}

/// By signer, so that no one can use up the nonces of another agent.
pub(super) fn nonce_key(intent: &SignedIntent) -> Key {
    key(
        Kind::SignerNonce,
        intent.agent_key.id(),
        intent.nonce.clone(),
    )
}

/// By operation, so that the answer of one operation is never returned for another.
pub(super) fn answer_key(intent_id: &str, operation: &str, idempotency: &IdempotencyKey) -> Key {
    let name = format!("{operation}:{}", idempotency.reveal());
    key(Kind::KeptAnswer, intent_id, name)
}

pub(super) fn action_key(intent: &SignedIntent, action: &str) -> Key {
    key(Kind::ActionClaim, &intent.dedup_subject(), action)
}

pub(super) fn receipt_key(receipt_id: &str) -> Key {
    key(Kind::SignedReceipt, "", receipt_id)
}

pub(super) fn reference_key(rail: &str, reference: &str) -> Key {
    key(Kind::RailReference, rail, reference)
}

pub(super) fn event_key(rail: &str, event_id: &str) -> Key {
    key(Kind::RailEvent, rail, event_id)
}

/// Index record of a settled transaction of an intent that allows several, so that one is found without a scan.
pub(super) fn settled_key(transaction: &Key) -> Key {
    key(Kind::SettledUnder, &transaction.owner, &transaction.name)
}

/// A permission's row, which ends when it expires. Until consent it counts towards the limits of `asker`; a permission that
/// arrives with consent needs no room in them.
pub(super) fn begin_permission(
    id: IntentId,
    intent: &SignedIntent,
    now: Micros,
    waiting: Option<(String, Within)>,
) -> Begin {
    let ttl_us = intent.expires_at.0.saturating_sub(now.0).max(1_000);
    let (asker, within) = waiting.unzip();
    let item = NewIntent {
        target: asker,
        ..item(ProfileId::AtpPermission, &intent.intent_id, ttl_us)
    };
    Begin {
        walk: Vec::new(),
        detail: None,
        id,
        item,
        hold: None,
        within,
    }
}

/// A row for an effect, leased from the start. `parent` is the transaction that it undoes.
pub(super) fn begin_effect(
    id: IntentId,
    about: &RowPayload,
    parent: Option<IntentId>,
    hold: Hold,
) -> Begin {
    let payload = serde_json::to_string(about).expect("two strings");
    let item = NewIntent {
        payload,
        ties: Ties {
            parent,
            series: None,
            sender: None,
        },
        ..item(
            ProfileId::AtpTransaction,
            &about.intent_id,
            limits::INTENT_TTL_US,
        )
    };
    Begin {
        walk: Vec::new(),
        detail: None,
        id,
        item,
        hold: Some(hold),
        within: None,
    }
}

fn item(profile: ProfileId, intent_id: &str, ttl_us: i64) -> NewIntent {
    NewIntent {
        profile,
        namespace: NAMESPACE.to_owned(),
        goal: intent_id.to_owned(),
        owner: OWNER.to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: limits::PRIORITY_DEFAULT,
        payload: "{}".to_owned(),
        traceparent: None,
        delay_us: 0,
        ttl_us,
        attempts_max: limits::ATTEMPTS_DEFAULT,
        backoff_us: 0,
        once: None,
        ties: Ties::default(),
        unless: None,
    }
}

impl Site {
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        key: Key,
    ) -> Result<Option<Versioned<T>>, Problem> {
        let found = self.engine().load(key).await;
        found.map_err(|error| unavailable(&error))
    }

    pub(super) async fn permission(
        &self,
        intent_id: &str,
    ) -> Result<Option<Versioned<PermissionRecord>>, Problem> {
        self.read(permission_key(intent_id)).await
    }

    pub(super) async fn transaction(
        &self,
        intent_id: &str,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredTransaction>, Problem> {
        let found = self.read(transaction_key(intent_id, key)).await?;
        Ok(found.map(StoredTransaction))
    }

    /// The first transactions under a permission, ordered by key.
    pub(super) async fn transactions(
        &self,
        intent_id: &str,
        limit: u32,
    ) -> Result<Vec<StoredTransaction>, Problem> {
        self.transactions_after(intent_id, "", limit).await
    }

    /// Transactions with keys after this one.
    pub(super) async fn transactions_after(
        &self,
        intent_id: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<StoredTransaction>, Problem> {
        let kind = Kind::Transaction;
        let found = self.engine().records(kind, intent_id, after, limit).await;
        let found = found.map_err(|error| unavailable(&error))?;
        let read = |record| Versioned::read(record).map(StoredTransaction);
        let found = found.into_iter().map(read).collect::<Result<_, _>>();
        found.map_err(|error| unavailable(&error))
    }
}
