//! `consign import intent-bus FILE`

use std::io::IsTerminal;
use std::path::PathBuf;

use consign_engine::{ImportOptions, ImportReport, Operator, import_intent_bus};
use serde::Serialize;

use super::ledger::ImportLedger;
use super::stopped;
use crate::commands::OutputArgs;
use crate::commands::store::StoreArgs;
use crate::config::protocol_settings;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::secrets::SecretName;
use crate::serve::begin::BeginArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = MAIN_KEY)]
pub(crate) struct Args {
    /// Database file of the Intent Bus; it is only read, and its server must be stopped
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

const MAIN_KEY: &str = "\
Set BUS_SECRET to the main key of the old server, so that the intents of that key
belong to the main key here too. Running the import again takes nothing twice.";

#[derive(Serialize)]
struct ImportSummary<'a> {
    dry_run: bool,
    intents_taken: u64,
    intents_present: u64,
    keys_taken: u64,
    keys_present: u64,
    kv_taken: u64,
    kv_present: u64,
    kv_expired: u64,
    idempotency_left: u64,
    nonces_left: u64,
    skipped: u64,
    reasons: &'a [String],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if !self.file.is_file() {
            let message = format!("file not found: {}", self.file.display());
            return Err(Failure::new(Exit::Nothing, message).into());
        }
        let settings = protocol_settings()?;
        let (data, path) = (self.store.data_dir(), self.store.path()?);
        let ledger = if self.dry_run {
            ImportLedger::rehearse(&data, &path, &settings)?
        } else {
            let question = format!("import {} into {}?", self.file.display(), path.display());
            confirm(&question, self.yes)?;
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
        let options = ImportOptions {
            dry_run: self.dry_run,
        };
        let report = import_intent_bus(
            &ledger.engine,
            Operator::vouched(),
            &self.file,
            options,
            progress,
        )
        .await;
        if show {
            out::note("");
        }
        let made_main_key = ledger.made.contains(&SecretName::BusSecret);
        ledger.close();
        let report = report.map_err(|error| stopped(error, self.dry_run))?;
        self.show(&report)?;
        if made_main_key {
            out::note(
                "a new main key was created: intents of the old main key belong to no key here",
            );
            out::note("hint: to avoid that, import into a new directory with BUS_SECRET set");
        }
        Ok(Exit::Done)
    }

    fn show(&self, report: &ImportReport) -> anyhow::Result<()> {
        if self.output.json {
            return out::json(&ImportSummary {
                dry_run: self.dry_run,
                intents_taken: report.intents_taken,
                intents_present: report.intents_present,
                keys_taken: report.keys_taken,
                keys_present: report.keys_present,
                kv_taken: report.kv_taken,
                kv_present: report.kv_present,
                kv_expired: report.kv_expired,
                idempotency_left: report.idempotency_left,
                nonces_left: report.nonces_left,
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

fn human(report: &ImportReport) -> String {
    let count = |count: u64| Some(count.to_string());
    render::fields(&[
        ("intents imported", count(report.intents_taken)),
        ("intents already present", count(report.intents_present)),
        ("keys imported", count(report.keys_taken)),
        ("keys already present", count(report.keys_present)),
        ("values imported", count(report.kv_taken)),
        ("values already present", count(report.kv_present)),
        ("values expired", count(report.kv_expired)),
        ("rows skipped", count(report.skipped)),
        ("idempotency keys skipped", count(report.idempotency_left)),
        ("nonces skipped", count(report.nonces_left)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_what_was_taken_and_what_was_not() {
        let report = ImportReport {
            intents_taken: 12,
            keys_taken: 2,
            skipped: 1,
            ..ImportReport::default()
        };
        assert_eq!(
            human(&report),
            "intents imported          12\n\
             intents already present   0\n\
             keys imported             2\n\
             keys already present      0\n\
             values imported           0\n\
             values already present    0\n\
             values expired            0\n\
             rows skipped              1\n\
             idempotency keys skipped  0\n\
             nonces skipped            0\n"
        );
    }
}
