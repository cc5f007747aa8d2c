//! The daemon: what makes a host a member of a mesh.
//!
//! Modules that read or change the machine take paths and settings as values; only the binary reads the environment.

pub mod log;
pub mod private_file;
