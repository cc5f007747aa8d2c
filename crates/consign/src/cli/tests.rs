//! The command line as users meet it: help texts and what is refused.

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;

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

#[test]
fn help_names_the_nouns_and_the_exit_codes() {
    assert_eq!(
        help(&[]),
        "\
A durable work ledger that stores intents, leases them to workers, retries them and signs receipts

Usage: consign <COMMAND>

Commands:
  serve       Run the server
  intent      Publish, claim, settle and show intents
  key         Create, list and revoke API keys
  node        List the nodes of a ledger, and drain one of them
  tx          Create, execute and compensate agent transactions
  site        Show and change the keys of the site of agent transactions
  receipt     List, show and verify receipts
  store       Check, back up, migrate and copy the database
  automation  Check, seal and change the configuration of plugins, schedules and pipelines
  system      Run the automation service, look at it, reload it
  plugin      List, run, make and judge plugins
  job         Look at jobs, cancel them, run them again
  pipeline    List, show and run pipelines
  schedule    See what the clock will start; pause, resume or run it now
  queue       List the jobs that wait or run, oldest first
  logs        Show what jobs left in the log, newest first
  skills      Describe in Markdown what can be asked for; short for `system skills`
  api         Send any request to the service
  run         Run a command of a plugin; short for `plugin run`
  status      Tell how the service is; short for `system status`
  plugins     List the plugins; short for `plugin list`
  import      Import data from another program
  bench       Measure the performance of a server
  openapi     Print the documentation of the HTTP interface
  help        Print this message or the help of the given subcommand(s)

Options:
  -h, --help     Print help
  -V, --version  Print version

Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  nothing to claim, or not found
  4  refused by the server (key, rights, conflict, limit)
  5  server not reachable
  78 the configuration of the automation is invalid

Commands use the server whose address and keys are in the data directory (--data,
default ./consign-data), or the one given with --server.
"
    );
}

#[test]
fn help_of_a_noun_lists_its_actions() {
    assert_eq!(
        help(&["intent"]),
        "\
Publish, claim, settle and show intents

Usage: consign intent <COMMAND>

Commands:
  publish  Publish an intent
  claim    Claim intents
  fulfil   Report success [alias: fulfill]
  fail     Report a failure; the intent is retried later or becomes a dead letter
  show     Show one intent, its timeline or its receipt
  list     List intents
  help     Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help
"
    );
}

#[test]
fn help_of_an_action_recommends_files_for_secrets() {
    assert_eq!(
        help(&["key", "list"]),
        "\
List keys, never the keys themselves

Usage: consign key list [OPTIONS]

Options:
      --json  Print JSON on standard output
  -h, --help  Print help

Server:
      --server <URL>             Base URL of the server; without it, the one of the data directory
                                 [env: CONSIGN_SERVER]
      --data <DIR>               Data directory of the server: database, keys, address and lock
                                 [env: CONSIGN_DATA] [default: ./consign-data]
      --ca-file <FILE>           Certificate authority (PEM) to trust beside the public ones [env:
                                 CONSIGN_CA_FILE]
      --timeout <SECONDS>        Seconds to wait for an answer [default: 10]
      --admin-token <TOKEN>      Admin token; prefer --admin-token-file or the variable, other users
                                 can see arguments [env: CONSIGN_ADMIN_TOKEN]
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

Usage: consign tx <COMMAND>

Commands:
  create      Make an intent and sign it
  authorize   Consent to an intent
  execute     Carry an intent out, once, however often this is repeated
  show        Show an intent with its transactions, or one transaction
  compensate  Undo what was executed; a second receipt proves it
  cancel      Withdraw an intent before anything was done
  list        List the site's transactions, those that are not over first; needs the admin token
  reconcile   Ask the rail now about what is not over; needs the admin token
  resolve     Say what became of a transaction that no rail can tell; needs the admin token
  key         Print the agent's public key; the key is made if there is none
  help        Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help

An intent says what may be done, for how much and until when. It is made (create), consented to
(authorize) and carried out (execute); what was done can be undone (compensate), what was not can
be withdrawn (cancel).

Whatever breaks on the way, type the same command again: authorize, execute and compensate keep
their idempotency keys in the directory of the agent (--state), so nothing happens twice.
"
    );
}

#[test]
fn help_of_an_execution_tells_what_is_the_same_and_where_it_is_kept() {
    assert_eq!(
        help(&["tx", "execute"]),
        "\
Carry an intent out, once, however often this is repeated

Usage: consign tx execute [OPTIONS] <INTENT>

Arguments:
  <INTENT>  The intent

Options:
      --amount-cents <CENTS>  What it costs, if not what the intent says; at most that, or what was
                              signed with --max-spend-cents
      --currency <CODE>       The currency, which must be the intent's
      --action <WORD>         Which of the allowed actions it is
      --summary <TEXT>        What the receipt shall say about it
      --nth <N>               Which execution, for an intent that allows several: the same number is
                              the same execution [default: 1]
      --dry-run               Show the request instead of sending it
      --json                  Print JSON on standard output
      --wait <SECONDS>        Seconds to try again at most, and never longer than the intent lasts
                              [default: 60]
      --site <ORIGIN>         The site of an intent that was signed elsewhere; without it, as for
                              create
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

Usage: consign site key <COMMAND>

Commands:
  show      Show the public keys; keep them to check receipts later
  announce  Make the next key known before it signs, so that verifiers can pin it in time
  rotate    Sign with a new key from now on; what was signed stays good
  revoke    Take back what a key that was replaced has signed, because somebody else has it
  help      Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help
"
    );
    let announce = help(&["site", "key", "announce"]);
    for told in [
        "      --dry-run  Show which key is announced already, if one is, and stop\n",
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
Show one job with its ancestors, its baggage, its moves and its attempts

Usage: consign job inspect [OPTIONS] <ID>

Arguments:
  <ID>  The id of the job

Options:
      --config <PATH>     The configuration: its file, or the directory of config.yaml
      --config-dir <DIR>  The directory of config.yaml
  -v, --verbose           Tell more
      --json              Print JSON on standard output
      --api-url <URL>     Ask the HTTP interface of a service here, such as <http://127.0.0.1:8080>,
                          and no configuration
      --api-key <KEY>     Token for that service; prefer the variable, other users can see arguments
                          [env: DUCTILE_API_KEY]
  -h, --help              Print help
"
    );
    assert_eq!(
        help(&["system"]),
        "\
Run the automation service, look at it, reload it

Usage: consign system <COMMAND>

Commands:
  start         Run the automation service in the foreground
  status        Tell whether the service runs, and how it and its plugins are
  reset         Close the breaker of a plugin, so that the clock starts it again
  breaker       Show the breaker of a plugin and its history
  reload        Let the running service read its configuration again
  plugin-facts  Show what a plugin has observed, newest first
  scheduler     List the schedules with the jobs of each that are in flight
  doctor        Say what needs a hand: configuration, plugins, breakers, schedules
  selfcheck     Read the whole ledger while no service runs, and say what is wrong with it
  backup        Save ledger, configuration and plugins in a new tar.gz
  skills        Describe in Markdown what can be asked for
  help          Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help
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
