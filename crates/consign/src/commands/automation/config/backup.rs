//! `config backup --output DIR` and `config restore DIR`

use std::path::PathBuf;

use consign_automation::config::edit;
use serde_json::json;

use super::tree::{TreeArgs, text_of};
use crate::failure::{Exit, Failure};
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// The directory to create; it contains the secrets of the configuration, so keep it private
    #[arg(long, value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// A directory that `config backup` created
    #[arg(value_name = "DIR")]
    from: PathBuf,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl BackupArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let config = self.tree.find()?.peek()?;
        let done = edit::backup(&config, &self.output).map_err(|error| {
            Failure::failed(error.to_string()).hint("name a directory that does not exist yet")
        })?;
        for path in &done.left_out {
            let path = text_of(path);
            out::note(&format!(
                "warning: {path} is outside of the directory and is not copied"
            ));
        }
        if self.tree.output.json {
            out::json(&json!({ "copied": done.copied, "left_out": done.left_out }))?;
        } else {
            for path in &done.copied {
                out::data(&text_of(path))?;
            }
        }
        Ok(Exit::Done)
    }
}

impl RestoreArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let dir = tree.path.parent().unwrap_or(&tree.path);
        let edit = edit::restore(&self.from, dir).map_err(|error| {
            Failure::failed(error.to_string()).hint("name a directory that `config backup` created")
        })?;
        tree.apply_edit(&edit, self.dry_run)?;
        let files: Vec<_> = edit.paths().map(|(path, _)| path.to_owned()).collect();
        if self.tree.output.json {
            out::json(&json!({ "restored": !self.dry_run, "files": files }))?;
        } else if !self.dry_run {
            out::note(&format!("restored {} files", files.len()));
        }
        Ok(Exit::Done)
    }
}
