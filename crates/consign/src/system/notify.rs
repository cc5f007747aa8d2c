//! Notifies a supervisor such as systemd: ready, reloading, stopping and watchdog.
//!
//! Invariant: without a supervisor this does nothing. A message that cannot be sent is not an error of the service.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

#[derive(Debug, Default)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// The watchdog interval that the supervisor expects.
    watchdog_interval: Option<Duration>,
}

impl Supervisor {
    pub(super) fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        let socket = variable("NOTIFY_SOCKET").and_then(|address| connect(&address));
        let meant_for_us =
            variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let watchdog_interval = variable("WATCHDOG_USEC")
            .filter(|_| meant_for_us)
            .and_then(|micros| micros.parse().ok())
            .filter(|micros| *micros > 0)
            .map(Duration::from_micros);
        Self {
            watchdog_interval: watchdog_interval.filter(|_| socket.is_some()),
            socket,
        }
    }

    pub(super) fn ready(&self) {
        self.send("READY=1\nSTATUS=running");
    }

    pub(super) fn reloading(&self) {
        self.send("RELOADING=1\nSTATUS=reloading the configuration");
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=waiting for running jobs");
    }

    /// Sends watchdog messages while the service is healthy; without them the supervisor restarts it. Never returns.
    pub(super) async fn keep_alive<F>(&self, unhealthy_reason: impl Fn() -> F)
    where
        F: Future<Output = Option<String>>,
    {
        let Some(within) = self.watchdog_interval else {
            return std::future::pending().await;
        };
        let mut beat = interval(within / 2);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_well = true;
        loop {
            beat.tick().await;
            let unhealthy_reason = unhealthy_reason().await;
            match &unhealthy_reason {
                None => self.send("WATCHDOG=1"),
                Some(unhealthy_reason) if was_well => {
                    let message = "the service is unhealthy; watchdog messages stop until it is healthy again";
                    tracing::error!(component = "service", unhealthy_reason, "{message}");
                }
                Some(_) => {}
            }
            was_well = unhealthy_reason.is_none();
        }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::warn!(component = "service", %error, "a message to the supervisor was not sent");
        }
    }
}

/// A path, or with a leading `@` the name of an abstract socket.
fn connect(address: &str) -> Option<UnixDatagram> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(address),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A supervisor that does not read must not block the service.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_hears_of_us_only_while_we_are_well() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let supervisor = Supervisor {
            socket: Some(ours),
            watchdog_interval: Some(Duration::from_secs(2)),
        };
        let is_well = AtomicBool::new(true);
        let heard = || {
            let mut buffer = [0; 64];
            let beats = std::iter::from_fn(|| theirs.recv(&mut buffer).ok());
            beats.count()
        };
        let unhealthy_reason = || {
            let is_unwell = !is_well.load(Ordering::SeqCst);
            std::future::ready(is_unwell.then(|| "unwell".to_owned()))
        };
        let story = async {
            for (well, least) in [(true, 3), (false, 0), (true, 3)] {
                is_well.store(well, Ordering::SeqCst);
                // Between the messages, which are sent at whole seconds.
                tokio::time::sleep(Duration::from_millis(3_500)).await;
                let count = heard();
                assert!(if well { count >= least } else { count == 0 }, "{count}");
            }
        };
        tokio::select! {
            () = supervisor.keep_alive(unhealthy_reason) => {}
            () = story => {}
        }
    }
}
