//! One folder per noun, one small file per action with its arguments and its `run`.

pub(crate) mod acl;
pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod automation;
pub(crate) mod beam;
pub(crate) mod bench;
pub(crate) mod bulk;
pub(crate) mod completion;
pub(crate) mod daemon;
pub(crate) mod dead;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod import;
pub(crate) mod intent;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod man;
pub(crate) mod mesh;
pub(crate) mod message;
pub(crate) mod node;
pub(crate) mod openapi;
pub(crate) mod peer;
pub(crate) mod pipeline;
pub(crate) mod plugin;
pub(crate) mod receipt;
pub(crate) mod schedule;
pub(crate) mod schema;
pub(crate) mod site;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod system;
pub(crate) mod top;
pub(crate) mod tx;
pub(crate) mod user;
pub(crate) mod version;
pub(crate) mod worker;

/// The flag that every command which shows something has.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
