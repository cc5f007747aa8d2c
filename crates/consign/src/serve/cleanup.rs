//! The cleanup pass by the clock: whenever it is due, whether or not somebody sends requests.
//!
//! Requests trigger a due pass as well, as the protocol has it. A server that nobody asks anything would otherwise never delete
//! what has ended. There is no pass right after a start: it requeues lapsed leases with a delay, and after a restart they are to
//! be offered at once. The reserve of disk space is looked after on the way.

use std::time::Duration;

use consign_engine::Engine;
use consign_kernel::profile::Face;

use super::reserve::Reserve;

const LOOK_EVERY: Duration = Duration::from_secs(30);

pub(super) async fn run(engine: Engine, reserve: Option<Reserve>) {
    let keep = || reserve.iter().for_each(Reserve::keep);
    loop {
        keep();
        tokio::time::sleep(LOOK_EVERY).await;
        engine.cleanup_if_due(Face::Intent).await;
    }
}
