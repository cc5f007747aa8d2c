//! Intents of the directory for whose end no relay waits: those of an earlier start, of a node that was killed, and those whose
//! relay could not read or write the ledger.
//!
//! A sweep fails each of them once its time for a result is over, unless it has ended before. It looks at these intents only,
//! so its cost does not depend on how many others there are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_engine::Error;
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::Intent;
use consign_kernel::state::State;
use serde_json::{Value, json};

use super::RelayError;
use super::begin::LEASE_MARGIN_US;
use super::handoff::Handover;
use crate::lifecycle;
use crate::service::Beam;

/// The shortest pause between two sweeps.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// By the time at which the result was due.
#[derive(Debug, Default)]
pub(crate) struct Unwaited(Mutex<BTreeMap<(Micros, IntentId), UnwaitedIntent>>);

/// What is known about such an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnwaitedIntent {
    /// Only this attempt ends. Without it, the attempt that is under way then.
    attempt: Option<u32>,
    /// How long its sender was to wait.
    timeout_ms: u64,
}

impl Unwaited {
    fn insert(&self, end: Micros, id: IntentId, intent: UnwaitedIntent) {
        self.intents().insert((end, id), intent);
    }

    /// Removes and returns those whose time is over.
    fn take_due(&self, now: Micros) -> Vec<(Micros, IntentId, UnwaitedIntent)> {
        let mut due = Vec::new();
        let mut intents = self.intents();
        while let Some(first) = intents.first_entry() {
            if first.key().0 > now {
                break;
            }
            let ((end, id), intent) = first.remove_entry();
            due.push((end, id, intent));
        }
        due
    }

    fn intents(&self) -> MutexGuard<'_, BTreeMap<(Micros, IntentId), UnwaitedIntent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the result of a delivered intent was due, and how long its sender was to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitEnd {
    pub(super) at: Micros,
    pub(super) timeout_ms: u64,
}

impl Beam {
    /// Sweeps again and again, until the process ends.
    pub async fn sweep_unwaited_forever(self) {
        let pause = self.settings().recovery_sweep.max(PAUSE_MIN);
        loop {
            tokio::time::sleep(pause).await;
            self.sweep_unwaited().await;
        }
    }

    /// Fails the intents for which nobody waits and whose time is over.
    async fn sweep_unwaited(&self) {
        // With a wrong clock, it is unknown whose time is over.
        if self.engine().has_wrong_clock() {
            return;
        }
        for (end, id, intent) in self.inner.unwaited.take_due(self.engine().now()) {
            if let Err(error) = self.end_unwaited(id, end, intent).await {
                tracing::warn!(%error, intent = %id, "an intent without a result was not ended; trying again");
                self.inner.unwaited.insert(end, id, intent);
            }
        }
    }

    async fn end_unwaited(
        &self,
        id: IntentId,
        end: Micros,
        intent: UnwaitedIntent,
    ) -> Result<(), Error> {
        let Some(row) = self.engine().observe(id).await? else {
            return Ok(());
        };
        let is_open = matches!(row.state, State::Delivered | State::Queued);
        if !is_open
            || intent
                .attempt
                .is_some_and(|attempt| attempt != row.attempts)
        {
            return Ok(());
        }
        if intent.attempt.is_none()
            && let Some(later) = self.wait_of_handover(id).await?
            && later.at > end
        {
            // It was handed over again, and the time of that attempt counts.
            self.leave_handover_to_sweep(id, later);
            return Ok(());
        }
        self.time_out(&row, intent.timeout_ms, "timeout_without_waiter")
            .await
    }

    /// Fails an intent whose result did not come in time.
    pub(super) async fn time_out(
        &self,
        row: &Intent,
        timeout_ms: u64,
        action: &str,
    ) -> Result<(), Error> {
        let mut details = json!({
            "transport": "recovery",
            "previousStatus": lifecycle::state_word(row.state),
            "recoveryAction": action,
            "timeoutMs": timeout_ms,
            "errorCode": "TIMEOUT",
        });
        if action == "timeout_after_restart" {
            details["recoveredOnBoot"] = json!(true);
        }
        let error = RelayError::Timeout { ms: timeout_ms };
        let failed = self.fail_delivered(row, &details, &error).await;
        failed.map_err(|error| Error::Internal(error.to_string()))
    }

    /// Leaves an intent to the sweep.
    pub(super) fn leave_to_sweep(&self, row: &Intent, end: WaitEnd) {
        let intent = UnwaitedIntent {
            attempt: Some(row.attempts),
            timeout_ms: end.timeout_ms,
        };
        self.inner.unwaited.insert(end.at, row.id, intent);
    }

    /// The same for an intent that was handed to another node, whichever attempt that node makes.
    pub(super) fn leave_handover_to_sweep(&self, id: IntentId, end: WaitEnd) {
        let intent = UnwaitedIntent {
            attempt: None,
            timeout_ms: end.timeout_ms,
        };
        self.inner.unwaited.insert(end.at, id, intent);
    }

    /// When the wait for the end of the last hand-over of an intent ends.
    async fn wait_of_handover(&self, id: IntentId) -> Result<Option<WaitEnd>, Error> {
        let record = self.engine().load::<Handover>(Handover::key(id)).await?;
        Ok(record.and_then(|record| Some(record.value.wait_end(record.expires_at?))))
    }

    /// When a wait that begins now ends.
    pub(super) fn wait_end(&self, timeout: Duration) -> WaitEnd {
        let timeout_us = i64::try_from(timeout.as_micros()).unwrap_or(i64::MAX);
        WaitEnd {
            at: self.engine().now().plus(timeout_us),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// When the result of a delivered intent was due for which another process waited: its last fact states the time, and its
    /// lease ends a little later.
    pub(super) async fn end_of_wait(&self, row: &Intent) -> Result<Option<WaitEnd>, Error> {
        let Some(lease_until) = row.lease_until else {
            return Ok(None);
        };
        let latest = lease_until.minus(LEASE_MARGIN_US);
        let facts = self.engine().timeline(row.seq).await?;
        let stated = facts.last().and_then(|fact| {
            let details: Value = serde_json::from_str(fact.detail.as_deref()?).ok()?;
            Some((fact.at, details["timeoutMs"].as_u64()?))
        });
        let end = if let Some((at, timeout_ms)) = stated {
            let timeout_us = i64::try_from(timeout_ms.saturating_mul(1_000));
            let at = Micros(at.0.saturating_add(timeout_us.unwrap_or(i64::MAX)));
            WaitEnd {
                at: at.min(latest),
                timeout_ms,
            }
        } else {
            let waited_us = latest.0 - row.claimed_at.unwrap_or(row.created_at).0;
            WaitEnd {
                at: latest,
                timeout_ms: u64::try_from(waited_us / 1_000).unwrap_or(0),
            }
        };
        Ok(Some(end))
    }
}

#[cfg(test)]
mod tests {
    use consign_kernel::ids::Seq;

    use super::*;

    #[test]
    fn intents_are_taken_in_the_order_of_their_ends_and_not_before() {
        let unwaited = Unwaited::default();
        let id = |number: u128| IntentId::new(Micros(1), Seq(0), number);
        let intent = UnwaitedIntent {
            attempt: Some(1),
            timeout_ms: 5,
        };
        for (end, number) in [(30, 1), (10, 2), (20, 3), (20, 4)] {
            unwaited.insert(Micros(end), id(number), intent);
        }
        assert!(unwaited.take_due(Micros(9)).is_empty());
        let due = unwaited.take_due(Micros(20));
        let ends: Vec<i64> = due.iter().map(|(end, _, _)| end.0).collect();
        assert_eq!(ends, [10, 20, 20]);
        assert!(unwaited.take_due(Micros(29)).is_empty());
        assert_eq!(unwaited.take_due(Micros(30)).len(), 1);
    }
}
