//! Plugins: programs in any language that answer one request per process.
//!
//! [`discovery`] finds and distrusts them, [`registry`] gives them their names, [`request`] and [`response`] are what is said
//! over the pipes, [`run`] starts a process and always ends it with all it started, and [`outcome`] says what came of it.
//! Nothing here decides when a plugin runs, keeps its state or routes its events.

pub mod capture;
pub mod command;
pub mod confine;
pub mod discovery;
pub mod environment;
pub mod interpreter;
pub mod manifest;
pub mod open_files;
pub mod outcome;
pub mod registry;
pub mod request;
pub mod response;
pub mod run;
pub mod scaffold;
pub mod trust;

mod group;
mod keys;
