//! Development tasks: one program behind `cargo xtask`, on the standard library alone so that it builds in seconds.
//!
//! This file is the table of commands. It checks nothing itself: each command has its own module.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a command line tool is its interface"
)]

mod campaign;
mod checklist;
mod cluster;
mod conformance;
mod context;
mod crash;
mod deny;
mod errors;
mod flags;
mod fuzz;
mod goals;
mod manifest;
mod markdown;
mod mesh_crash;
mod mutations;
mod outcome;
mod packages;
mod peers;
mod postgres;
mod process;
mod product;
mod report;
mod revision;
mod rust;
mod schemas;
mod sim;
mod stage;
mod stages;
mod tidy;
mod tools;
mod tree;

use std::process::ExitCode;

use crate::context::Context;

/// The result of a command: nothing, or the sentence that explains the failure.
/// The sentence is empty when the command has printed the failure itself and its last line must stay the last.
pub(crate) type TaskResult = Result<(), String>;

struct Command {
    name: &'static str,
    about: &'static str,
    help: &'static str,
    run: fn(&Context, &[String]) -> TaskResult,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        about: "run every check, in order, each group within its time budget",
        help: stage::HELP,
        run: stage::command,
    },
    Command {
        name: "tidy",
        about: "check the rules that the compiler does not know",
        help: tidy::HELP,
        run: tidy::command,
    },
    Command {
        name: "conformance",
        about: "report which protocol requirements the last run proved",
        help: conformance::HELP,
        run: conformance::command,
    },
    Command {
        name: "mutations",
        about: "enable each planted defect and require that a test fails",
        help: mutations::HELP,
        run: mutations::command,
    },
    Command {
        name: "crash",
        about: "kill and restart the server many times, then check that no work is lost",
        help: crash::HELP,
        run: crash::command,
    },
    Command {
        name: "cluster",
        about: "inject faults into three nodes on a replicated PostgreSQL, then check that no work is lost",
        help: cluster::HELP,
        run: cluster::command,
    },
    Command {
        name: "mesh-crash",
        about: "kill the daemon and the broker of a mesh at every step of a send, again and again",
        help: mesh_crash::HELP,
        run: mesh_crash::command,
    },
    Command {
        name: "schemas",
        about: "check every response against the OpenAPI document with schemathesis",
        help: schemas::HELP,
        run: schemas::command,
    },
    Command {
        name: "deny",
        about: "check licences, sources and bans of all dependencies",
        help: deny::HELP,
        run: deny::command,
    },
    Command {
        name: "fuzz",
        about: "fuzz every parser of untrusted input",
        help: fuzz::HELP,
        run: fuzz::command,
    },
    Command {
        name: "peers",
        about: "run the same work on other queues and on ours, and print the ratios",
        help: peers::HELP,
        run: peers::command,
    },
    Command {
        name: "goals",
        about: "measure our goals that need no other queue, and report which are reached",
        help: goals::HELP,
        run: goals::command,
    },
    Command {
        name: "sim",
        about: "run the engine over a simulated disk, clock and network, seed by seed",
        help: sim::HELP,
        run: sim::command,
    },
    Command {
        name: "errors",
        about: "list the error codes and whether each has its page",
        help: errors::HELP,
        run: errors::command,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_empty() {
                eprintln!("error: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[String]) -> TaskResult {
    let Some((name, rest)) = words.split_first() else {
        println!("{}", overview());
        return Err("no command given".to_owned());
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", overview());
        return Ok(());
    }
    let command = COMMANDS
        .iter()
        .find(|command| command.name == name)
        .ok_or_else(|| format!("there is no command `{name}`\n\n{}", overview()))?;
    if rest.iter().any(|word| word == "--help" || word == "-h") {
        println!("{}", command.help.trim());
        return Ok(());
    }
    (command.run)(&Context::discover()?, rest)
}

fn overview() -> String {
    let commands = COMMANDS
        .iter()
        .map(|command| format!("  {:<12} {}", command.name, command.about));
    let lines: Vec<String> = ["Usage: cargo xtask COMMAND [FLAGS]\n\nCommands:".to_owned()]
        .into_iter()
        .chain(commands)
        .chain(["\n`cargo xtask COMMAND --help` describes one of them.".to_owned()])
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_explains_itself_and_is_in_the_overview() {
        for command in COMMANDS {
            assert!(
                command
                    .help
                    .contains(&format!("cargo xtask {}", command.name))
            );
            assert!(overview().contains(command.about));
        }
    }

    #[test]
    fn an_unknown_command_is_refused_by_name() {
        let refusal = dispatch(&["tset".to_owned()]).unwrap_err();
        assert!(refusal.contains("`tset`"), "{refusal}");
    }
}
