//! The automation service of a process: its state directory, its log, its supervisor, and the runtime between start and stop.
//!
//! Invariant: whoever runs jobs of a ledger holds the lock of its state directory, from before the ledger is opened until after
//! it is closed. What jobs mean is the business of the automation crate.

mod automation;
mod elsewhere;
mod logs;
mod notify;
mod reach;
mod start;
mod state;

pub(crate) use automation::{Automation, Files};
pub(crate) use reach::{Alone, Reach, query, segment};
pub(crate) use start::{NODE, run};
pub(crate) use state::{ASK_ITS_SERVER, StateDir};
