//! The cleanup pass by the clock: soon after a start, and then whenever it is due, whether or not somebody sends requests.
//!
//! Requests trigger a due pass as well, as the protocol has it. A server that is started anew more often than the interval
//! lasts, or that nobody asks anything, would otherwise never delete what has ended. The reserve of disk space is looked after
//! on the way.

use std::time::Duration;

use consign_engine::{Engine, Operator};
use consign_kernel::profile::Face;

use super::reserve::Reserve;

/// Late enough that a server that was down lets workers take their leases up again first.
/// Later than workers need to come back after a restart: the pass requeues lapsed leases with a delay, and until then they are
/// offered at once.
const FIRST_AFTER: Duration = Duration::from_mins(10);
const LOOK_EVERY: Duration = Duration::from_secs(30);

pub(super) async fn run(engine: Engine, reserve: Option<Reserve>) {
    let keep = || reserve.iter().for_each(Reserve::keep);
    keep();
    tokio::time::sleep(FIRST_AFTER).await;
    match engine.cleanup(Operator::vouched(), Face::Intent).await {
        Ok(report) => tracing::debug!(?report, "the first cleanup pass is done"),
        Err(error) => {
            tracing::warn!(%error, "the first cleanup pass failed; requests trigger the next one");
        }
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        engine.cleanup_if_due(Face::Intent).await;
        keep();
    }
}
