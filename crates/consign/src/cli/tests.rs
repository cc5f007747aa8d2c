//! The command line as users meet it: help texts and what is refused.

use std::fmt::Write as _;

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;
use crate::failure::EXIT_CODES;

fn help(path: &[&str]) -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut found = &mut command;
    for name in path {
        found = found.find_subcommand_mut(name).unwrap();
    }
    found.render_help().to_string()
}

fn refused(arguments: &[&str]) -> ErrorKind {
    let arguments = std::iter::once("consign").chain(arguments.iter().copied());
    Cli::try_parse_from(arguments).unwrap_err().kind()
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

/// The help of the program and of each noun, as they are in `help.txt`. After a change on purpose, `CONSIGN_BLESS=1` writes
/// the file again.
#[test]
fn help_of_the_program_and_of_its_nouns_is_what_is_recorded() {
    let mut told = help(&[]);
    let command = Cli::command();
    let nouns = command.get_subcommands().filter(|noun| {
        // Other commands show their options, which change with each of them.
        noun.get_subcommands().next().is_some() && !noun.is_hide_set()
    });
    for noun in nouns {
        let name = noun.get_name();
        let _ = write!(told, "\n---- consign {name}\n\n{}", help(&[name]));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/help.txt");
    if std::env::var_os("CONSIGN_BLESS").is_some() {
        std::fs::write(path, &told).unwrap();
    }
    let recorded = std::fs::read_to_string(path).unwrap();
    let differing = told.lines().zip(recorded.lines());
    let first = differing.clone().find(|(now, recorded)| now != recorded);
    assert_eq!(
        (first, told.lines().count()),
        (None, recorded.lines().count())
    );
}

#[test]
fn help_of_the_program_lists_every_exit_code() {
    let help = help(&[]);
    for (code, meaning) in EXIT_CODES {
        let line = format!("{code:<2} {meaning}");
        assert!(help.contains(&line), "{line} in {help}");
    }
}

#[test]
fn notes_can_be_asked_for_or_left_out_anywhere_on_the_line() {
    for line in [
        "consign -q intent list",
        "consign intent -q list",
        "consign intent list --quiet",
    ] {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        assert!(cli.talk.quiet && !cli.talk.verbose, "{line}");
    }
    // These commands have a flag of this name and meaning of their own.
    let cli = Cli::try_parse_from("consign job list -v".split(' ')).unwrap();
    assert!(cli.talk.verbose);
    assert_eq!(
        refused(&["intent", "list", "-q", "-v"]),
        ErrorKind::ArgumentConflict
    );
}

#[test]
fn help_of_an_action_recommends_files_for_secrets() {
    assert_eq!(
        help(&["key", "list"]),
        "\
List keys, without their text

Usage: consign key list [OPTIONS]

Options:
      --json     Print JSON on standard output
  -v, --verbose  Show the requests of the command on standard error
  -q, --quiet    Print only data and errors
  -h, --help     Print help

Server:
      --server <URL>             Base URL of the server; without it, the one of the data directory
                                 [env: CONSIGN_SERVER]
      --data <DIR>               Data directory of the server: database, keys, address and lock
                                 [env: CONSIGN_DATA] [default: ./consign-data]
      --ca-file <FILE>           Certificate authority (PEM) to trust beside the public ones [env:
                                 CONSIGN_CA_FILE]
      --timeout <SECONDS>        Seconds to wait for an answer [default: 10]
      --admin-token <TOKEN>      Admin token, or an API key with the scope admin; prefer
                                 --admin-token-file or the variable, other users can see arguments
                                 [env: CONSIGN_ADMIN_TOKEN]
      --admin-token-file <FILE>  File that holds the admin token; wins over --admin-token
"
    );
}

#[test]
fn help_of_transactions_tells_their_order_and_what_to_do_when_something_breaks() {
    assert_eq!(
        help(&["tx"]),
        "\
Create, execute and compensate agent transactions

Usage: consign tx [OPTIONS] <COMMAND>

Commands:
  create      Create an intent and sign it
  authorize   Authorize an intent
  execute     Execute an intent; repeating the command does nothing twice
  show        Show an intent with its transactions, or one transaction
  compensate  Undo an executed transaction; a second receipt proves it
  cancel      Withdraw an intent before it is executed
  list        List the site's transactions, open ones first; needs the admin token
  reconcile   Check open transactions at the rail now; needs the admin token
  resolve     Record an outcome that the rail cannot report; needs the admin token
  key         Print the agent's public key; the key is created if there is none
  help        Print this message or the help of the given subcommand(s)

Options:
  -v, --verbose  Show the requests of the command on standard error
  -q, --quiet    Print only data and errors
  -h, --help     Print help

An intent names the allowed actions, the maximum amount and an expiry. It is created (create),
authorized (authorize) and executed (execute); an executed intent can be compensated (compensate),
one that was not executed can be withdrawn (cancel).

After any failure, run the same command again: authorize, execute and compensate store their
idempotency keys in the directory of the agent (--state), so nothing happens twice.
"
    );
}

#[test]
fn help_of_an_execution_tells_what_is_the_same_and_where_it_is_kept() {
    assert_eq!(
        help(&["tx", "execute"]),
        "\
Execute an intent; repeating the command does nothing twice

Usage: consign tx execute [OPTIONS] <INTENT>

Arguments:
  <INTENT>  The intent

Options:
      --amount-cents <CENTS>  Amount, if not the intent's; at most that, or what was signed with
                              --max-spend-cents
      --currency <CODE>       The currency, which must be the intent's
      --action <WORD>         The action, if the intent allows several
      --summary <TEXT>        The summary for the receipt
      --nth <N>               The number of the execution, for an intent that allows several: the
                              same number is the same execution [default: 1]
      --dry-run               Show the request instead of sending it
      --json                  Print JSON on standard output
      --wait <SECONDS>        Maximal seconds of retries; they also end when the intent expires
                              [default: 60]
      --site <ORIGIN>         The site of an intent signed elsewhere; default as for create
  -v, --verbose               Show the requests of the command on standard error
  -q, --quiet                 Print only data and errors
  -h, --help                  Print help

Agent:
      --state <DIR>       Directory of the agent: its key, its intents and the keys of its requests
                          [default: consign/agent in the user's data directory, ~/.local/share]
                          [env: CONSIGN_AGENT_STATE]
      --agent-key <FILE>  File of the secret key that signs [default: `agent_key` in the directory
                          of the agent] [env: CONSIGN_AGENT_KEY]

Server:
      --server <URL>       Base URL of the server; without it, the one of the data directory [env:
                           CONSIGN_SERVER]
      --data <DIR>         Data directory of the server: database, keys, address and lock [env:
                           CONSIGN_DATA] [default: ./consign-data]
      --ca-file <FILE>     Certificate authority (PEM) to trust beside the public ones [env:
                           CONSIGN_CA_FILE]
      --timeout <SECONDS>  Seconds to wait for an answer [default: 10]
"
    );
}

#[test]
fn help_of_the_sites_keys_lists_the_way_from_one_to_the_next() {
    assert_eq!(
        help(&["site", "key"]),
        "\
Show and change the keys that sign receipts

Usage: consign site key [OPTIONS] <COMMAND>

Commands:
  show      Show the public keys; save them to verify receipts later
  announce  Announce the next key before it signs, so that verifiers can pin it in time
  rotate    Sign with a new key from now on; earlier signatures stay valid
  revoke    Invalidate all signatures of a replaced key, because it was compromised
  help      Print this message or the help of the given subcommand(s)

Options:
  -v, --verbose  Show the requests of the command on standard error
  -q, --quiet    Print only data and errors
  -h, --help     Print help
"
    );
    let announce = help(&["site", "key", "announce"]);
    for told in [
        "      --dry-run  Show the announced key, if there is one, and stop\n",
        "      --json     Print JSON on standard output\n",
    ] {
        assert!(announce.contains(told), "{announce}");
    }
}

#[test]
fn help_of_the_automation_names_the_service_and_where_its_token_comes_from() {
    assert_eq!(
        help(&["job", "inspect"]),
        "\
Show one job with its ancestors, baggage, transitions and attempts

Usage: consign job inspect [OPTIONS] <ID>

Arguments:
  <ID>  The id of the job

Options:
      --config <PATH>     The configuration: its file, or the directory of config.yaml
      --config-dir <DIR>  The directory of config.yaml
  -v, --verbose           Show more details
      --json              Print JSON on standard output
      --api-url <URL>     Use the HTTP interface of a service, such as <http://127.0.0.1:8080>, and
                          no configuration
      --api-key <KEY>     Token for that service; prefer the variable, other users can see arguments
                          [env: DUCTILE_API_KEY]
  -q, --quiet             Print only data and errors
  -h, --help              Print help
"
    );
    assert_eq!(
        help(&["system"]),
        "\
Start, inspect and reload the automation service

Usage: consign system [OPTIONS] <COMMAND>

Commands:
  start         Run the automation service in the foreground
  status        Show whether the service runs, and the health of the service and its plugins
  reset         Close the breaker of a plugin, so that its schedules run again
  breaker       Show the breaker of a plugin and its history
  reload        Reload the configuration of the running service
  plugin-facts  Show the facts of a plugin, newest first
  scheduler     List the schedules with their open jobs
  doctor        Check configuration, plugins, breakers and schedules of the automation for problems
  selfcheck     Check the whole ledger while no service runs
  backup        Save ledger, configuration and plugins in a new tar.gz
  skills        Describe all commands and pipelines in Markdown
  help          Print this message or the help of the given subcommand(s)

Options:
  -v, --verbose  Show the requests of the command on standard error
  -q, --quiet    Print only data and errors
  -h, --help     Print help
"
    );
}

#[test]
fn wrong_usage_is_refused_by_the_parser() {
    let claim =
        |flag: &'static str, value: &'static str| refused(&["intent", "claim", flag, value]);
    assert_eq!(claim("--wait", "31"), ErrorKind::ValueValidation);
    assert_eq!(claim("--max", "101"), ErrorKind::ValueValidation);
    assert_eq!(claim("--max", "0"), ErrorKind::ValueValidation);
    assert_eq!(
        refused(&["intent", "list", "--status", "lost"]),
        ErrorKind::InvalidValue
    );
    assert_eq!(
        refused(&[
            "intent", "fulfil", "a1", "--token", "t", "--result", "1", "--text", "x"
        ]),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(
        refused(&["intent", "show", "a1", "--timeline", "--receipt"]),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(
        refused(&["serve", "--tls-cert", "cert.pem"]),
        ErrorKind::MissingRequiredArgument
    );
}

#[test]
fn debug_of_parsed_arguments_shows_no_key() {
    let arguments = ["consign", "intent", "list", "--key", "tk_very_secret"];
    let cli = Cli::try_parse_from(arguments).unwrap();
    assert!(!format!("{cli:?}").contains("tk_very_secret"));
    let arguments = [
        "consign",
        "queue",
        "--api-url",
        "http://x",
        "--api-key",
        "tk_very_secret",
    ];
    let cli = Cli::try_parse_from(arguments).unwrap();
    assert!(!format!("{cli:?}").contains("tk_very_secret"));
    let arguments = [
        "consign",
        "key",
        "revoke",
        "tk_very_secret",
        "--admin-token",
        "adm",
    ];
    let cli = Cli::try_parse_from(arguments).unwrap();
    assert!(!format!("{cli:?}").contains("tk_very_secret"));
}
