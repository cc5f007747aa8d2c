//! The link between a job and the intent or message it serves: the intent's lease is extended while the job is open, and both end in one
//! commit.
//!
//! Invariant: a job runs only while it holds the lease of its intent, so no two jobs run for one intent at a time. A job that
//! lost the lease does not settle the intent, but its own record is complete.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use consign_engine::{
    Engine, Error, KEPT_LEASE_US, KeptLease, Lease, MAIN_KEY_ID, Operator, UnitOfWork,
};
use consign_kernel::command::{Command, Operate, Settlement};
use consign_kernel::error_text;
use consign_kernel::ids::{IntentId, SECOND_US, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use consign_kernel::limits;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::attempt::{Attempt, AttemptEnd, AttemptFailure, AttemptReport};
use super::job::job_id;
use super::lifecycle::RuntimeInner;
use super::received_message;
use crate::plugin::outcome::FailureReason;

/// The lease until the job is queued. It is short, because an intent that a dying process claimed and did not queue waits for its
/// end.
pub(super) const FIRST_LEASE_US: i64 = 10 * SECOND_US;

/// The intent or message that a job serves, with the lease token.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ServedIntent {
    pub intent_id: String,
    pub goal: String,
    pub namespace: String,
    /// The number of the intent's attempt that this job is.
    pub attempt: u32,
    token: String,
    /// It is a message of the bus.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_message: bool,
    /// It is a message too, of a mesh.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_mesh_item: bool,
}

/// The leases that queued or running jobs of this process hold, by job.
pub(super) type ServedLeases = HashMap<IntentId, KeptLease>;

impl ServedIntent {
    pub(super) fn of(intent: &Intent) -> Self {
        Self {
            intent_id: intent.id.to_string(),
            goal: intent.goal.clone(),
            namespace: intent.namespace.clone(),
            attempt: intent.attempts,
            token: intent.token.map(|token| token.reveal()).unwrap_or_default(),
            is_message: false,
            is_mesh_item: false,
        }
    }

    pub(super) fn of_message(row: &Intent) -> Self {
        Self {
            is_message: true,
            is_mesh_item: row.profile.profile().face == Face::Mesh,
            ..Self::of(row)
        }
    }

    /// The description of the intent for the plugin.
    pub(super) fn to_context(&self) -> Value {
        json!({
            "id": self.intent_id, "goal": self.goal, "namespace": self.namespace, "attempt": self.attempt,
        })
    }

    pub(super) fn lease(&self) -> Result<Lease, Error> {
        let id = self.intent_id.parse();
        let token = Token::parse(&self.token);
        let lease = id.and_then(|id| {
            Ok(Lease {
                id,
                holder: MAIN_KEY_ID.to_owned(),
                token: token?,
            })
        });
        lease.map_err(|_| Error::Internal("a job refers to an invalid intent".to_owned()))
    }
}

impl std::fmt::Debug for ServedIntent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServedIntent")
            .field(&self.intent_id)
            .finish()
    }
}

async fn is_held(engine: &Engine, lease: &Lease) -> Result<bool, Error> {
    let intent = engine.observe(lease.id).await?;
    Ok(intent.is_some_and(|intent| {
        let has_token = intent.token.is_some_and(|held| held.matches(&lease.token));
        intent.is_leased(engine.now()) && has_token
    }))
}

impl RuntimeInner {
    pub(super) fn served_leases(&self) -> MutexGuard<'_, ServedLeases> {
        self.served_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Extends the lease before a job starts; fails if the job no longer holds it.
    pub(super) async fn extend_served_lease(
        self: &Arc<Self>,
        attempt: &Attempt,
    ) -> Result<(), AttemptFailure> {
        let Some(served) = &attempt.job.serves else {
            return Ok(());
        };
        let extended = match served.lease() {
            Ok(lease) => {
                let extension = lease.extend(KEPT_LEASE_US);
                self.engine.extend(extension).await.map(|_| lease)
            }
            Err(error) => Err(error),
        };
        match extended {
            Ok(lease) => {
                self.keep_served_lease(attempt.intent.id, lease);
                Ok(())
            }
            Err(Error::Refused(_)) => Err(AttemptFailure::permanent(format!(
                "the job no longer holds the lease of intent {}; retry the intent to create another job",
                served.intent_id
            ))),
            Err(error) => Err(AttemptFailure::retryable(error.to_string())),
        }
    }

    /// Keeps the lease of the intent of a job until the job ends. If it is lost, because the intent was cancelled or claimed by
    /// another worker, the job is cancelled.
    pub(super) fn keep_served_lease(self: &Arc<Self>, job: IntentId, lease: Lease) {
        let id = lease.id;
        let kept = self.leases.keep(lease);
        let (lost, inner) = (kept.lost(), Arc::downgrade(self));
        self.served_leases().insert(job, kept);
        tokio::spawn(async move {
            if lost.await
                && let Some(inner) = inner.upgrade()
            {
                inner.served_leases().remove(&job);
                let reason = format!("intent {id} was cancelled or claimed by another worker");
                inner.cancel_unserved(job, &reason).await;
            }
        });
    }

    async fn cancel_unserved(&self, job: IntentId, reason: &str) {
        let operator = Operator::vouched();
        let cancelled = self.engine.cancel(operator, Face::Automation, job, reason);
        // A job that ended meanwhile was settled together with its intent.
        if cancelled.await.is_ok() {
            tracing::info!(component = "intents", job_id = job_id(job), "{reason}");
            self.cancel_signals().cancel(job);
            self.unreported_ends.notify_one();
        }
    }
}

/// Settles the intent together with its job. The intent is retried by its own rules; only a plugin that rules out retries ends it
/// permanently.
pub(super) async fn settle(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    failure: Option<&AttemptFailure>,
    unit: &mut UnitOfWork,
) -> Result<(), Error> {
    let Some(served) = &attempt.job.serves else {
        return Ok(());
    };
    let lease = served.lease()?;
    if !is_held(engine, &lease).await? {
        return Ok(());
    }
    // Both leases are verified before anything is settled, so neither ends without the other.
    let job = &attempt.intent;
    if job.state == State::Dispatched && job.holder.is_some() && job.token.is_some() {
        unit.extend(&Lease::of(job), KEPT_LEASE_US);
    }
    if served.is_message {
        received_message::forget_first_jobs(served, unit);
    }
    let Some(failure) = failure else {
        let result = Some(result(attempt, ended));
        unit.settle(&lease, Settlement::Complete { result });
        return Ok(());
    };
    let error = format!("job {}: {}", attempt.job_id(), failure.error);
    let error = error_text::kept(&error).into_owned();
    let hopeless =
        [FailureReason::PluginRetryFalse, FailureReason::ExitCode78].map(FailureReason::as_str);
    // The pipeline of a message has retried its jobs itself, so the message has failed.
    if served.is_mesh_item {
        end_as_dead(&lease, Face::Mesh, error, unit);
    } else if served.is_message {
        unit.settle(&lease, Settlement::Reject { error });
    } else if hopeless.contains(&failure.reason) {
        end_as_dead(&lease, Face::Intent, error, unit);
    } else {
        unit.settle(&lease, Settlement::Fail { error });
    }
    Ok(())
}

/// Makes a row a dead letter without further attempts, if the lease still holds it.
pub(super) fn end_as_dead(lease: &Lease, face: Face, reason: String, unit: &mut UnitOfWork) {
    unit.extend(lease, KEPT_LEASE_US);
    unit.require(Command::Cancel(Operate {
        id: lease.id,
        face,
        reason,
    }));
}

/// The job id, the result and the emitted events, as far as they fit into an intent.
fn result(attempt: &Attempt, ended: &AttemptReport) -> Outcome {
    let AttemptEnd::Succeeded(response) = &ended.end else {
        let body = json!({"job_id": attempt.job_id()}).to_string();
        let kind = ResultKind::Json;
        return Outcome { kind, body };
    };
    let events = response.events.iter();
    let events = events.map(|event| json!({"type": event.kind, "payload": event.payload}));
    let mut body = json!({
        "job_id": attempt.job_id(), "result": response.result, "events": events.collect::<Vec<_>>(),
    });
    let fits = |body: &Value| body.to_string().len() <= limits::RESULT_BYTES_MAX;
    if !fits(&body) {
        body["events"] = json!([]);
        body["events_left_out"] = response.events.len().into();
    }
    if !fits(&body) {
        let room = limits::RESULT_BYTES_MAX / 8;
        let beginning: String = response.result.chars().take(room).collect();
        body["result"] = beginning.into();
    }
    Outcome {
        kind: ResultKind::Json,
        body: body.to_string(),
    }
}
