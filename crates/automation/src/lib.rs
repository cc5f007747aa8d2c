//! The automation runtime: plugins in any language, run on schedules, webhooks, events and pipelines.
//!
//! A client of the engine, like any worker: jobs are intents, and their history is made of facts. Only [`runtime`] uses the
//! ledger, and only [`http`] knows routes and status codes.

mod beam_name;
pub mod breaker;
pub mod config;
pub mod http;
mod instant;
mod mesh_name;
pub mod nesting;
pub mod pipeline;
pub mod plugin;
pub mod program;
pub mod runtime;
pub mod scalar;
pub mod schedule;
