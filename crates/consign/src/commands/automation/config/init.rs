//! `config init DIR`

use std::path::PathBuf;

use consign_automation::config::{self, edit};
use serde_json::json;

use super::tree::TreeArgs;
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to write it; the directory is created
    #[arg(value_name = "DIR", required_unless_present = "config_dir")]
    dir: Option<PathBuf>,

    /// The same, as a flag
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    config_dir: Option<PathBuf>,

    /// Replace an existing configuration; it is kept as config.yaml.bak
    #[arg(long)]
    force: bool,

    /// Show where it would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Show more details
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let dir = self.dir.or(self.config_dir).unwrap_or_default();
        if !self.dry_run {
            edit::init(&dir, self.force).map_err(|error| {
                let hint = "choose another directory, or add --force to replace it";
                Failure::failed(error.to_string()).hint(hint)
            })?;
            // Sealed at once, because the files were just written and are known to be correct.
            let tree = TreeArgs::in_dir(&dir, self.verbose).find()?;
            tree.seal()?;
        }
        let path = dir.join(config::FILE);
        if self.output.json {
            out::json(&json!({ "config": path, "written": !self.dry_run }))?;
        } else {
            out::data(&path.display().to_string())?;
            if self.dry_run {
                out::note("nothing was written");
            }
        }
        Ok(Exit::Done)
    }
}
