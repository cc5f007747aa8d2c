//! `consign schema`
//!
//! Describes the command line itself as JSON, for programs and agents that build command lines: it is read from the
//! definition that parses them, so the two cannot differ.

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use serde::Serialize;
use serde_json::Value;

use crate::cli::Cli;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Describe only this command, such as `intent publish`
    #[arg(value_name = "COMMAND")]
    path: Vec<String>,
}

#[derive(Serialize)]
struct CommandLine {
    name: &'static str,
    version: &'static str,
    exit_codes: Vec<ExitCodeInfo>,
    /// Arguments that every command has.
    global_arguments: Vec<ArgumentInfo>,
    commands: Vec<CommandInfo>,
}

#[derive(Serialize)]
struct ExitCodeInfo {
    code: u8,
    meaning: &'static str,
}

#[derive(Serialize)]
struct CommandInfo {
    /// The words that are typed, such as `intent publish`.
    command: String,
    about: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<ArgumentInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    commands: Vec<Self>,
}

#[derive(Serialize)]
struct ArgumentInfo {
    name: String,
    about: Option<String>,
    /// `flag`, `option` or `positional`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    long: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<char>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    required: bool,
    repeatable: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    default: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        // Global arguments are listed once and not with each command, so the definition is read before it is built.
        let root = Cli::command();
        if self.path.is_empty() {
            out::json(&whole(&root))?;
            return Ok(Exit::Done);
        }
        let mut found = &root;
        for word in &self.path {
            found = found.find_subcommand(word).ok_or_else(|| {
                Failure::new(
                    Exit::Nothing,
                    format!("there is no command {}", self.path.join(" ")),
                )
                .hint("consign schema without a command describes all of them")
            })?;
        }
        let parent = &self.path[..self.path.len() - 1];
        out::json(&command_info(found, &parent.join(" ")))?;
        Ok(Exit::Done)
    }
}

fn whole(root: &Command) -> CommandLine {
    let codes = EXIT_CODES.iter();
    CommandLine {
        name: "consign",
        version: env!("CARGO_PKG_VERSION"),
        exit_codes: codes
            .map(|(code, meaning)| ExitCodeInfo {
                code: *code,
                meaning,
            })
            .collect(),
        global_arguments: arguments(root),
        commands: inner(root, ""),
    }
}

fn inner(command: &Command, path: &str) -> Vec<CommandInfo> {
    let commands = command.get_subcommands();
    let shown = commands.filter(|command| !command.is_hide_set());
    shown.map(|command| command_info(command, path)).collect()
}

fn command_info(command: &Command, parent: &str) -> CommandInfo {
    let path = format!("{parent} {}", command.get_name()).trim().to_owned();
    CommandInfo {
        about: command.get_about().map(ToString::to_string),
        notes: command.get_after_help().map(ToString::to_string),
        aliases: command.get_visible_aliases().map(str::to_owned).collect(),
        arguments: arguments(command),
        commands: inner(command, &path),
        command: path,
    }
}

fn arguments(command: &Command) -> Vec<ArgumentInfo> {
    let arguments = command.get_arguments();
    arguments
        .filter(|argument| !argument.is_hide_set())
        .map(argument_info)
        .collect()
}

fn argument_info(argument: &Arg) -> ArgumentInfo {
    let takes_value = argument.get_action().takes_values();
    let kind = match (argument.is_positional(), takes_value) {
        (true, _) => "positional",
        (false, true) => "option",
        (false, false) => "flag",
    };
    let several = argument
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1);
    let names = argument.get_value_names().unwrap_or_default();
    let values = argument.get_possible_values();
    // The possible values of a flag are true and false, which nobody types.
    let values = values
        .iter()
        .filter(|value| takes_value && !value.is_hide_set());
    let defaults = argument.get_default_values().iter();
    let mut defaults: Vec<Value> = defaults
        .filter(|_| takes_value)
        .map(|value| value.to_string_lossy().into())
        .collect();
    ArgumentInfo {
        name: argument.get_id().to_string(),
        about: argument.get_help().map(ToString::to_string),
        kind,
        long: argument.get_long().map(str::to_owned),
        short: argument.get_short(),
        value: takes_value.then(|| {
            names
                .iter()
                .map(AsRef::as_ref)
                .collect::<Vec<&str>>()
                .join(" ")
        }),
        required: argument.is_required_set(),
        repeatable: several
            || matches!(argument.get_action(), ArgAction::Append | ArgAction::Count),
        values: values.map(|value| value.get_name().to_owned()).collect(),
        default: match defaults.len() {
            0 => Value::Null,
            1 => defaults.remove(0),
            _ => defaults.into(),
        },
        variable: argument
            .get_env()
            .map(|name| name.to_string_lossy().into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described() -> Value {
        serde_json::to_value(whole(&Cli::command())).unwrap()
    }

    fn find<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
        let mut items = list.as_array().unwrap().iter();
        items.find(|item| item[key] == name).unwrap()
    }

    #[test]
    fn a_command_is_described_with_its_arguments_and_their_defaults() {
        let whole = described();
        let noun = find(&whole["commands"], "command", "intent");
        let claim = find(&noun["commands"], "command", "intent claim");
        let data = find(&claim["arguments"], "name", "data");
        assert_eq!(
            *data,
            json!({
                "name": "data",
                "about": "Data directory of the server: database, keys, address and lock",
                "kind": "option",
                "long": "data",
                "value": "DIR",
                "required": false,
                "repeatable": false,
                "default": "./consign-data",
                "variable": "CONSIGN_DATA",
            })
        );
        let show = find(&noun["commands"], "command", "intent show");
        let id = find(&show["arguments"], "kind", "positional");
        assert_eq!(id["required"], true);
        let list = find(&noun["commands"], "command", "intent list");
        let status = find(&list["arguments"], "name", "status");
        assert!(
            status["values"]
                .as_array()
                .unwrap()
                .contains(&json!("dead"))
        );
        let fulfil = find(&noun["commands"], "command", "intent fulfil");
        assert_eq!(fulfil["aliases"], json!(["fulfill"]));
    }

    #[test]
    fn exit_codes_and_global_arguments_are_listed_once() {
        let whole = described();
        assert_eq!(whole["exit_codes"][5]["code"], 5);
        let quiet = find(&whole["global_arguments"], "name", "quiet");
        assert_eq!(quiet["kind"], "flag");
        assert!(!whole["commands"].to_string().contains("\"quiet\""));
        assert!(!whole["commands"].to_string().contains("bench-empty"));
    }
}
