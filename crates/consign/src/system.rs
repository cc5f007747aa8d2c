//! The automation service of a process: its state directory, its log, its supervisor, and the runtime between start and stop.
//!
//! Invariant: whoever runs jobs of a ledger holds the lock of its state directory, from before the ledger is opened until after
//! it is closed. What jobs mean is the business of the automation crate.

mod automation;
mod logs;
mod notify;
mod remote_service;
mod service_client;
mod start;
mod state;

pub(crate) use automation::{Automation, ReloadHandle};
pub(crate) use service_client::{ServiceClient, WhenStopped, path_segment, query_string};
pub(crate) use start::{NODE, run};
pub(crate) use state::{START_SERVER_HINT, StateDir};
