//! The end of a permission, and the limits on permissions without consent.
//!
//! A permission ends at the time of day that its agent signed; the ledger notices when it is read. Invariant: a permission that
//! the ledger has ended, or that was reported as expired, stays expired even if the clock is set back. A permission that the
//! ledger has not ended is judged by the time of day alone, however far engine time is ahead.

use consign_engine::{UnitOfWork, Versioned};
use consign_kernel::command::Within;
use consign_kernel::ids::Micros;
use consign_kernel::state::State;

use super::records::PermissionRecord;
use super::{Site, unavailable};
use crate::intent::SignedIntent;
use crate::problem::{ExpiredReason, Problem};

impl Site {
    /// The time by which a stored permission is judged.
    pub(super) async fn judged_at(
        &self,
        permission: &PermissionRecord,
        intent: &SignedIntent,
    ) -> Result<Micros, Problem> {
        let now = self.now();
        if self.was_ended(permission, intent).await? {
            return Ok(now.max(intent.expires_at));
        }
        Ok(now)
    }

    /// Comes after all checks that use the time of day.
    pub(super) async fn check_not_ended(
        &self,
        permission: &PermissionRecord,
        intent: &SignedIntent,
    ) -> Result<(), Problem> {
        if self.was_ended(permission, intent).await? {
            return Err(Problem::IntentExpired {
                expires_at: intent.expires_at,
                reason: ExpiredReason::Time,
            });
        }
        Ok(())
    }

    /// Whether the ledger has ended a permission that is not expired by the time of day. The row is read only where the two
    /// clocks disagree.
    async fn was_ended(
        &self,
        permission: &PermissionRecord,
        intent: &SignedIntent,
    ) -> Result<bool, Problem> {
        let agree = !intent.is_expired(self.engine_now()) || intent.is_expired(self.now());
        if agree || permission.cancelled || permission.ended {
            return Ok(false);
        }
        let row = self.engine().observe(permission.row()?).await;
        let row = row.map_err(|error| unavailable(&error))?;
        Ok(row.is_none_or(|row| row.state == State::DeadLetter))
    }

    /// Records that expiry was reported, because that refusal must stay final.
    pub(super) async fn record_expiry<T>(
        &self,
        permission: &Versioned<PermissionRecord>,
        checked: Result<T, Problem>,
    ) -> Result<T, Problem> {
        let over = ExpiredReason::Time;
        let is_over =
            matches!(&checked, Err(Problem::IntentExpired { reason, .. }) if *reason == over);
        if is_over && !permission.value.ended {
            let mut ended = permission.clone();
            ended.value.ended = true;
            let mut unit = UnitOfWork::default();
            unit.replace(&ended);
            // If the commit fails, the next check reports expiry by the clock again.
            let _ = self.commit(unit).await;
        }
        checked
    }

    /// The limits on permissions that wait for consent.
    pub(super) fn open_limits(&self) -> Within {
        let limit = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        Within {
            each: limit(self.options().open_per_key),
            all: limit(self.options().open_max),
        }
    }
}
