//! `consign completion`

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::cli::Cli;
use crate::failure::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Where the shells look for it:
  bash  consign completion bash > ~/.local/share/bash-completion/completions/consign
  zsh   consign completion zsh > \"${fpath[1]}/_consign\"
  fish  consign completion fish > ~/.config/fish/completions/consign.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The shell
    shell: CompletedShell,
}

/// The shells whose scripts are tested.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let shell = match self.shell {
            CompletedShell::Bash => Shell::Bash,
            CompletedShell::Zsh => Shell::Zsh,
            CompletedShell::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut Cli::command(), "consign", &mut script);
        out::data(&String::from_utf8(script)?)?;
        Ok(Exit::Done)
    }
}
