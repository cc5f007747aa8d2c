//! Checks of the responses of clients, against earlier responses and the ledger.
//!
//! Invariant: the server decides a request at an unknown moment between sending and receiving. A promise counts as
//! broken only if no moment in between could explain the response.

use std::collections::BTreeMap;

use consign_engine::Error;
use consign_kernel::command::{Answer, Claim};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros, Token};
use consign_kernel::intent::Intent;
use consign_kernel::state::Verb;

use crate::batch_checks::BatchChecks;
use crate::ledger_checks::{BrokenPromise, LedgerChecks};
use crate::receipt_checks::ReceiptChecks;
use crate::requests::{PresentedToken, RequestOutcome, SimAction};

#[derive(Debug, Default)]
pub(crate) struct ClientChecks {
    pub(crate) leases: Vec<KnownLease>,
    /// Until when an operator may have changed an intent.
    touched: BTreeMap<IntentId, Micros>,
    acknowledged: BTreeMap<(IntentId, Verb), u64>,
    pub(crate) batches: BatchChecks,
    receipts: ReceiptChecks,
}

/// A lease from the view of its holder.
#[derive(Debug)]
pub(crate) struct KnownLease {
    pub(crate) id: IntentId,
    pub(crate) token: Token,
    pub(crate) claimed_at: Micros,
    /// The earliest and the latest end.
    until: (Micros, Micros),
    /// The same before the pending extension.
    before_extension: Option<(Micros, Micros)>,
    /// Settlements that are pending or lost.
    unsure: u32,
    settled_at: Option<Micros>,
}

impl KnownLease {
    pub(crate) fn is_extending(&self) -> bool {
        self.before_extension.is_some()
    }
}

impl ClientChecks {
    /// Records a request that was sent.
    pub(crate) fn sent(&mut self, action: &SimAction, sent: Micros) {
        match action {
            SimAction::Extend {
                presented,
                lease_us,
            } => {
                let lease = &mut self.leases[presented.lease];
                lease.before_extension = Some(lease.until);
                let (min, _) = lease.until;
                lease.until = (min.min(sent.plus(*lease_us)), Micros::MAX);
            }
            SimAction::Complete(presented) | SimAction::Fail(presented) => {
                self.leases[presented.lease].unsure += 1;
            }
            SimAction::Cancel(id) | SimAction::Requeue(id) => {
                self.touched.insert(*id, Micros::MAX);
            }
            SimAction::Publish(batch) => self.batches.sent(batch),
            SimAction::Claim { .. } | SimAction::Receipt { .. } | SimAction::Clean => {}
        }
    }

    /// Intents whose settlement was acknowledged.
    pub(crate) fn told_settled(&self) -> impl Iterator<Item = IntentId> {
        let settled = self
            .leases
            .iter()
            .filter(|lease| lease.settled_at.is_some());
        settled.map(|lease| lease.id)
    }

    pub(crate) fn concluded(
        &mut self,
        action: &SimAction,
        sent: Micros,
        outcome: &RequestOutcome,
        now: Micros,
        ledger: &mut LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        match action {
            SimAction::Publish(batch) => self.batches.concluded(batch, outcome, ledger),
            SimAction::Claim { claim, .. } => self.claimed(claim, (sent, now), outcome, ledger),
            SimAction::Extend {
                presented,
                lease_us,
            } => self.extended(presented, *lease_us, sent, outcome, now, ledger),
            SimAction::Complete(presented) => {
                self.settled(presented, Verb::Complete, sent, outcome, now, ledger)
            }
            SimAction::Fail(presented) => {
                self.settled(presented, Verb::Fail, sent, outcome, now, ledger)
            }
            SimAction::Cancel(id) | SimAction::Requeue(id) => {
                self.touched.insert(*id, now);
                Ok(())
            }
            SimAction::Receipt { id, settled, .. } => {
                let touched = self.touched.get(id);
                let settled = settled.filter(|_| touched.is_none_or(|touched| *touched < sent));
                self.receipts.concluded(*id, settled, outcome, ledger)
            }
            SimAction::Clean => Ok(()),
        }
    }

    fn claimed(
        &mut self,
        claim: &Claim,
        asked: (Micros, Micros),
        outcome: &RequestOutcome,
        ledger: &mut LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        let RequestOutcome::Yes(Answer::Claimed(intents)) = outcome else {
            return Ok(());
        };
        for intent in intents {
            if let Some(until) = intent.lease_until {
                as_long_as_asked(intent.id, until, claim.lease_us, asked)?;
            }
            self.begin(intent, ledger)?;
        }
        Ok(())
    }

    fn begin(&mut self, intent: &Intent, ledger: &mut LedgerChecks) -> Result<(), BrokenPromise> {
        let id = intent.id;
        let (Some(token), Some(at), Some(until)) =
            (intent.token, intent.claimed_at, intent.lease_until)
        else {
            return Err(format!("{id} was claimed without a lease"));
        };
        if !ledger.knows(id) {
            return Err(format!("{id} was claimed, but the ledger lost it"));
        }
        ledger.give(id, token, at);
        let new = KnownLease {
            id,
            token,
            claimed_at: at,
            until: (until, until),
            before_extension: None,
            unsure: 0,
            settled_at: None,
        };
        for other in self.leases.iter().filter(|other| other.id == id) {
            let (first, second) = if other.claimed_at < at {
                (other, &new)
            } else {
                (&new, other)
            };
            if self.certainly_runs(first, second.claimed_at) {
                return Err(format!(
                    "{id} has two holders: one since {}, another since {}",
                    first.claimed_at.0, second.claimed_at.0
                ));
            }
        }
        self.leases.push(new);
        Ok(())
    }

    /// Whether the holder can be sure that its lease runs.
    fn certainly_runs(&self, lease: &KnownLease, at: Micros) -> bool {
        let touched = self.touched.get(&lease.id);
        lease.until.0 > at
            && lease.unsure == 0
            && lease.settled_at.is_none()
            && touched.is_none_or(|touched| *touched < lease.claimed_at)
    }

    fn extended(
        &mut self,
        presented: &PresentedToken,
        lease_us: i64,
        sent: Micros,
        outcome: &RequestOutcome,
        now: Micros,
        ledger: &LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        let lease = &mut self.leases[presented.lease];
        let before = lease.before_extension.take().unwrap_or(lease.until);
        match outcome {
            RequestOutcome::Yes(Answer::Extended { until }) => {
                lease.until = (*until, *until);
                as_long_as_asked(presented.id, *until, lease_us, (sent, now))?;
                self.accepted(presented, Verb::Extend, before.1, sent, ledger)
            }
            RequestOutcome::No(error) => {
                lease.until = before;
                self.refused(presented, error, now)
            }
            RequestOutcome::Yes(_) | RequestOutcome::Receipt(_) | RequestOutcome::Lost => Ok(()),
        }
    }

    fn settled(
        &mut self,
        presented: &PresentedToken,
        verb: Verb,
        sent: Micros,
        outcome: &RequestOutcome,
        now: Micros,
        ledger: &LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        match outcome {
            RequestOutcome::Yes(_) => {
                let until = self.leases[presented.lease].until.1;
                self.accepted(presented, verb, until, sent, ledger)?;
                self.leases[presented.lease].settled_at = Some(now);
                Ok(())
            }
            RequestOutcome::No(error) => {
                self.leases[presented.lease].unsure -= 1;
                self.refused(presented, error, now)
            }
            RequestOutcome::Receipt(_) | RequestOutcome::Lost => Ok(()),
        }
    }

    /// Checks whether the server was right to accept this token.
    fn accepted(
        &mut self,
        presented: &PresentedToken,
        verb: Verb,
        until_max: Micros,
        sent: Micros,
        ledger: &LedgerChecks,
    ) -> Result<(), BrokenPromise> {
        let lease = &self.leases[presented.lease];
        let id = presented.id;
        if presented.stale {
            return Err(format!(
                "{verb} of {id} was accepted with a token that is not the present one"
            ));
        }
        if sent >= until_max {
            return Err(format!("{verb} of {id} was accepted after its lease"));
        }
        if lease.settled_at.is_some_and(|at| at <= sent) {
            return Err(format!(
                "{verb} of {id} was accepted, it was settled before"
            ));
        }
        let said = self.acknowledged.entry((id, verb)).or_default();
        *said += 1;
        let told = ledger.told(id, verb);
        if *said > told {
            return Err(format!(
                "{verb} of {id} was acknowledged {said} times and is in the ledger {told} times"
            ));
        }
        Ok(())
    }

    /// A holder inside its lease must not be refused.
    fn refused(
        &self,
        presented: &PresentedToken,
        error: &Error,
        now: Micros,
    ) -> Result<(), BrokenPromise> {
        let lease = &self.leases[presented.lease];
        let turned_away = matches!(error, Error::Refused(Refusal::LeaseLost));
        let right = presented.token == lease.token;
        if turned_away && right && !lease.is_extending() && self.certainly_runs(lease, now) {
            return Err(format!(
                "the holder of {} was turned away, its lease runs until {}",
                presented.id, lease.until.0.0
            ));
        }
        Ok(())
    }
}

/// A lease begins between request and response, and lasts as long as requested.
fn as_long_as_asked(
    id: IntentId,
    until: Micros,
    lease_us: i64,
    (sent, outcome): (Micros, Micros),
) -> Result<(), BrokenPromise> {
    if until < sent.plus(lease_us) || until > outcome.plus(lease_us) {
        return Err(format!(
            "the lease of {id} runs until {}, asked for {lease_us} µs between {} and {}",
            until.0, sent.0, outcome.0
        ));
    }
    Ok(())
}
