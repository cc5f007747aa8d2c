//! The settings of every connection, and their verification.
//!
//! Invariant: no connection is used before its settings were read back. A pooler may accept the connection and drop the
//! start-up options, and then an acknowledged commit might not be on disk.

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::Error;

/// Durable commits, our schema, timeouts for everything, and plans that are made once and use an index: a plan made while a
/// table was small would scan it for ever.
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

/// Other requests wait for a writer, so it waits only briefly for a lock; see `locks`.
pub(super) const OF_WRITER: &str = "SET lock_timeout = '200ms'";

/// The settings as start-up options.
pub(super) fn options() -> String {
    let mut options = String::new();
    for (name, value) in SETTINGS {
        let _ = write!(options, " -c {name}={}", value.replace(' ', "\\ "));
    }
    options
}

/// Selects the settings with a wrong value, one line of text for each.
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

/// Refuses a connection for the first setting that [`DIFFERING`] returned.
pub(super) fn confirm(differing: Option<&str>) -> Result<(), Error> {
    let Some(differing) = differing else {
        return Ok(());
    };
    Err(Error::DatabaseAddress(format!(
        "on its connections {differing}: what stands between here and the server, such as a pooler, drops start-up \
         options. Name the server itself, or let `options` pass"
    )))
}
