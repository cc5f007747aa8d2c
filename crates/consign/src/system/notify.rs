//! What the service tells a supervisor of the systemd kind: that it is ready, reloads, stops, and is alive.
//!
//! Invariant: without a supervisor everything here does nothing. A message that cannot be sent is no reason to stop working.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::sleep;

#[derive(Debug, Default)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that we are alive.
    alive_within: Option<Duration>,
}

impl Supervisor {
    pub(super) fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        let socket = variable("NOTIFY_SOCKET").and_then(|address| connect(&address));
        let meant_for_us =
            variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let alive_within = variable("WATCHDOG_USEC")
            .filter(|_| meant_for_us)
            .and_then(|micros| micros.parse().ok())
            .filter(|micros| *micros > 0)
            .map(Duration::from_micros);
        Self {
            alive_within: alive_within.filter(|_| socket.is_some()),
            socket,
        }
    }

    pub(super) fn ready(&self) {
        self.tell("READY=1\nSTATUS=running");
    }

    pub(super) fn reloading(&self) {
        self.tell("RELOADING=1\nSTATUS=reloading the configuration");
    }

    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=waiting for running jobs");
    }

    pub(super) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// Returns when it is time to say that we are alive; never, if nobody wants to know.
    pub(super) async fn wants_to_know(&self) {
        match self.alive_within {
            Some(within) => sleep(within / 2).await,
            None => std::future::pending().await,
        }
    }

    fn tell(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::warn!(component = "service", %error, "the supervisor was not told");
        }
    }
}

/// A path, or behind an `@` a name that is no file.
fn connect(address: &str) -> Option<UnixDatagram> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(address),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A supervisor that does not listen must not hold us up.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}
