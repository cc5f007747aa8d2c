//! The daemon: what makes a host a member of a mesh.
//!
//! Modules that read or change the machine take paths and settings as values; only the binary reads the environment.

pub mod hooks;
pub mod host;
pub mod host_check;
pub mod identity;
pub mod key_archive;
pub mod key_rotation;
pub mod log;
pub mod metrics;
pub mod private_file;
pub mod random;
#[cfg(test)]
mod test_keys;
