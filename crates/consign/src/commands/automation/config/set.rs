//! `config set PATH=VALUE`

use consign_automation::config::edit;
use serde_json::json;

use super::tree::{TreeArgs, refused};
use crate::failure::{Exit, Failure};
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Such as `service.log_level=debug` or `plugin:mail.enabled=false`
    #[arg(value_name = "PATH=VALUE")]
    assignment: String,

    /// Judge the change, and write nothing
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,

    /// Make the change, and keep the file before it as .bak
    #[arg(long)]
    apply: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if !self.dry_run && !self.apply {
            let message = "say whether the change is meant";
            let hint = "add --apply to make it, or --dry-run to judge it";
            return Err(Failure::failed(message).hint(hint).into());
        }
        let tree = self.tree.find()?;
        let edit = edit::set(&tree.path, &tree.environment, &self.assignment);
        let edit = edit.map_err(|no| refused(&no))?;
        tree.make(&edit, self.dry_run)?;
        if self.tree.output.json {
            let files: Vec<_> = edit.paths().map(|(path, _)| path.to_owned()).collect();
            out::json(&json!({ "applied": self.apply, "files": files }))?;
        } else if self.apply {
            out::note("changed; a sealed configuration needs `config lock` now");
        }
        Ok(Exit::Done)
    }
}
