//! A light check of the file of the ledger: whether it is one, its schema, and its time. No row is read.

use consign_kernel::ids::SECOND_US;
use consign_store::sqlite::{self, FileKind, Sqlite, identify};

use super::DoctorFinding;
use crate::commands::store;
use crate::data_dir::DataDir;
use crate::lock;
use crate::serve::begin::AHEAD_US_MAX;

/// Nothing is reported of a directory whose ledger is elsewhere.
pub(super) fn check(data: &DataDir) -> Vec<DoctorFinding> {
    let path = data.database_file();
    if matches!(data.ledger_elsewhere(), Ok(Some(_))) {
        return Vec::new();
    }
    let shown = path.display().to_string();
    match identify(&path) {
        Ok(FileKind::Nothing) => return missing(data, &shown),
        Ok(FileKind::Consign) => {}
        Ok(FileKind::IntentBus | FileKind::OtherDatabase) => {
            return vec![DoctorFinding::error(
                "ledger",
                format!("{shown} is not a ledger of Consign"),
                "a server refuses to start with it",
                "move it away, or name another directory with --data".to_owned(),
            )];
        }
        Err(error) => {
            return vec![DoctorFinding::error(
                "ledger",
                format!("{shown} cannot be read: {error}"),
                "it may be damaged, or its disk fails",
                format!("keep a copy of it, then: consign store check --store sqlite:{shown}"),
            )];
        }
    }
    // A server that runs has migrated it, and writes it.
    if lock::holder(&data.lock_file()).is_some() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if let Ok(pending) = sqlite::pending(&path)
        && !pending.is_empty()
    {
        findings.push(DoctorFinding::warning(
            "schema",
            format!("{shown} has the schema of an older version"),
            "the next start migrates it, and older versions do not read it afterwards",
            "back it up first: consign store backup FILE".to_owned(),
        ));
    }
    if let Ok(Some(last)) = Sqlite::last_time(&path) {
        let ahead_us = last.0.saturating_sub(store::now().0);
        if ahead_us > AHEAD_US_MAX {
            findings.push(DoctorFinding::error(
                "clock",
                format!(
                    "the last commit is {} s ahead of this machine's clock",
                    ahead_us / SECOND_US
                ),
                "a server refuses to start, because leases and lives would be wrong",
                "set the clock; if the clock was wrong before, see: consign store check --repair"
                    .to_owned(),
            ));
        }
    }
    findings
}

fn missing(data: &DataDir, shown: &str) -> Vec<DoctorFinding> {
    let made = data.ledgers_made().unwrap_or_default();
    if made.is_empty() {
        return Vec::new();
    }
    vec![DoctorFinding::error(
        "ledger",
        format!("{shown} does not exist, although a server has had a ledger here"),
        "it was moved or deleted; a server does not start with an empty one by itself",
        "put a backup of it there, or see: consign serve --help".to_owned(),
    )]
}
