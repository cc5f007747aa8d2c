//! The automation runtime: plugins in any language, run on schedules, webhooks, events and pipelines.
//!
//! A client of the engine like any worker: jobs are intents, and what a run leaves behind are facts. Here are the parts that
//! need no ledger; see each module.

pub mod breaker;
pub mod config;
mod instant;
pub mod nesting;
pub mod pipeline;
pub mod plugin;
pub mod program;
pub mod runtime;
pub mod scalar;
pub mod schedule;
