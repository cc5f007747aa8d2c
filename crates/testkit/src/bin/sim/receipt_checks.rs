//! Checks of receipts: a settled intent has one, it verifies, it matches the ledger, and its bytes never change.

use std::collections::BTreeMap;

use consign_engine::Error;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId};
use consign_kernel::profile::ProfileId;
use consign_kernel::receipt::{Statement, sha256_hex, verify};
use consign_kernel::state::Cause;

use crate::ledger_checks::{BrokenPromise, LedgerChecks};
use crate::machine;
use crate::requests::RequestOutcome;

#[derive(Debug, Default)]
pub(crate) struct ReceiptChecks {
    given: BTreeMap<(IntentId, i64), String>,
}

impl ReceiptChecks {
    /// `settled` is the fact that the receipt must certify, if it is certain.
    pub(crate) fn concluded(
        &mut self,
        id: IntentId,
        settled: Option<FactSeq>,
        outcome: &RequestOutcome,
        ledger: &LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        let missing = settled.is_some() && !ledger.is_gone(id);
        match outcome {
            RequestOutcome::Receipt(Some(document)) => self.given(id, settled, document, ledger),
            RequestOutcome::Receipt(None) | RequestOutcome::No(Error::NotSettled) if missing => {
                Err(format!("{id} is settled and has no receipt"))
            }
            RequestOutcome::No(Error::Internal(why)) => Err(format!("the receipt of {id}: {why}")),
            RequestOutcome::Receipt(None)
            | RequestOutcome::Yes(_)
            | RequestOutcome::No(_)
            | RequestOutcome::Lost => Ok(()),
        }
    }

    fn given(
        &mut self,
        id: IntentId,
        settled: Option<FactSeq>,
        document: &str,
        ledger: &LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        let verified = verify(document, &machine::trusted_keys())
            .map_err(|error| format!("the receipt of {id} does not verify: {error}"))?;
        let statement = verified.statement;
        let fact = u64::try_from(statement.fact).map(FactSeq);
        let fact = fact.ok().and_then(|seq| ledger.settlement(seq));
        if fact.is_none_or(|fact| !tells(&statement, id, fact, ledger)) {
            return Err(format!(
                "the receipt of {id} is not as the ledger tells: {statement:?}, {fact:?}"
            ));
        }
        if let Some(settled) = settled
            && i64::try_from(settled.0) != Ok(statement.fact)
        {
            return Err(format!(
                "the receipt of {id} is about fact {}, it was settled by fact {}",
                statement.fact, settled.0
            ));
        }
        let first = self.given.entry((id, statement.fact));
        if first.or_insert_with(|| document.to_owned()) != document {
            return Err(format!("the receipt of {id} changed its bytes"));
        }
        Ok(())
    }
}

/// Whether the statement matches the fact.
fn tells(statement: &Statement, id: IntentId, fact: &Fact, ledger: &LedgerChecks) -> bool {
    let word = ProfileId::Intent.profile().word(fact.to, fact.cause);
    let cause = (fact.cause != Cause::None).then(|| fact.cause.name());
    let (seq, payload) = ledger.identity(id).unwrap_or_default();
    statement.intent == id.to_string()
        && fact.intent == seq
        && Some(statement.state.as_str()) == word
        && statement.cause.as_deref() == cause
        && statement.attempts == fact.attempt
        && statement.settled_at == fact.time_of_day().0
        && statement.payload_sha256 == sha256_hex(payload.as_bytes())
}
