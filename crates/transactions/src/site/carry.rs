//! Bringing one transaction to its end. Whoever holds it does so, be it the request that began it, a callback or the sweep;
//! what follows from the rail's answer is decided by [`crate::outcome`].
//!
//! Invariant: every step that moves money comes after a commit by the one who holds the lease; one that finds its lease lost
//! does nothing more.

use std::time::Duration;

use consign_engine::failpoint::{self, Failpoint};
use consign_kernel::command::{Command, Extend, Settle, Settlement};
use consign_kernel::ids::Micros;
use consign_kernel::intent::Intent as Row;
use consign_kernel::plant::{self, Plant};

use super::books::{self, Belongs, Kept, Said, Transaction, Word};
use super::execute::raw;
use super::{Site, damaged, micros};
use crate::document::Signed;
use crate::ids;
use crate::instant;
use crate::intent::{Action as Doing, Intent};
use crate::key::{IdempotencyKey, RailReference};
use crate::outcome::{Action, Phase, RailOutcome, Situation, next};
use crate::problem::Problem;
use crate::rail::{Charge, Failure, Fenced, Report, Worker};
use crate::receipt::{self, Step, Undone};
use crate::state::State;

/// A transaction in the hands of this process.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) row: Row,
    pub(super) intent: Intent,
    pub(super) authorized_at: Option<i64>,
    pub(super) key: IdempotencyKey,
    pub(super) transaction: Kept<Transaction>,
    /// Nobody can have asked the rail before.
    pub(super) is_fresh: bool,
    /// The rail was asked for a payment by this process.
    pub(super) has_prepared: bool,
}

/// The state of a step that was taken.
pub(super) const DONE: &str = "succeeded";
/// How often the rail is asked in one go. One that goes round in circles is asked again later.
const ROUNDS_MAX: u32 = 8;
/// So many looks come at even distances.
const STEADY_LOOKS: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_hours(1);
/// How long a transaction whose caller reports its effects is left alone.
const UNTIL_REPORTED: Duration = Duration::from_hours(24);
pub(super) const LOST: &str = "its worker was lost and may have done it: find out, then say what became of it (consign tx resolve)";

const SILENT: &str = "the rail does not say what became of it: see whether it can be reached with these credentials, or look at this payment there and say what became of it (consign tx resolve)";

impl Site {
    /// As far as it goes now. `None` if it is in other hands, or the ledger does not answer.
    pub(super) async fn carry(&self, mut held: Held) -> Option<Kept<Transaction>> {
        let transaction_id = held.transaction.value.id();
        match self.bring_on(&mut held).await {
            Ok(true) => Some(held.transaction),
            Ok(false) => {
                if held.has_prepared {
                    self.call_off_late(&held).await;
                }
                tracing::info!(transaction_id, "a transaction went into other hands");
                None
            }
            Err(problem) => {
                tracing::warn!(transaction_id, %problem, "a transaction waits for the next sweep");
                None
            }
        }
    }

    /// Whether it is still in our hands after what could be done.
    async fn bring_on(&self, held: &mut Held) -> Result<bool, Problem> {
        if let Some(why) = self.foreign_rail(held) {
            return self.alert(held, why).await;
        }
        // Whoever undoes it asks the rail, and two who ask would each take what the other did for the rail's doing.
        if held.transaction.value.is_being_undone() {
            return self.leave(held).await;
        }
        held.transaction.value.alert = None;
        let charge = held.transaction.value.charge(&held.intent)?;
        let rail = self.rail_of(&held.transaction.value);
        let mut report = if held.is_fresh {
            match self.submit(held, &charge).await? {
                Some(report) => report,
                None => return Ok(false),
            }
        } else if plant::on(Plant::SettleUnseen) {
            Report::of(RailOutcome::Succeeded)
        } else {
            rail.look_up(&charge, held.payment()).await
        };
        for _ in 0..ROUNDS_MAX {
            if plant::on(Plant::UnknownIsPaid) && report.outcome == RailOutcome::Unknown {
                report.outcome = RailOutcome::Succeeded;
            }
            if !self.note_payment(held, &report).await? {
                return Ok(false);
            }
            // A payment that was there cannot be unheard of; paying again would be guessing.
            if report.outcome == RailOutcome::NotFound && held.payment().is_some() {
                return self.alert(held, unsettled(&report)).await;
            }
            let situation = self.situation(held, &charge)?;
            report = match next(report.outcome, situation) {
                Action::Settle => {
                    let settled = self.settle(held).await?;
                    if settled && held.transaction.value.resubmitted {
                        self.call_off_others(held, &charge).await;
                    }
                    return Ok(settled);
                }
                Action::Acknowledge => {
                    return Ok(self.acknowledge(held).await?
                        && self.let_go(held, self.pause(held)).await?);
                }
                Action::Capture => {
                    if !self.acknowledge(held).await? {
                        return Ok(false);
                    }
                    rail.capture(&charge, held.payment()).await
                }
                Action::Confirm => {
                    if !self.still_ours(held).await? {
                        return Ok(false);
                    }
                    rail.confirm(&charge, held.payment()).await
                }
                Action::Resubmit => {
                    held.transaction.value.resubmitted = true;
                    match self.submit(held, &charge).await? {
                        Some(report) => report,
                        None => return Ok(false),
                    }
                }
                action @ (Action::FenceAsNotCharged | Action::FenceAsVoided) => {
                    match rail.cancel(&charge, held.payment()).await {
                        Fenced::Cancelled => {
                            let undone = if action == Action::FenceAsVoided {
                                Undone::Voided
                            } else {
                                Undone::NotCharged
                            };
                            return self.end(held, undone, report.failure).await;
                        }
                        Fenced::TooLate => rail.look_up(&charge, held.payment()).await,
                        Fenced::Unknown => {
                            return self.let_go_in_doubt(held, self.options().sweep).await;
                        }
                    }
                }
                Action::AskAgain => return self.ask_again(held, &report).await,
                Action::Alert => return self.alert(held, unsettled(&report)).await,
            };
        }
        self.let_go(held, self.options().sweep).await
    }

    /// Prepares the payment, keeps its id, and only then lets it happen. `None` if the lease is lost.
    async fn submit(&self, held: &mut Held, charge: &Charge) -> Result<Option<Report>, Problem> {
        if !held.is_fresh && !self.still_ours(held).await? {
            return Ok(None);
        }
        held.is_fresh = false;
        let rail = self.rail_of(&held.transaction.value);
        failpoint::hit(Failpoint::BeforeRail);
        held.has_prepared = true;
        let prepared = rail.prepare(charge).await;
        failpoint::hit(Failpoint::AfterPrepare);
        if prepared.outcome != RailOutcome::Unconfirmed {
            return Ok(Some(prepared));
        }
        if !self.note_payment(held, &prepared).await? {
            return Ok(None);
        }
        Ok(Some(rail.confirm(charge, held.payment()).await))
    }

    /// A payment was asked for by one who has lost the transaction. As long as that is open, whoever holds it may be about to
    /// confirm another one under the same reference, and calls off the rest when it settles.
    async fn call_off_late(&self, held: &Held) {
        let now = self.again(&held.transaction).await;
        let state = now.and_then(|now| now.value.state());
        let charge = held.transaction.value.charge(&held.intent);
        if let (Ok(state), Ok(charge)) = (state, charge)
            && state.is_terminal()
        {
            self.call_off_others(held, &charge).await;
        }
    }

    /// Payments that were prepared and never confirmed do no harm, and shall not lie about. What was paid stays paid.
    async fn call_off_others(&self, held: &Held, charge: &Charge) {
        let rail = self.rail_of(&held.transaction.value);
        let fenced = rail.cancel(charge, held.payment()).await;
        let transaction_id = held.transaction.value.id();
        tracing::info!(
            transaction_id,
            ?fenced,
            "payments that nobody confirms were called off"
        );
    }

    fn situation(&self, held: &Held, charge: &Charge) -> Result<Situation, Problem> {
        let phase = if held.transaction.value.state()? == State::Executed {
            Phase::Executed
        } else {
            Phase::Executing
        };
        let patience = micros(self.options().settle_delay);
        let missing = held.transaction.value.missing_since;
        Ok(Situation {
            phase,
            expired: held.intent.is_expired(self.now()),
            capture: charge.capture,
            asked_again: missing
                .is_some_and(|since| Micros(since).plus(patience) <= self.engine_now()),
        })
    }

    /// Shows that the lease is held, for as long again as the next calls may take.
    async fn still_ours(&self, held: &Held) -> Result<bool, Problem> {
        Ok(self
            .commit(vec![held.extend(self.options().lease)])
            .await?
            .is_some())
    }

    /// Keeps the rail's name of the payment, so that it is found again by it.
    async fn note_payment(&self, held: &mut Held, report: &Report) -> Result<bool, Problem> {
        let transaction = &mut held.transaction.value;
        let (Some(id), None) = (&report.payment_id, &transaction.payment_id) else {
            return Ok(true);
        };
        transaction.payment_id = Some(id.clone());
        let belongs = held.belongs();
        let named = books::reference_key(&held.transaction.value.rail, id);
        let steps = vec![
            held.transaction.unchanged(),
            held.extend(self.options().lease),
            held.transaction.put(),
            books::put(named, &belongs),
        ];
        self.advance(held, steps).await
    }

    /// Executing becomes executed; what is executed already stays so.
    async fn acknowledge(&self, held: &mut Held) -> Result<bool, Problem> {
        if held.transaction.value.state()? == State::Executed {
            return self.still_ours(held).await;
        }
        let now = self.now();
        let transaction = &mut held.transaction.value;
        transaction.enter(State::Executed, now);
        transaction.completed_at = Some(instant::print(now));
        let steps = vec![
            held.transaction.unchanged(),
            held.settle(Settlement::Deliver),
            held.extend(self.options().lease),
            held.transaction.put(),
        ];
        self.advance(held, steps).await
    }

    /// Executed and settled, with the receipt, in one commit.
    pub(super) async fn settle(&self, held: &mut Held) -> Result<bool, Problem> {
        failpoint::hit(Failpoint::AfterCharge);
        let now = self.now();
        let was = held.transaction.value.state()?;
        let transaction = &mut held.transaction.value;
        let printed = instant::print(now);
        transaction.completed_at.get_or_insert(printed);
        transaction.enter(State::Settled, now);
        let receipt_id = ids::receipt(self.engine().entropy().draw());
        let signed = self.receipt(held, &receipt_id, now)?;
        held.transaction.value.receipt = Some(raw(signed.text)?);
        let mut steps = vec![held.transaction.unchanged()];
        if was == State::Executing {
            steps.push(held.settle(Settlement::Deliver));
        }
        steps.push(held.settle(Settlement::Complete { result: None }));
        steps.push(held.transaction.put());
        steps.push(books::put(books::receipt_key(&receipt_id), &held.belongs()));
        if held.intent.max_executions > 1 {
            let settled = books::settled_key(&held.transaction.key);
            steps.push(books::put(settled, &()));
        }
        let settled = self.advance(held, steps).await?;
        failpoint::hit(Failpoint::BeforeAnswer);
        Ok(settled)
    }

    fn receipt(&self, held: &Held, receipt_id: &str, now: Micros) -> Result<Signed, Problem> {
        let transaction = &held.transaction.value;
        let parsed = |text: &str| instant::parse(text).ok_or_else(|| damaged("time"));
        let started_at = parsed(&transaction.created_at)?;
        let completed_at = transaction.completed_at.as_deref().map(parsed);
        let completed_at = completed_at.transpose()?.unwrap_or(now);
        let transaction_id = transaction.id();
        let steps = held.steps(started_at, completed_at);
        let settlement = receipt::Settlement {
            receipt_id,
            transaction_id: &transaction_id,
            site_id: held.intent.site_id.as_deref(),
            intent: &held.intent,
            authorized_at: Micros(held.authorized_at.unwrap_or(started_at.0)),
            key: &held.key,
            amount: transaction.amount()?,
            currency: transaction.currency()?,
            summary: transaction.summary.as_deref(),
            started_at,
            completed_at,
            settled_at: now,
            steps: &steps,
            rail: &transaction.rail,
            payment_id: transaction.payment_id.as_deref(),
        };
        Ok(settlement.sign(&self.keys().signer))
    }

    /// Compensated without a charge, with the receipt that says so; what was set aside for it is free again.
    pub(super) async fn end(
        &self,
        held: &mut Held,
        undone: Undone<'static>,
        failure: Option<Failure>,
    ) -> Result<bool, Problem> {
        let now = self.now();
        let from = held.transaction.value.state()?;
        let reason = failure.as_ref().map_or("not_charged", |why| &why.code);
        let receipt_id = ids::compensation(self.engine().entropy().draw());
        let signed = self.undone(&held.transaction, &receipt_id, from, reason, undone, now)?;
        let transaction = &mut held.transaction.value;
        transaction.compensation_receipt = Some(raw(signed.text)?);
        let error = reason.to_owned();
        transaction.failure = failure;
        transaction.enter(State::Compensated, now);
        let receipt = books::put(books::receipt_key(&receipt_id), &held.belongs());
        let reject = held.settle(Settlement::Reject { error });
        self.give_back(held, vec![reject], receipt).await
    }

    /// A compensation's signed document.
    pub(super) fn undone(
        &self,
        transaction: &Kept<Transaction>,
        receipt_id: &str,
        from: State,
        reason: &str,
        outcome: Undone<'_>,
        now: Micros,
    ) -> Result<Signed, Problem> {
        let value = &transaction.value;
        let original = value.receipt.as_ref().map(|receipt| {
            crate::document::Document::read(receipt.get().as_bytes(), usize::MAX)
                .map_err(|_| damaged("receipt"))
        });
        let original = original.transpose()?;
        let original_id = original.as_ref().and_then(|receipt| {
            let id = receipt.get("receipt_id")?;
            id.as_str().map(std::borrow::Cow::into_owned)
        });
        let original = original.as_ref().zip(original_id.as_deref());
        let compensation = receipt::Compensation {
            receipt_id,
            transaction_id: &value.id(),
            site: self.origin(),
            intent_id: transaction.intent_id(),
            currency: value.currency()?,
            original: original.map(|(receipt, receipt_id)| receipt::Original {
                receipt_id,
                receipt,
            }),
            from,
            reason,
            outcome,
            compensated_at: now,
            rail: &value.rail,
            reference: &RailReference::stored(&value.reference),
            payment_id: value.payment_id.as_deref(),
            resolved_by: (value.rests_on(Said::NotCharged) || value.rests_on(Said::Refunded))
                .then_some(Word::BY),
        };
        Ok(compensation.sign(&self.keys().signer))
    }

    /// Commits the end of a transaction that came to nothing, and with it what its permission may spend again.
    pub(super) async fn give_back(
        &self,
        held: &mut Held,
        moves: Vec<Command>,
        receipt: Command,
    ) -> Result<bool, Problem> {
        for _ in 0..super::TRIES_MAX {
            let found = self.permission(&held.intent.intent_id).await?;
            let mut permission = found.ok_or_else(|| damaged("permission"))?;
            let spent = &mut permission.value.committed_cents;
            *spent = spent.saturating_sub(held.transaction.value.amount_cents);
            permission.value.undone = permission.value.undone.map(|undone| undone + 1);
            let mut steps = vec![held.transaction.unchanged(), permission.unchanged()];
            steps.extend(moves.iter().cloned());
            steps.extend([held.transaction.put(), permission.put(), receipt.clone()]);
            if held.intent.max_executions > 1 {
                steps.push(Command::Delete(books::settled_key(&held.transaction.key)));
            }
            if self.advance(held, steps).await? {
                return Ok(true);
            }
            // Either another transaction of the permission was quicker, or this one is in other hands.
            let now = self.again(&held.transaction).await?;
            if now.version != held.transaction.version {
                return Ok(false);
            }
        }
        Ok(false)
    }

    async fn ask_again(&self, held: &mut Held, report: &Report) -> Result<bool, Problem> {
        let transaction = &mut held.transaction.value;
        if report.outcome == RailOutcome::NotFound {
            transaction.missing_since.get_or_insert(self.engine_now().0);
            return self.let_go(held, self.options().settle_delay).await;
        }
        self.let_go_in_doubt(held, self.pause(held)).await
    }

    /// Another rail than the one it was begun on knows nothing of the payment, and whatever it said would be signed.
    pub(super) fn foreign_rail(&self, held: &Held) -> Option<String> {
        let begun_on = &held.transaction.value.rail;
        let ours = self.rail_of(&held.transaction.value).name();
        (begun_on != ours).then(|| {
            format!(
                "it was begun on the rail {begun_on} and this server has {ours}: start one with ATP_RAIL={begun_on}"
            )
        })
    }

    pub(super) async fn alert(&self, held: &mut Held, why: String) -> Result<bool, Problem> {
        let transaction_id = held.transaction.value.id();
        tracing::error!(transaction_id, why, "a transaction is not settled");
        held.transaction.value.alert = Some(why);
        self.let_go(held, self.options().sweep).await
    }

    /// For a rail that did not tell. One that stays silent may never speak again, and then a person must be able to.
    pub(super) async fn let_go_in_doubt(
        &self,
        held: &mut Held,
        after: Duration,
    ) -> Result<bool, Problem> {
        let transaction = &held.transaction.value;
        // Who is silent here is still at work: a worker of ours, or the caller itself.
        let may_take_long = transaction.rail == Worker::NAME || transaction.manual.is_some();
        if held.row.attempts >= STEADY_LOOKS && !may_take_long {
            return self.alert(held, SILENT.to_owned()).await;
        }
        self.let_go(held, after).await
    }

    /// After how long it is worth a look again. A caller who reports effects comes by itself.
    pub(super) fn pause(&self, held: &Held) -> Duration {
        match held.transaction.value.manual {
            Some(_) => UNTIL_REPORTED,
            None => self.options().sweep,
        }
    }

    /// Nothing more can be done now: anybody may look again after a while.
    pub(super) async fn let_go(&self, held: &mut Held, after: Duration) -> Result<bool, Problem> {
        let after_us = held.pause_us(after);
        let steps = vec![
            held.transaction.unchanged(),
            held.settle(Settlement::LetGo { after_us }),
            held.transaction.put(),
        ];
        self.advance(held, steps).await
    }

    pub(super) async fn advance(
        &self,
        held: &mut Held,
        steps: Vec<Command>,
    ) -> Result<bool, Problem> {
        let committed = self.commit(steps).await?.is_some() || plant::on(Plant::UnfencedLease);
        held.transaction.version += u64::from(committed);
        Ok(committed)
    }
}

/// The operator reads this.
pub(super) fn unsettled(report: &Report) -> String {
    if report.outcome == RailOutcome::Lost {
        return LOST.to_owned();
    }
    format!(
        "the rail reports {:?}, which cannot be: look at this payment there, then say what became of it (consign tx resolve)",
        report.outcome
    )
}

impl Held {
    /// Until it is looked at again: longer and longer for what stays open. A rail's callback shortens it.
    pub(super) fn pause_us(&self, at_first: Duration) -> i64 {
        let doublings = self.row.attempts.saturating_sub(STEADY_LOOKS).min(16);
        let pause = at_first.saturating_mul(1 << doublings).min(PAUSE_MAX);
        micros(pause.max(at_first))
    }

    pub(super) fn payment(&self) -> Option<&str> {
        self.transaction.value.payment_id.as_deref()
    }

    pub(super) fn belongs(&self) -> Belongs {
        Belongs {
            intent_id: self.intent.intent_id.clone(),
            key: self.key.reveal().to_owned(),
        }
    }

    /// What is done, as the receipt calls it.
    fn doing(&self) -> &str {
        let actions = &self.intent.scope.actions;
        let pays = actions.contains(&Doing::Pay).then_some(Doing::Pay);
        let usual = pays.or(actions.first().copied());
        let asked = self.transaction.value.action.as_deref();
        asked.unwrap_or(usual.map_or("pay", Doing::word))
    }

    /// What was done: as its caller noted it down, or else in one step, and another if nobody but a person could say so.
    fn steps(&self, started_at: Micros, completed_at: Micros) -> Vec<Step<'_>> {
        let noted = self.transaction.value.manual.as_ref();
        let noted = noted.map_or(&[][..], |manual| &manual.steps);
        if noted.is_empty() {
            let done = Step {
                seq: 1,
                action: self.doing(),
                state: DONE,
                attempts: self.row.attempts,
                started_at,
                ended_at: Some(completed_at),
            };
            let word = self.transaction.value.word.as_ref();
            let word = word.filter(|word| word.outcome == Said::Charged);
            let word = word.map(|word| Step {
                seq: 2,
                action: Word::STEP,
                attempts: 1,
                started_at: Micros(word.at),
                ended_at: Some(Micros(word.at)),
                ..done.clone()
            });
            return [done].into_iter().chain(word).collect();
        }
        let steps = (1..).zip(noted).map(|(seq, step)| Step {
            seq,
            action: &step.action,
            state: DONE,
            attempts: 1,
            started_at: Micros(step.at),
            ended_at: Some(Micros(step.at)),
        });
        steps.collect()
    }

    pub(super) fn settle(&self, how: Settlement) -> Command {
        let (holder, token) = self.lease();
        Command::Settle(Settle {
            id: self.row.id,
            holder,
            token,
            how,
        })
    }

    pub(super) fn extend(&self, lease: Duration) -> Command {
        let (holder, token) = self.lease();
        Command::Extend(Extend {
            id: self.row.id,
            holder,
            token,
            lease_us: micros(lease),
        })
    }

    /// A row without one is refused by the ledger.
    fn lease(&self) -> (String, consign_kernel::ids::Token) {
        let nobody = consign_kernel::ids::Token([0; 16]);
        (
            self.row.holder.clone().unwrap_or_default(),
            self.row.token.unwrap_or(nobody),
        )
    }
}
