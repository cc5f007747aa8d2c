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
  intent      Publish, claim, settle, find, show and change intents
  dead        List, show, retry and delete dead letters
  bulk        List, show, follow and end bulk jobs, which intent retry, cancel and delete begin
  key         Create, list and revoke API keys, and grant them namespaces
  node        List the nodes of a ledger, and drain one of them
  tx          Create, execute and compensate agent transactions
  site        Show and change the keys of the site of agent transactions
  agent       Register agents of a Beam directory and manage their keys
  message     Send, poll, acknowledge and trace messages between Beam agents
  acl         Allow and deny intents to Beam agents
  peer        Add, list and remove other Beam directories
  mesh        Create meshes, invite members, and operate the broker
  daemon      Run the daemon of a mesh, send and receive messages with it
  receipt     List, show and verify receipts
  store       Check, back up, migrate and copy the database
  automation  Check, seal and change the configuration of plugins, schedules and pipelines
  system      Start, inspect and reload the automation service
  plugin      List, run, create and check plugins of the automation
  job         Inspect, cancel and retry jobs of the automation
  pipeline    List, show and run pipelines of the automation
  schedule    List schedules of the automation and their next runs; pause, resume or run them
  queue       List queued and running jobs of the automation, oldest first
  logs        Show the log of finished attempts of the automation's jobs, newest first
  skills      Describe all commands and pipelines in Markdown; short for `system skills`
  api         Send any HTTP request to the automation service
  run         Run a command of a plugin of the automation; short for `plugin run`
  status      Show the status of the automation, or of the server if none is configured; short for
              `system status`
  plugins     List the plugins of the automation; short for `plugin list`
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
Publish, claim, settle, find, show and change intents

Usage: consign intent <COMMAND>

Commands:
  publish   Publish an intent
  claim     Claim intents
  fulfil    Report success [alias: fulfill]
  fail      Report a failure; the intent is retried later or becomes a dead letter
  show      Show one intent, its timeline or its receipt
  list      List intents: those of the key, or with a filter those of all keys and protocols
  watch     Follow an intent until it ends
  timeline  Show what happened to an intent
  receipt   Print the signed receipt of an intent
  retry     Give intents a fresh start, with all their attempts; needs the admin token
  cancel    Stop intents: they become dead letters; needs the admin token
  delete    Delete intents and their history; needs the admin token
  help      Print this message or the help of the given subcommand(s)

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
List keys, without their text

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
  -h, --help  Print help

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
  show      Show the public keys; save them to verify receipts later
  announce  Announce the next key before it signs, so that verifiers can pin it in time
  rotate    Sign with a new key from now on; earlier signatures stay valid
  revoke    Invalidate all signatures of a replaced key, because it was compromised
  help      Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help
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
  -h, --help              Print help
"
    );
    assert_eq!(
        help(&["system"]),
        "\
Start, inspect and reload the automation service

Usage: consign system <COMMAND>

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
