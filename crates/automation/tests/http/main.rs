//! The HTTP face of automations: real plugins, a real ledger, and requests over real sockets.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod access;
mod bridge;
mod catalogue;
mod control;
mod events;
mod hostile;
mod inspect;
mod jobs;
mod large;
mod operate;
mod webhooks;
mod world;

use consign_testkit::ledger::Backend;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}
