//! Transactions whose caller executes the effects and reports them.
//!
//! Every change needs the row's lease, as with any rail, so concurrent reports are applied one after the other.

use consign_engine::{TRIES_MAX, UnitOfWork};
use tokio::time::Instant;

use super::views::{
    UserReceipt, UserStep, UserTransaction, UserTransactionAnswer, UserTransactionSteps,
};
use super::{ForUser, read_body};
use crate::document::{AtpDocument, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX, hash};
use crate::envelope::RequestOperation;
use crate::fields::DocumentFields;
use crate::instant;
use crate::key::IdempotencyKey;
use crate::money::Cents;
use crate::problem::Problem;
use crate::rail::{self, ReportedStatus};
use crate::request::{Compensate, Execute};
use crate::site::SiteCaller;
use crate::site::drive::LeasedTransaction;
use crate::site::execute::{LOOK_FIRST, LOOK_MAX, raw};
use crate::site::records::{ManualRecord, ReportedStep, StoredTransaction, TransactionRecord};

const ACTION_CHARS_MAX: usize = 200;
const ERROR_CHARS_MAX: usize = 2_000;
const SUMMARY_CHARS_MAX: usize = 1_000;
const REASON_CHARS_MAX: usize = 1_000;
/// Steps are part of the transaction's record, which is rewritten with each of them.
const STEPS_MAX: usize = 100;
const STEPS_BYTES_MAX: usize = VERIFY_BYTES_MAX;
const REASON_DEFAULT: &str = "compensated";

/// A report of the caller.
struct StatusReport {
    to: ReportedStatus,
    error: Option<String>,
    summary: Option<String>,
}

/// A leased transaction, or one in its final state.
enum TakenTransaction {
    Leased(Box<LeasedTransaction>),
    Ended(Box<StoredTransaction>),
}

impl ForUser {
    /// Begins a transaction once per key, whatever else the request contains.
    pub async fn begin(
        &self,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<UserTransactionAnswer, Problem> {
        let document = read_body(body)?;
        let key = IdempotencyKey::of_compat_request(key, &document)?;
        self.check_envelope(&document, RequestOperation::Execute)?;
        let request = Execute::read(&document)?;
        let this = self.clone();
        run_detached(async move { this.begin_once(&key, &request, &document).await }).await
    }

    async fn begin_once(
        &self,
        key: &IdempotencyKey,
        request: &Execute,
        document: &AtpDocument,
    ) -> Result<UserTransactionAnswer, Problem> {
        for _ in 0..TRIES_MAX {
            let permission = self.permission(&request.intent_id).await?;
            let known = self.site.transaction(&request.intent_id, key).await?;
            if let Some(known) = known {
                return Ok(UserTransactionAnswer {
                    replayed: true,
                    ..answer(&known)?
                });
            }
            let intent = permission.value.intent()?;
            let request = Execute {
                amount: Some(request.amount.unwrap_or(Cents::ZERO)),
                ..request.clone()
            };
            let allowed = self
                .site
                .check_allowed(&permission.value, &intent, &request);
            let amount = allowed?;
            self.site
                .check_not_ended(&permission.value, &intent)
                .await?;
            let mut transaction = self
                .site
                .new_transaction(&request, key, document, &intent, amount)?;
            // A request of an agent must never match this record, whatever its body.
            transaction.fingerprint.clear();
            rail::ManualRail::NAME.clone_into(&mut transaction.rail);
            transaction.manual = Some(ManualRecord {
                reported: ReportedStatus::Pending,
                error: None,
                started_at: None,
                settled_at: None,
                steps: Vec::new(),
            });
            let begun = self
                .site
                .commit_begin(permission, intent, key, transaction)
                .await?;
            if let Some(mut held) = begun {
                // No process drives it, so the lease is released. If that fails, the transaction is begun all the same and
                // the lease expires.
                let pause = self.site.pause(&held);
                let _ = self.site.release(&mut held, pause).await;
                return answer(&held.transaction);
            }
        }
        Err(Problem::StoreUnavailable)
    }

    pub async fn transaction_shown(&self, id: &str) -> Result<UserTransactionSteps, Problem> {
        let transaction = self.transaction(id).await?;
        Ok(UserTransactionSteps {
            transaction: UserTransaction::of(&transaction)?,
            steps: UserStep::all_of(&transaction)?,
        })
    }

    /// Stores a step; it becomes part of the receipt.
    pub async fn step(&self, id: &str, body: &[u8]) -> Result<UserStep, Problem> {
        let step = self.read_step(&AtpDocument::read(body, REQUEST_BYTES_MAX)?)?;
        let (this, id) = (self.clone(), id.to_owned());
        run_detached(async move { this.add_step(&id, step).await }).await
    }

    async fn add_step(&self, id: &str, step: ReportedStep) -> Result<UserStep, Problem> {
        let mut held = match self.hold(id).await? {
            TakenTransaction::Leased(held) => *held,
            TakenTransaction::Ended(known) => {
                let state = known.value.state()?;
                return Err(Problem::InvalidState { state });
            }
        };
        let noted = held.push_step(step);
        let pause = self.site.pause(&held);
        let let_go = self.site.release(&mut held, pause).await?;
        noted?;
        if !let_go {
            return Err(Problem::StoreUnavailable);
        }
        let steps = UserStep::all_of(&held.transaction)?;
        steps.into_iter().next_back().ok_or(Problem::InternalError)
    }

    fn read_step(&self, document: &AtpDocument) -> Result<ReportedStep, Problem> {
        let fields = DocumentFields::of(document);
        let action = fields.text("action", 1..=ACTION_CHARS_MAX)?;
        let member = |name| {
            let text = fields.get(name).map(|value| value.text().to_owned());
            text.map(raw).transpose()
        };
        Ok(ReportedStep {
            action: fields.need("action", action)?,
            at: self.site.now().0,
            evidence: member("evidence")?,
            before: member("before")?,
            after: member("after")?,
            compensation: member("compensation")?,
        })
    }

    /// Reports progress. Repeating a report changes nothing.
    pub async fn transition(
        &self,
        id: &str,
        body: &[u8],
    ) -> Result<UserTransactionAnswer, Problem> {
        let asked = StatusReport::read(&read_body(body)?)?;
        let known = self.transaction(id).await?;
        let from = known.status()?;
        if from == asked.to {
            return answer(&known);
        }
        from.check_move(asked.to)?;
        match asked.to {
            ReportedStatus::Compensated => self.undo(known, asked.summary).await,
            ReportedStatus::Pending
            | ReportedStatus::Executing
            | ReportedStatus::Executed
            | ReportedStatus::Settled
            | ReportedStatus::Failed => {
                let (this, id) = (self.clone(), id.to_owned());
                run_detached(async move { this.apply_report(&id, asked).await }).await
            }
        }
    }

    async fn apply_report(
        &self,
        id: &str,
        asked: StatusReport,
    ) -> Result<UserTransactionAnswer, Problem> {
        let to = asked.to;
        let mut held = match self.hold(id).await? {
            TakenTransaction::Leased(held) => *held,
            TakenTransaction::Ended(known) => return known.repeated(to),
        };
        let from = held.transaction.status()?;
        if from == to || !from.may_become(to) {
            let pause = self.site.pause(&held);
            self.site.release(&mut held, pause).await?;
            return held.transaction.repeated(to);
        }
        held.report(asked, &instant::print(self.site.now()));
        let begun = held.transaction.clone();
        self.site.drive(held).await;
        // From here on, the caller can no longer report that nothing happened.
        let now = self.site.reload(&begun).await;
        let now = now.map_err(|_| Problem::StoreUnsure)?;
        if now.status()? == to {
            return answer(&now);
        }
        Err(Problem::StoreUnsure)
    }

    pub async fn compensate(
        &self,
        id: &str,
        body: &[u8],
    ) -> Result<UserTransactionAnswer, Problem> {
        let request = read_body(body)?;
        self.check_envelope(&request, RequestOperation::Compensate)?;
        let reason = DocumentFields::of(&request).text("reason", 0..=REASON_CHARS_MAX)?;
        let known = self.transaction(id).await?;
        self.undo(known, reason).await
    }

    /// Compensates through the protocol's own operation. The key is derived from the transaction and the reason, so the same
    /// request is a repetition, and one with another reason is refused.
    async fn undo(
        &self,
        known: StoredTransaction,
        reason: Option<String>,
    ) -> Result<UserTransactionAnswer, Problem> {
        match known.status()? {
            ReportedStatus::Failed => return self.close(known).await,
            // Closed before: the transaction had failed, and no compensation was requested.
            ReportedStatus::Compensated if known.value.compensation.is_none() => {
                return answer(&known);
            }
            from @ (ReportedStatus::Pending | ReportedStatus::Executing) => {
                from.check_move(ReportedStatus::Compensated)?;
            }
            ReportedStatus::Executed | ReportedStatus::Settled | ReportedStatus::Compensated => {}
        }
        let reason = reason.filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| REASON_DEFAULT.to_owned());
        let id = known.value.id();
        let key = IdempotencyKey::stored(format!("compat:{id}:{}", hash(reason.as_bytes())));
        let body = serde_json::json!({
            "intent_id": known.intent_id(),
            "transaction_id": id,
            "reason": reason,
        });
        let document = AtpDocument::read(body.to_string().as_bytes(), usize::MAX)?;
        let request = Compensate::read(&document)?;
        let caller = SiteCaller::User(&self.user);
        self.site
            .compensate_for(caller, &key, &request, &document)
            .await?;
        let now = self.site.reload(&known).await;
        answer(&now.map_err(|_| Problem::StoreUnsure)?)
    }

    /// A failed transaction already has its compensation receipt; only the reported status changes.
    async fn close(&self, mut known: StoredTransaction) -> Result<UserTransactionAnswer, Problem> {
        for _ in 0..TRIES_MAX {
            if let Some(manual) = &mut known.value.manual {
                manual.reported = ReportedStatus::Compensated;
            }
            let mut unit = UnitOfWork::default();
            unit.replace(&known);
            if self.site.commit(unit).await?.is_some() {
                return answer(&known);
            }
            known = self.site.reload(&known).await?;
        }
        Err(Problem::StoreUnavailable)
    }

    /// The receipt of the final state; every read returns the same.
    pub async fn receipt(&self, id: &str) -> Result<UserReceipt, Problem> {
        let transaction = self.transaction(id).await?;
        let state = transaction.value.state()?;
        UserReceipt::of(&transaction, state).ok_or(Problem::InvalidState { state })
    }

    /// Takes the row, waiting for its current lease holder.
    async fn hold(&self, id: &str) -> Result<TakenTransaction, Problem> {
        let until = Instant::now() + self.site.options().execute_wait;
        let mut pause = LOOK_FIRST;
        loop {
            let known = self.transaction(id).await?;
            known.manual()?;
            if known.value.state()?.is_terminal() {
                return Ok(TakenTransaction::Ended(Box::new(known)));
            }
            if let Some(row) = self.site.take(known.value.row()?).await? {
                let held = self.site.load_leased(row).await?;
                return Ok(TakenTransaction::Leased(Box::new(held)));
            }
            if Instant::now() + pause >= until {
                return Err(Problem::StoreUnavailable);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

impl StatusReport {
    fn read(document: &AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(document);
        let wanted = "executing, executed, settled, failed or compensated";
        let to = fields.read("to", wanted, |value| {
            let to = ReportedStatus::parse(&value.as_str()?)?;
            (to != ReportedStatus::Pending).then_some(to)
        })?;
        Ok(Self {
            to: fields.need("to", to)?,
            error: fields.text("error", 0..=ERROR_CHARS_MAX)?,
            summary: fields.text("summary", 0..=SUMMARY_CHARS_MAX)?,
        })
    }
}

impl ReportedStatus {
    fn check_move(self, to: Self) -> Result<(), Problem> {
        let (from, target) = (self.word(), to.word());
        if self.may_become(to) {
            return Ok(());
        }
        Err(Problem::IllegalMove { from, to: target })
    }
}

impl StoredTransaction {
    /// The answer to a report that changes nothing because the row already has this status.
    fn repeated(&self, to: ReportedStatus) -> Result<UserTransactionAnswer, Problem> {
        let from = self.status()?;
        if from != to {
            from.check_move(to)?;
        }
        answer(self)
    }
}

impl LeasedTransaction {
    fn push_step(&mut self, step: ReportedStep) -> Result<(), Problem> {
        let size = |step: &ReportedStep| {
            let ReportedStep {
                evidence,
                before,
                after,
                compensation,
                ..
            } = step;
            let members = [evidence, before, after, compensation];
            let members = members.into_iter().flatten();
            members.map(|member| member.get().len()).sum::<usize>()
        };
        let manual = self.transaction.value.manual.as_mut();
        let manual = manual.ok_or(Problem::Forbidden)?;
        let kept: usize = manual.steps.iter().map(size).sum();
        if manual.steps.len() >= STEPS_MAX || kept + size(&step) > STEPS_BYTES_MAX {
            return Err(Problem::PayloadTooLarge {
                max_bytes: STEPS_BYTES_MAX,
            });
        }
        manual.steps.push(step);
        Ok(())
    }

    fn report(&mut self, asked: StatusReport, now: &str) {
        let TransactionRecord {
            manual,
            summary,
            updated_at,
            ..
        } = &mut self.transaction.value;
        now.clone_into(updated_at);
        if asked.summary.is_some() {
            *summary = asked.summary;
        }
        if let Some(manual) = manual {
            manual.reported = asked.to;
            if asked.error.is_some() {
                manual.error = asked.error;
            }
            match asked.to {
                ReportedStatus::Executing => manual.started_at = Some(now.to_owned()),
                ReportedStatus::Settled => manual.settled_at = Some(now.to_owned()),
                ReportedStatus::Pending
                | ReportedStatus::Executed
                | ReportedStatus::Failed
                | ReportedStatus::Compensated => {}
            }
        }
    }
}

/// Runs to completion even if the caller disconnects, so that no row stays leased.
async fn run_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::spawn(work).await;
    done.map_err(|_| Problem::InternalError)?
}

fn answer(transaction: &StoredTransaction) -> Result<UserTransactionAnswer, Problem> {
    Ok(UserTransactionAnswer {
        transaction: UserTransaction::of(transaction)?,
        replayed: false,
    })
}
