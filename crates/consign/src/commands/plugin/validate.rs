//! `plugin validate DIR`

use std::path::PathBuf;

use consign_automation::plugin::discovery::{self, Note, Weight};
use consign_automation::plugin::interpreter;
use consign_automation::plugin::trust::Symlinks;
use serde_json::json;

use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory with the plugin's manifest
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let dir = self.dir.canonicalize().map_err(|error| {
            Failure::failed(format!("{} cannot be read: {error}", self.dir.display()))
                .hint("name the directory of its manifest, such as plugins/NAME; `consign plugin show NAME` describes an installed one")
        })?;
        let found = discovery::discover(std::slice::from_ref(&dir), Symlinks::Refuse);
        let found = found.map_err(|error| Failure::failed(error.to_string()))?;
        let mut notes: Vec<_> = found
            .notes
            .iter()
            .filter(|note| note.weight != Weight::Detail || self.tree.verbose)
            .collect();
        let plugin = found.plugins.iter().next();
        let refused = notes.iter().any(|note| note.weight == Weight::Skipped);
        let search_path = TreeArgs::search_path();
        let unusable = plugin.and_then(|(_, found)| {
            let text = interpreter::why_unusable(&found.entrypoint, search_path.as_deref())?;
            Some(Note {
                weight: Weight::Skipped,
                plugin: None,
                path: found.entrypoint.clone(),
                text,
            })
        });
        let valid = plugin.is_some() && !refused && unusable.is_none();
        notes.extend(unusable.as_ref());
        if self.tree.output.json {
            let problems: Vec<_> = notes
                .iter()
                .map(|note| json!({"path": note.path, "message": note.text}))
                .collect();
            let name = plugin.map(|(name, _)| name);
            out::json(&json!({"valid": valid, "plugin": name, "problems": problems}))?;
        } else {
            for note in &notes {
                out::note(&format!(
                    "{}: {}",
                    note.path.display(),
                    render::safe(&note.text)
                ));
            }
            match plugin {
                Some((name, found)) if valid => {
                    let commands = found.manifest.commands.iter();
                    let commands: Vec<&str> =
                        commands.map(|command| command.name.as_str()).collect();
                    out::data(&format!("valid: {name} ({})", commands.join(", ")))?;
                }
                _ if notes.is_empty() => {
                    let message = format!("no manifest.yaml exists in {}", dir.display());
                    let hint = "create a plugin with `plugin init NAME`";
                    return Err(Failure::failed(message).hint(hint).into());
                }
                _ => out::data("not valid")?,
            }
        }
        Ok(if valid { Exit::Done } else { Exit::Failed })
    }
}
