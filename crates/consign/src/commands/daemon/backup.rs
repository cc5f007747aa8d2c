//! `consign daemon backup --out FILE` and `consign daemon restore --in FILE`

use std::path::PathBuf;

use anyhow::Context as _;
use consign_mesh::daemon::backup::{self, KdfCost};
use serde_json::json;
use zeroize::Zeroizing;

use super::files::stopped;
use super::{DaemonSelector, lines};
use crate::failure::{Exit, Failure};
use crate::input;
use crate::mesh_member::home::MemberHome;

/// Where the passphrase is.
#[derive(Debug, clap::Args)]
struct PassphraseArgs {
    /// File with the passphrase in its first line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<String>,

    /// The same from the environment.
    #[arg(
        long,
        env = "CLAUDEMESH_BACKUP_PASSPHRASE",
        hide = true,
        hide_env_values = true
    )]
    passphrase: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DaemonBackupArgs {
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    passphrase: PassphraseArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct DaemonRestoreArgs {
    /// The file to read
    #[arg(long = "in", value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    passphrase: PassphraseArgs,
}

impl DaemonBackupArgs {
    pub(super) fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let (home, slug) = target.place()?;
        let passphrase = self.passphrase.read()?;
        let joined = home.membership(&slug)?;
        let directory = home.daemon_directory(&slug);
        let cost = KdfCost::default();
        let text = backup::backup(&directory, slug.as_str(), Some(&joined), &passphrase, cost)?;
        backup::write_backup(&self.out, &text)?;
        target.print(&json!({"mesh": slug, "file": self.out}), lines)
    }
}

impl DaemonRestoreArgs {
    pub(super) fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let passphrase = self.passphrase.read()?;
        let shown = self.file.display();
        let text =
            std::fs::read_to_string(&self.file).with_context(|| format!("cannot read {shown}"))?;
        let found = backup::inspect(&text, &passphrase)?;
        let home = MemberHome::from_environment()?;
        let slug = home.slug(Some(target.mesh.as_deref().unwrap_or(&found.mesh)))?;
        if slug.as_str() != found.mesh {
            let message = format!("{shown} is a backup of the mesh {}", found.mesh);
            return Err(Failure::usage(message).into());
        }
        let daemon = stopped(&home, &slug)?;
        let restored = backup::restore(&daemon, &text, &passphrase)?;
        if let Some(joined) = restored.joined
            && home.joined()?.get(slug.as_str()).is_none()
        {
            home.change_joined(|meshes| meshes.put(joined))?;
        }
        let answer = json!({
            "mesh": slug,
            "created_at": restored.created_at,
            "files": restored.files,
        });
        target.print(&answer, lines)
    }
}

impl PassphraseArgs {
    fn read(&self) -> anyhow::Result<Zeroizing<String>> {
        let text = match (&self.passphrase_file, &self.passphrase) {
            (Some(path), _) => Zeroizing::new(input::file("the passphrase", path)?),
            (None, Some(text)) => Zeroizing::new(text.clone()),
            (None, None) => {
                return Err(Failure::usage("the passphrase is missing")
                    .hint("use --passphrase-file, or set the variable CLAUDEMESH_BACKUP_PASSPHRASE")
                    .into());
            }
        };
        let line = text.lines().next().unwrap_or_default();
        Ok(Zeroizing::new(line.to_owned()))
    }
}
