//! The running service: jobs are taken from the ledger, run as processes, and their ends bring about the next ones.
//!
//! A client of the engine like any worker. [`job`] says how a job lies in an intent, `attempt` runs one, `finish` turns its end
//! into one commit, `successors` says what follows, `dispatch` decides what runs when, `scheduler` makes jobs by the clock, [`keep`] names the records. Nothing that matters is kept in memory:
//! whatever is lost with the process is found again in the ledger.

mod aftermath;
mod agenda;
mod attempt;
mod bridge;
mod circuit;
mod commit;
mod dispatch;
mod errand;
mod finish;
mod hub;
pub mod job;
pub mod keep;
mod look;
mod memory;
mod plan;
mod publication;
mod publish;
pub mod reads;
mod reload;
mod removed;
mod scarcity;
mod scheduler;
mod schedules;
mod serve;
mod served;
mod service;
mod setup;
mod successors;
mod tick;
mod trigger;
mod vitals;

pub use bridge::Seat;
pub use circuit::BreakerInfo;
pub use hub::{Hub, Told};
pub use job::{Job, SubmittedBy, job_id, parse_job_id};
pub use publication::PublishError;
pub use reload::{ReloadError, Reloaded};
pub use schedules::{ScheduleError, ScheduleInfo};
pub use served::Served;
pub use service::{Options, Runtime};
pub use setup::SetupInfo;
pub use trigger::{Enqueued, TriggerError};
