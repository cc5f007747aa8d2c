//! `consign import beam FILE`

use std::io::IsTerminal;
use std::path::PathBuf;

use consign_beam::import::{BeamImportOptions, BeamImportReport, import_beam};
use consign_engine::{BeamFile, Error, StoreError};
use serde::Serialize;

use super::ledger::ImportLedger;
use super::stopped;
use crate::commands::OutputArgs;
use crate::commands::store::StoreArgs;
use crate::config::protocol_settings;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::serve::begin::BeginArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Database file of a Beam directory or of its message bus; it is only read, and its server must be stopped
    file: PathBuf,

    /// Show what would be imported, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    begin: BeginArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const AFTER_HELP: &str = "\
The tables of the file tell whether it is a directory or a bus. Agents keep their keys and the
hashes of their API keys, intents their results and traces, messages all their fields. Running
the import again takes nothing twice.

Example:
  consign import beam beam-directory.db --dry-run
  consign import beam beam-directory.db --yes
  consign import beam beam-bus.sqlite --yes";

#[derive(Serialize)]
struct BeamImportSummary<'a> {
    dry_run: bool,
    agents_taken: u64,
    agents_present: u64,
    acls_taken: u64,
    acls_present: u64,
    delegations_taken: u64,
    delegations_present: u64,
    peers_taken: u64,
    peers_present: u64,
    intents_taken: u64,
    intents_present: u64,
    messages_taken: u64,
    messages_present: u64,
    skipped: u64,
    reasons: &'a [String],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if !self.file.is_file() {
            let message = format!("file not found: {}", self.file.display());
            return Err(Failure::new(Exit::Nothing, message).into());
        }
        // Before the ledger is opened or created, so that an unfit file changes nothing.
        let file = BeamFile::open(&self.file).map_err(Error::Store)?;
        let settings = protocol_settings()?;
        let (data, path) = (self.store.data_dir(), self.store.path()?);
        let ledger = if self.dry_run {
            ImportLedger::rehearse(&data, &path, &settings)?
        } else {
            self.ask(&file, &path)?;
            ImportLedger::open(&data, &path, &settings, self.begin).await?
        };
        let show = !self.output.json && std::io::stderr().is_terminal();
        let mut shown = u64::MAX;
        let progress = |done: u64, all: u64| {
            let percent = done * 100 / all.max(1);
            if show && percent != shown {
                out::ask(&format!("\rreading, {percent} %"));
                shown = percent;
            }
        };
        let options = BeamImportOptions {
            dry_run: self.dry_run,
        };
        let report = import_beam(&ledger.engine, &file, options, progress).await;
        if show {
            out::note("");
        }
        ledger.close();
        let report = report.map_err(|error| stopped(error, self.dry_run))?;
        self.show(&report)?;
        Ok(Exit::Done)
    }

    /// Shows what the file holds, and asks.
    fn ask(&self, file: &BeamFile, path: &std::path::Path) -> anyhow::Result<()> {
        let rows = file
            .rows()
            .map_err(|error: StoreError| Error::Store(error))?;
        let held = format!(
            "{} agents, {} access rules, {} intents, {} messages",
            rows.agents, rows.acls, rows.intents, rows.messages
        );
        let question = format!(
            "import {} ({held}) into {}?",
            self.file.display(),
            path.display()
        );
        confirm(&question, self.yes)
    }

    fn show(&self, report: &BeamImportReport) -> anyhow::Result<()> {
        if self.output.json {
            return out::json(&BeamImportSummary {
                dry_run: self.dry_run,
                agents_taken: report.agents_taken,
                agents_present: report.agents_present,
                acls_taken: report.acls_taken,
                acls_present: report.acls_present,
                delegations_taken: report.delegations_taken,
                delegations_present: report.delegations_present,
                peers_taken: report.peers_taken,
                peers_present: report.peers_present,
                intents_taken: report.intents_taken,
                intents_present: report.intents_present,
                messages_taken: report.messages_taken,
                messages_present: report.messages_present,
                skipped: report.skipped,
                reasons: &report.reasons,
            });
        }
        out::data(&human(report))?;
        for reason in &report.reasons {
            out::note(&format!("skipped: {}", render::safe(reason)));
        }
        if self.dry_run {
            out::note("nothing was changed");
        }
        Ok(())
    }
}

fn human(report: &BeamImportReport) -> String {
    let count = |count: u64| Some(count.to_string());
    render::fields(&[
        ("agents imported", count(report.agents_taken)),
        ("agents already present", count(report.agents_present)),
        ("access rules imported", count(report.acls_taken)),
        ("access rules already present", count(report.acls_present)),
        ("delegations imported", count(report.delegations_taken)),
        (
            "delegations already present",
            count(report.delegations_present),
        ),
        ("peers imported", count(report.peers_taken)),
        ("peers already present", count(report.peers_present)),
        ("intents imported", count(report.intents_taken)),
        ("intents already present", count(report.intents_present)),
        ("messages imported", count(report.messages_taken)),
        ("messages already present", count(report.messages_present)),
        ("rows skipped", count(report.skipped)),
    ])
}
