//! Reads: intents with their transactions, receipts, and verification of documents.

use consign_engine::Versioned;
use consign_kernel::ids::Micros;
use consign_kernel::intent::Intent;
use consign_kernel::record::{Key, Kind, Record};

use super::execute::raw;
use super::lists::is_transaction;
use super::records::{
    self, PermissionRecord, RowPayload, StoredTransaction, TransactionRecord, TransactionRef,
};
use super::views::{IntentView, ReceiptList, ReceiptView, TransactionView};
use super::{Site, SiteCaller, damaged, unavailable};
use crate::document::{AtpDocument, VERIFY_BYTES_MAX};
use crate::ids;
use crate::intent::SignedIntent;
use crate::key::IdempotencyKey;
use crate::keyring::Verification;
use crate::problem::Problem;
use crate::request::Verify;
use crate::state::AtpState;

/// Transactions shown with one intent; `more` says that there are others.
const SHOWN_MAX: u32 = 100;
/// Transactions per read, and the number of request bytes after which no more are read.
const PAGE: u32 = 10;
const SHOWN_BYTES: usize = 256 << 10;
/// Enough to tell one from several.
const ONE_OR_SEVERAL: u32 = 2;

impl Site {
    pub async fn intent(&self, intent_id: &str) -> Result<IntentView, Problem> {
        self.intent_for(SiteCaller::Agent, intent_id).await
    }

    /// For operators, regardless of the owner.
    pub async fn any_intent(&self, intent_id: &str) -> Result<IntentView, Problem> {
        self.intent_for(SiteCaller::Operator, intent_id).await
    }

    async fn intent_for(
        &self,
        caller: SiteCaller<'_>,
        intent_id: &str,
    ) -> Result<IntentView, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        permission.value.check_caller(caller)?;
        self.intent_shown(&permission, SHOWN_MAX).await
    }

    /// An intent with at most `shown_max` transactions.
    pub(super) async fn intent_shown(
        &self,
        permission: &Versioned<PermissionRecord>,
        shown_max: u32,
    ) -> Result<IntentView, Problem> {
        let intent = permission.value.intent()?;
        let (transactions, more) = self
            .first_transactions(&intent.intent_id, shown_max)
            .await?;
        let now = self.judged_at(&permission.value, &intent).await?;
        let state = state(&permission.value, &intent, &transactions, now)?;
        let expired = permission.value.expired(&intent, now);
        let shown = transactions.iter().map(TransactionView::of);
        Ok(IntentView {
            state,
            created_at: Micros(permission.value.created_at),
            authorized_at: permission.value.authorized_at.map(Micros),
            expired_reason: expired.filter(|_| state == AtpState::Expired),
            spent_cents: permission.value.committed_cents,
            executions: permission.value.executions,
            transactions: shown.collect::<Result<_, _>>()?,
            more,
            intent,
        })
    }

    pub async fn transaction_shown(&self, id: &str) -> Result<TransactionView, Problem> {
        self.transaction_for(SiteCaller::Agent, id).await
    }

    /// For operators, regardless of the owner.
    pub async fn any_transaction(&self, id: &str) -> Result<TransactionView, Problem> {
        self.transaction_for(SiteCaller::Operator, id).await
    }

    async fn transaction_for(
        &self,
        caller: SiteCaller<'_>,
        id: &str,
    ) -> Result<TransactionView, Problem> {
        let found = self.transaction_by_id(id).await?;
        let transaction = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        if transaction.value.manual.is_some() && matches!(caller, SiteCaller::Agent) {
            return Err(Problem::Unauthorized);
        }
        TransactionView::of(&transaction)
    }

    pub(super) async fn transaction_by_id(
        &self,
        id: &str,
    ) -> Result<Option<StoredTransaction>, Problem> {
        let Some(row) = ids::transaction_row(id) else {
            return Ok(None);
        };
        let found = self.engine().observe(row).await;
        let found = found.map_err(|error| unavailable(&error))?;
        match found.filter(is_transaction) {
            None => Ok(None),
            Some(row) => {
                let about = row_payload(&row)?;
                let key = IdempotencyKey::stored(about.key);
                self.transaction(&about.intent_id, &key).await
            }
        }
    }

    pub async fn receipt_shown(&self, receipt_id: &str) -> Result<ReceiptView, Problem> {
        let text = self.stored_receipt(receipt_id).await?;
        let (transaction, text) = text.ok_or(Problem::NotFound { what: "receipt" })?;
        let document = AtpDocument::read(text.as_bytes(), usize::MAX);
        let document = document.map_err(|_| damaged("receipt"))?;
        let issued_at = document.get("issued_at");
        Ok(ReceiptView {
            receipt_id: receipt_id.to_owned(),
            transaction_id: transaction.value.id(),
            issued_at: issued_at.and_then(|at| at.as_str().map(std::borrow::Cow::into_owned)),
            receipt: raw(text)?,
        })
    }

    pub async fn receipts_of(&self, intent_id: &str) -> Result<ReceiptList, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        permission.value.check_caller(SiteCaller::Agent)?;
        let (transactions, _) = self.first_transactions(intent_id, SHOWN_MAX).await?;
        let receipts = transactions.into_iter().flat_map(|transaction| {
            let TransactionRecord {
                receipt,
                compensation_receipt,
                ..
            } = transaction.0.value;
            [receipt, compensation_receipt].into_iter().flatten()
        });
        Ok(ReceiptList {
            receipts: receipts.collect(),
        })
    }

    async fn stored_receipt(
        &self,
        receipt_id: &str,
    ) -> Result<Option<(StoredTransaction, String)>, Problem> {
        let belongs: Option<Versioned<TransactionRef>> =
            self.read(records::receipt_key(receipt_id)).await?;
        let Some(Versioned { value, .. }) = belongs else {
            return Ok(None);
        };
        let key = IdempotencyKey::stored(value.key);
        let found = self.transaction(&value.intent_id, &key).await?;
        let transaction = found.ok_or_else(|| damaged("receipt"))?;
        // A transaction has at most one document of each kind, and the id's prefix names the kind.
        let document = if ids::names_compensation(receipt_id) {
            &transaction.value.compensation_receipt
        } else {
            &transaction.value.receipt
        };
        let text = document.as_ref().map(|document| document.get().to_owned());
        Ok(text.map(|text| (transaction, text)))
    }

    /// Needs no secret and trusts no key in the document.
    pub async fn verify(&self, body: &[u8]) -> Result<Verification, Problem> {
        let body = AtpDocument::read(body, VERIFY_BYTES_MAX)?;
        let (document, text) = match Verify::read(&body)? {
            Verify::Document(document) => (*document, None),
            Verify::Id(id) => {
                let found = self.stored_receipt(&id).await?;
                let (_, text) = found.ok_or(Problem::NotFound { what: "receipt" })?;
                let document = AtpDocument::read(text.as_bytes(), usize::MAX)?;
                (document, Some(text))
            }
        };
        let mut verification = self.keys().ring.verify(&document, self.now());
        verification.stored = text.is_some() || self.is_stored(&document).await?;
        Ok(verification)
    }

    async fn is_stored(&self, document: &AtpDocument) -> Result<bool, Problem> {
        let id = document.get("receipt_id");
        let Some(id) = id.and_then(|id| id.as_str().map(std::borrow::Cow::into_owned)) else {
            return Ok(false);
        };
        let Some((_, text)) = self.stored_receipt(&id).await? else {
            return Ok(false);
        };
        let stored = AtpDocument::read(text.as_bytes(), usize::MAX)?;
        Ok(stored.hash() == document.hash())
    }

    /// The state of an intent, if it exists.
    pub(super) async fn state_of(&self, intent_id: &str) -> Result<Option<AtpState>, Problem> {
        let Some(permission) = self.permission(intent_id).await? else {
            return Ok(None);
        };
        let intent = permission.value.intent()?;
        let transactions = self.transactions(intent_id, ONE_OR_SEVERAL).await?;
        let now = self.judged_at(&permission.value, &intent).await?;
        state(&permission.value, &intent, &transactions, now).map(Some)
    }

    /// The state that other intents may depend on: settled or open as long as one of its transactions is, otherwise its own
    /// state. A settled state comes with the condition under which it stays true.
    ///
    /// The cost is a few reads for any number of transactions: an intent with one execution has one transaction; for others,
    /// settled transactions have an index record, and compensated ones are counted.
    pub(super) async fn effective_state(
        &self,
        intent_id: &str,
    ) -> Result<(Option<AtpState>, Option<RecordVersion>), Problem> {
        let Some(permission) = self.permission(intent_id).await? else {
            return Ok((None, None));
        };
        let intent = permission.value.intent()?;
        if intent.max_executions > 1 {
            if let Some(settled) = self.settled_under(intent_id).await? {
                return Ok((Some(AtpState::Settled), Some(settled)));
            }
            let Some(undone) = permission.value.undone else {
                return self.effective_state_by_scan(&permission, &intent).await;
            };
            let now = self.judged_at(&permission.value, &intent).await?;
            let state = if permission.value.executions > undone {
                AtpState::Executing
            } else {
                permission.value.state(&intent, now)
            };
            return Ok((Some(state), None));
        }
        let transactions = self.transactions(intent_id, 1).await?;
        if let Some(only) = transactions.first()
            && only.value.state()? == AtpState::Settled
        {
            return Ok((Some(AtpState::Settled), Some(version_of(only))));
        }
        let now = self.judged_at(&permission.value, &intent).await?;
        let own = state(&permission.value, &intent, &transactions, now)?;
        Ok((Some(own), None))
    }

    /// The condition that a transaction under this intent, which allows several, stays settled.
    async fn settled_under(&self, intent_id: &str) -> Result<Option<RecordVersion>, Problem> {
        let noted = self
            .engine()
            .records(Kind::SettledUnder, intent_id, "", 1)
            .await
            .map_err(|error| unavailable(&error))?;
        let stays = |note: Record| (note.key, note.version);
        Ok(noted.into_iter().next().map(stays))
    }

    /// For intents stored before settled transactions had an index record. No new ones are created.
    async fn effective_state_by_scan(
        &self,
        permission: &Versioned<PermissionRecord>,
        intent: &SignedIntent,
    ) -> Result<(Option<AtpState>, Option<RecordVersion>), Problem> {
        let now = self.judged_at(&permission.value, intent).await?;
        let mut fate = permission.value.state(intent, now);
        let mut after = String::new();
        loop {
            let page = self
                .transactions_after(&intent.intent_id, &after, PAGE)
                .await?;
            let Some(last) = page.last() else {
                return Ok((Some(fate), None));
            };
            last.key.name.clone_into(&mut after);
            for transaction in &page {
                match transaction.value.state()? {
                    AtpState::Settled => {
                        return Ok((Some(AtpState::Settled), Some(version_of(transaction))));
                    }
                    open @ (AtpState::Executing | AtpState::Executed) => fate = open,
                    AtpState::Created
                    | AtpState::Authorized
                    | AtpState::Expired
                    | AtpState::Compensated => {}
                }
            }
        }
    }

    /// The first transactions under an intent, at most `shown_max`, and fewer if they are large, so that the cost of showing an
    /// intent is bounded. The flag says whether there are more.
    async fn first_transactions(
        &self,
        intent_id: &str,
        shown_max: u32,
    ) -> Result<(Vec<StoredTransaction>, bool), Problem> {
        let mut found: Vec<StoredTransaction> = Vec::new();
        let mut bytes = 0;
        loop {
            let after = found.last().map_or("", |last| last.key.name.as_str());
            let page = self.transactions_after(intent_id, after, PAGE).await?;
            let whole = page.len() < PAGE as usize;
            for one in page {
                if found.len() >= shown_max as usize || bytes > SHOWN_BYTES {
                    return Ok((found, true));
                }
                bytes += one.value.body.get().len();
                found.push(one);
            }
            if whole {
                return Ok((found, false));
            }
        }
    }
}

pub(super) fn row_payload(row: &Intent) -> Result<RowPayload, Problem> {
    serde_json::from_str(&row.payload).map_err(|_| damaged("row"))
}

/// A record and the version that was read.
pub(super) type RecordVersion = (Key, u64);

fn version_of(transaction: &StoredTransaction) -> RecordVersion {
    (transaction.key.clone(), transaction.version)
}

/// With one execution, an intent has the state of its transaction; with several, its own.
fn state(
    permission: &PermissionRecord,
    intent: &SignedIntent,
    transactions: &[StoredTransaction],
    now: Micros,
) -> Result<AtpState, Problem> {
    match transactions {
        [only] if intent.max_executions == 1 => only.value.state(),
        _ => Ok(permission.state(intent, now)),
    }
}
