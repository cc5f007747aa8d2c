//! `config set PATH=VALUE`

use consign_automation::config::edit::{self, Edit, EditRefused};
use serde_json::json;

use super::tree::{ConfigTree, TreeArgs, refused};
use crate::failure::{Exit, Failure};
use crate::{ductile, out};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Such as `service.log_level=debug` or `plugin:mail.enabled=false`
    #[arg(value_name = "PATH=VALUE")]
    assignment: String,

    #[command(flatten)]
    meant: MeantArgs,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// One of the two is required.
#[derive(Debug, clap::Args)]
pub(super) struct MeantArgs {
    /// Check the change, and write nothing
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,

    /// Apply the change, and keep the previous file as .bak
    #[arg(long)]
    apply: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        self.meant.make(&self.tree, |tree| {
            edit::set(&tree.path, &tree.environment, &self.assignment)
        })
    }
}

impl MeantArgs {
    /// Plans a change, checks its consequences, and applies it with `--apply`.
    pub(super) fn make(
        &self,
        args: &TreeArgs,
        plan: impl Fn(&ConfigTree) -> Result<Edit, EditRefused>,
    ) -> anyhow::Result<Exit> {
        if !self.dry_run && !self.apply {
            let message = "either --apply or --dry-run is required";
            let hint = "add --apply to write the change, or --dry-run to check it";
            return Err(Failure::failed(message).hint(hint).into());
        }
        let tree = args.find()?;
        let edit = plan(&tree).map_err(|no| refused(&no))?;
        tree.apply_edit(&edit, self.dry_run)?;
        if args.output.json {
            let files: Vec<_> = edit.paths().map(|(path, _)| path.to_owned()).collect();
            out::json(&json!({ "applied": self.apply, "files": files }))?;
        } else if self.apply {
            let note = "changed; a sealed configuration needs `config lock` now";
            out::note(&ductile::typed(note));
        }
        Ok(Exit::Done)
    }
}
