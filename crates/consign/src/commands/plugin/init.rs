//! `plugin init`

use std::path::PathBuf;

use consign_automation::plugin::scaffold::{self, Language};
use serde_json::json;

use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::{Exit, Failure};
use crate::{ductile, out};

const AFTER_HELP: &str = "\
Example:
  consign plugin init mail --language python --config ./automation
  consign plugin validate plugins/mail
  consign plugin run mail --config ./automation";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The name of the plugin
    name: String,

    /// bash, python or rust
    #[arg(long, value_name = "LANGUAGE", default_value = "bash")]
    language: String,

    /// The parent directory of the plugin's directory; the default is the first plugin root of the configuration
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let language = Language::named(&self.language).ok_or_else(|| {
            let known = Language::ALL.map(Language::as_str).join(", ");
            Failure::failed(format!("no template exists for {}", self.language))
                .hint(format!("choose one of {known}"))
        })?;
        let is_elsewhere = self.dir.is_some();
        let parent = if let Some(dir) = self.dir {
            dir
        } else {
            let config = self.tree.find()?.peek()?;
            let first = config.plugin_roots.first().cloned();
            first.ok_or_else(|| {
                Failure::failed("the configuration names no plugin root")
                    .hint("name a directory with --dir")
            })?
        };
        let files = if self.dry_run {
            scaffold::plan(&parent, &self.name, language)
        } else {
            scaffold::create(&parent, &self.name, language)
        };
        let files = files.map_err(|error| Failure::failed(error.to_string()))?;
        let paths: Vec<String> = files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        if self.tree.output.json {
            out::json(&json!({"name": self.name, "files": paths, "dry_run": self.dry_run}))?;
            return Ok(Exit::Done);
        }
        let verb = if self.dry_run { "would write " } else { "" };
        for path in &paths {
            out::data(&format!("{verb}{path}"))?;
        }
        if !self.dry_run {
            let (name, named) = (&self.name, self.tree.flags());
            let first = if is_elsewhere {
                "the configuration must have this directory in `plugin_roots`; then "
            } else {
                ""
            };
            let note = format!(
                "{first}try it with `plugin run {name}{named}`; to schedule it, name it under `plugins` in the configuration"
            );
            out::note(&ductile::typed(&note));
        }
        Ok(Exit::Done)
    }
}
