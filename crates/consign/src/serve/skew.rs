//! This machine's clock against the database's, by which all nodes measure leases.
//!
//! Invariant: time in the ledger is the database's time, whatever the clock of this machine says. A machine whose clock is
//! far off is in trouble nevertheless, and gives out no work until it is set.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Clock as _, Engine, EngineClock, SystemTimes, WallClock as _};
use consign_kernel::ids::SECOND_US;
use consign_store::Error;
use consign_store::postgres::{DatabaseClock, Postgres};

/// Beyond this a node gives out no work.
const SKEW_US_MAX: i64 = 2 * SECOND_US;
const INTERVAL: Duration = Duration::from_secs(1);
/// An answer that took longer than this says little about clocks, so another is asked for.
const ROUND_TRIP_US_GOOD: i64 = 20_000;
/// And one that took longer than this says nothing.
const ROUND_TRIP_US_MAX: i64 = 500_000;
const TRIES: usize = 3;

/// How far the database's clock is ahead of this machine's: the quickest of a few answers, taken at its middle.
pub(super) async fn ahead_us(clock: &DatabaseClock) -> Result<i64, Error> {
    // The first answer has a connection to wait for.
    clock.ask().await?;
    let mut best = (i64::MAX, 0);
    for _ in 0..TRIES {
        let before = SystemTimes::own_wall().0;
        let there = clock.ask().await?.0;
        let took = SystemTimes::own_wall().0 - before;
        // A clock that was set meanwhile makes nonsense of the answer.
        if (0..best.0).contains(&took) {
            best = (took, there - before - took / 2);
        }
        if best.0 <= ROUND_TRIP_US_GOOD {
            break;
        }
    }
    if best.0 > ROUND_TRIP_US_MAX {
        let slow = "its answers take so long that clocks cannot be compared";
        return Err(Error::Unavailable(slow.to_owned()));
    }
    let (took, ahead_us) = best;
    // The answer may have been given at any moment of its way: where clocks may be the same, they are.
    Ok(if ahead_us.abs() <= took / 2 {
        0
    } else {
        ahead_us
    })
}

/// Keeps the clock on the database's time, and the node off duty while its own is far from it.
pub(super) async fn watch(postgres: Arc<Postgres>, clock: Arc<EngineClock>, engine: Engine) {
    let database = postgres.clock();
    let mut wrong = false;
    loop {
        // Who cannot ask the database cannot claim there either.
        if let Ok(ahead_us) = ahead_us(&database).await {
            clock.wall_is_ahead(ahead_us);
            let own_is_wrong = ahead_us.abs() > SKEW_US_MAX;
            if !own_is_wrong {
                // A machine that slept has missed time: what it gave out then would be over already.
                clock.catch_up();
            }
            let engine_ahead_us = clock.now().0 - clock.wall().0;
            let is_wrong = own_is_wrong || engine_ahead_us > SKEW_US_MAX;
            if is_wrong != wrong {
                wrong = is_wrong;
                engine.clock_is_wrong(wrong);
                tell(wrong, ahead_us);
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn tell(wrong: bool, ahead_us: i64) {
    let behind_ms = ahead_us / 1_000;
    if wrong {
        tracing::error!(
            behind_ms,
            "this machine's clock differs from the database's; no work is given out here until it is set"
        );
    } else {
        tracing::info!(
            behind_ms,
            "this machine's clock is right again; work is given out"
        );
    }
}
