//! The runtime with real plugins in bash and Python, and a real ledger.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod breaker;
mod contended;
mod dispatch;
mod health;
mod intents;
mod job_events;
mod mesh_items;
mod messages;
mod one_shot;
mod pipelines;
mod publish;
mod recovery;
mod reload;
mod retention;
mod scheduler;
mod served_intents;
mod setup;
mod state;
mod tables;
mod world;

use consign_testkit::ledger::Backend;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}
