//! The automation runtime: claims jobs from the ledger, runs them as processes, and queues the jobs that follow from their
//! results.
//!
//! The runtime is a client of the engine, like any worker. [`job`] defines how a job is stored in an intent, `dispatch` claims
//! jobs, `attempt` runs one, `finish` settles it in one commit, `successors` builds the jobs that follow, `scheduler` creates
//! jobs by the clock, and [`records`] defines the records beside the jobs. No durable state is kept in memory: after a crash the
//! runtime rebuilds everything from the ledger.

mod attempt;
mod circuit;
mod dispatch;
mod due_queue;
mod finish;
mod goal_worker;
mod health;
mod housekeeping;
pub mod job;
mod job_events;
mod job_status;
mod lifecycle;
mod live_events;
mod message_bus;
mod message_source;
mod message_worker;
mod one_shot;
mod plan;
mod plugin_state;
mod publication;
mod publish;
pub mod reads;
mod received_message;
pub mod records;
mod reload;
mod removed_plugins;
mod schedule_check;
mod scheduler;
mod schedules;
mod send;
mod served_intent;
mod setup;
mod start_backoff;
mod successors;
mod trigger;
mod unreported_ends;
mod wait_for_tree;

pub use circuit::BreakerInfo;
pub use job::{Job, SubmittedBy, job_id, parse_job_id};
pub use job_events::{JobEvent, JobEventKind, JobEventPage, JobEventReader, JobName, NextRetry};
pub use job_status::JobStatus;
pub use lifecycle::{Options, Runtime};
pub use live_events::{LiveEvent, LiveEventKind, LiveEvents};
pub use message_bus::{
    IncomingMessage, MeshFuture, MeshWork, MessageBus, MessageInbox, OutgoingMessage, SendError,
    SendFuture,
};
pub use publication::PublishError;
pub use reload::{ReloadError, Reloaded};
pub use schedules::{ScheduleError, ScheduleInfo};
pub use served_intent::ServedIntent;
pub use setup::SetupInfo;
pub use trigger::{Enqueued, TriggerError};
pub use wait_for_tree::WaitPermit;

pub(crate) use lifecycle::timestamp;
