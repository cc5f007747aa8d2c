//! Agent transactions as HTTP shows them, merged into the router of the Intent Protocol as the server does it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod compat;
mod described;
mod named;
mod shapes;
mod switches;
mod world;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Sqlite;
