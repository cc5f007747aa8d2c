//! The effect is an intent in the same ledger: a worker of the Intent Protocol executes it, or a plugin that serves its goal.
//!
//! Invariant: an effect is handed out once. The report of a worker is trusted; a lost worker may have executed the effect, so
//! that outcome stays unknown until an operator resolves it, see [`crate::site::Site::resolve`]. An effect that is cancelled
//! before it is published is never published.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, Publication, PublicationKey, UnitOfWork, new_put};
use consign_kernel::ids::{DAY_US, IntentId};
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::record::{Key, Kind};
use consign_kernel::state::{Cause, State, Verb};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFailure, RailFuture, RailReport,
    RefundOutcome,
};
use crate::ids;
use crate::outcome::RailOutcome;
use crate::problem::Problem;

const NAMESPACE: &str = "default";
/// An effect that is not done within a month is given up.
const LIFE_US: i64 = 30 * DAY_US;
/// Longer than any intent lives, so that an effect is published once.
const ONCE_US: i64 = 365 * DAY_US;
/// A transaction has one effect and a few refunds at most, of which all but the last were refused.
const CHILDREN_MAX: u32 = 64;
/// The suffix of a refund's goal; the goal of an effect must not end with it.
const REFUND: &str = ".refund";
/// The delay after a read that failed.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest interval between two polls, during a call and after it: every row under the main key causes notifications.
const SOON: Duration = Duration::from_millis(5);
const CALMLY: Duration = Duration::from_millis(250);
/// How long an effect is watched after the call that published it. The sweep finds the others.
const WATCH: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub struct Options {
    /// The goal of effects; refunds have it with the suffix `.refund`.
    pub goal: String,
    /// How long a call waits for the worker.
    pub wait: Duration,
    /// Receives the references of transactions that have changed.
    pub changes: mpsc::Sender<String>,
    /// How many effects are watched concurrently.
    pub watched_max: usize,
}

#[derive(Clone)]
pub struct WorkerRail {
    engine: Engine,
    goal: String,
    wait: Duration,
    changes: mpsc::Sender<String>,
    watchers: Arc<Semaphore>,
}

impl std::fmt::Debug for WorkerRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerRail")
            .field("goal", &self.goal)
            .finish_non_exhaustive()
    }
}

impl WorkerRail {
    pub const NAME: &str = "worker";

    pub fn new(engine: Engine, options: Options) -> Self {
        Self {
            engine,
            goal: options.goal,
            wait: options.wait,
            changes: options.changes,
            watchers: Arc::new(Semaphore::new(options.watched_max)),
        }
    }

    fn refund_goal(&self) -> String {
        format!("{}{REFUND}", self.goal)
    }

    /// The intent that was published for a charge, whatever its goal was then.
    async fn effect(&self, charge: &Charge) -> Result<Option<Intent>, ()> {
        let mut children = self.published(charge).await?.into_iter();
        Ok(children.find(|row| !row.goal.ends_with(REFUND)))
    }

    /// The intent of its refund that no worker has failed yet.
    async fn latest_refund(&self, charge: &Charge) -> Result<Option<Intent>, ()> {
        let children = self.published(charge).await?.into_iter();
        let mut refunds = children.filter(|row| row.goal.ends_with(REFUND));
        let refused = usize::try_from(charge.refunds_refused).unwrap_or(usize::MAX);
        Ok(refunds.nth(refused))
    }

    async fn published(&self, charge: &Charge) -> Result<Vec<Intent>, ()> {
        let parent = parent(charge).ok_or(())?;
        let children = self.engine.children(parent, CHILDREN_MAX).await;
        let mut children = children.map_err(|error| {
            tracing::warn!(%error, "could not read the outcome of an effect");
        })?;
        children.retain(|row| row.profile == ProfileId::Intent);
        Ok(children)
    }

    async fn publish(&self, charge: &Charge, goal: &str, key: String) -> Option<IntentId> {
        let payload = json!({
            "reference": charge.reference.as_str(),
            "intent_id": charge.intent_id,
            "transaction_id": charge.transaction_id,
            "amount_cents": charge.amount,
            "currency": charge.currency,
            "action": charge.action,
            "summary": charge.summary,
            "payment_method": charge.payment_method,
        });
        let payload = payload.to_string();
        let mut unit = UnitOfWork::default();
        let published = unit.publish(Publication {
            goal: goal.to_owned(),
            namespace: NAMESPACE.to_owned(),
            once: Some(PublicationKey {
                key,
                fingerprint: Sha256::digest(&payload).into(),
                lifetime_us: ONCE_US,
            }),
            payload,
            // A worker that lost its lease may have executed it.
            attempts_max: 1,
            backoff_us: 0,
            ttl_us: LIFE_US,
            parent: parent(charge),
        });
        // A fence does not stop a refund.
        if goal == self.goal {
            unit.expect(fence(charge), 0);
        }
        let committed = self.engine.commit(unit).await;
        match committed.and_then(|mut committed| committed.get(published)) {
            Ok(admitted) => admitted.first().map(|one| one.id),
            Err(error) => {
                tracing::warn!(%error, "an effect was not published");
                None
            }
        }
    }

    /// Fences the effect off: no one publishes it from now on, not even a call that is already on its way.
    async fn fence_off(&self, charge: &Charge) -> Result<(), ()> {
        let fenced = self.engine.put(new_put(fence(charge), &json!({}))).await;
        fenced.map(drop).map_err(|error| {
            tracing::warn!(%error, "an effect could not be fenced off");
        })
    }

    /// If a worker claims it first, its row shows the claim.
    async fn take_back(&self, id: IntentId) {
        let reason = "the transaction ended without this effect";
        if let Err(error) = self.engine.withdraw(id, reason).await {
            tracing::info!(%error, "an effect could not be withdrawn");
        }
    }

    /// The report of a row, without waiting.
    async fn report(&self, row: &Intent) -> RailReport {
        let report = |outcome| RailReport::of(outcome).with_payment_id(row.id.to_string());
        let failed = |code: &str, why: &str| report(RailOutcome::Failed).with_failure(code, why);
        let why = row.last_error.as_deref().unwrap_or_default();
        match (row.state, row.cause) {
            (State::Acked, _) => report(RailOutcome::Succeeded),
            // A worker that had claimed it may have executed it all the same.
            (State::DeadLetter, Cause::Cancelled) if row.attempts == 0 => failed("cancelled", why),
            (State::Queued, _) if row.attempts == 0 && row.expires_at <= self.engine.now() => {
                failed("nobody_took_it", "no worker took it in time")
            }
            (State::DeadLetter, _) => match self.worker_said_so(row).await {
                Some(true) => failed("worker_failed", why),
                Some(false) => report(RailOutcome::Lost),
                None => report(RailOutcome::Unknown),
            },
            _ => report(RailOutcome::Unknown),
        }
    }

    /// Whether a worker reported the failure, in contrast to an expired lease.
    async fn worker_said_so(&self, row: &Intent) -> Option<bool> {
        let facts = self.engine.timeline(row.seq).await.ok()?;
        let died = facts.iter().rev().find(|fact| fact.to == State::DeadLetter);
        died.map(|fact| fact.verb == Verb::Fail)
    }

    async fn look(&self, id: IntentId) -> RailReport {
        self.look_for_end(id).await.0
    }

    /// The report on an effect, and whether it may still change.
    async fn look_for_end(&self, id: IntentId) -> (RailReport, bool) {
        let named = |outcome| RailReport::of(outcome).with_payment_id(id.to_string());
        match self.engine.observe(id).await {
            // An intent whose worker was lost is dead; only an operator knows more.
            Ok(Some(row)) => (self.report(&row).await, row.settled_at.is_none()),
            // The row is removed; its outcome is lost.
            Ok(None) => (named(RailOutcome::Lost), false),
            Err(error) => {
                tracing::warn!(%error, "could not read the outcome of an effect");
                (named(RailOutcome::Unknown), true)
            }
        }
    }

    /// Waits for the worker; after the time limit, a background task watches it and notifies the site.
    async fn await_end(&self, id: IntentId, charge: &Charge) -> RailReport {
        let (report, more) = self.follow(id, SOON, Instant::now() + self.wait).await;
        if more && let Ok(place) = Arc::clone(&self.watchers).try_acquire_owned() {
            let (watcher, reference) = (self.clone(), charge.reference.as_str().to_owned());
            tokio::spawn(async move {
                watcher.follow(id, CALMLY, Instant::now() + WATCH).await;
                drop(place);
                let _ = watcher.changes.send(reference).await;
            });
        }
        report
    }

    /// The report, and whether it may still change.
    async fn follow(&self, id: IntentId, pause: Duration, until: Instant) -> (RailReport, bool) {
        loop {
            let settled = self.engine.until_settled(id, pause);
            match tokio::time::timeout_at(until, settled).await {
                Ok(Err(error)) if Instant::now() < until => {
                    tracing::warn!(%error, "could not read the outcome of an effect");
                    tokio::time::sleep_until(until.min(Instant::now() + RETRY)).await;
                }
                Ok(_) | Err(_) => return self.look_for_end(id).await,
            }
        }
    }
}

/// A record that forbids publishing the effect.
fn fence(charge: &Charge) -> Key {
    Key {
        kind: Kind::RailEvent,
        owner: WorkerRail::NAME.to_owned(),
        name: format!("fence:{}", charge.reference.as_str()),
    }
}

/// The transaction's own row.
fn parent(charge: &Charge) -> Option<IntentId> {
    ids::transaction_row(&charge.transaction_id)
}

impl Rail for WorkerRail {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Nothing exists before it is published, and once published it may be executed.
    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            match self.effect(charge).await {
                Ok(None) => RailReport::of(RailOutcome::Unconfirmed),
                Ok(Some(row)) => self.report(&row).await,
                Err(()) => RailReport::of(RailOutcome::Unknown),
            }
        })
    }

    fn confirm<'a>(&'a self, charge: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            let key = format!("effect:{}", charge.reference.as_str());
            match self.publish(charge, &self.goal, key).await {
                Some(id) => self.await_end(id, charge).await,
                None => RailReport::of(RailOutcome::Unknown),
            }
        })
    }

    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        self.look_up(charge, id)
    }

    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            if let Some(id) = id.and_then(|id| id.parse().ok()) {
                return self.look(id).await;
            }
            match self.effect(charge).await {
                Ok(None) => RailReport::of(RailOutcome::NotFound),
                Ok(Some(row)) => self.report(&row).await,
                Err(()) => RailReport::of(RailOutcome::Unknown),
            }
        })
    }

    /// An effect that no worker has claimed is withdrawn. A claimed effect ends with its worker, and only its row can show
    /// whether it has.
    fn cancel<'a>(&'a self, charge: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, Fenced> {
        Box::pin(async move {
            if self.fence_off(charge).await.is_err() {
                return Fenced::Unknown;
            }
            let row = match self.effect(charge).await {
                Ok(None) => return Fenced::Cancelled,
                Ok(Some(row)) => row,
                Err(()) => return Fenced::Unknown,
            };
            if row.attempts == 0 {
                self.take_back(row.id).await;
            }
            let outcome = self.look(row.id).await.outcome;
            if outcome == RailOutcome::Succeeded {
                return Fenced::TooLate;
            }
            if outcome == RailOutcome::Failed {
                return Fenced::Cancelled;
            }
            Fenced::Unknown
        })
    }

    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        _: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome> {
        Box::pin(async move {
            let report = match self.latest_refund(charge).await {
                Ok(Some(row)) => self.report(&row).await,
                Ok(None) => {
                    let key = format!("effect:{}", charge.refund_reference());
                    match self.publish(charge, &self.refund_goal(), key).await {
                        Some(id) => self.await_end(id, charge).await,
                        None => return RefundOutcome::Unknown,
                    }
                }
                Err(()) => return RefundOutcome::Unknown,
            };
            if report.outcome == RailOutcome::Succeeded {
                return RefundOutcome::Done {
                    refund_id: report.payment_id,
                };
            }
            if report.outcome == RailOutcome::Failed {
                return RefundOutcome::Refused(report.failure.unwrap_or(RailFailure {
                    code: "worker_failed".to_owned(),
                    message: String::new(),
                }));
            }
            if report.outcome == RailOutcome::Lost {
                return RefundOutcome::Lost;
            }
            RefundOutcome::Pending
        })
    }

    fn parse_callback(&self, _: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        Err(Problem::NotFound {
            what: "callback of this rail",
        })
    }
}
