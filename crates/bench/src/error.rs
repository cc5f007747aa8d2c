//! Errors that end a run before it has measured anything.

use std::io;

/// Refusals during the measurement are not errors of the run: they are counted and reported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to {server}")]
    Connect { server: String, source: io::Error },
    #[error("cannot load {what}: {why}")]
    Load { what: &'static str, why: String },
    #[error("nothing could be claimed after a restart: {0}")]
    Restart(String),
    #[error("a load thread could not be started")]
    Thread(#[source] io::Error),
    #[error("a load thread panicked")]
    Panicked,
    #[error("the memory of the server cannot be read; it must run on this machine")]
    NoMemory,
    #[error("the daemon of the mesh: {0}")]
    Daemon(String),
    #[error("no source of random numbers: {0}")]
    Entropy(String),
}
