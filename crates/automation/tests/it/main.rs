//! The automation crate from outside: files and real processes.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod plugin_compatible;
mod plugin_confined;
mod plugin_discovery;
mod plugin_hostile;
mod plugin_manifest;
mod plugin_own;
mod plugin_processes;
mod plugin_protocol;
mod plugin_scaffold;
mod plugin_timeouts;
mod plugin_world;
