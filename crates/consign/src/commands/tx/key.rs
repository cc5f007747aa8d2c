//! `consign tx key`

use serde::Serialize;

use super::agent::AgentArgs;
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    agent: AgentArgs,
}

#[derive(Serialize)]
struct AgentKeyReport<'a> {
    key_id: &'a str,
    public_key: String,
    file: String,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let signer = self.agent.signer_or_new()?;
        let public = signer.public();
        if self.output.json {
            out::json(&AgentKeyReport {
                key_id: public.id(),
                public_key: public.to_string(),
                file: self.agent.key_file()?.display().to_string(),
            })?;
        } else {
            out::data(&public.to_string())?;
        }
        Ok(Exit::Done)
    }
}
