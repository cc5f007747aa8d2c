//! `POST /compensate`: a settled or executed transaction is undone on request, once.
//!
//! The refund is an effect of its own, so it has a row of its own: held by one at a time, found again after a crash, and
//! committed together with the end of the transaction that it undoes.

use consign_kernel::command::{self, Command, Operate, Settlement};
use consign_kernel::profile::Face;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::books::{self, About, Compensation, Kept, Permission, Transaction};
use super::carry::Held;
use super::execute::raw;
use super::{Answer, Caller, Site, TRIES_MAX, damaged};
use crate::document::{Document, NOTE_BYTES_MAX};
use crate::ids;
use crate::instant;
use crate::key::IdempotencyKey;
use crate::problem::Problem;
use crate::rail::{Charge, Failure, Fenced, Refunded};
use crate::receipt::Undone;
use crate::request::Compensate;
use crate::state::State;

/// A permission may have a thousand executions; whoever has several says which one is meant.
const CANDIDATES: u32 = 2;

impl Site {
    pub async fn compensate(&self, key: Option<&[u8]>, body: &[u8]) -> Result<Answer, Problem> {
        let document = Document::read(body, NOTE_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
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
            let transaction = self.meant(request, &permission).await?;
            if let Some(asked) = transaction.value.asked_before(key, document)? {
                return self.undone_before(transaction, &asked, until).await;
            }
            if matches!(caller, Caller::Agent) {
                let intent = permission.value.intent()?;
                intent.check_request(document, self.options().signed_requests)?;
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
            if let Some(held) = begun {
                return self.undo_carried(held, place, until).await;
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
                permission.value.check_unexpired(&intent, self.now())?;
                let state = permission.value.state(&intent, self.now());
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
    ) -> Result<Option<Held>, Problem> {
        let id = self.fresh_id();
        transaction.value.compensation = Some(Compensation {
            key: key.reveal().to_owned(),
            fingerprint: document.fingerprint(),
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
            transaction.put(),
            books::begin_effect(id, &about, Some(parent), self.hold()),
        ];
        let Some(mut answers) = self.commit(steps).await? else {
            return Ok(None);
        };
        let Some(command::Answer::Begun(row)) = answers.pop() else {
            return Err(damaged("answer"));
        };
        transaction.version += 1;
        Ok(Some(Held {
            row: *row,
            intent: permission.value.intent()?,
            authorized_at: permission.value.authorized_at,
            key: IdempotencyKey::stored(about.key),
            transaction,
            is_fresh: true,
        }))
    }

    async fn undo_carried(
        &self,
        held: Held,
        place: OwnedSemaphorePermit,
        until: Instant,
    ) -> Result<Answer, Problem> {
        let begun = held.transaction.clone();
        let site = self.clone();
        let task = tokio::spawn(async move {
            site.carry_undo(held).await;
            drop(place);
        });
        let _ = tokio::time::timeout_at(until, task).await;
        self.again(&begun).await?.undo_answer()
    }

    /// The same request again: waits for its end as the first one does.
    async fn undone_before(
        &self,
        mut transaction: Kept<Transaction>,
        asked: &Compensation,
        until: Instant,
    ) -> Result<Answer, Problem> {
        let pause = std::time::Duration::from_millis(50);
        while transaction.is_being_undone(&asked.row) && Instant::now() + pause < until {
            tokio::time::sleep(pause).await;
            transaction = self.again(&transaction).await?;
        }
        Ok(transaction.undo_answer()?.replayed(true))
    }

    /// As far as it goes now.
    pub(super) async fn carry_undo(&self, mut held: Held) {
        let transaction_id = held.transaction.value.id();
        if let Err(problem) = self.undo(&mut held).await {
            tracing::warn!(transaction_id, %problem, "a refund waits for the next sweep");
        }
    }

    async fn undo(&self, held: &mut Held) -> Result<bool, Problem> {
        let charge = held.transaction.value.charge(&held.intent)?;
        let rail = self.rail_of(&held.transaction.value);
        if held.transaction.value.state()? == State::Executed {
            match rail.cancel(&charge, held.payment()).await {
                Fenced::Cancelled => return self.end_undo(held, Undone::Voided).await,
                Fenced::Unknown => return self.undo_later(held).await,
                Fenced::TooLate => {}
            }
        }
        self.refund(held, &charge).await
    }

    async fn refund(&self, held: &mut Held, charge: &Charge) -> Result<bool, Problem> {
        let rail = self.rail_of(&held.transaction.value);
        match rail.refund(charge, held.payment()).await {
            Refunded::Done { refund_id } => {
                let undone = Undone::Refunded {
                    amount: charge.amount,
                    refund_id: refund_id.as_deref(),
                };
                self.end_undo(held, undone).await
            }
            Refunded::Refused(failure) => self.give_up_undo(held, failure).await,
            Refunded::Pending | Refunded::Unknown => self.undo_later(held).await,
        }
    }

    /// The refund's row and the transaction's come to their ends in one commit, with the second receipt.
    async fn end_undo(&self, held: &mut Held, undone: Undone<'_>) -> Result<bool, Problem> {
        let now = self.now();
        let from = held.transaction.value.state()?;
        let asked = held.transaction.value.compensation.clone();
        let reason = asked.map_or_else(String::new, |asked| asked.reason);
        let receipt_id = ids::compensation(self.engine().entropy().draw());
        let signed = self.undone(&held.transaction, &receipt_id, from, &reason, undone, now)?;
        let transaction = &mut held.transaction.value;
        transaction.compensation_receipt = Some(raw(signed.text)?);
        transaction.enter(State::Compensated, now);
        let compensate = Command::Compensate(Operate {
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
    async fn give_up_undo(&self, held: &mut Held, failure: Failure) -> Result<bool, Problem> {
        let error = failure.code.clone();
        let transaction = &mut held.transaction.value;
        transaction.failure = Some(failure);
        transaction.updated_at = instant::print(self.now());
        if let Some(asked) = &mut transaction.compensation {
            asked.refused = true;
        }
        let steps = vec![
            held.transaction.unchanged(),
            held.settle(Settlement::Reject { error }),
            held.transaction.put(),
        ];
        Ok(self.commit(steps).await?.is_some())
    }

    async fn undo_later(&self, held: &Held) -> Result<bool, Problem> {
        let after_us = super::micros(self.options().sweep);
        let steps = vec![held.settle(Settlement::LetGo { after_us })];
        Ok(self.commit(steps).await?.is_some())
    }
}

impl Transaction {
    /// What was asked for under this key. Under another one it was asked for before, unless the rail refused that.
    fn asked_before(
        &self,
        key: &IdempotencyKey,
        document: &Document,
    ) -> Result<Option<Compensation>, Problem> {
        match &self.compensation {
            Some(asked) if asked.key == key.reveal() => {
                if asked.fingerprint == document.fingerprint() {
                    Ok(Some(asked.clone()))
                } else {
                    Err(Problem::IdempotencyMismatch)
                }
            }
            Some(asked) if !asked.refused => Err(Problem::AlreadyCompensated),
            _ => Ok(None),
        }
    }
}

impl Kept<Transaction> {
    fn is_being_undone(&self, row: &str) -> bool {
        let same = |asked: &Compensation| asked.row == row && !asked.refused;
        let asked = self.value.compensation.as_ref().is_some_and(same);
        asked && self.value.state != State::Compensated.word()
    }

    /// Final when it is compensated or the rail has refused; until then its state is unchanged.
    fn undo_answer(&self) -> Result<Answer, Problem> {
        let answer = self.answer()?;
        let row = self.value.compensation.as_ref().map(|asked| &asked.row);
        let open = row.is_some_and(|row| self.is_being_undone(row));
        let status = if open { 202 } else { 200 };
        Ok(Answer { status, ..answer })
    }
}
