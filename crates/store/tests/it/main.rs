//! All backends against the common suite, the tests of SQLite and PostgreSQL alone, and a random comparison of all.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop where it stands, in its own body or below it"
)]

mod copy;
mod differential;
mod edges;
mod postgres;
mod simulated;
mod sqlite;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use consign_store::conformance;
use consign_store::conformance::{ManualClock, World};
use consign_store::memory::Memory;

conformance!(memory, crate::in_memory());
conformance!(sqlite_file, crate::sqlite::World::new().shared());
conformance!(
    postgres_node,
    crate::postgres::Cluster::new(1).await.world(0)
);

fn in_memory() -> World {
    let clock = Arc::new(ManualClock::default());
    World::new(Arc::new(Memory::new(clock.clone())), clock, ())
}

/// A case that is written but not listed in the macro would never run.
#[test]
fn every_case_of_the_suite_is_stamped_out_for_every_backend() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let mut written = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let cases = text
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "));
        written.extend(cases.filter_map(|line| Some(line.split_once('(')?.0.to_owned())));
    }
    for cases in [memory::CASES, sqlite_file::CASES, postgres_node::CASES] {
        let stamped: BTreeSet<String> = cases.iter().map(|&case| case.to_owned()).collect();
        assert_eq!(stamped, written);
    }
}
