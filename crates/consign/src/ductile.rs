//! The binary under the name `ductile`: only the commands of the automation runtime.
//!
//! A link of that name is enough. Wrong usage exits with 1 here, because 2 means warnings of a check.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::commands::OutputArgs;
use crate::commands::automation::command::AutomationCommand;
use crate::commands::automation::config;
use crate::failure::{self, Exit};
use crate::{out, usage};

const NAME: &str = "ductile";

const AFTER_HELP: &str = "\
Exit codes:
  0   done
  1   failed, or wrong usage
  2   warnings of `config check --strict`
  78  refused because of the configuration or its seal";

/// Runs plugins on schedules, webhooks, events and pipelines
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = AFTER_HELP, max_term_width = 100)]
struct Ductile {
    #[command(subcommand)]
    noun: DuctileCommand,
}

#[derive(Debug, Subcommand)]
enum DuctileCommand {
    /// Check, seal and change the configuration
    #[command(subcommand)]
    Config(config::ConfigSubcommand),
    #[command(flatten)]
    Runtime(AutomationCommand),
    /// Print the version of this build
    Version(OutputArgs),
}

/// Whether the binary was started under this name.
pub(crate) fn is_called() -> bool {
    let called = std::env::args_os().next();
    called.is_some_and(|called| {
        Path::new(&called)
            .file_name()
            .is_some_and(|name| name == NAME)
    })
}

/// The commands that a text names in backquotes, as they are typed under the name that the binary was started by. The crates below
/// do not know that name and write only the noun and the verb.
pub(crate) fn typed(text: &str) -> String {
    typed_as(text, is_called())
}

fn typed_as(text: &str, is_ductile: bool) -> String {
    let nouns = [
        "config", "system", "plugin", "job", "pipeline", "schedule", "api",
    ];
    nouns.into_iter().fold(text.to_owned(), |text, noun| {
        let program = match (is_ductile, noun) {
            (true, _) => NAME,
            (false, "config") => "consign automation",
            (false, _) => "consign",
        };
        text.replace(&format!("`{noun} "), &format!("`{program} {noun} "))
    })
}

pub(crate) fn run() -> ExitCode {
    let ended = match Ductile::try_parse() {
        Ok(ductile) => ductile.run(),
        Err(error) => usage::report(&error, true),
    };
    let exit = ended.unwrap_or_else(|error| failure::report(&error));
    // Exit code 2 has another meaning here.
    let exit = if exit == Exit::Usage {
        Exit::Failed
    } else {
        exit
    };
    exit.into()
}

impl Ductile {
    fn run(self) -> anyhow::Result<Exit> {
        match self.noun {
            DuctileCommand::Config(action) => action.run(),
            DuctileCommand::Runtime(command) => command.run(),
            DuctileCommand::Version(output) => version(output),
        }
    }
}

fn version(output: OutputArgs) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    if output.json {
        // Release builds set these variables; other builds do not have them.
        out::json(&json!({
            "version": version,
            "commit": option_env!("CONSIGN_COMMIT"),
            "build_time": option_env!("CONSIGN_BUILD_TIME"),
        }))?;
    } else {
        out::data(&format!("{NAME} {version}"))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_texts_can_be_typed_under_both_names() {
        let text = "see `plugin list`; `config check` tells why `plugins.a` was left out";
        let as_consign = "see `consign plugin list`; `consign automation config check` tells why `plugins.a` was left out";
        let as_ductile =
            "see `ductile plugin list`; `ductile config check` tells why `plugins.a` was left out";
        assert_eq!(typed_as(text, false), as_consign);
        assert_eq!(typed_as(text, true), as_ductile);
        assert_eq!(typed_as(as_consign, false), as_consign, "once is enough");
    }
}
