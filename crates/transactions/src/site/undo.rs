//! `POST /compensate`: a settled or executed transaction is undone on request, once.
//!
//! The refund is an effect of its own, so it has a row of its own: held by one at a time, found again after a crash, and
//! committed together with the end of the transaction that it undoes.

use std::time::Duration;

use consign_engine::failpoint::{self, Failpoint};
use consign_kernel::command::{self, Command, Operate, Settlement};
use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::books::{self, About, Asked, Compensation, Kept, Permission, Transaction};
use super::carry::{Held, LOST, unsettled};
use super::execute::raw;
use super::{Answer, Caller, Site, TRIES_MAX, damaged, micros};
use crate::document::{Document, NOTE_BYTES_MAX};
use crate::envelope::Operation;
use crate::ids;
use crate::instant;
use crate::key::IdempotencyKey;
use crate::outcome::RailOutcome;
use crate::problem::Problem;
use crate::rail::{Charge, Failure, Fenced, Refunded};
use crate::receipt::Undone;
use crate::request::Compensate;
use crate::state::State;

const OPERATION: &str = "compensate";
/// A permission may have a thousand executions; whoever has several says which one is meant.
const CANDIDATES: u32 = 2;

impl Site {
    pub async fn compensate(&self, key: Option<&[u8]>, body: &[u8]) -> Result<Answer, Problem> {
        let document = Document::read(body, NOTE_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
        self.envelope(&document, Operation::Compensate)?;
        let request = Compensate::read(&document)?;
        self.compensate_for(Caller::Agent, &key, &request, &document)
            .await
    }

    pub(super) async fn compensate_for(
        &self,
        caller: Caller<'_>,
        key: &IdempotencyKey,
        request: &Compensate,
        document: &Document,
    ) -> Result<Answer, Problem> {
        let until = Instant::now() + self.options().execute_wait;
        for _ in 0..TRIES_MAX {
            let found = self.permission(&request.intent_id).await?;
            let permission = found.ok_or(Problem::IntentNotFound)?;
            permission.value.check_caller(caller)?;
            if let Some(asked) = self.asked(&request.intent_id, key).await? {
                if asked.value.fingerprint != document.fingerprint() {
                    return Err(Problem::IdempotencyMismatch);
                }
                if matches!(caller, Caller::Agent) {
                    self.check_repeated(&permission.value.intent()?, document)?;
                }
                return self.undone_before(asked, until).await;
            }
            let transaction = self.meant(request, &permission).await?;
            match &transaction.value.compensation {
                // The same request, in between the two looks.
                Some(asked) if asked.key == key.reveal() && !asked.refused => continue,
                Some(asked) if !asked.refused => {
                    let transaction_id = transaction.value.id();
                    tracing::info!(transaction_id, "asked to compensate once more");
                    return Err(Problem::AlreadyCompensated);
                }
                Some(_) | None => {}
            }
            if matches!(caller, Caller::Agent) {
                let intent = permission.value.intent()?;
                intent.check_request(document, self.options().signed_requests)?;
                self.check_fresh(self.envelope(document, Operation::Compensate)?)?;
            }
            let state = transaction.value.state()?;
            match state {
                State::Settled | State::Executed => {}
                State::Compensated => return Err(Problem::AlreadyCompensated),
                State::Created | State::Authorized | State::Executing | State::Expired => {
                    return Err(Problem::InvalidState { state });
                }
            }
            request.check_amount(transaction.value.amount()?)?;
            let place = self.place()?;
            let begun = self
                .try_to_undo(request, key, document, &permission, transaction)
                .await?;
            if let Some((held, asked)) = begun {
                return self.undo_carried(held, asked, place, until).await;
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// The transaction that a request is about.
    async fn meant(
        &self,
        request: &Compensate,
        permission: &Kept<Permission>,
    ) -> Result<Kept<Transaction>, Problem> {
        if let Some(id) = &request.transaction_id {
            let found = self.transaction_by_id(id).await?;
            return found
                .filter(|found| found.intent_id() == request.intent_id)
                .ok_or(Problem::NotFound {
                    what: "transaction of this intent",
                });
        }
        let mut found = self.transactions(&request.intent_id, CANDIDATES).await?;
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(_), false) => Err(Problem::field(
                "transaction_id",
                "this intent has several transactions; say which one",
            )),
            (None, _) => {
                let intent = permission.value.intent()?;
                let now = self.judged_at(&permission.value, &intent).await?;
                permission.value.check_unexpired(&intent, now)?;
                let state = permission.value.state(&intent, now);
                Err(Problem::InvalidState { state })
            }
        }
    }

    /// Keeps the request, which is the one from now on. `None` if somebody else was quicker.
    async fn try_to_undo(
        &self,
        request: &Compensate,
        key: &IdempotencyKey,
        document: &Document,
        permission: &Kept<Permission>,
        mut transaction: Kept<Transaction>,
    ) -> Result<Option<(Held, Kept<Asked>)>, Problem> {
        let id = self.fresh_id();
        let mut asked = Kept::new(
            books::given_key(&request.intent_id, OPERATION, key),
            Asked {
                fingerprint: document.fingerprint(),
                transaction: transaction.key.name.clone(),
                row: id.to_string(),
                failure: None,
            },
        );
        // Whatever was in doubt about the payment, from now on it is about its undoing.
        transaction.value.alert = None;
        transaction.value.compensation = Some(Compensation {
            key: key.reveal().to_owned(),
            reason: request.reason.clone(),
            requested_at: instant::print(self.now()),
            row: id.to_string(),
            refused: false,
        });
        let about = About {
            intent_id: request.intent_id.clone(),
            key: transaction.key.name.clone(),
        };
        let parent = transaction.value.row()?;
        let steps = vec![
            transaction.unchanged(),
            asked.unchanged(),
            transaction.put(),
            asked.put(),
            books::begin_effect(id, &about, Some(parent), self.hold()),
        ];
        let Some(mut answers) = self.commit(steps).await? else {
            return Ok(None);
        };
        let Some(command::Answer::Begun(row)) = answers.pop() else {
            return Err(damaged("answer"));
        };
        transaction.version += 1;
        asked.version += 1;
        let held = Held {
            row: *row,
            intent: permission.value.intent()?,
            authorized_at: permission.value.authorized_at,
            key: IdempotencyKey::stored(about.key),
            transaction,
            is_fresh: true,
            has_prepared: false,
        };
        Ok(Some((held, asked)))
    }

    /// What was asked for under this key.
    async fn asked(
        &self,
        intent_id: &str,
        key: &IdempotencyKey,
    ) -> Result<Option<Kept<Asked>>, Problem> {
        self.read(books::given_key(intent_id, OPERATION, key)).await
    }

    async fn undo_carried(
        &self,
        held: Held,
        asked: Kept<Asked>,
        place: OwnedSemaphorePermit,
        until: Instant,
    ) -> Result<Answer, Problem> {
        let site = self.clone();
        let task = tokio::spawn(async move {
            site.carry_undo(held).await;
            drop(place);
        });
        let _ = tokio::time::timeout_at(until, task).await;
        let (transaction, asked) = self.undone_so_far(&asked).await?;
        transaction.undo_answer(asked)
    }

    /// The same request again: waits for its end as the first one does.
    async fn undone_before(&self, asked: Kept<Asked>, until: Instant) -> Result<Answer, Problem> {
        let pause = std::time::Duration::from_millis(50);
        let place = self.waiting_place();
        loop {
            let (transaction, now) = self.undone_so_far(&asked).await?;
            let waits = place.is_some() && transaction.is_undone_by(&now.row);
            if !waits || Instant::now() + pause >= until {
                return Ok(transaction.undo_answer(now)?.replayed(true));
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn undone_so_far(
        &self,
        asked: &Kept<Asked>,
    ) -> Result<(Kept<Transaction>, Asked), Problem> {
        let now: Option<Kept<Asked>> = self.read(asked.key.clone()).await?;
        let now = now.ok_or_else(|| damaged("answer"))?;
        let key = IdempotencyKey::stored(&now.value.transaction);
        let found = self.transaction(&asked.key.owner, &key).await?;
        Ok((found.ok_or_else(|| damaged("transaction"))?, now.value))
    }

    /// As far as it goes now.
    pub(super) async fn carry_undo(&self, mut held: Held) {
        let transaction_id = held.transaction.value.id();
        if let Err(problem) = self.undo(&mut held).await {
            tracing::warn!(transaction_id, %problem, "a refund waits for the next sweep");
        }
    }

    async fn undo(&self, held: &mut Held) -> Result<bool, Problem> {
        if let Some(why) = self.foreign_rail(held) {
            return self.alert(held, why).await;
        }
        held.transaction.value.alert = None;
        let charge = held.transaction.value.charge(&held.intent)?;
        match held.transaction.value.state()? {
            State::Executed => self.call_off(held, &charge).await,
            // There is nothing left to undo, and the rail must not be asked to.
            State::Compensated => self.close_undo(held, "already_compensated").await,
            State::Settled
            | State::Executing
            | State::Created
            | State::Authorized
            | State::Expired => self.refund(held, &charge).await,
        }
    }

    /// What the rail has acknowledged and not ended.
    async fn call_off(&self, held: &mut Held, charge: &Charge) -> Result<bool, Problem> {
        let rail = self.rail_of(&held.transaction.value);
        let fenced = rail.cancel(charge, held.payment()).await;
        let report = rail.look_up(charge, held.payment()).await;
        match (report.outcome, fenced) {
            // What was acknowledged cannot be unheard of: this rail looks elsewhere, and so does its fence.
            (RailOutcome::NotFound, _) => self.alert(held, unsettled(&report)).await,
            (RailOutcome::Succeeded, _) => self.refund(held, charge).await,
            (RailOutcome::Failed, _) | (_, Fenced::Cancelled) => {
                self.end_undo(held, Undone::Voided).await
            }
            // On its way: only what has arrived can be paid back.
            (RailOutcome::Held | RailOutcome::Processing, _) => {
                self.let_go(held, self.options().sweep).await
            }
            (RailOutcome::Unknown, _) | (RailOutcome::Unconfirmed, Fenced::Unknown) => {
                self.let_go_in_doubt(held, self.options().sweep).await
            }
            (RailOutcome::Unconfirmed | RailOutcome::Different | RailOutcome::Lost, _) => {
                self.alert(held, unsettled(&report)).await
            }
        }
    }

    /// A request that nobody answered may still be on its way, and a rail that gets it twice may well pay back twice. So it is
    /// written down before it is sent, and sent again only when the first one must have arrived and be seen.
    async fn refund(&self, held: &mut Held, charge: &Charge) -> Result<bool, Problem> {
        let patience = self.options().settle_delay;
        if let Some(sent_at) = held.transaction.value.refund_sent_at {
            let rest_us = Micros(sent_at).plus(micros(patience)).0 - self.engine_now().0;
            if let Ok(rest_us @ 1..) = u64::try_from(rest_us) {
                return self.let_go(held, Duration::from_micros(rest_us)).await;
            }
        }
        if !self.note_refund(held).await? {
            return Ok(false);
        }
        let rail = self.rail_of(&held.transaction.value);
        let refunded = rail.refund(charge, held.payment()).await;
        let reference = charge.refund_reference();
        held.transaction.value.refund_sent_at = None;
        match refunded {
            Refunded::Done { refund_id } => {
                failpoint::hit(Failpoint::AfterRefund);
                let undone = Undone::Refunded {
                    amount: charge.amount,
                    reference: &reference,
                    refund_id: refund_id.as_deref(),
                };
                self.end_undo(held, undone).await
            }
            Refunded::Refused(failure) => self.give_up_undo(held, failure).await,
            Refunded::Pending => self.let_go(held, self.options().sweep).await,
            Refunded::Unknown => {
                held.transaction.value.refund_sent_at = Some(self.engine_now().0);
                self.let_go_in_doubt(held, self.options().sweep.max(patience))
                    .await
            }
            Refunded::Lost => self.alert(held, LOST.to_owned()).await,
        }
    }

    /// Whether it is still ours to send.
    async fn note_refund(&self, held: &mut Held) -> Result<bool, Problem> {
        held.transaction.value.refund_sent_at = Some(self.engine_now().0);
        let steps = vec![
            held.transaction.unchanged(),
            held.extend(self.options().lease),
            held.transaction.put(),
        ];
        self.advance(held, steps).await
    }

    /// The refund's row and the transaction's come to their ends in one commit, with the second receipt.
    pub(super) async fn end_undo(
        &self,
        held: &mut Held,
        undone: Undone<'_>,
    ) -> Result<bool, Problem> {
        let now = self.now();
        let from = held.transaction.value.state()?;
        let asked = held.transaction.value.compensation.clone();
        let reason = asked.map_or_else(String::new, |asked| asked.reason);
        let receipt_id = ids::compensation(self.engine().entropy().draw());
        let signed = self.undone(&held.transaction, &receipt_id, from, &reason, undone, now)?;
        let transaction = &mut held.transaction.value;
        transaction.compensation_receipt = Some(raw(signed.text)?);
        transaction.enter(State::Compensated, now);
        let compensate = Command::compensate(Operate {
            id: transaction.row()?,
            face: Face::Transaction,
            reason,
        });
        let moves = vec![
            held.settle(Settlement::Deliver),
            held.settle(Settlement::Complete { result: None }),
            compensate,
        ];
        let receipt = books::put(books::receipt_key(&receipt_id), &held.belongs());
        self.give_back(held, moves, receipt).await
    }

    /// The rail will not pay back: the transaction stays as it is, and somebody may ask again.
    pub(super) async fn give_up_undo(
        &self,
        held: &mut Held,
        failure: Failure,
    ) -> Result<bool, Problem> {
        let Some(compensation) = &mut held.transaction.value.compensation else {
            return Err(damaged("compensation"));
        };
        compensation.refused = true;
        let key = IdempotencyKey::stored(&compensation.key);
        held.transaction.value.refunds_refused += 1;
        let asked = self.asked(&held.intent.intent_id, &key).await?;
        let mut asked = asked.ok_or_else(|| damaged("answer"))?;
        let error = failure.code.clone();
        // Kept with the request and not with the transaction, whose bytes change with its state alone.
        asked.value.failure = Some(failure);
        let steps = vec![
            held.transaction.unchanged(),
            asked.unchanged(),
            held.settle(Settlement::Reject { error }),
            held.transaction.put(),
            asked.put(),
        ];
        Ok(self.commit(steps).await?.is_some())
    }

    async fn close_undo(&self, held: &Held, error: &str) -> Result<bool, Problem> {
        let error = error.to_owned();
        let steps = vec![held.settle(Settlement::Reject { error })];
        Ok(self.commit(steps).await?.is_some())
    }

    /// Somebody looks at the row again later; nothing else changes.
    pub(super) async fn leave(&self, held: &Held) -> Result<bool, Problem> {
        let after_us = held.pause_us(self.options().sweep);
        let steps = vec![held.settle(Settlement::LetGo { after_us })];
        Ok(self.commit(steps).await?.is_some())
    }
}

impl Kept<Transaction> {
    fn is_undone_by(&self, row: &str) -> bool {
        let asked = self.value.compensation.as_ref();
        asked.is_some_and(|asked| asked.row == row) && self.value.is_being_undone()
    }

    /// Final when it is compensated or the rail has refused; until then its state is unchanged.
    fn undo_answer(mut self, asked: Asked) -> Result<Answer, Problem> {
        let open = self.is_undone_by(&asked.row);
        self.value.failure = asked.failure.or(self.value.failure);
        let answer = self.answer()?;
        let status = if open { 202 } else { 200 };
        Ok(Answer { status, ..answer })
    }
}
