//! The Intent Protocol through its router, over each ledger, in simulated time.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod admin;
mod admin_auth;
mod audit_log;
mod auth;
mod backoff;
mod batch;
mod batch_settle;
mod claim;
mod cleanup;
mod configuration;
mod dashboard;
mod errors;
mod events;
mod failure_reports;
mod faulty;
mod fields;
mod find;
mod guarantees;
mod hostile_bodies;
mod idempotency;
mod key_rights;
mod kv;
mod lease;
mod lifecycle;
mod limits_and_caps;
mod long_poll;
mod metrics;
mod nodes;
mod openapi;
mod operate;
mod order;
mod parallel;
mod publish;
mod purge;
mod read;
mod receipts;
mod response_headers;
mod roles;
mod routing;
mod settle;
mod shown_fields;
mod signing;
mod signing_checks;
mod sizes;
mod steps;
mod worker_ids;
mod world;

use consign_testkit::ledger::Backend;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}
