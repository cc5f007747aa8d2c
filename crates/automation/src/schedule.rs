//! When a plugin's command is run by the clock: the entries of `schedules:` and the rules that decide whether one is due.
//!
//! Everything here is a function of values: the instant and the random draw are passed in, and the caller stores [`ScheduleState`]. Each
//! state names the instant of its next run, so a caller keeps entries in a heap and looks only at those whose time has come.

mod cron;
mod due;
mod entry;
mod window;

use std::time::Duration;

pub use cron::{Cron, Error as CronError};
pub use due::{CatchUpJob, DueDecision, Overlap, SLOTS_MAX, ScheduleState, Skip};
pub use entry::{CatchUp, Error, IfRunning, ScheduleEntry, ScheduleMode};
pub use window::{Closed, Error as WindowError, FiringWindow};

/// The share of `whole` that `draw` picks out of the range of `u64`: at least zero, and less than `whole` unless that is zero.
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
