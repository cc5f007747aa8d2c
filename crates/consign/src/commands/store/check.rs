//! `consign store check`

use anyhow::Context as _;
use consign_kernel::ids::SECOND_US;
use consign_store::postgres::{DatabaseAddress, Postgres};
use consign_store::sqlite::{self, Sqlite};
use serde::Serialize;

use super::{StoreArgs, must_be_ours, no_ledger, now, warn_cost};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::ledger_trouble::{backups_beside, explained};
use crate::lock::DataLock;
use crate::serve::begin::AHEAD_US_MAX;
use crate::{out, render};

const STANDBY: &str = "\
A repair sets positions that lie behind the tables and counters that are wrong, as two
writers on one file leave them, to what the tables say, and a time of the last commit that
is ahead of the clock back to it. On PostgreSQL it brings sequences up to their tables.
No server may have the file open; make a copy of it first.

A PostgreSQL is read as of one instant, and as long as that takes it cleans nothing away,
so that claims cost more and more. Where many are made, name a standby in --store: it
serves as well, and nothing is written.";

#[derive(Debug, clap::Args)]
#[command(after_help = STANDBY)]
pub(crate) struct Args {
    /// Repair derived data: positions, counters, the time of the last commit
    #[arg(long)]
    repair: bool,

    /// With --repair: show what would be repaired, and change nothing
    #[arg(long, requires = "repair")]
    dry_run: bool,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct CheckReport<'a> {
    path: &'a str,
    ok: bool,
    findings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<&'a RepairCounts>,
}

#[derive(Serialize)]
struct RepairCounts {
    dry_run: bool,
    repaired: Vec<String>,
    left: Vec<String>,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let place = self.store.place()?;
        let shown = place.to_string();
        let mended = if self.repair {
            Some(self.repair(&place).await?)
        } else {
            None
        };
        let (findings, keep, beside) = match place {
            LedgerLocation::File(path) => {
                let mut findings = future(&path)?;
                findings.extend(check_file(path.clone()).await?);
                let beside = format!("; {}", backups_beside(&path));
                (findings, "the file", beside)
            }
            LedgerLocation::Database(address) => {
                let address = address.for_reading();
                if !self.output.json {
                    warn_cost(&address).await?;
                }
                (
                    check_database(&address).await?,
                    "the database",
                    String::new(),
                )
            }
        };
        if self.output.json {
            out::json(&CheckReport {
                path: &shown,
                ok: findings.is_empty(),
                findings: &findings,
                repair: mended.as_ref(),
            })?;
        } else {
            if let Some(mended) = &mended {
                mended.show(&shown);
            }
            for finding in &findings {
                out::data(&render::safe(finding))?;
            }
        }
        if findings.is_empty() {
            out::note(&format!("{shown} is sound"));
            return Ok(Exit::Done);
        }
        let message = format!("{shown} has {} findings", findings.len());
        let backup =
            format!("keep {keep} unchanged and restore a backup that passes this check{beside}");
        let hint = if !self.repair && findings.iter().any(|finding| is_repairable(finding)) {
            format!(
                "positions, counters and the time can be repaired: consign store check --repair; for anything else {backup}"
            )
        } else if findings.iter().all(|finding| finding.starts_with("time:")) {
            "nothing is damaged: start with --clock-ahead, settle or cancel the open intents, and repair again".to_owned()
        } else {
            backup
        };
        Err(Failure::failed(message).hint(hint).into())
    }

    async fn repair(&self, place: &LedgerLocation) -> anyhow::Result<RepairCounts> {
        let dry_run = self.dry_run;
        let (repaired, left) = match place {
            LedgerLocation::File(path) => {
                must_be_ours(path)?;
                let _lock = DataLock::database(path)?;
                let done = sqlite::repair(path, now(), AHEAD_US_MAX, dry_run)?;
                (done.repaired, done.left)
            }
            LedgerLocation::Database(address) => {
                if Postgres::pending(address).await?.is_none() {
                    return Err(no_ledger(address).into());
                }
                (Postgres::repair(address, dry_run).await?, Vec::new())
            }
        };
        Ok(RepairCounts {
            dry_run,
            repaired,
            left,
        })
    }
}

impl RepairCounts {
    fn show(&self, shown: &str) {
        for line in self.repaired.iter().chain(&self.left) {
            out::note(&render::safe(line));
        }
        out::note(&match (self.repaired.len(), self.dry_run) {
            (0, _) if !self.left.is_empty() => format!("{shown}: nothing was changed"),
            (0, _) => format!("{shown}: nothing to repair"),
            (count, true) => format!("{shown}: {count} would be repaired; nothing was changed"),
            (count, false) => format!("{shown}: {count} mended"),
        });
    }
}

/// Whether [`Args::repair`] can fix a finding. A finding begins with its subject.
fn is_repairable(finding: &str) -> bool {
    ["position:", "counter ", "time:"]
        .iter()
        .any(|kind| finding.starts_with(kind))
        || finding.contains("beyond the assigned numbers")
}

/// A last commit in the future is no damage, but no server starts on such a file.
fn future(path: &std::path::Path) -> anyhow::Result<Vec<String>> {
    let last = Sqlite::last_time(path).map_err(|error| explained(error, path))?;
    let ahead_us = last.map_or(0, |last| last.0.saturating_sub(now().0));
    let seconds = ahead_us / SECOND_US;
    Ok((ahead_us > AHEAD_US_MAX)
        .then(|| format!("time: the last commit is {seconds} s ahead of this machine's clock"))
        .into_iter()
        .collect())
}

pub(crate) async fn check_file(path: std::path::PathBuf) -> anyhow::Result<Vec<String>> {
    must_be_ours(&path)?;
    // A running server locks its files. A copy made by `store backup` can be checked at any time.
    let _lock = DataLock::database(&path)?;
    let looked = tokio::task::spawn_blocking(move || {
        Sqlite::check_file(&path, now()).map_err(|error| explained(error, &path))
    });
    looked.await.context("the check panicked")?
}

/// Reads one snapshot, so servers may run. A schema of another version is not migrated under them.
async fn check_database(address: &DatabaseAddress) -> anyhow::Result<Vec<String>> {
    let pending = Postgres::pending(address).await?;
    let pending = pending.ok_or_else(|| no_ledger(address))?;
    if !pending.is_empty() {
        return Err(
            Failure::failed(format!("{address} has a schema of an older version"))
                .hint("migrate it with: consign store migrate")
                .into(),
        );
    }
    Ok(Postgres::check_database(address).await?)
}
