//! What every connection is set to, and the proof that it is.
//!
//! Invariant: no connection is used whose settings were not read back. A pooler may let us in and keep the start-up
//! options to itself, and then a commit that was answered might be on no disk.

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::Error;

/// Commits that are on disk when they are answered, our schema, an end to everything that hangs, and plans that are made
/// once and follow an index: a plan made while a table was young would read all of it for ever.
const SETTINGS: &[(&str, &str)] = &[
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("search_path", "consign,pg_catalog"),
    ("statement_timeout", "10s"),
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("client_min_messages", "warning"),
];

/// A writer has others behind it, so it waits for a lock for a moment only; see `locks`.
pub(super) const OF_WRITER: &str = "SET lock_timeout = '200ms'";

/// As start-up options.
pub(super) fn options() -> String {
    let mut options = String::new();
    for (name, value) in SETTINGS {
        let _ = write!(options, " -c {name}={}", value.replace(' ', "\\ "));
    }
    options
}

/// Selects what is not as it should be, one line of text for each.
pub(super) static DIFFERING: LazyLock<String> = LazyLock::new(|| {
    let wanted: Vec<_> = SETTINGS
        .iter()
        .map(|(name, value)| format!("('{name}', '{value}')"))
        .collect();
    format!(
        "SELECT name || ' is ' || coalesce(current_setting(name, true), 'unknown') || ' and must be ' || wanted \
         FROM (VALUES {}) AS s (name, wanted) WHERE current_setting(name, true) IS DISTINCT FROM wanted",
        wanted.join(", ")
    )
});

/// Refuses a connection for the first thing that [`DIFFERING`] found.
pub(super) fn confirm(differing: Option<&str>) -> Result<(), Error> {
    let Some(differing) = differing else {
        return Ok(());
    };
    Err(Error::DatabaseAddress(format!(
        "on its connections {differing}: what stands between here and the server, such as a pooler, drops start-up \
         options. Name the server itself, or let `options` pass"
    )))
}
