//! `system backup --to FILE`

mod archive;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use consign_automation::config::{Config, edit};
use serde_json::json;

use self::archive::Archive;
use crate::commands::automation::ask::block_on;
use crate::commands::automation::config::tree::{Tree, TreeArgs};
use crate::commands::store;
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::out;
use crate::system::StateDir;

const AFTER_HELP: &str = "\
Writes a tar.gz with state/ (the ledger as of one instant, also while a service runs),
config/ (its files) and plugins/ (what lies in the plugin roots). It holds the secrets
that the configuration holds. The keys beside the ledger are not in it: keep a copy of
them apart. Jobs of a `consign serve --config` lie in its store: save them with
`consign store backup`, and the rest with --scope config and --scope plugins.

Example:
  ductile system backup --to backup.tar.gz && tar tzf backup.tar.gz";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The new file; it must not exist yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// What to put into it
    #[arg(long, value_enum, default_value_t = Scope::All)]
    scope: Scope,

    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scope {
    Db,
    Config,
    Plugins,
    All,
}

impl Scope {
    fn has(self, part: Self) -> bool {
        self == part || self == Self::All
    }
}

/// What goes into the archive, under which name, and what cannot.
#[derive(Debug, Default)]
struct Plan {
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
        let mut plan = Plan::default();
        if self.scope.has(Scope::Config) {
            plan.add_config(&config);
        }
        if self.scope.has(Scope::Plugins) {
            plan.add_plugins(&config.plugin_roots)?;
        }
        let ledger = self.ledger(&tree)?;
        let bytes = if self.dry_run {
            None
        } else {
            Some(self.write(&plan, ledger.as_deref())?)
        };
        self.tell(&plan, ledger.as_deref(), bytes)
    }

    /// Beside the Intent Protocol the ledger is the server's, and `consign store` backs it up. A file that lies here all the same
    /// is not the one that matters.
    fn ledger(&self, tree: &Tree) -> anyhow::Result<Option<PathBuf>> {
        if !self.scope.has(Scope::Db) {
            return Ok(None);
        }
        let state = StateDir::at(tree)?;
        state.require_here(
            "save them with `consign store backup`, and the rest with `--scope config` and `--scope plugins`",
        )?;
        let path = state.ledger().to_owned();
        if path.is_file() {
            return Ok(Some(path));
        }
        let message = format!("there is no ledger at {}", path.display());
        if self.scope == Scope::Db {
            let hint = "one beside the Intent Protocol is saved with `consign store backup`";
            return Err(Failure::failed(message).hint(hint).into());
        }
        out::note(&format!("warning: {message}"));
        Ok(None)
    }

    fn write(&self, plan: &Plan, ledger: Option<&Path>) -> anyhow::Result<u64> {
        let shown = self.to.display();
        let archive = Archive::create(&self.to);
        let mut archive = archive.with_context(|| format!("cannot make {shown}"))?;
        if let Some(ledger) = ledger {
            let mut copy = self.to.clone().into_os_string();
            copy.push(".db");
            let copy = PathBuf::from(copy);
            if copy.exists() {
                let message = format!("{} is in the way", copy.display());
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

    fn tell(&self, plan: &Plan, ledger: Option<&Path>, bytes: Option<u64>) -> anyhow::Result<Exit> {
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
                    out::note("keys are not in it: keep a copy of the ledger's `keys` apart");
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

impl Plan {
    fn add_config(&mut self, config: &Config) {
        for path in edit::paths(config) {
            match path.strip_prefix(&config.dir) {
                Ok(relative) => self.take("config", relative, &path),
                // It has no place below `config`.
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
                        self.take(&folder, &relative, &path);
                    } else {
                        self.left_out.push(path);
                    }
                }
            }
        }
        self.files.sort();
        Ok(())
    }

    fn take(&mut self, folder: &str, relative: &Path, path: &Path) {
        match relative.to_str() {
            Some(name) => self
                .files
                .push((format!("{folder}/{name}"), path.to_owned())),
            None => self.left_out.push(path.to_owned()),
        }
    }
}
