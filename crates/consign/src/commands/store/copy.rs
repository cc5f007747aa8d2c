//! `consign store copy --from URL --to URL`

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use consign_kernel::ids::SECOND_US;
use consign_store::copy::{self, CopyPlan, Options, TargetContent};
use serde::Serialize;

use super::{ProgressPrinter, now};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::lock::DataLock;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = STEPS)]
pub(crate) struct Args {
    /// The database to copy, as sqlite:PATH or <postgres://USER@HOST/DATABASE>; no server may run on it
    #[arg(long, value_name = "URL")]
    from: String,

    /// The target: a new file, or a database without a ledger
    #[arg(long, value_name = "URL")]
    to: String,

    /// File with the password of the source; default is `CONSIGN_STORE_PASSWORD`
    #[arg(long, value_name = "FILE")]
    from_password_file: Option<PathBuf>,

    /// File with the password of the target; default is `CONSIGN_STORE_PASSWORD`
    #[arg(long, value_name = "FILE")]
    to_password_file: Option<PathBuf>,

    /// Discard what an interrupted copy has left in the target, and start again
    #[arg(long)]
    anew: bool,

    /// Show what would be copied, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,
}

const STEPS: &str = "\
Stop all servers first. A copy that was cut off goes on where it was when it is run
again, and until it is whole no server starts on the target. At the end the rows of
both sides are counted and hashed. Keys are not in a database: servers on the target
need the `keys` of the servers on the source.";

#[derive(Serialize)]
struct CopyOutput {
    from: String,
    to: String,
    dry_run: bool,
    resumed: bool,
    tables: Vec<CopiedPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    obstacles: Vec<String>,
}

#[derive(Serialize)]
struct CopiedPart {
    table: &'static str,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let from = LedgerLocation::end(&self.from, self.from_password_file.as_deref())?;
        let to = LedgerLocation::end(&self.to, self.to_password_file.as_deref())?;
        if self.dry_run {
            return self.rehearse(&from, &to).await;
        }
        // Otherwise it would be refused as locked by a server.
        if let (LedgerLocation::File(from), LedgerLocation::File(to)) = (&from, &to)
            && from.canonicalize().ok() == to.canonicalize().ok()
            && from.exists()
        {
            let message = format!("source and target are the same file, {}", from.display());
            return Err(Failure::usage(message).into());
        }
        must_exist(&from)?;
        let _locks = (from.lock()?, to.lock()?);
        let options = Options {
            from: from.to_end(),
            to: to.to_end(),
            anew: self.anew,
            batch_rows: copy::BATCH_ROWS_DEFAULT,
            now_us: now().0,
        };
        let show = !self.output.json && std::io::stderr().is_terminal();
        let began = Instant::now();
        let copied = tokio::task::spawn_blocking(move || {
            let mut printer = ProgressPrinter::new(show);
            let copied = copy::copy(&options, |progress| printer.print(progress));
            printer.end();
            copied
        });
        let report = copied.await.context("the copy panicked")??;
        let ahead_us = report.last_time_us - now().0;
        let tables = report.tables.into_iter().map(|copied| CopiedPart {
            table: copied.table.name(),
            rows: copied.rows,
            digest: Some(copied.digest),
        });
        self.show(&CopyOutput {
            from: from.to_string(),
            to: to.to_string(),
            dry_run: false,
            resumed: report.resumed,
            tables: tables.collect(),
            target: None,
            obstacles: Vec::new(),
        })?;
        if !self.output.json {
            let seconds = began.elapsed().as_secs_f64();
            out::note(&format!("{to} holds what {from} held ({seconds:.1} s)"));
            out::note("keys are not in it: servers on it need the keys of those before");
        }
        if ahead_us > 2 * SECOND_US && matches!(to, LedgerLocation::Database(_)) {
            // A file stores its time; servers on a database use their clocks.
            let ahead_s = ahead_us / SECOND_US;
            out::note(&format!(
                "the last commit was {ahead_s} s ahead of the clock of this machine: set the clocks before servers start, \
                 or leases end that much later"
            ));
        }
        Ok(Exit::Done)
    }

    async fn rehearse(&self, from: &LedgerLocation, to: &LedgerLocation) -> anyhow::Result<Exit> {
        must_exist(from)?;
        let (source, target, anew) = (from.to_end(), to.to_end(), self.anew);
        let plan = tokio::task::spawn_blocking(move || copy::plan(&source, &target, anew));
        let mut plan: CopyPlan = plan.await.context("the dry run panicked")??;
        for place in [from, to] {
            if let LedgerLocation::File(path) = place
                && DataLock::is_held(path)
            {
                plan.obstacles
                    .push(format!("{place} is in use by a server"));
            }
        }
        let tables = plan.tables.iter().map(|(table, rows)| CopiedPart {
            table: table.name(),
            rows: *rows,
            digest: None,
        });
        self.show(&CopyOutput {
            from: from.to_string(),
            to: to.to_string(),
            dry_run: true,
            resumed: plan.found == TargetContent::Part && !self.anew,
            tables: tables.collect(),
            target: Some(word(&plan.found)),
            obstacles: plan.obstacles.clone(),
        })?;
        if !self.output.json {
            out::note(&format!("{to} {}", sentence(&plan.found)));
            out::note("nothing was changed");
        }
        match plan.obstacles.into_iter().next() {
            None => Ok(Exit::Done),
            Some(obstacle) => {
                Err(Failure::failed(format!("the copy would be refused: {obstacle}")).into())
            }
        }
    }

    fn show(&self, report: &CopyOutput) -> anyhow::Result<()> {
        if self.output.json {
            return out::json(report);
        }
        let rows: Vec<Vec<String>> = report
            .tables
            .iter()
            .map(|table| {
                let digest = table.digest.clone().unwrap_or_default();
                vec![table.table.to_owned(), table.rows.to_string(), digest]
            })
            .collect();
        let heading: &[&str] = if report.dry_run {
            &["TABLE", "ROWS", ""]
        } else {
            &["TABLE", "ROWS", "DIGEST"]
        };
        out::data(&render::table(heading, &rows))
    }
}

/// Checked before a lock file is created for it.
fn must_exist(from: &LedgerLocation) -> anyhow::Result<()> {
    match from {
        LedgerLocation::File(path) => super::must_be_ours(path),
        LedgerLocation::Database(_) => Ok(()),
    }
}

fn word(found: &TargetContent) -> &'static str {
    match found {
        TargetContent::Nothing => "nothing",
        TargetContent::Empty => "empty",
        TargetContent::Ledger => "ledger",
        TargetContent::Part => "part",
        TargetContent::OtherPart(_) => "other part",
    }
}

fn sentence(found: &TargetContent) -> String {
    match found {
        TargetContent::Nothing => "would be created".to_owned(),
        TargetContent::Empty => "has an empty ledger".to_owned(),
        TargetContent::Ledger => "has a ledger with content".to_owned(),
        TargetContent::Part => "has a part of this copy, which would be continued".to_owned(),
        TargetContent::OtherPart(other) => {
            format!("has a part of a copy of {}", render::safe(other))
        }
    }
}
