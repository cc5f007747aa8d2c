//! Receipts: created from the settling fact at the first request, then stored.
//!
//! Invariant: every later request returns the same bytes. If an operator reopens a settled intent, its next
//! settlement has a receipt of its own that names the previous one, even if that was never requested: the id of a
//! receipt follows from its settling fact.

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros};
use consign_kernel::intent::Intent;
use consign_kernel::limits;
use consign_kernel::plant::{self, Plant};
use consign_kernel::receipt::{self, Statement, Verified, VerifyError, sha256_hex};
use consign_kernel::record::{self, Kind};
use consign_kernel::state::Cause;
use consign_store::TypedReads as _;

use crate::{Engine, Error};

/// Later settlements that are searched for the next one.
const LATER_SETTLEMENTS_MAX: usize = 64;
/// Facts that each search may read. Any holder of a receipt can trigger it, so it is bounded.
const LATER_FACTS_MAX: u32 = 4_096;

/// Facts that are read to find the admission of an intent.
const ADMISSION_FACTS_MAX: u32 = 4_096;

/// The current status of a genuine receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptStatus {
    /// It certifies the last settlement, and the intent is still settled.
    Current,
    /// An operator reopened the intent, and it is not settled yet.
    Reopened,
    /// Another settlement followed, with this receipt.
    Superseded { by: String },
    /// The ledger has no record of the settlement.
    Unknown,
}

impl Engine {
    /// The signed receipt of a settled intent, as one JSON document.
    pub async fn receipt(&self, intent: &Intent) -> Result<String, Error> {
        let mut intent = intent.clone();
        let settling = loop {
            let settling = self.settling(&intent).await?;
            if intent.last_fact.is_none_or(|last| last == settling.seq) {
                break settling;
            }
            // An operator reopened the intent since the row was read, so row and fact do not belong together.
            let now = self.inner.store.intent(intent.id).await?;
            intent = now.ok_or(Error::NotSettled)?;
        };
        let intent = &intent;
        let key = record::Key {
            kind: Kind::Receipt,
            owner: String::new(),
            name: if plant::on(Plant::StaleReceipt) {
                intent.id.to_string()
            } else {
                format!("{}.{}", intent.id, settling.seq.0)
            },
        };
        if let Some(kept) = self.record(key.clone()).await? {
            return Ok(kept.value);
        }
        let before = self
            .settlement(intent, Some(settling.seq), u32::MAX)
            .await?;
        let created_at = self.created_at(intent).await?;
        let document = self
            .inner
            .signer
            .sign(&statement(intent, created_at, &settling, before.as_ref()))
            .map_err(|refusal| Error::Internal(refusal.to_string()))?;
        let put = record::Put {
            key: key.clone(),
            value: document.clone(),
            expires_at: Some(self.now().plus(limits::FACT_RETENTION_US)),
            expect: Some(0),
        };
        if self.put_if_unchanged(put).await?.is_some() {
            return Ok(document);
        }
        // A concurrent request stored its receipt first; that one counts.
        let kept = self.record(key).await?;
        kept.map(|record| record.value)
            .ok_or_else(|| Error::Internal("a stored receipt is missing".to_owned()))
    }

    /// When the intent was admitted, by the wall clock. The row has engine time; its first fact has both times.
    async fn created_at(&self, intent: &Intent) -> Result<Micros, Error> {
        let store = &self.inner.store;
        let facts = store.facts(intent.seq, ADMISSION_FACTS_MAX).await?;
        Ok(match facts.first() {
            Some(first) if first.at == intent.created_at => first.time_of_day(),
            // The fact has been deleted, or the row was imported with the time of another ledger.
            _ => intent.created_at,
        })
    }

    async fn settling(&self, intent: &Intent) -> Result<Fact, Error> {
        if !intent.profile.profile().is_terminal(intent.state) {
            return Err(Error::NotSettled);
        }
        let settling = self.settlement(intent, None, u32::MAX).await?;
        settling.ok_or(Error::NotSettled)
    }

    /// The last settlement, or the last one before a fact.
    async fn settlement(
        &self,
        intent: &Intent,
        before: Option<FactSeq>,
        among: u32,
    ) -> Result<Option<Fact>, Error> {
        let states = intent.profile.profile().terminal;
        let store = &self.inner.store;
        Ok(store
            .last_fact_to(intent.seq, states, before, among)
            .await?)
    }

    /// Verifies that a document is a receipt signed with this ledger's key, and finds its status. Only genuine
    /// receipts are looked up.
    pub async fn verify_receipt(
        &self,
        document: &str,
    ) -> Result<Result<(Verified, ReceiptStatus), VerifyError>, Error> {
        let verified = match receipt::verify(document, &self.public_keys()) {
            Ok(verified) => verified,
            Err(error) => return Ok(Err(error)),
        };
        let standing = self.standing(&verified.statement).await?;
        Ok(Ok((verified, standing)))
    }

    async fn standing(&self, statement: &Statement) -> Result<ReceiptStatus, Error> {
        let id: Option<IntentId> = statement.intent.parse().ok();
        let (Some(id), Ok(fact)) = (id, u64::try_from(statement.fact)) else {
            return Ok(ReceiptStatus::Unknown);
        };
        let Some(intent) = self.inner.store.intent(id).await? else {
            return Ok(ReceiptStatus::Unknown);
        };
        let certified = FactSeq(fact);
        let mut later: Option<Fact> = None;
        for _ in 0..LATER_SETTLEMENTS_MAX {
            let before = later.as_ref().map(|fact| fact.seq);
            match self.settlement(&intent, before, LATER_FACTS_MAX).await? {
                Some(found) if found.seq > certified => later = Some(found),
                Some(found) if found.seq == certified && later.is_none() => {
                    let settled = intent.last_fact == Some(certified);
                    return Ok(if settled {
                        ReceiptStatus::Current
                    } else {
                        ReceiptStatus::Reopened
                    });
                }
                Some(found) if found.seq == certified => break,
                // The ledger was restored to a state before this settlement.
                Some(_) => return Ok(ReceiptStatus::Unknown),
                // Deleted, or outside of the search; the later settlement is known all the same.
                None => break,
            }
        }
        Ok(match later {
            Some(fact) => ReceiptStatus::Superseded {
                by: receipt_id(id, fact.seq),
            },
            // Only an operator changes a settled intent.
            None if intent.last_fact > Some(certified) => ReceiptStatus::Reopened,
            None => ReceiptStatus::Unknown,
        })
    }
}

fn receipt_id(intent: IntentId, settling: FactSeq) -> String {
    format!("rcp_{intent}_{}", settling.0)
}

fn statement(
    intent: &Intent,
    created_at: Micros,
    settling: &Fact,
    before: Option<&Fact>,
) -> Statement {
    let profile = intent.profile.profile();
    Statement {
        id: receipt_id(intent.id, settling.seq),
        intent: intent.id.to_string(),
        face: profile.face.name().to_owned(),
        namespace: intent.namespace.clone(),
        goal: intent.goal.clone(),
        state: profile
            .word(intent.state, intent.cause)
            .unwrap_or(intent.state.name())
            .to_owned(),
        cause: (intent.cause != Cause::None).then(|| intent.cause.name().to_owned()),
        attempts: intent.attempts,
        payload_sha256: sha256_hex(intent.payload.as_bytes()),
        result_sha256: intent
            .result
            .as_ref()
            .map(|result| sha256_hex(result.body.as_bytes())),
        created_at: created_at.0,
        settled_at: settling.time_of_day().0,
        worker: intent.worker.as_ref().or(intent.holder.as_ref()).cloned(),
        fact: i64::try_from(settling.seq.0).unwrap_or(i64::MAX),
        supersedes: before.map(|fact| receipt_id(intent.id, fact.seq)),
        issuer: "consign".to_owned(),
    }
}
