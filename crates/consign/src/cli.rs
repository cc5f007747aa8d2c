//! The command line: its commands, and the runtime that each of them needs.

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use crate::commands::automation::command::AutomationCommand;
use crate::commands::{
    acl, agent, audit, automation, bench, bulk, completion, daemon, dead, doctor, events, import,
    intent, key, man, mesh, message, node, openapi, peer, receipt, schema, site, status, store,
    top, tx, user, version, worker,
};
use crate::failure::Exit;
use crate::{out, serve, verbose};

/// A daemon has little to compute, and each thread costs memory.
const DAEMON_THREADS: usize = 2;

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  nothing to claim, or not found
  4  refused by the server (key, rights, conflict, limit)
  5  server not reachable
  78 the configuration of the automation is invalid

Commands use the server whose address and keys are in the data directory (--data,
default ./consign-data), or the one given with --server.";

/// A durable work ledger that stores intents, leases them to workers, retries them and signs receipts
#[derive(Debug, Parser)]
#[command(name = "consign", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    talk: TalkArgs,

    #[command(subcommand)]
    noun: CliCommand,
}

/// The same command line with a single noun. Describing all of them takes megabytes of code and data, which a daemon that runs
/// for weeks would need once, for its own start.
#[derive(Debug, Parser)]
#[command(name = "consign", version, max_term_width = 100)]
struct DaemonCli {
    #[command(flatten)]
    talk: TalkArgs,

    #[command(subcommand)]
    noun: DaemonNoun,
}

/// How much a command tells on standard error.
#[derive(Clone, Copy, Debug, clap::Args)]
struct TalkArgs {
    /// Show the requests of the command on standard error
    #[arg(short, long, global = true, display_order = 990)]
    verbose: bool,

    /// Print only data and errors
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        display_order = 991
    )]
    quiet: bool,
}

impl TalkArgs {
    fn apply(self) {
        if self.quiet {
            out::leave_out_notes();
        }
        if self.verbose {
            verbose::begin();
        }
    }
}

#[derive(Debug, Subcommand)]
enum DaemonNoun {
    /// Run the daemon of a mesh, send and receive messages with it
    Daemon(Box<daemon::DaemonArgs>),
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the server
    Serve(Box<serve::ServeArgs>),
    /// Show the state of the whole server
    Status(Box<status::ServerStatusArgs>),
    /// Show the server live: rates, depth, the oldest rows, dead letters
    Top(Box<top::TopArgs>),
    /// Follow what happens to the rows of all owners and faces
    #[command(visible_alias = "watch")]
    Events(Box<events::AllEventsArgs>),
    /// Check data directory, machine and server for problems, and repair modes of files
    Doctor(Box<doctor::ServerDoctorArgs>),
    /// Publish, claim, extend, settle, find, show and change intents
    #[command(subcommand)]
    Intent(intent::IntentSubcommand),
    /// List, show, retry and delete dead letters
    #[command(subcommand)]
    Dead(dead::DeadSubcommand),
    /// List, show, follow and end bulk jobs, which intent retry, cancel and delete begin
    #[command(subcommand)]
    Bulk(bulk::BulkSubcommand),
    /// Run a command for each intent of a goal
    #[command(subcommand)]
    Worker(worker::WorkerSubcommand),
    /// Create, list, change, rotate and revoke API keys, and grant them namespaces
    #[command(subcommand)]
    Key(key::KeySubcommand),
    /// Add, list and remove people who sign in to the dashboard, and set their roles
    #[command(subcommand)]
    User(user::UserSubcommand),
    /// List and export what operators did
    #[command(subcommand)]
    Audit(audit::AuditSubcommand),
    /// List the nodes of a ledger, and drain one of them
    #[command(subcommand)]
    Node(node::NodeSubcommand),
    /// Create, execute and compensate agent transactions
    #[command(subcommand, after_help = tx::AFTER_HELP)]
    Tx(tx::TxSubcommand),
    /// Show and change the keys of the site of agent transactions
    #[command(subcommand)]
    Site(site::SiteSubcommand),
    /// Register agents of a Beam directory and manage their keys
    #[command(subcommand)]
    Agent(agent::AgentSubcommand),
    /// Send, poll, acknowledge and trace messages between Beam agents
    #[command(subcommand)]
    Message(message::MessageSubcommand),
    /// Allow and deny intents to Beam agents
    #[command(subcommand)]
    Acl(acl::AclSubcommand),
    /// Add, list and remove other Beam directories
    #[command(subcommand)]
    Peer(peer::PeerSubcommand),
    /// Create meshes, invite members, and operate the broker
    #[command(subcommand)]
    Mesh(mesh::MeshSubcommand),
    /// Run the daemon of a mesh, send and receive messages with it
    Daemon(Box<daemon::DaemonArgs>),
    /// List, show and verify receipts
    #[command(subcommand)]
    Receipt(receipt::ReceiptSubcommand),
    /// Check, back up, migrate and copy the database
    #[command(subcommand)]
    Store(store::StoreSubcommand),
    /// Check, seal and change the configuration of plugins, schedules and pipelines
    #[command(subcommand)]
    Automation(automation::AutomationSubcommand),
    #[command(flatten)]
    Runtime(AutomationCommand),
    /// Import data from another program
    #[command(subcommand)]
    Import(import::ImportSubcommand),
    /// Measure the performance of a server
    Bench(Box<bench::Args>),
    /// The server of `bench --work empty`
    #[command(hide = true)]
    BenchEmpty(bench::EmptyArgs),
    /// Print the documentation of the HTTP interface
    Openapi(openapi::Args),
    /// Describe all commands, their arguments and exit codes as JSON
    Schema(schema::Args),
    /// Print the completions of a shell
    Completion(completion::Args),
    /// Print the manual page, or write those of all commands
    Man(man::Args),
    /// Print the version of the program, of its protocols and of its schemas
    Version(version::Args),
}

/// Whether the arguments of this process are of the daemon of a mesh.
pub(crate) fn is_daemon() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|noun| noun == "daemon")
}

impl Cli {
    /// Reads the arguments of this process.
    pub(crate) fn from_arguments() -> Result<Self, clap::Error> {
        if !is_daemon() {
            return Self::try_parse();
        }
        let DaemonCli { talk, noun } = DaemonCli::try_parse()?;
        let DaemonNoun::Daemon(args) = noun;
        Ok(Self {
            talk,
            noun: CliCommand::Daemon(args),
        })
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        // The server has logs, with a format and a level of their own.
        if !matches!(self.noun, CliCommand::Serve(_)) {
            self.talk.apply();
        }
        match self.noun {
            CliCommand::Serve(args) => {
                let runtime = serve::runtime(args.io_threads)?;
                runtime.block_on(Box::pin(serve::run(*args)))?;
                Ok(Exit::Done)
            }
            CliCommand::Status(args) => args.run(),
            CliCommand::Top(args) => args.run(),
            CliCommand::Events(args) => single_thread()?.block_on(args.run()),
            CliCommand::Doctor(args) => args.run(),
            CliCommand::Intent(action) => single_thread()?.block_on(action.run()),
            CliCommand::Worker(action) => single_thread()?.block_on(Box::pin(action.run())),
            CliCommand::Dead(action) => single_thread()?.block_on(action.run()),
            CliCommand::Bulk(action) => single_thread()?.block_on(action.run()),
            CliCommand::Key(action) => single_thread()?.block_on(action.run()),
            CliCommand::User(action) => single_thread()?.block_on(action.run()),
            CliCommand::Audit(action) => single_thread()?.block_on(action.run()),
            CliCommand::Node(action) => single_thread()?.block_on(action.run()),
            CliCommand::Tx(action) => single_thread()?.block_on(action.run()),
            CliCommand::Site(action) => single_thread()?.block_on(action.run()),
            CliCommand::Agent(action) => single_thread()?.block_on(action.run()),
            CliCommand::Message(action) => single_thread()?.block_on(action.run()),
            CliCommand::Acl(action) => single_thread()?.block_on(action.run()),
            CliCommand::Peer(action) => single_thread()?.block_on(action.run()),
            CliCommand::Mesh(action) => single_thread()?.block_on(action.run()),
            CliCommand::Daemon(args) => daemon_runtime(&args)?.block_on(Box::pin(args.run())),
            CliCommand::Receipt(action) => single_thread()?.block_on(action.run()),
            CliCommand::Store(action) => single_thread()?.block_on(action.run()),
            CliCommand::Automation(action) => action.run(),
            CliCommand::Runtime(command) => command.run(),
            CliCommand::Import(action) => single_thread()?.block_on(action.run()),
            CliCommand::Bench(args) => single_thread()?.block_on(Box::pin(args.run())),
            CliCommand::BenchEmpty(args) => {
                // The same runtime as `serve`, so that the two can be compared.
                serve::runtime(None)?.block_on(args.run())
            }
            CliCommand::Openapi(args) => args.run(),
            CliCommand::Schema(args) => args.run(),
            CliCommand::Completion(args) => args.run(),
            CliCommand::Man(args) => args.run(),
            CliCommand::Version(args) => args.run(),
        }
    }
}

/// Requests are sent one after the other, so one thread is enough.
pub(crate) fn single_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A daemon serves many clients; its other commands send one request.
pub(crate) fn daemon_runtime(args: &daemon::DaemonArgs) -> std::io::Result<Runtime> {
    if args.is_daemon() {
        daemon_threads()
    } else {
        single_thread()
    }
}

/// The runtime of a daemon.
pub(crate) fn daemon_threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(DAEMON_THREADS)
        .enable_all()
        .build()
}

#[cfg(test)]
mod tests;
