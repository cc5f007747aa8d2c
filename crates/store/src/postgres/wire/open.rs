//! Opens a connection to one host: TLS, authentication and start-up.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::fallible_iterator::FallibleIterator as _;

use super::{RESPONSE_TIMEOUT, Row, WireConnection, WireError, WireStream};

/// For one host, until the connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(in super::super) const NO_PASSWORD: &str = "the server wants a password and was given none; set \
    CONSIGN_STORE_PASSWORD, or name a file by --store-password-file";

/// Connects to the one host of an address, if it accepts writes. `timeout_after` applies until the session is open.
pub(in super::super) fn open(
    config: &Config,
    tls: Option<&Arc<ClientConfig>>,
    timeout_after: Duration,
) -> Result<WireConnection, WireError> {
    let stream = connect(config, tls, timeout_after)?;
    stream.set_timeout(timeout_after)?;
    let mut wire = WireConnection::new(stream);
    wire.authenticate(config, timeout_after)?;
    wire.stream.set_timeout(RESPONSE_TIMEOUT)?;
    let rows = wire.run("SHOW transaction_read_only")?;
    if rows.first().is_some_and(|row| Row::word(row) == "on") {
        let standby = "the server takes no writes; name the primary too";
        // The same kind as from the driver of the readers.
        let kind = io::ErrorKind::PermissionDenied;
        return Err(WireError::Lost(io::Error::new(kind, standby)));
    }
    Ok(wire)
}

fn connect(
    config: &Config,
    tls: Option<&Arc<ClientConfig>>,
    timeout_after: Duration,
) -> io::Result<Box<dyn WireStream>> {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    // A given IP address saves the lookup of the name.
    let ip = config.get_hostaddrs().first();
    let (name, stream) = match (config.get_hosts().first(), ip) {
        #[cfg(unix)]
        (Some(Host::Unix(folder)), _) => {
            let path = folder.join(format!(".s.PGSQL.{port}"));
            return Ok(Box::new(UnixStream::connect(path)?));
        }
        (Some(Host::Tcp(name)), Some(ip)) => (name.clone(), reach((*ip, port))?),
        (Some(Host::Tcp(name)), None) => (name.clone(), reach((name.as_str(), port))?),
        (None, Some(ip)) => (ip.to_string(), reach((*ip, port))?),
        (None, None) => return Err(io::Error::other("the address names no host")),
    };
    keep_alive(&stream, config)?;
    Ok(match tls {
        Some(tls) => Box::new(secure(stream, name, tls, timeout_after)?),
        None => Box::new(stream),
    })
}

fn reach(to: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in to.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// As the driver does for readers: an idle connection stays open in the network, and a dead one is detected before it is
/// needed.
fn keep_alive(stream: &TcpStream, config: &Config) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, config.get_keepalives())?;
    sockopt::set_tcp_keepidle(stream, config.get_keepalives_idle())?;
    if let Some(interval) = config.get_keepalives_interval() {
        sockopt::set_tcp_keepintvl(stream, interval)?;
    }
    #[cfg(target_os = "linux")]
    if let Some(timeout) = config.get_tcp_user_timeout() {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, timeout_ms)?;
    }
    Ok(())
}

type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Requests TLS before anything else is sent.
fn secure(
    mut stream: TcpStream,
    name: String,
    tls: &Arc<ClientConfig>,
    timeout_after: Duration,
) -> io::Result<Secured> {
    stream.set_timeout(timeout_after)?;
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer != *b"S" {
        return Err(io::Error::other("the server offers no TLS"));
    }
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
    let mut secured = StreamOwned::new(connection, stream);
    // So that an invalid certificate is reported here.
    while secured.conn.is_handshaking() {
        secured.conn.complete_io(&mut secured.sock)?;
    }
    Ok(secured)
}

impl WireConnection {
    /// Authenticates, until the server is ready.
    pub(super) fn authenticate(
        &mut self,
        config: &Config,
        timeout_after: Duration,
    ) -> Result<(), WireError> {
        let deadline = Instant::now() + timeout_after;
        let user = config.get_user().unwrap_or_default();
        let password = || {
            let missing = || io::Error::other(NO_PASSWORD);
            config.get_password().ok_or_else(missing)
        };
        let parameters = [
            ("user", Some(user)),
            ("database", config.get_dbname()),
            ("client_encoding", Some("UTF8")),
            ("application_name", config.get_application_name()),
            ("options", config.get_options()),
        ];
        let given = parameters
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name, value)));
        frontend::startup_message(given, &mut self.outgoing)?;
        self.send()?;
        let (mut scram, mut unproven) = (None, false);
        loop {
            match self.receive(deadline)? {
                Message::ReadyForQuery(_) if unproven => {
                    let unproven = "the server did not prove that it knows the password";
                    return Err(io::Error::other(unproven).into());
                }
                Message::ReadyForQuery(_) => return Ok(()),
                Message::AuthenticationCleartextPassword => {
                    frontend::password_message(password()?, &mut self.outgoing)?;
                    self.send()?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(user.as_bytes(), password()?, body.salt());
                    frontend::password_message(hash.as_bytes(), &mut self.outgoing)?;
                    self.send()?;
                }
                Message::AuthenticationSasl(body) => {
                    if !body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256))? {
                        return Err(unknown_method());
                    }
                    let proof = ScramSha256::new(password()?, ChannelBinding::unsupported());
                    let first = proof.message();
                    frontend::sasl_initial_response(SCRAM_SHA_256, first, &mut self.outgoing)?;
                    self.send()?;
                    (scram, unproven) = (Some(proof), true);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let proof = scram.as_mut().ok_or_else(unknown_method)?;
                    proof.update(body.data())?;
                    frontend::sasl_response(proof.message(), &mut self.outgoing)?;
                    self.send()?;
                }
                // The server proves that it knows the password too.
                Message::AuthenticationSaslFinal(body) => {
                    scram
                        .as_mut()
                        .ok_or_else(unknown_method)?
                        .finish(body.data())?;
                    unproven = false;
                }
                Message::AuthenticationOk | Message::BackendKeyData(_) => {}
                Message::ErrorResponse(body) => {
                    return Err(WireError::Refused(super::ServerError::read(body.fields())?));
                }
                _ => return Err(unknown_method()),
            }
        }
    }
}

fn unknown_method() -> WireError {
    let wanted = "the server wants an authentication method that is not offered here; use SCRAM or a password";
    WireError::Lost(io::Error::other(wanted))
}

impl WireStream for TcpStream {
    fn set_timeout(&self, timeout_after: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout_after))?;
        self.set_write_timeout(Some(timeout_after))
    }
}

#[cfg(unix)]
impl WireStream for UnixStream {
    fn set_timeout(&self, timeout_after: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout_after))?;
        self.set_write_timeout(Some(timeout_after))
    }
}

impl WireStream for Secured {
    fn set_timeout(&self, timeout_after: Duration) -> io::Result<()> {
        self.sock.set_timeout(timeout_after)
    }
}
