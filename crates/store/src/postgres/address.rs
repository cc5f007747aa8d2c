//! The address of the database and how to connect to it. `hosts` chooses between several hosts.
//!
//! Invariant: a password never appears in a message, and over a network it is sent only to a server with a verified
//! certificate.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::hosts::{FailureDetail, HostFailures, Hosts};
use super::settings;
use super::wire::{self, Row, WireConnection, WireError};
use crate::Error;

/// The schema of all Consign tables.
pub(super) const SCHEMA: &str = "consign";

const MESSAGES_MAX: usize = 256;
/// For one host, until the connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub struct DatabaseAddress {
    hosts: Hosts,
    /// How to verify the server, for both kinds of connections.
    tls: Option<(Arc<ClientConfig>, MakeRustlsConnect)>,
}

impl DatabaseAddress {
    /// Reads `postgres://user@host1,host2/database?sslmode=…&sslrootcert=…`. A separate password takes precedence over
    /// one in the address.
    pub fn parse(url: &str, password: Option<&str>) -> Result<Self, Error> {
        let AddressOptions { url, mode, roots } = AddressOptions::read(url)?;
        // The parser's own message may quote the address, which may contain a password.
        let mut config = Config::from_str(&url)
            .map_err(|error| unfit(&format!("it cannot be read ({})", cause(&error))))?;
        if let Some(password) = password {
            config.password(password);
        }
        if config.get_dbname().is_none() {
            return Err(unfit("it names no database"));
        }
        if config.get_user().is_none() {
            return Err(unfit("it names no user"));
        }
        if config.get_channel_binding() == ChannelBinding::Require {
            return Err(unfit(
                "channel_binding=require is not offered; TLS with a verified certificate is",
            ));
        }
        let local = config.get_hosts().iter().all(is_local)
            && config.get_hostaddrs().iter().all(IpAddr::is_loopback);
        // A root certificate that is given must be used.
        let plain = local && roots.is_none();
        let mode = mode.unwrap_or(if plain {
            Encryption::Plain
        } else {
            Encryption::Verified
        });
        // Our options come last and take precedence: the guarantees of the ledger depend on them.
        let given = config.get_options().unwrap_or_default();
        let settings = format!("{given}{}", settings::options());
        config
            .options(settings)
            .application_name("consign")
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .tcp_user_timeout(Duration::from_secs(10))
            // Of several hosts, the one that accepts writes.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .ssl_negotiation(SslNegotiation::Postgres);
        let tls = match mode {
            Encryption::Plain => {
                config.ssl_mode(SslMode::Disable);
                None
            }
            Encryption::Verified => {
                config.ssl_mode(SslMode::Require);
                let tls = tls_config(roots)?;
                Some((Arc::new(tls.clone()), MakeRustlsConnect::new(tls)))
            }
        };
        let hosts = Hosts::of(&config)?;
        Ok(Self { hosts, tls })
    }

    /// The same address for reading only: a standby is accepted. Of several hosts, the first that answers.
    #[must_use]
    pub fn for_reading(&self) -> Self {
        Self {
            hosts: self.hosts.for_reading(),
            tls: self.tls.clone(),
        }
    }

    pub(super) fn database(&self) -> &str {
        self.hosts.any().get_dbname().unwrap_or_default()
    }

    /// A blocking connection, driven by the calling thread.
    pub(super) fn open(&self) -> Result<WireConnection, Error> {
        let tls = self.tls.as_ref().map(|(tls, _)| tls);
        let mut failures = HostFailures::default();
        for (index, host) in self.hosts.in_turn() {
            match wire::open(host, tls, self.hosts.connect_timeout()) {
                Ok(mut wire) => {
                    self.hosts.mark_connected(index);
                    self.set_up(&mut wire)?;
                    return Ok(wire);
                }
                Err(failure) => {
                    failures.add(FailureDetail::of_failure(&failure), || {
                        self.unreachable(&failure)
                    });
                }
            }
        }
        Err(failures.most_specific())
    }

    fn set_up(&self, wire: &mut WireConnection) -> Result<(), Error> {
        let failed = |failure: WireError| self.unreachable(&failure);
        let differing = wire.run(&settings::DIFFERING).map_err(failed)?;
        settings::confirm(differing.first().map(Row::word))?;
        wire.run(settings::OF_WRITER).map_err(failed)?;
        Ok(())
    }

    /// A connection that a task of the current runtime drives.
    pub(super) async fn connect(&self) -> Result<Client, Error> {
        Ok(self.connect_listening().await?.client)
    }

    pub(super) async fn connect_listening(&self) -> Result<ListeningClient, Error> {
        let mut failures = HostFailures::default();
        for (index, host) in self.hosts.in_turn() {
            // A server may accept the connection and then send nothing.
            match timeout(self.hosts.connect_timeout(), self.connect_to(host)).await {
                Ok(Ok((connected, differing))) => {
                    self.hosts.mark_connected(index);
                    settings::confirm(differing.as_deref())?;
                    return Ok(connected);
                }
                Ok(Err(error)) => failures.add(FailureDetail::of_driver(&error), || {
                    let why = cause(&error);
                    // The driver's message is for programmers.
                    let missing = why.ends_with("password missing");
                    self.unreachable(&if missing { wire::NO_PASSWORD } else { &why })
                }),
                Err(_elapsed) => {
                    let silent = || self.unreachable(&"it did not answer in time");
                    failures.add(FailureDetail::Unreachable, silent);
                }
            }
        }
        Err(failures.most_specific())
    }

    fn unreachable(&self, why: &dyn fmt::Display) -> Error {
        Error::Unavailable(format!("cannot reach the database {self}: {why}"))
    }

    /// Connects to one host, and returns the first of its settings that has a wrong value.
    async fn connect_to(
        &self,
        host: &Config,
    ) -> Result<(ListeningClient, Option<String>), tokio_postgres::Error> {
        let (said, messages) = channel(MESSAGES_MAX);
        let client = match &self.tls {
            None => {
                let (client, connection) = host.connect(NoTls).await?;
                tokio::spawn(drive(connection, said));
                client
            }
            Some((_, tls)) => {
                let (client, connection) = host.connect(tls.clone()).await?;
                tokio::spawn(drive(connection, said));
                client
            }
        };
        let differing = client.simple_query(&settings::DIFFERING).await?;
        let first = differing.iter().find_map(|message| {
            if let SimpleQueryMessage::Row(row) = message {
                return row.get(0).map(str::to_owned);
            }
            None
        });
        Ok((ListeningClient { client, messages }, first))
    }
}

pub(super) struct ListeningClient {
    pub(super) client: Client,
    /// Asynchronous messages of the server. They are dropped if the receiver does not read.
    pub(super) messages: Receiver<AsyncMessage>,
}

/// Drives a connection until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, said: Sender<AsyncMessage>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            // Full or closed: notifications are only hints.
            Some(Ok(message)) => drop(said.try_send(message)),
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection to the database ended");
                return;
            }
            None => return,
        }
    }
}

/// User, hosts and database, without the password.
impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        self.hosts.fmt(f)?;
        write!(f, "/{}", self.database())
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseAddress({self})")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    Plain,
    Verified,
}

/// The parts of an address that this module interprets itself.
struct AddressOptions {
    url: String,
    mode: Option<Encryption>,
    roots: Option<PathBuf>,
}

impl AddressOptions {
    fn read(url: &str) -> Result<Self, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots) = (None, None);
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", "disable")) => mode = Some(Encryption::Plain),
                Some(("sslmode", "require" | "verify-ca" | "verify-full")) => {
                    mode = Some(Encryption::Verified);
                }
                Some(("sslmode", other)) => {
                    return Err(unfit(&format!(
                        "sslmode={other} is not offered; use verify-full, or disable on a network you trust"
                    )));
                }
                Some(("sslrootcert", path)) => roots = Some(PathBuf::from(path)),
                _ => others.push(pair),
            }
        }
        let url = if others.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", others.join("&"))
        };
        Ok(Self { url, mode, roots })
    }
}

fn tls_config(roots: Option<PathBuf>) -> Result<ClientConfig, Error> {
    let mut store = RootCertStore::empty();
    if let Some(path) = roots {
        let unreadable = |error: &dyn fmt::Display| {
            unfit(&format!(
                "sslrootcert {} cannot be read: {error}",
                path.display()
            ))
        };
        let certificates =
            CertificateDer::pem_file_iter(&path).map_err(|error| unreadable(&error))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            store.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if store.is_empty() {
            return Err(unreadable(&"it holds no certificate"));
        }
    } else {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&error.to_string()))?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

pub(super) fn unfit(reason: &str) -> Error {
    Error::DatabaseAddress(reason.to_owned())
}

/// The cause of a driver's error: its own text often says only where it happened.
pub(crate) fn cause(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        DatabaseAddress::parse(url, None).unwrap_err().to_string()
    }

    #[test]
    fn an_address_over_a_network_is_verified_and_a_local_one_may_be_plain() {
        let mode = |url: &str| DatabaseAddress::parse(url, None).unwrap().tls.is_some();
        assert!(!mode("postgres://u@127.0.0.1/db"));
        assert!(!mode("postgres://u@localhost/db"));
        assert!(mode("postgres://u@db.example/db"));
        assert!(mode("postgres://u@127.0.0.1,db.example/db"));
        assert!(mode("postgres://u@127.0.0.1/db?sslmode=verify-full"));
        assert!(!mode("postgres://u@db.example/db?sslmode=disable"));
        assert!(refused("postgres://u@db.example/db?sslmode=prefer").contains("verify-full"));
    }

    #[test]
    fn a_root_that_is_named_is_used_and_must_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("root.pem");
        std::fs::write(&empty, "something else\n").unwrap();
        let url = format!("postgres://u@127.0.0.1/db?sslrootcert={}", empty.display());
        let refused = refused(&url);
        assert!(refused.contains("root.pem"), "{refused}");
        assert!(refused.contains("holds no certificate"), "{refused}");
        assert!(DatabaseAddress::parse(&format!("{url}&sslmode=disable"), None).is_ok());
    }

    #[test]
    fn an_address_is_shown_with_all_its_hosts_and_their_ports() {
        let shown = |url| DatabaseAddress::parse(url, None).unwrap().to_string();
        assert_eq!(
            shown("postgres://u:hidden@127.0.0.1:6111,127.0.0.1:5432/db?target_session_attrs=any"),
            "postgres://127.0.0.1:6111,127.0.0.1/db"
        );
    }

    #[test]
    fn no_message_holds_the_password() {
        let address = DatabaseAddress::parse("postgres://u:hidden@127.0.0.1/db", None).unwrap();
        assert_eq!(address.to_string(), "postgres://127.0.0.1/db");
        assert!(!format!("{address:?}").contains("hidden"));
        assert!(!refused("postgres://u:hidden@127.0.0.1:x/db").contains("hidden"));
        assert!(refused("postgres://u:hidden@127.0.0.1").contains("database"));
    }
}
