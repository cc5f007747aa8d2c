//! `config lock`

use consign_automation::config::SealChange;
use consign_automation::program;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::tree::{TreeArgs, text_of, unsealable};
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show what would be sealed, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let plan = program::lock(&tree.path, &tree.environment, Timestamp::now());
        let plan = plan.map_err(|error| unsealable(&error))?;
        if !self.dry_run {
            plan.apply()?;
        }
        if self.tree.output.json {
            let changes = plan.changes.iter();
            let changes: Value = changes
                .map(|(path, change)| json!({ "path": path, "change": word(*change) }))
                .collect();
            out::json(&json!({ "sealed": !self.dry_run, "changes": changes }))?;
            return Ok(Exit::Done);
        }
        for (path, change) in &plan.changes {
            if self.tree.verbose || *change != SealChange::Kept {
                out::data(&format!("{:7}  {}", word(*change), text_of(path)))?;
            }
        }
        out::note(if self.dry_run {
            "nothing was written"
        } else {
            "sealed"
        });
        Ok(Exit::Done)
    }
}

fn word(change: SealChange) -> &'static str {
    match change {
        SealChange::Added => "added",
        SealChange::Changed => "changed",
        SealChange::Removed => "removed",
        SealChange::Kept => "kept",
    }
}
