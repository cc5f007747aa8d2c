//! The agent of a command: its directory and its secret key.
//!
//! Invariant: the secret key is never printed; a key file that other users can read is refused.

use std::path::PathBuf;

use clap::Args;
use consign_transactions::document::AgentSigner;
use consign_transactions::intent::SignedIntent;
use data_encoding::HEXLOWER;
use serde_json::Value;
use zeroize::Zeroizing;

use super::agent_directory::{AgentDirectory, random_bytes};
use crate::data_dir::{create_private, write_private_once};
use crate::failure::Failure;
use crate::{out, secrets};

#[derive(Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(crate) struct AgentArgs {
    /// Directory of the agent: its key, its intents and the keys of its requests [default: consign/agent in the user's
    /// data directory, ~/.local/share]
    #[arg(
        long,
        value_name = "DIR",
        env = "CONSIGN_AGENT_STATE",
        hide_env_values = true
    )]
    state: Option<PathBuf>,

    /// File of the secret key that signs [default: `agent_key` in the directory of the agent]
    #[arg(
        long,
        value_name = "FILE",
        env = "CONSIGN_AGENT_KEY",
        hide_env_values = true
    )]
    agent_key: Option<PathBuf>,
}

impl AgentArgs {
    pub(super) fn state(&self) -> anyhow::Result<AgentDirectory> {
        let root = match &self.state {
            Some(root) => root.clone(),
            None => user_data()?.join("consign").join("agent"),
        };
        Ok(AgentDirectory::at(root))
    }

    pub(super) fn key_file(&self) -> anyhow::Result<PathBuf> {
        match &self.agent_key {
            Some(path) => Ok(path.clone()),
            None => Ok(self.state()?.agent_key_file()),
        }
    }

    /// The key, if there is one.
    pub(super) fn signer(&self) -> anyhow::Result<Option<AgentSigner>> {
        let seed = secrets::read_bytes_at(&self.key_file()?)?;
        Ok(seed.map(|seed| AgentSigner::from_seed(seed.reveal())))
    }

    /// The key; creates it, with a note, if there is none.
    pub(super) fn signer_or_new(&self) -> anyhow::Result<AgentSigner> {
        if let Some(signer) = self.signer()? {
            return Ok(signer);
        }
        let path = self.key_file()?;
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            create_private(folder)?;
        }
        let seed = Zeroizing::new(random_bytes::<32>()?);
        let line = Zeroizing::new(format!("{}\n", HEXLOWER.encode(&*seed)));
        write_private_once(&path, line.as_bytes())?;
        out::note(&format!(
            "made the agent's secret key {}; keep it, it is not shown",
            path.display()
        ));
        // A concurrent command may have created it.
        let made = self.signer()?;
        made.ok_or_else(|| Failure::failed(format!("{} is gone", path.display())).into())
    }

    /// The key that signs requests under an intent: a named one, or the one that signed the intent here. Without one, the
    /// request is sent unsigned, which the site may allow; a wrong signature would be refused.
    pub(super) fn signer_of(
        &self,
        intent: Option<&SignedIntent>,
    ) -> anyhow::Result<Option<AgentSigner>> {
        let signer = self.signer()?;
        if self.agent_key.is_some() {
            let path = self.key_file()?;
            let missing = || no_key(&path.display().to_string());
            return signer.map(Some).ok_or_else(|| missing().into());
        }
        Ok(signer
            .filter(|signer| intent.is_some_and(|intent| intent.agent_key == *signer.public())))
    }
}

pub(super) fn sign(signer: &AgentSigner, members: &Value) -> anyhow::Result<String> {
    signer
        .sign(members)
        .map_err(|problem| Failure::usage(problem.to_string()).into())
}

pub(super) fn no_key(path: &str) -> Failure {
    Failure::usage(format!("no agent key at {path}"))
        .hint("name it with --agent-key, or the agent's directory with --state; create one with: consign tx key")
}

/// The user's data directory; it must not depend on the current directory.
fn user_data() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("share")))
        .ok_or_else(|| {
            Failure::usage("no home directory to store the agent's keys in")
                .hint("name a directory with --state")
        })
}
