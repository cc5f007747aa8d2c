//! The running service: jobs are taken from the ledger, run as processes, and their ends bring about the next ones.
//!
//! A client of the engine like any worker. [`job`] says how a job lies in an intent, `attempt` runs one, `finish` turns its end
//! into one commit, `successors` says what follows, `dispatch` decides what runs when, `scheduler` makes jobs by the clock, [`records`] names the records. Nothing that matters is kept in memory:
//! whatever is lost with the process is found again in the ledger.

mod attempt;
mod circuit;
mod dispatch;
mod due_queue;
mod event_hub;
mod finish;
mod goal_worker;
mod health;
mod housekeeping;
pub mod job;
mod lifecycle;
mod one_shot;
mod plan;
mod plugin_state;
mod publication;
mod publish;
pub mod reads;
pub mod records;
mod reload;
mod removed_plugins;
mod schedule_check;
mod scheduler;
mod schedules;
mod served_intent;
mod setup;
mod start_backoff;
mod successors;
mod trigger;
mod unit_of_work;
mod unreported_ends;
mod wait_for_tree;

pub use circuit::BreakerInfo;
pub use event_hub::{EventHub, RuntimeEvent};
pub use job::{Job, SubmittedBy, job_id, parse_job_id};
pub use lifecycle::{Options, Runtime};
pub use publication::PublishError;
pub use reload::{ReloadError, Reloaded};
pub use schedules::{ScheduleError, ScheduleInfo};
pub use served_intent::ServedIntent;
pub use setup::SetupInfo;
pub use trigger::{Enqueued, TriggerError};
pub use wait_for_tree::WaitPermit;
