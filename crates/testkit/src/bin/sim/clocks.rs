//! The clocks of the simulated machine, and a check of the pace of engine time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use consign_engine::{TimeSource, WallClock};
use consign_kernel::ids::{Micros, SECOND_US};
use tokio::time::Instant;

use crate::ledger_checks::BrokenPromise;

const START: Micros = Micros(1_800_000_000 * SECOND_US);

/// The runtime's paused clock, plus suspended time; the wall clock can be set as well.
#[derive(Clone, Debug)]
pub(crate) struct MachineClocks {
    started: Instant,
    moved: Arc<ClockOffsets>,
}

#[derive(Debug, Default)]
struct ClockOffsets {
    slept_us: AtomicI64,
    set_us: AtomicI64,
}

impl MachineClocks {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            moved: Arc::default(),
        }
    }

    /// Suspends the machine: both clocks advance, and no timer of the process fires.
    pub(crate) fn sleep(&self, us: i64) {
        self.moved.slept_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Sets the wall clock, forward or back.
    pub(crate) fn set(&self, us: i64) {
        self.moved.set_us.fetch_add(us, Ordering::Relaxed);
    }

    fn monotonic_us(&self) -> i64 {
        let elapsed_us = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        elapsed_us + self.moved.slept_us.load(Ordering::Relaxed)
    }
}

impl TimeSource for MachineClocks {
    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.monotonic_us()).unwrap_or(0))
    }
}

impl WallClock for MachineClocks {
    fn wall(&self) -> Micros {
        START
            .plus(self.monotonic_us())
            .plus(self.moved.set_us.load(Ordering::Relaxed))
    }
}

/// Engine time may differ by one percent, and by the correction after a suspend.
pub(crate) const SLACK_US: i64 = SECOND_US / 4;

/// Engine time and monotonic time at the last check of the same process.
#[derive(Debug, Default)]
pub(crate) struct PaceCheck {
    last: Option<(u64, Micros, i64)>,
}

impl PaceCheck {
    pub(crate) fn look(
        &mut self,
        boots: u64,
        now: Micros,
        clocks: &MachineClocks,
    ) -> Result<(), BrokenPromise> {
        let stopwatch_us = clocks.monotonic_us();
        let last = self.last.replace((boots, now, stopwatch_us));
        let Some((_, then, then_us)) = last.filter(|(of, ..)| *of == boots) else {
            return Ok(());
        };
        let (gained_us, passed_us) = (now.0 - then.0, stopwatch_us - then_us);
        if gained_us < 0 {
            return Err(format!("engine time went back by {} µs", -gained_us));
        }
        if (gained_us - passed_us).abs() > passed_us / 100 + SLACK_US {
            return Err(format!(
                "engine time went on by {gained_us} µs while {passed_us} µs passed"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_shows_as_a_wrong_pace_and_sleep_does_not() {
        let (clocks, mut pace_check) = (MachineClocks::start(), PaceCheck::default());
        pace_check.look(0, clocks.wall(), &clocks).unwrap();
        clocks.sleep(61 * SECOND_US);
        pace_check.look(0, clocks.wall(), &clocks).unwrap();
        clocks.set(SECOND_US);
        pace_check.look(0, clocks.wall(), &clocks).unwrap_err();
        clocks.set(-SECOND_US);
        pace_check.look(0, clocks.wall(), &clocks).unwrap_err();
        clocks.set(-SECOND_US);
        pace_check.look(1, clocks.wall(), &clocks).unwrap();
    }
}
