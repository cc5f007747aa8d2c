//! Chooses between several hosts: the order, the timeout of each, and the error to report.
//!
//! Invariant: a host that accepts connections and sends nothing costs only its own timeout; the next one is still tried.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use super::address::unfit;
use super::wire::WireError;
use crate::Error;

const PORT: u16 = 5432;
/// Until the session is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if there are other hosts to try.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(4);

#[derive(Clone)]
pub(super) struct Hosts {
    /// The configuration of each host; never empty.
    each: Vec<Config>,
    /// The host of the last successful connection, which is tried first.
    last: Arc<AtomicUsize>,
}

impl Hosts {
    pub(super) fn of(config: &Config) -> Result<Self, Error> {
        let (hosts, ips, ports) = (
            config.get_hosts(),
            config.get_hostaddrs(),
            config.get_ports(),
        );
        let count = hosts.len().max(ips.len());
        if count == 0 {
            return Err(unfit("it names no host"));
        }
        let fits = |len: usize, fewer: &[usize]| len == count || fewer.contains(&len);
        if !fits(hosts.len(), &[0]) || !fits(ips.len(), &[0]) || !fits(ports.len(), &[0, 1]) {
            return Err(unfit(
                "it names more of hosts, hostaddr and ports than of the others",
            ));
        }
        Ok(Self {
            each: (0..count).map(|index| only(config, index)).collect(),
            last: Arc::default(),
        })
    }

    /// A standby is accepted; the last host is remembered separately.
    pub(super) fn for_reading(&self) -> Self {
        let mut each = self.each.clone();
        for host in &mut each {
            host.target_session_attrs(TargetSessionAttrs::Any);
        }
        Self {
            each,
            last: Arc::default(),
        }
    }

    /// The configuration for what all hosts share.
    pub(super) fn any(&self) -> &Config {
        &self.each[0]
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        if self.each.len() > 1 {
            CONNECT_TIMEOUT_OF_SEVERAL
        } else {
            CONNECT_TIMEOUT
        }
    }

    /// The host of the last connection, then the others in the order of the address.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &Config)> {
        let last = self.last.load(Ordering::Relaxed);
        let others = (0..self.each.len()).filter(move |index| *index != last);
        std::iter::once(last)
            .chain(others)
            .map(|index| (index, &self.each[index]))
    }

    pub(super) fn mark_connected(&self, index: usize) {
        self.last.store(index, Ordering::Relaxed);
    }
}

/// In the order of the address, with commas; the default port is left out.
impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, config) in self.each.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (config.get_hosts().first(), config.get_hostaddrs().first()) {
                (Some(Host::Tcp(name)), _) => write!(f, "{comma}{name}")?,
                #[cfg(unix)]
                (Some(Host::Unix(path)), _) => write!(f, "{comma}{}", path.display())?,
                (None, Some(ip)) => write!(f, "{comma}{ip}")?,
                (None, None) => {}
            }
            if let Some(port) = config.get_ports().first().filter(|port| **port != PORT) {
                write!(f, ":{port}")?;
            }
        }
        Ok(())
    }
}

/// The configuration with only one of its hosts. The driver cannot remove hosts, so everything else is copied.
fn only(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(index) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(ip) = config.get_hostaddrs().get(index) {
        one.hostaddr(*ip);
    }
    let ports = config.get_ports();
    if let Some(port) = ports.get(index).or(ports.first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(database) = config.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation());
    one
}

/// How specific the failure of a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureDetail {
    /// The host was not reached, or did not answer.
    Unreachable,
    /// The host is a standby and accepts no writes.
    Standby,
    /// The host refused the connection for a reason, such as a wrong password.
    Refused,
}

impl FailureDetail {
    pub(super) fn of_failure(failure: &WireError) -> Self {
        match failure {
            WireError::Refused(_) => Self::Refused,
            WireError::Lost(error) => Self::of_kind(error.kind()),
        }
    }

    pub(super) fn of_driver(error: &tokio_postgres::Error) -> Self {
        let source = error.source();
        match source.and_then(|source| source.downcast_ref::<io::Error>()) {
            Some(error) => Self::of_kind(error.kind()),
            None if error.is_closed() => Self::Unreachable,
            None => Self::Refused,
        }
    }

    fn of_kind(kind: io::ErrorKind) -> Self {
        if kind == io::ErrorKind::PermissionDenied {
            Self::Standby
        } else if matches!(kind, io::ErrorKind::Other | io::ErrorKind::InvalidData) {
            // Our own errors, and those about an invalid certificate.
            Self::Refused
        } else {
            Self::Unreachable
        }
    }
}

/// The failures of the hosts: keeps the first of the most specific ones.
#[derive(Default)]
pub(super) struct HostFailures(Option<(FailureDetail, Error)>);

impl HostFailures {
    pub(super) fn add(&mut self, detail: FailureDetail, error: impl FnOnce() -> Error) {
        if self.0.as_ref().is_none_or(|(most, _)| detail > *most) {
            self.0 = Some((detail, error()));
        }
    }

    pub(super) fn most_specific(self) -> Error {
        self.0
            .map_or_else(|| unfit("it names no host"), |(_, error)| error)
    }
}
