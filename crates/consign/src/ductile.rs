//! The binary under the name `ductile`: only the commands of the automation runtime.
//!
//! A link of that name is enough. Wrong usage exits with 1 here, because 2 means warnings of a check.

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde_json::json;

use crate::commands::OutputArgs;
use crate::commands::automation::command::AutomationCommand;
use crate::commands::automation::config;
use crate::commands::system;
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
    /// Show the status of the automation; short for `system status`
    Status(system::StatusArgs),
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

/// The command line. Its help names the commands as they are typed under this name.
fn parsed() -> Result<Ductile, clap::Error> {
    let mut command = renamed(Ductile::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Ductile::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The commands are shared with `consign`, and their examples are written for it.
fn renamed(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(renamed);
    let Some(text) = command.get_after_help().map(ToString::to_string) else {
        return command;
    };
    let text = text.replace("  consign automation ", "  ductile ");
    command.after_help(
        text.replace("&& consign ", "&& ductile ")
            .replace("  consign ", "  ductile "),
    )
}

pub(crate) fn run() -> ExitCode {
    let ended = match parsed() {
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
            DuctileCommand::Status(args) => {
                let json = args.service.tree.output.json;
                match args.run() {
                    Err(error) if json => failure::report_json(&error),
                    ended => ended,
                }
            }
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
    fn help_names_the_program_that_was_called() {
        fn texts(command: &clap::Command, into: &mut String) {
            let after = command.get_after_help();
            into.push_str(&after.map(ToString::to_string).unwrap_or_default());
            for inner in command.get_subcommands() {
                texts(inner, into);
            }
        }
        let (mut own, mut renamed_texts) = (String::new(), String::new());
        texts(&Ductile::command(), &mut own);
        texts(&renamed(Ductile::command()), &mut renamed_texts);
        assert!(own.contains("  consign plugin run hello"), "{own}");
        assert!(!own.contains("  ductile "), "{own}");
        for told in [
            "  ductile plugin run hello",
            "  ductile config init",
            "&& ductile system start",
        ] {
            assert!(renamed_texts.contains(told), "{renamed_texts}");
        }
        assert!(!renamed_texts.contains("  consign "), "{renamed_texts}");
    }

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
