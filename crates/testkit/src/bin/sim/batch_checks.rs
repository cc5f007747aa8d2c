//! Batches: all intents of a request are admitted, or none.

use std::collections::BTreeMap;

use consign_kernel::command::{Admitted, Answer};

use crate::ledger_checks::{BrokenPromise, LedgerChecks};
use crate::requests::{PublishBatch, RequestOutcome};

#[derive(Debug, Default)]
pub(crate) struct BatchChecks {
    known: BTreeMap<usize, SentBatch>,
}

/// One batch and how often it was sent.
#[derive(Debug)]
struct SentBatch {
    /// Payloads, and whether they have a once-key.
    items: Vec<(String, bool)>,
    times: usize,
    refused: usize,
}

impl BatchChecks {
    pub(crate) fn sent(&mut self, batch: &PublishBatch) {
        let items = batch.items.iter();
        let new = || SentBatch {
            items: items.map(|item| (item.payload(), item.guarded)).collect(),
            times: 0,
            refused: 0,
        };
        self.known.entry(batch.number).or_insert_with(new).times += 1;
    }

    pub(crate) fn concluded(
        &mut self,
        batch: &PublishBatch,
        outcome: &RequestOutcome,
        ledger: &LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        match outcome {
            RequestOutcome::Yes(Answer::Admitted(admitted)) => {
                acknowledged(batch, admitted, ledger)
            }
            RequestOutcome::No(_) => {
                if let Some(sent) = self.known.get_mut(&batch.number) {
                    sent.refused += 1;
                }
                Ok(())
            }
            RequestOutcome::Yes(_) | RequestOutcome::Receipt(_) | RequestOutcome::Lost => Ok(()),
        }
    }

    /// Compares the admitted intents with the sent batches.
    pub(crate) fn look(&self, ledger: &LedgerChecks) -> Result<(), BrokenPromise> {
        self.known
            .iter()
            .try_for_each(|(number, sent)| sent.look(*number, ledger))
    }
}

impl SentBatch {
    fn look(&self, number: usize, ledger: &LedgerChecks) -> Result<(), BrokenPromise> {
        let times = |payload: &str| ledger.admitted(payload).len();
        let all = self.items.iter().map(|(payload, _)| times(payload));
        // Without a once-key every executed request admits again.
        let most = all.clone().max().unwrap_or(0);
        let whole = |(payload, guarded): &(String, bool)| {
            times(payload) == if *guarded { most.min(1) } else { most }
        };
        if !self.items.iter().all(whole) {
            let counts: Vec<usize> = all.collect();
            return Err(format!(
                "batch {number} was admitted in part: {:?} are there {counts:?} times",
                self.items
            ));
        }
        if most > self.times - self.refused {
            return Err(format!(
                "batch {number} was asked for {} times, refused {} times and is there {most} times",
                self.times, self.refused
            ));
        }
        Ok(())
    }
}

fn acknowledged(
    batch: &PublishBatch,
    admitted: &[Admitted],
    ledger: &LedgerChecks,
) -> Result<(), BrokenPromise> {
    if admitted.len() != batch.items.len() {
        return Err(format!(
            "batch {} has {} items and was answered with {}",
            batch.number,
            batch.items.len(),
            admitted.len()
        ));
    }
    for (item, Admitted { id, .. }) in batch.items.iter().zip(admitted) {
        if !ledger.knows(*id) {
            return Err(format!("{id} was acknowledged and is lost"));
        }
        let payload = item.payload();
        if !ledger.admitted(&payload).contains(id) {
            return Err(format!("{payload} was answered with {id}, not its own"));
        }
    }
    Ok(())
}
