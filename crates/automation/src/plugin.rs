//! Plugins: programs in any language that process one request per process.
//!
//! [`discovery`] finds plugins and verifies them, [`registry`] assigns their names, [`request`] and [`response`] define the
//! messages on the pipes, [`run`] starts a process and always ends its process group, and [`outcome`] classifies the result.
//! Nothing here decides when a plugin runs, stores its state or routes its events.

pub mod capture;
pub mod command;
pub mod confine;
pub mod discovery;
pub mod environment;
pub mod group;
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

mod keys;
