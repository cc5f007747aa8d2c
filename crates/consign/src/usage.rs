//! Usage errors: a JSON document for the automation's commands with `--json`, otherwise clap's own message.

use std::ffi::OsString;

use clap::Subcommand as _;
use clap::error::ErrorKind;

use crate::commands::automation::command::AutomationCommand;
use crate::failure::{self, Exit, Failure};

/// The other noun of the automation, under our own name.
const AUTOMATION: &str = "automation";
/// It may be about an automation.
const STATUS: &str = "status";

/// Says what is wrong with a command line, or gives the help that was asked for.
pub(crate) fn report(error: &clap::Error, is_ductile: bool) -> anyhow::Result<Exit> {
    if !error.use_stderr() {
        // Requested help is data for standard output. An error, such as a closed pipe, cannot be reported.
        let _ = error.print();
        return Ok(Exit::Done);
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if wants_json(&arguments, is_ductile) {
        return failure::report_json(&described(error).into());
    }
    let _ = error.print();
    Ok(Exit::Usage)
}

fn wants_json(arguments: &[OsString], is_ductile: bool) -> bool {
    let noun = arguments.first().and_then(|noun| noun.to_str());
    let is_automation = noun.is_some_and(|noun| {
        noun == AUTOMATION || noun == STATUS || AutomationCommand::has_subcommand(noun)
    });
    let mut flags = arguments.iter().take_while(|argument| *argument != "--");
    (is_ductile || is_automation) && flags.any(|argument| argument == "--json")
}

fn described(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("the command is not complete").hint("see it with --help");
    }
    let text = error.render().to_string();
    let (said, usage) = text.split_once("\n\nUsage: ").unwrap_or((&text, ""));
    let said = said.split("\n\nFor more information").next();
    let said = said.unwrap_or_default().trim_start_matches("error: ");
    let words: Vec<&str> = said.split_whitespace().collect();
    let failure = Failure::usage(words.join(" "));
    match usage.lines().next() {
        Some(usage) => failure.hint(format!("usage: {usage}")),
        None => failure.hint("see it with --help"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_of_the_automation_fail_in_json() {
        let wants = |line: &str, is_ductile| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            wants_json(&arguments, is_ductile)
        };
        assert!(wants("job list --json --odd", false));
        assert!(wants("automation config chekc --json", false));
        assert!(wants("chekc --json", true));
        assert!(!wants("intent list --json --odd", false));
        assert!(!wants("job list --odd", false));
        assert!(!wants("job list -- --json", true));
    }
}
