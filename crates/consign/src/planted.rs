//! Switches for test builds: planted defects and failpoints.
//!
//! Invariant: without the feature `planted`, which no released binary has, nothing here reads the environment.

/// Enables the defect in `CONSIGN_PLANT` and logs it.
#[cfg(feature = "planted")]
pub(crate) fn enable_planted_defect() {
    if let Ok(name) = std::env::var("CONSIGN_PLANT") {
        tracing::error!(
            name,
            known = consign_kernel::plant::set(&name),
            "a defect is planted; this is no server for real work"
        );
    }
}

/// Kills the process at the failpoint in `CONSIGN_FAILPOINT`, such as `before-sync:12`.
#[cfg(feature = "planted")]
pub(crate) fn arm_failpoint() {
    if let Ok(text) = std::env::var("CONSIGN_FAILPOINT") {
        assert!(
            consign_store::failpoint::arm(&text),
            "CONSIGN_FAILPOINT={text} is no failpoint"
        );
    }
}

/// The last migration that `CONSIGN_HOLD_MIGRATIONS` lets the server run, as if it were of the version before.
#[cfg(feature = "planted")]
pub(crate) fn last_migration() -> anyhow::Result<Option<i32>> {
    use anyhow::Context as _;
    let held = std::env::var("CONSIGN_HOLD_MIGRATIONS").ok();
    let held = held.map(|text| text.parse().context("CONSIGN_HOLD_MIGRATIONS is no number"));
    held.transpose()
}

#[cfg(not(feature = "planted"))]
#[expect(clippy::unnecessary_wraps, reason = "the planted one may fail")]
pub(crate) fn last_migration() -> anyhow::Result<Option<i32>> {
    Ok(None)
}

/// The lease of a site's transactions from `CONSIGN_SITE_LEASE_MS`, so that a test can observe a takeover by another
/// node.
#[cfg(feature = "planted")]
pub(crate) fn site_lease() -> anyhow::Result<Option<std::time::Duration>> {
    use anyhow::Context as _;
    let set = std::env::var("CONSIGN_SITE_LEASE_MS").ok();
    let set = set.map(|text| text.parse().context("CONSIGN_SITE_LEASE_MS is no number"));
    Ok(set.transpose()?.map(std::time::Duration::from_millis))
}

#[cfg(not(feature = "planted"))]
#[expect(clippy::unnecessary_wraps, reason = "the planted one may fail")]
pub(crate) fn site_lease() -> anyhow::Result<Option<std::time::Duration>> {
    Ok(None)
}

#[cfg(not(feature = "planted"))]
pub(crate) fn enable_planted_defect() {}

#[cfg(not(feature = "planted"))]
pub(crate) fn arm_failpoint() {}
