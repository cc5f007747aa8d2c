//! The automation service of a process: state directory, log, supervisor, and the runtime from start to stop.
//!
//! Invariant: a process that runs jobs of a ledger holds the lock of its state directory, from before the ledger is opened until
//! after it is closed. The automation crate defines what jobs are.

mod automation;
mod logs;
mod notify;
mod remote_service;
mod service_client;
mod start;
mod state;

pub(crate) use automation::{Automation, AutomationHost, ReloadHandle};
pub(crate) use service_client::{ServiceClient, WhenStopped, path_segment, query_string};
pub(crate) use start::{NODE, run};
pub(crate) use state::{START_SERVER_HINT, StateDir};
