//! Transactions whose caller takes the effects and reports them.
//!
//! Every change is made by one who holds the row, as with any rail, so reports that come at once come one after the other.

use tokio::time::Instant;

use super::{ForUser, enveloped, read_body};
use crate::document::{Document, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX, hash};
use crate::envelope::Operation;
use crate::fields::Fields;
use crate::instant;
use crate::key::IdempotencyKey;
use crate::money::Cents;
use crate::problem::Problem;
use crate::rail::{self, Reported};
use crate::request::{Compensate, Execute};
use crate::site::answer::print;
use crate::site::books::{Kept, Manual, Noted, Transaction};
use crate::site::carry::Held;
use crate::site::execute::{LOOK_FIRST, LOOK_MAX, raw};
use crate::site::{Answer, Caller, TRIES_MAX};

const ACTION_CHARS_MAX: usize = 200;
const ERROR_CHARS_MAX: usize = 2_000;
const SUMMARY_CHARS_MAX: usize = 1_000;
const REASON_CHARS_MAX: usize = 1_000;
/// Steps lie in the transaction's record, which is written anew with each of them.
const STEPS_MAX: usize = 100;
const STEPS_BYTES_MAX: usize = VERIFY_BYTES_MAX;
const REASON_DEFAULT: &str = "compensated";

/// What the caller says.
struct Move {
    to: Reported,
    error: Option<String>,
    summary: Option<String>,
}

/// A transaction in our hands, or one that has come to its end.
enum Taken {
    Held(Box<Held>),
    Over(Box<Kept<Transaction>>),
}

impl ForUser {
    /// Once for each key, whatever else the request says.
    pub async fn begin(&self, key: Option<&[u8]>, body: &[u8]) -> Result<Answer, Problem> {
        let document = read_body(body)?;
        let key = IdempotencyKey::of_compat_request(key, &document)?;
        self.check_meant(&document, Operation::Execute)?;
        let request = Execute::read(&document)?;
        let this = self.clone();
        whoever_waits(async move { this.begin_once(&key, &request, &document).await }).await
    }

    async fn begin_once(
        &self,
        key: &IdempotencyKey,
        request: &Execute,
        document: &Document,
    ) -> Result<Answer, Problem> {
        for _ in 0..TRIES_MAX {
            let permission = self.permission(&request.intent_id).await?;
            let known = self.site.transaction(&request.intent_id, key).await?;
            if let Some(known) = known {
                return Ok(answer(&known)?.replayed(true));
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
            let mut transaction = self.site.begun(&request, key, document, &intent, amount)?;
            // A request of an agent is never this one, whatever it says.
            transaction.fingerprint.clear();
            rail::Manual::NAME.clone_into(&mut transaction.rail);
            transaction.manual = Some(Manual {
                reported: Reported::Pending,
                error: None,
                started_at: None,
                settled_at: None,
                steps: Vec::new(),
            });
            let begun = self
                .site
                .begin(permission, intent, key, transaction)
                .await?;
            if let Some(mut held) = begun {
                // Nobody works on it, so nobody shall hold it. If this fails, it is begun all the same, and the lease ends by
                // itself.
                let pause = self.site.pause(&held);
                let _ = self.site.let_go(&mut held, pause).await;
                return answer(&held.transaction);
            }
        }
        Err(Problem::StoreUnavailable)
    }

    pub async fn transaction_shown(&self, id: &str) -> Result<Answer, Problem> {
        let transaction = self.transaction(id).await?;
        let mut shown = transaction.transaction_shown()?;
        shown["steps"] = transaction.steps_shown()?.into();
        Ok(enveloped(&shown).at(transaction.value.state()?))
    }

    /// Notes down what was done. It will stand in the receipt.
    pub async fn step(&self, id: &str, body: &[u8]) -> Result<Answer, Problem> {
        let step = self.read_step(&Document::read(body, REQUEST_BYTES_MAX)?)?;
        let (this, id) = (self.clone(), id.to_owned());
        whoever_waits(async move { this.noted(&id, step).await }).await
    }

    async fn noted(&self, id: &str, step: Noted) -> Result<Answer, Problem> {
        let mut held = match self.hold(id).await? {
            Taken::Held(held) => *held,
            Taken::Over(known) => {
                let state = known.value.state()?;
                return Err(Problem::InvalidState { state });
            }
        };
        let noted = held.note(step);
        let pause = self.site.pause(&held);
        let let_go = self.site.let_go(&mut held, pause).await?;
        noted?;
        if !let_go {
            return Err(Problem::StoreUnavailable);
        }
        let steps = held.transaction.steps_shown()?;
        let last = steps.last().ok_or(Problem::InternalError)?;
        Ok(enveloped(last))
    }

    fn read_step(&self, document: &Document) -> Result<Noted, Problem> {
        let fields = Fields::of(document);
        let action = fields.text("action", 1..=ACTION_CHARS_MAX)?;
        let member = |name| {
            let text = fields.get(name).map(|value| value.text().to_owned());
            text.map(raw).transpose()
        };
        Ok(Noted {
            action: fields.need("action", action)?,
            at: self.site.now().0,
            evidence: member("evidence")?,
            before: member("before")?,
            after: member("after")?,
            compensation: member("compensation")?,
        })
    }

    /// The caller says how far it is. Saying the same again changes nothing.
    pub async fn transition(&self, id: &str, body: &[u8]) -> Result<Answer, Problem> {
        let asked = Move::read(&read_body(body)?)?;
        let known = self.transaction(id).await?;
        let from = known.status()?;
        if from == asked.to {
            return answer(&known);
        }
        from.check_move(asked.to)?;
        match asked.to {
            Reported::Compensated => self.undo(known, asked.summary).await,
            Reported::Pending
            | Reported::Executing
            | Reported::Executed
            | Reported::Settled
            | Reported::Failed => {
                let (this, id) = (self.clone(), id.to_owned());
                whoever_waits(async move { this.follow_up(&id, asked).await }).await
            }
        }
    }

    async fn follow_up(&self, id: &str, asked: Move) -> Result<Answer, Problem> {
        let to = asked.to;
        let mut held = match self.hold(id).await? {
            Taken::Held(held) => *held,
            Taken::Over(known) => return known.repeated(to),
        };
        let from = held.transaction.status()?;
        if from == to || !from.may_become(to) {
            let pause = self.site.pause(&held);
            self.site.let_go(&mut held, pause).await?;
            return held.transaction.repeated(to);
        }
        held.report(asked, &instant::print(self.site.now()));
        let begun = held.transaction.clone();
        self.site.carry(held).await;
        // From here on nobody can say that nothing happened.
        let now = self.site.again(&begun).await;
        let now = now.map_err(|_| Problem::StoreUnsure)?;
        if now.status()? == to {
            return answer(&now);
        }
        Err(Problem::StoreUnsure)
    }

    pub async fn compensate(&self, id: &str, body: &[u8]) -> Result<Answer, Problem> {
        let request = read_body(body)?;
        self.check_meant(&request, Operation::Compensate)?;
        let reason = Fields::of(&request).text("reason", 0..=REASON_CHARS_MAX)?;
        let known = self.transaction(id).await?;
        self.undo(known, reason).await
    }

    /// By way of the protocol's own compensation. The transaction and the reason make the key, so the same request again is
    /// a repetition, and another one comes too late.
    async fn undo(
        &self,
        known: Kept<Transaction>,
        reason: Option<String>,
    ) -> Result<Answer, Problem> {
        match known.status()? {
            Reported::Failed => return self.close(known).await,
            // Closed before: it had failed, and nothing was asked of the protocol.
            Reported::Compensated if known.value.compensation.is_none() => return answer(&known),
            from @ (Reported::Pending | Reported::Executing) => {
                from.check_move(Reported::Compensated)?;
            }
            Reported::Executed | Reported::Settled | Reported::Compensated => {}
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
        let document = Document::read(print(&body).as_bytes(), usize::MAX)?;
        let request = Compensate::read(&document)?;
        let caller = Caller::User(&self.user);
        self.site
            .compensate_for(caller, &key, &request, &document)
            .await?;
        let now = self.site.again(&known).await;
        answer(&now.map_err(|_| Problem::StoreUnsure)?)
    }

    /// What failed has its compensation receipt already; it is only called by its other name from now on.
    async fn close(&self, mut known: Kept<Transaction>) -> Result<Answer, Problem> {
        for _ in 0..TRIES_MAX {
            if let Some(manual) = &mut known.value.manual {
                manual.reported = Reported::Compensated;
            }
            let steps = vec![known.unchanged(), known.put()];
            if self.site.commit(steps).await?.is_some() {
                return answer(&known);
            }
            known = self.site.again(&known).await?;
        }
        Err(Problem::StoreUnavailable)
    }

    /// The receipt of its end, the same whenever it is asked for.
    pub async fn receipt(&self, id: &str) -> Result<Answer, Problem> {
        let transaction = self.transaction(id).await?;
        let state = transaction.value.state()?;
        match transaction.receipt_data()? {
            Some(data) => Ok(enveloped(&data).at(state)),
            None => Err(Problem::InvalidState { state }),
        }
    }

    /// Takes the row, waiting for whoever has it at the moment.
    async fn hold(&self, id: &str) -> Result<Taken, Problem> {
        let until = Instant::now() + self.site.options().execute_wait;
        let mut pause = LOOK_FIRST;
        loop {
            let known = self.transaction(id).await?;
            known.manual()?;
            if known.value.state()?.is_terminal() {
                return Ok(Taken::Over(Box::new(known)));
            }
            if let Some(row) = self.site.take(known.value.row()?).await? {
                let held = self.site.held(row).await?;
                return Ok(Taken::Held(Box::new(held)));
            }
            if Instant::now() + pause >= until {
                return Err(Problem::StoreUnavailable);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

impl Move {
    fn read(document: &Document) -> Result<Self, Problem> {
        let fields = Fields::of(document);
        let wanted = "executing, executed, settled, failed or compensated";
        let to = fields.read("to", wanted, |value| {
            let to = Reported::parse(&value.as_str()?)?;
            (to != Reported::Pending).then_some(to)
        })?;
        Ok(Self {
            to: fields.need("to", to)?,
            error: fields.text("error", 0..=ERROR_CHARS_MAX)?,
            summary: fields.text("summary", 0..=SUMMARY_CHARS_MAX)?,
        })
    }
}

impl Reported {
    fn check_move(self, to: Self) -> Result<(), Problem> {
        let (from, told) = (self.word(), to.word());
        if self.may_become(to) {
            return Ok(());
        }
        Err(Problem::IllegalMove { from, to: told })
    }
}

impl Kept<Transaction> {
    /// To a report that changes nothing: the row, if it is there already, by whatever copy of the report.
    fn repeated(&self, to: Reported) -> Result<Answer, Problem> {
        let from = self.status()?;
        if from != to {
            from.check_move(to)?;
        }
        answer(self)
    }
}

impl Held {
    fn note(&mut self, step: Noted) -> Result<(), Problem> {
        let size = |step: &Noted| {
            let Noted {
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

    fn report(&mut self, asked: Move, now: &str) {
        let Transaction {
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
                Reported::Executing => manual.started_at = Some(now.to_owned()),
                Reported::Settled => manual.settled_at = Some(now.to_owned()),
                Reported::Pending
                | Reported::Executed
                | Reported::Failed
                | Reported::Compensated => {}
            }
        }
    }
}

/// Goes on to its end when the caller is gone, lest a row stay held.
async fn whoever_waits(
    work: impl Future<Output = Result<Answer, Problem>> + Send + 'static,
) -> Result<Answer, Problem> {
    let done = tokio::spawn(work).await;
    done.map_err(|_| Problem::InternalError)?
}

fn answer(transaction: &Kept<Transaction>) -> Result<Answer, Problem> {
    let shown = transaction.transaction_shown()?;
    Ok(enveloped(&shown).at(transaction.value.state()?))
}
