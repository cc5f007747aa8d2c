//! Comparison of this machine's clock with the database's clock, which measures leases for all nodes.
//!
//! Invariant: time in the ledger is the database's time, whatever this machine's clock says. A node whose clock
//! differs too much grants no leases until it is set.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Clock as _, Engine, EngineClock, SystemTimes, WallClock as _};
use consign_kernel::ids::SECOND_US;
use consign_store::Error;
use consign_store::postgres::{DatabaseClock, Postgres};

/// Beyond this difference a node grants no leases.
const SKEW_US_MAX: i64 = 2 * SECOND_US;
const INTERVAL: Duration = Duration::from_secs(1);
/// A slower response is inaccurate, so another one is measured.
const ROUND_TRIP_US_GOOD: i64 = 20_000;
/// A slower response is useless.
const ROUND_TRIP_US_MAX: i64 = 500_000;
const TRIES: usize = 3;
/// The number of measurements in a row that may fail.
const FAILED_MAX: u32 = 5;

/// How far the database's clock is ahead of this machine's: the fastest of a few responses, taken at the middle of
/// its round trip.
pub(super) async fn ahead_us(clock: &DatabaseClock) -> Result<i64, Error> {
    // The first response includes the time to connect.
    clock.ask().await?;
    let mut best = (i64::MAX, 0);
    for _ in 0..TRIES {
        let before = SystemTimes::own_wall().0;
        let there = clock.ask().await?.0;
        let took = SystemTimes::own_wall().0 - before;
        // A clock that was set meanwhile makes the result useless.
        if (0..best.0).contains(&took) {
            best = (took, there - before - took / 2);
        }
        if best.0 <= ROUND_TRIP_US_GOOD {
            break;
        }
    }
    if best.0 > ROUND_TRIP_US_MAX {
        let slow = "its responses are too slow to compare clocks";
        return Err(Error::Unavailable(slow.to_owned()));
    }
    let (took, ahead_us) = best;
    // The response may have been created at any moment of the round trip: if the clocks may be equal, they count as
    // equal.
    Ok(if ahead_us.abs() <= took / 2 {
        0
    } else {
        ahead_us
    })
}

/// Keeps engine time on the database's time, and pauses claims while this machine's clock differs too much.
pub(super) async fn watch(postgres: Arc<Postgres>, clock: Arc<EngineClock>, engine: Engine) {
    let database = postgres.clock();
    let mut monitor = ClockMonitor::default();
    loop {
        let measured = ahead_us(&database).await;
        if let Ok(ahead_us) = measured {
            clock.wall_is_ahead(ahead_us);
            if ahead_us.abs() <= SKEW_US_MAX {
                // A suspended machine has missed time, and leases granted with the old time would have expired
                // already.
                clock.catch_up();
            }
        }
        let engine_ahead_us = clock.now().0 - clock.wall().0;
        if let Some(wrong) = monitor.observe(&measured, engine_ahead_us) {
            engine.set_wrong_clock(wrong);
            tell(wrong, &measured);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Whether this node's clock can be trusted, from all measurements so far.
#[derive(Debug, Default)]
struct ClockMonitor {
    wrong: bool,
    /// Failed measurements in a row.
    failed: u32,
}

impl ClockMonitor {
    /// Returns a value when it changes. A clock that could not be compared for a while is not trusted either: a
    /// database with slow responses could otherwise still grant leases.
    fn observe(&mut self, measured: &Result<i64, Error>, engine_ahead_us: i64) -> Option<bool> {
        let wrong = if let Ok(ahead_us) = measured {
            self.failed = 0;
            ahead_us.abs() > SKEW_US_MAX || engine_ahead_us > SKEW_US_MAX
        } else {
            self.failed = self.failed.saturating_add(1);
            self.wrong || self.failed >= FAILED_MAX
        };
        let changed = wrong != self.wrong;
        self.wrong = wrong;
        changed.then_some(wrong)
    }
}

fn tell(wrong: bool, measured: &Result<i64, Error>) {
    let behind_ms = measured.as_ref().map_or(0, |ahead_us| ahead_us / 1_000);
    match measured {
        Err(error) => tracing::warn!(
            %error,
            "this machine's clock could not be compared with the database's for some time; no work is given out here \
             until it can"
        ),
        Ok(_) if wrong => tracing::error!(
            behind_ms,
            "this machine's clock differs from the database's; this node grants no leases until it is set"
        ),
        Ok(_) => tracing::info!(
            behind_ms,
            "this machine's clock is right again; this node grants leases"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Result<i64, Error> {
        Err(Error::Unavailable("slow".to_owned()))
    }

    #[test]
    fn a_clock_is_wrong_beyond_two_seconds_and_right_again_within() {
        let mut monitor = ClockMonitor::default();
        assert_eq!(monitor.observe(&Ok(SKEW_US_MAX), 0), None);
        assert_eq!(monitor.observe(&Ok(-SKEW_US_MAX - 1), 0), Some(true));
        assert_eq!(monitor.observe(&Ok(SKEW_US_MAX + 1), 0), None, "still");
        assert_eq!(monitor.observe(&Ok(0), 0), Some(false));
        assert_eq!(monitor.observe(&Ok(0), SKEW_US_MAX + 1), Some(true));
    }

    #[test]
    fn a_clock_that_cannot_be_compared_for_a_while_is_not_trusted() {
        let mut monitor = ClockMonitor::default();
        for _ in 1..FAILED_MAX {
            assert_eq!(monitor.observe(&failed(), 0), None);
        }
        assert_eq!(monitor.observe(&Ok(0), 0), None, "it counts anew");
        for _ in 1..FAILED_MAX {
            assert_eq!(monitor.observe(&failed(), 0), None);
        }
        assert_eq!(monitor.observe(&failed(), 0), Some(true));
        assert_eq!(monitor.observe(&failed(), 0), None);
        assert_eq!(monitor.observe(&Ok(0), 0), Some(false));
    }

    #[test]
    fn a_wrong_clock_does_not_become_right_by_not_being_compared() {
        let mut monitor = ClockMonitor::default();
        assert_eq!(monitor.observe(&Ok(SKEW_US_MAX + 1), 0), Some(true));
        assert_eq!(monitor.observe(&failed(), 0), None);
    }
}
