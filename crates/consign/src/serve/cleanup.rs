//! The periodic cleanup pass, which runs with or without requests.
//!
//! Requests trigger a due pass as well, as the protocol requires. Without this loop an idle server would never delete
//! ended intents. The interval survives restarts (`Engine::resume_cleanup`). The loop also refills the reserve of
//! disk space.

use std::time::Duration;

use consign_engine::Engine;
use consign_kernel::profile::Face;

use super::reserve::DiskReserve;

const CHECK_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn run(engine: Engine, reserve: Option<DiskReserve>) {
    if let Err(error) = engine.resume_cleanup(Face::Intent).await {
        tracing::warn!(%error, "the time of the last cleanup pass cannot be read; the next pass is a whole interval away");
    }
    loop {
        reserve.iter().for_each(DiskReserve::fill);
        engine.cleanup_if_due(Face::Intent).await;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}
