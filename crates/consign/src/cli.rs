//! The command line as a whole: nouns, and which runtime each of them needs.

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use crate::commands::automation::nouns;
use crate::commands::{
    automation, bench, import, intent, key, node, openapi, receipt, site, store, tx,
};
use crate::failure::Exit;
use crate::serve;

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  nothing to claim, or not found
  4  refused by the server (key, rights, conflict, limit)
  5  server not reachable
  78 the configuration of the automation is refused

Commands talk to the server whose address and keys lie in the data directory
(--data, default ./consign-data), or to the one named with --server.";

/// Takes an intent, keeps it safe, hands it to one holder at a time, proves what became of it
#[derive(Debug, Parser)]
#[command(name = "consign", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    noun: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the server
    Serve(Box<serve::ServeArgs>),
    /// Publish, claim, settle and look at intents
    #[command(subcommand)]
    Intent(intent::Action),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Key(key::Action),
    /// See the nodes of a ledger, and let one of them finish
    #[command(subcommand)]
    Node(node::Action),
    /// Make, carry out and undo agent transactions
    #[command(subcommand, after_help = tx::AFTER_HELP)]
    Tx(tx::Action),
    /// See and change the keys of the site of agent transactions
    #[command(subcommand)]
    Site(site::Action),
    /// List, show and check receipts
    #[command(subcommand)]
    Receipt(receipt::Action),
    /// Check, back up, migrate and copy the database
    #[command(subcommand)]
    Store(store::Action),
    /// Check, seal and change the configuration of plugins, schedules and pipelines
    #[command(subcommand)]
    Automation(automation::Action),
    #[command(flatten)]
    Running(nouns::Noun),
    /// Take over data from another program
    #[command(subcommand)]
    Import(import::Action),
    /// Measure how fast a server is
    Bench(Box<bench::Args>),
    /// The server of `bench --work empty`
    #[command(hide = true)]
    BenchEmpty(bench::EmptyArgs),
    /// Describe the HTTP interface
    Openapi(openapi::Args),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.noun {
            CliCommand::Serve(args) => {
                let runtime = serve::runtime(args.io_threads)?;
                runtime.block_on(Box::pin(serve::run(*args)))?;
                Ok(Exit::Done)
            }
            CliCommand::Intent(action) => single_thread()?.block_on(action.run()),
            CliCommand::Key(action) => single_thread()?.block_on(action.run()),
            CliCommand::Node(action) => single_thread()?.block_on(action.run()),
            CliCommand::Tx(action) => single_thread()?.block_on(action.run()),
            CliCommand::Site(action) => single_thread()?.block_on(action.run()),
            CliCommand::Receipt(action) => single_thread()?.block_on(action.run()),
            CliCommand::Store(action) => single_thread()?.block_on(action.run()),
            CliCommand::Automation(action) => action.run(),
            CliCommand::Running(noun) => noun.run(),
            CliCommand::Import(action) => single_thread()?.block_on(action.run()),
            CliCommand::Bench(args) => single_thread()?.block_on(Box::pin(args.run())),
            CliCommand::BenchEmpty(args) => {
                // The same runtime as `serve`, so that the two can be compared.
                serve::runtime(None)?.block_on(args.run())
            }
            CliCommand::Openapi(args) => args.run(),
        }
    }
}

/// One request after the other needs no second thread.
fn single_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests;
