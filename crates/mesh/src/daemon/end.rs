//! How a daemon ended: its exit status and what to tell its user.

use crate::close::DaemonExit;

/// The end of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonEnd {
    pub exit: DaemonExit,
    /// Why, if it is not an ordinary end.
    pub message: Option<String>,
}

impl DaemonEnd {
    pub const fn stopped() -> Self {
        Self {
            exit: DaemonExit::Stopped,
            message: None,
        }
    }

    pub fn new(exit: DaemonExit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: Some(message.into()),
        }
    }

    pub fn general(message: impl Into<String>) -> Self {
        Self::new(DaemonExit::General, message)
    }

    /// The exit status of the process.
    pub const fn status(&self) -> u8 {
        self.exit.status()
    }
}
