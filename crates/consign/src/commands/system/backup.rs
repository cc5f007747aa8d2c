//! `system backup --to FILE`

mod archive;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use consign_automation::config::{Config, edit};
use serde_json::json;

use self::archive::Archive;
use crate::commands::automation::config::tree::{ConfigTree, TreeArgs};
use crate::commands::automation::request::block_on;
use crate::commands::store;
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::out;
use crate::system::StateDir;

const AFTER_HELP: &str = "\
Writes a tar.gz with state/ (a consistent copy of the ledger, even while a service runs),
config/ (its files) and plugins/ (the files of the plugin roots). It contains the secrets
of the configuration, but not the keys beside the ledger: keep a separate copy of them.
The jobs of a `consign serve --config` are in its store: back them up with
`consign store backup`, and the rest with --scope config and --scope plugins.

Example:
  consign system backup --to backup.tar.gz && tar tzf backup.tar.gz";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The new file; it must not exist yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// What to include
    #[arg(long, value_enum, default_value_t = BackupScope::All)]
    scope: BackupScope,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackupScope {
    Db,
    Config,
    Plugins,
    All,
}

impl BackupScope {
    fn has(self, part: Self) -> bool {
        self == part || self == Self::All
    }
}

/// The files of the archive with their names, and those that are left out.
#[derive(Debug, Default)]
struct BackupPlan {
    files: Vec<(String, PathBuf)>,
    left_out: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let config = tree.with_stand_ins().peek()?;
        if self.to.exists() {
            let message = format!("{} exists already", self.to.display());
            return Err(Failure::failed(message).hint("choose a new name").into());
        }
        let mut plan = BackupPlan::default();
        if self.scope.has(BackupScope::Config) {
            plan.add_config(&config);
        }
        if self.scope.has(BackupScope::Plugins) {
            plan.add_plugins(&config.plugin_roots)?;
        }
        let ledger = self.ledger(&tree)?;
        let bytes = if self.dry_run {
            None
        } else {
            Some(self.write(&plan, ledger.as_deref())?)
        };
        self.print_summary(&plan, ledger.as_deref(), bytes)
    }

    /// For an embedded automation the ledger is that of the server, and `consign store` backs it up. A file that still lies here
    /// is not the current one.
    fn ledger(&self, tree: &ConfigTree) -> anyhow::Result<Option<PathBuf>> {
        if !self.scope.has(BackupScope::Db) {
            return Ok(None);
        }
        let state = StateDir::of_tree(tree)?;
        state.require_own_ledger(
            "back them up with `consign store backup`, and the rest with `--scope config` and `--scope plugins`",
        )?;
        let path = state.ledger().to_owned();
        if path.is_file() {
            return Ok(Some(path));
        }
        let message = format!("no ledger exists at {}", path.display());
        if self.scope == BackupScope::Db {
            let hint = "the ledger of a server is backed up with `consign store backup`";
            return Err(Failure::failed(message).hint(hint).into());
        }
        out::note(&format!("warning: {message}"));
        Ok(None)
    }

    fn write(&self, plan: &BackupPlan, ledger: Option<&Path>) -> anyhow::Result<u64> {
        let shown = self.to.display();
        let archive = Archive::create(&self.to);
        let mut archive = archive.with_context(|| format!("cannot create {shown}"))?;
        if let Some(ledger) = ledger {
            let mut copy = self.to.clone().into_os_string();
            copy.push(".db");
            let copy = PathBuf::from(copy);
            if copy.exists() {
                let message = format!("{} exists already", copy.display());
                return Err(Failure::failed(message).hint("move it away").into());
            }
            let from = LedgerLocation::File(ledger.to_owned());
            block_on(async { store::back_up(&from, &copy, false).await })?;
            let added = archive.add(&ledger_name(ledger), &copy);
            fs::remove_file(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
            added.with_context(|| format!("cannot write {shown}"))?;
        }
        for (name, path) in &plan.files {
            let added = archive.add(name, path);
            added.with_context(|| format!("cannot save {}", path.display()))?;
        }
        let bytes = archive.finish();
        bytes.with_context(|| format!("cannot write {shown}"))
    }

    fn print_summary(
        &self,
        plan: &BackupPlan,
        ledger: Option<&Path>,
        bytes: Option<u64>,
    ) -> anyhow::Result<Exit> {
        let files = plan.files.iter().map(|(name, _)| name.clone());
        let names: Vec<String> = ledger.map(ledger_name).into_iter().chain(files).collect();
        if self.tree.output.json {
            out::json(&json!({
                "to": self.to, "dry_run": self.dry_run, "bytes": bytes, "files": names, "left_out": plan.left_out,
            }))?;
            return Ok(Exit::Done);
        }
        for path in &plan.left_out {
            out::note(&format!("warning: {} is left out", path.display()));
        }
        if self.dry_run || self.tree.verbose {
            for name in &names {
                out::data(name)?;
            }
        }
        let (to, count) = (self.to.display(), names.len());
        match bytes {
            Some(bytes) => {
                out::data(&format!("{to}: {count} files, {bytes} bytes"))?;
                if ledger.is_some() {
                    out::note("keys are not included: keep a separate copy of the ledger's `keys`");
                }
            }
            None => out::note(&format!("would write {count} files to {to}")),
        }
        Ok(Exit::Done)
    }
}

fn ledger_name(ledger: &Path) -> String {
    let name = ledger.file_name().unwrap_or_default();
    format!("state/{}", name.to_string_lossy())
}

impl BackupPlan {
    fn add_config(&mut self, config: &Config) {
        for path in edit::paths(config) {
            match path.strip_prefix(&config.dir) {
                Ok(relative) => self.add_file("config", relative, &path),
                // It is outside of the configuration's directory.
                Err(_) => self.left_out.push(path),
            }
        }
    }

    /// The first root is `plugins`; further ones are numbered in the order of the configuration.
    fn add_plugins(&mut self, roots: &[PathBuf]) -> anyhow::Result<()> {
        for (root, number) in roots.iter().zip(1..) {
            let folder = match number {
                1 => "plugins".to_owned(),
                number => format!("plugins-{number}"),
            };
            let mut waiting = vec![root.clone()];
            while let Some(dir) = waiting.pop() {
                let entries = fs::read_dir(&dir);
                let entries = entries.with_context(|| format!("cannot read {}", dir.display()))?;
                for entry in entries {
                    let entry = entry?;
                    let kind = entry.file_type()?;
                    let path = entry.path();
                    if kind.is_dir() {
                        waiting.push(path);
                    } else if kind.is_file() {
                        let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                        self.add_file(&folder, &relative, &path);
                    } else {
                        self.left_out.push(path);
                    }
                }
            }
        }
        self.files.sort();
        Ok(())
    }

    fn add_file(&mut self, folder: &str, relative: &Path, path: &Path) {
        match relative.to_str() {
            Some(name) => self
                .files
                .push((format!("{folder}/{name}"), path.to_owned())),
            None => self.left_out.push(path.to_owned()),
        }
    }
}
