//! The running service: jobs are taken from the ledger, run as processes, and their ends bring about the next ones.
//!
//! A client of the engine like any worker. [`job`] says how a job lies in an intent, [`attempt`] runs one, [`finish`] turns its end
//! into one commit, [`dispatch`] decides what runs when, [`keep`] names the records. Nothing that matters is kept in memory:
//! whatever is lost with the process is found again in the ledger.

mod attempt;
mod bridge;
mod dispatch;
mod finish;
mod hub;
pub mod job;
pub mod keep;
pub mod reads;
mod service;
mod trigger;

pub use bridge::Seat;
pub use hub::{Hub, Told};
pub use job::{Job, SubmittedBy, job_id, parse_job_id};
pub use service::{Options, Runtime};
pub use trigger::{Enqueued, TriggerError};
