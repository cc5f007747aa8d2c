//! `consign serve`: the flags of the server, and its preparation.
//!
//! Invariant: the data directory is locked before anything in it is created or read.

mod beam;
mod beam_settings;
pub(crate) mod begin;
mod cleanup;
mod clock_skew;
mod components;
mod embedded_automation;
pub(crate) mod host;
pub(crate) mod ledger;
pub(crate) mod limits;
mod logs;
mod mesh;
mod mesh_settings;
mod mesh_work;
mod message_bus;
mod node;
mod port_owner;
mod prepare;
mod reserve;
mod site;
mod site_file;
pub(crate) mod site_settings;
mod start;
mod startup_message;

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tokio::runtime::{Builder, Runtime};

use crate::data_dir::DataArgs;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

#[derive(Debug, Args)]
#[command(after_help = VARIABLES)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(
        long,
        value_name = "ADDR:PORT",
        env = "CONSIGN_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:7070"
    )]
    pub(crate) listen: SocketAddr,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Location of the ledger: `sqlite:PATH`, or `postgres://USER@HOST/DATABASE` for a database that many servers
    /// share; default is consign.db in the data directory
    #[arg(
        long,
        value_name = "URL",
        env = "CONSIGN_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,

    /// File with the password of the database; default is the variable `CONSIGN_STORE_PASSWORD`
    #[arg(
        long,
        value_name = "FILE",
        env = "CONSIGN_STORE_PASSWORD_FILE",
        hide_env_values = true
    )]
    pub(crate) store_password_file: Option<PathBuf>,

    /// Name of this server among the nodes of its ledger; default is host name and process id
    #[arg(
        long,
        value_name = "NAME",
        env = "CONSIGN_NODE_NAME",
        hide_env_values = true,
        value_parser = node::name
    )]
    pub(crate) node_name: Option<String>,

    /// Replace the secrets of the shared database by those of this server, after they were changed on purpose. Only
    /// while no other server runs on it
    #[arg(long)]
    pub(crate) new_secrets: bool,

    #[command(flatten)]
    pub(crate) begin: begin::BeginArgs,

    /// Also run the automation of this configuration: its file, or the directory of config.yaml. Jobs are stored in
    /// this server's ledger; `state.path` only defines where the lock and the control socket are
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,

    /// Certificate chain (PEM) for HTTPS
    #[arg(
        long,
        value_name = "FILE",
        env = "CONSIGN_TLS_CERT",
        hide_env_values = true,
        requires = "tls_key"
    )]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key (PEM) of the certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "CONSIGN_TLS_KEY",
        hide_env_values = true,
        requires = "tls_cert"
    )]
    pub(crate) tls_key: Option<PathBuf>,

    /// File with settings of agent transactions, one per line, as the ATP_ variables below, which take precedence
    #[arg(long, value_name = "FILE", env = "ATP_FILE", hide_env_values = true)]
    pub(crate) site_file: Option<PathBuf>,

    /// Allow plain HTTP on an address that other machines can reach
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Format of the log lines on stderr
    #[arg(
        long,
        value_name = "FORMAT",
        env = "CONSIGN_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,

    /// Also log a line for every request
    #[arg(
        long,
        env = "CONSIGN_ACCESS_LOG",
        hide_env_values = true,
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub(crate) access_log: bool,

    /// Threads that serve connections; default is one less than the cores, which leaves one for the ledger's writer
    #[arg(
        long,
        value_name = "NUMBER",
        env = "CONSIGN_IO_THREADS",
        hide_env_values = true,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub(crate) io_threads: Option<u16>,
}

/// The runtime of a server.
pub(crate) fn runtime(io_threads: Option<u16>) -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = io_threads.map_or_else(|| cores.saturating_sub(1).max(1), usize::from);
    if threads == 1 {
        // A current-thread runtime is about ten percent faster than a multi-thread runtime with one thread.
        return Builder::new_current_thread().enable_all().build();
    }
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
}

const VARIABLES: &str = "\
Variables of the Intent Protocol (switches are on only if set to true):
  BUS_SECRET                     main API key; created on the first start if unset
  BUS_ADMIN_SECRET               admin token; created on the first start if unset
  DASHBOARD_PASSWORD             password of the user admin; created if unset
  BUS_METRICS_TOKEN              bearer token of /metrics; created if unset
  BUS_DB_PATH                    database file, if --store is not given
  BUS_TRUST_PROXY                trust X-Forwarded-For and -Proto of one proxy
  BUS_ENFORCE_HTTPS              refuse plain HTTP, except from this machine
  BUS_REQUIRE_SIGNATURES         refuse unsigned requests
  BUS_MAINTENANCE_MODE           respond with 503 to all but admin routes
  BUS_CLEANUP_INTERVAL_SECONDS   300 to 86400, default 21600
  CONSIGN_AUDIT_RETENTION_DAYS   how long the audit log is kept; 1 to 3650, default 90

Variables of agent transactions (ATP), which are served when ATP_SITE is set:
  ATP_SITE                       the origin that intents must name, like https://shop.example
  ATP_AGENT_KEYS                 open (any key; default), or registered
  ATP_REGISTERED_KEYS            the agents' public keys, with commas between them
  ATP_RAIL                       what moves the money: stripe, worker, http or null (default)
  ATP_STRIPE_BASE                address of the API, default https://api.stripe.com
  ATP_STRIPE_SECRET              secret key of the API
  ATP_STRIPE_WEBHOOK_SECRET      signs its callbacks; two with a comma while it changes
  ATP_HTTP_BASE, ATP_HTTP_SECRET a site's own endpoint, and the secret that signs both ways
  ATP_WORKER_GOAL                goal under which effects are published, default atp.effect
  ATP_SWEEP_SECONDS              how soon open transactions are looked at again, default 60
  ATP_EXECUTE_WAIT_SECONDS       how long a request waits for its end, default 10
  ATP_RAIL_TIMEOUT_SECONDS       how long one operation of a rail may take, default 10, at most 20
  ATP_SETTLE_DELAY_SECONDS       how long a rail may take to show a payment, default 30
  ATP_DEDUP_WINDOW_SECONDS       refuse the same action_dedup_key within it, default 0 (off)
  ATP_SIGNED_REQUESTS            refuse unsigned execute, compensate and cancel; default true, but
                                 for the rail null false
  ATP_HOSTS                      further host names by which requests may reach the site, with commas;
                                 addresses, localhost and the host of ATP_SITE always may
  ATP_PUBLIC_PER_MINUTE          requests of one address to public routes, default 120; 0 is off
  ATP_WRITES_PER_MINUTE          requests of one address that are kept, and callbacks, default 6000
  ATP_WRITE_BYTES_PER_MINUTE     bytes of such requests of one address, default 4194304; 0 is off
  ATP_OPEN_PER_KEY               intents without consent of one key or user, default 1000; 0 is off
  ATP_OPEN_MAX                   intents without consent in all, default 100000; 0 is off
  ATP_COMPAT                     serve an older client too, which shows tokens and signs nothing
  ATP_COMPAT_SECRET              signs its users' tokens (HS256), 32 characters or more

CONSIGN_SEAL_KEY (64 hexadecimal digits) encrypts API keys at rest; created if unset.";

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    start::run(args).await
}
