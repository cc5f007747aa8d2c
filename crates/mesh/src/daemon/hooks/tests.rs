//! Hooks as real processes.

mod policy;
mod pre_send;
mod runs;
mod tokens;
mod world;
