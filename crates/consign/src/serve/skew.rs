//! This machine's clock against the database's, by which all nodes measure leases.
//!
//! Invariant: time in the ledger is the database's time, whatever the clock of this machine says. A machine whose clock is
//! far off is in trouble nevertheless, and gives out no work until it is set.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, EngineClock, SystemTimes};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_store::Error;
use consign_store::postgres::Postgres;

/// Beyond this a node gives out no work.
const SKEW_US_MAX: i64 = 2 * SECOND_US;
const INTERVAL: Duration = Duration::from_secs(1);
/// An answer that took longer than this says little about clocks, so another is asked for.
const ROUND_TRIP_US_GOOD: i64 = 20_000;
const TRIES: usize = 3;

/// How far the database's clock is ahead of this machine's: the quickest of a few answers, taken at its middle.
pub(super) async fn ahead_us<F>(ask: impl Fn() -> F) -> Result<i64, Error>
where
    F: Future<Output = Result<Micros, Error>>,
{
    let mut best = (i64::MAX, 0);
    for _ in 0..TRIES {
        let before = SystemTimes::own_wall().0;
        let there = ask().await?.0;
        let took = SystemTimes::own_wall().0 - before;
        // A clock that was set meanwhile makes nonsense of the answer.
        if (0..best.0).contains(&took) {
            best = (took, there - before - took / 2);
        }
        if best.0 <= ROUND_TRIP_US_GOOD {
            break;
        }
    }
    Ok(best.1)
}

/// Keeps the clock on the database's time, and the node off duty while its own is far from it.
pub(super) async fn watch(postgres: Arc<Postgres>, clock: Arc<EngineClock>, engine: Engine) {
    let mut wrong = false;
    loop {
        // Who cannot ask the database cannot claim there either.
        if let Ok(ahead_us) = ahead_us(|| postgres.time()).await {
            clock.wall_is_ahead(ahead_us);
            let is_wrong = ahead_us.abs() > SKEW_US_MAX;
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
