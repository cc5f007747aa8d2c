//! Schedules: the entries of `schedules:` and the rules that decide whether one is due.
//!
//! Everything here is a pure function: time and random draw are arguments, and the caller stores [`ScheduleState`]. Each state
//! contains the time of the next run, so a caller can keep entries in a heap and check only those that are due.

mod cron;
mod due;
mod entry;
mod window;

use std::time::Duration;

pub use cron::{Cron, Error as CronError};
pub use due::{CatchUpJob, DueDecision, Overlap, SLOTS_MAX, ScheduleState, Skip};
pub use entry::{CatchUp, Error, IfRunning, ScheduleEntry, ScheduleMode};
pub use window::{DelayReason, Error as WindowError, FiringWindow};

/// The fraction of `whole` that corresponds to `draw` in the range of `u64`: at least zero, and less than `whole` unless that is
/// zero.
pub(crate) fn fraction_of(whole: Duration, draw: u64) -> Duration {
    // Scaled in two parts, so that no product can overflow.
    let (high, low) = (
        whole.as_nanos() >> 64,
        whole.as_nanos() & u128::from(u64::MAX),
    );
    let draw = u128::from(draw);
    let nanos = high * draw + ((low * draw) >> 64);
    Duration::from_nanos_u128(nanos)
}
