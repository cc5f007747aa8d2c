//! The server that a command uses, and its credentials.
//!
//! Invariant: the keys of the data directory are sent only over the socket in that directory, to a process of its
//! owner that holds its lock. The address in the directory is only a name: after a crash another program may listen
//! there. A server given with `--server` needs an explicit key, so that a typing mistake does not send the main key
//! to another server; if it is the server of the data directory, the socket is used.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};
use consign_client::{Address, Client, Options, PeerProcess, SecretKey, Socket};
use consign_web::unix::short_path;

use crate::data_dir::{DataArgs, DataDir};
use crate::failure::{Exit, Failure};
use crate::input;
use crate::lock;
use crate::secrets::{self, SecretName};

/// The flags for a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Base URL of the server; without it, the one of the data directory
    #[arg(
        long,
        value_name = "URL",
        env = "CONSIGN_SERVER",
        hide_env_values = true
    )]
    pub(crate) server: Option<String>,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Certificate authority (PEM) to trust beside the public ones
    #[arg(
        long,
        value_name = "FILE",
        env = "CONSIGN_CA_FILE",
        hide_env_values = true
    )]
    ca_file: Option<PathBuf>,

    /// Seconds to wait for an answer
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = value_parser!(u64).range(1..=3600),
    )]
    timeout: u64,
}

/// A server and an API key.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// API key; prefer --key-file or the variable, other users can see arguments
    #[arg(long, value_name = "KEY", env = "CONSIGN_KEY", hide_env_values = true)]
    key: Option<SecretKey>,

    /// File that holds the API key; wins over --key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// A server and its admin token.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Admin token, or an API key with the scope admin; prefer --admin-token-file or the variable, other users can see
    /// arguments
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CONSIGN_ADMIN_TOKEN",
        hide_env_values = true
    )]
    admin_token: Option<SecretKey>,

    /// File that holds the admin token; wins over --admin-token
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

/// A server, and an API key or its admin token: for commands that show more to an operator.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct EitherArgs {
    #[command(flatten)]
    link: LinkArgs,

    /// Admin token; prefer --admin-token-file or the variable, other users can see arguments
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CONSIGN_ADMIN_TOKEN",
        hide_env_values = true
    )]
    admin_token: Option<SecretKey>,

    /// File that holds the admin token; wins over --admin-token
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl EitherArgs {
    /// A client with the API key.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.link.client()
    }

    /// A client with the admin token.
    pub(crate) fn admin_client(&self) -> anyhow::Result<Client> {
        let given = given(self.admin_token.as_ref(), self.admin_token_file.as_deref())?;
        self.link.server.admin_client(given)
    }

    /// A client with the admin token, unless an API key alone was given or the token cannot be read.
    pub(crate) fn admin_client_if_any(&self) -> Option<Client> {
        let has_token = self.admin_token.is_some() || self.admin_token_file.is_some();
        let has_key = self.link.key.is_some() || self.link.key_file.is_some();
        (has_token || !has_key)
            .then(|| self.admin_client().ok())
            .flatten()
    }
}

impl LinkArgs {
    /// A client with the API key.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let given = given(self.key.as_ref(), self.key_file.as_deref())?;
        let location = self.server.location(given.is_none())?;
        let key = match given {
            Some(key) => key,
            None => location.local_key(SecretName::BusSecret, "CONSIGN_KEY", "--key-file")?,
        };
        self.server.connect(location, Some(key), None)
    }
}

impl AdminArgs {
    /// A client with the admin token.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let given = given(self.admin_token.as_ref(), self.admin_token_file.as_deref())?;
        self.server.admin_client(given)
    }

    /// The data directory that the flags name.
    pub(crate) fn data(&self) -> &DataArgs {
        &self.server.data
    }

    /// Whether the server is that of the data directory.
    pub(crate) fn names_server(&self) -> bool {
        self.server.server.is_some()
    }

    /// A client for requests without a token.
    pub(crate) fn public_client(&self) -> anyhow::Result<Client> {
        self.server.client()
    }
}

impl ServerArgs {
    /// The server of a data directory.
    pub(crate) fn of(data: &DataArgs) -> Self {
        Self {
            server: None,
            data: DataArgs {
                data: data.data.clone(),
            },
            ca_file: None,
            timeout: 10,
        }
    }

    /// Whether it is the server of the data directory.
    pub(crate) fn is_local(&self) -> anyhow::Result<bool> {
        Ok(self.location(true)?.local.is_some())
    }

    /// A client for requests without a key.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.connect(self.location(false)?, None, None)
    }

    /// A client with an admin token: this one, or that of the data directory.
    fn admin_client(&self, given: Option<SecretKey>) -> anyhow::Result<Client> {
        let location = self.location(given.is_none())?;
        let token = match given {
            Some(token) => token,
            None => location.local_key(
                SecretName::AdminSecret,
                "CONSIGN_ADMIN_TOKEN",
                "--admin-token-file",
            )?,
        };
        self.connect(location, None, Some(token))
    }

    /// A client with a bearer token, if there is one.
    pub(crate) fn client_with_token(&self, token: Option<SecretKey>) -> anyhow::Result<Client> {
        self.connect(self.location(false)?, None, token)
    }

    fn connect(
        &self,
        location: ServerLocation,
        key: Option<SecretKey>,
        admin_token: Option<SecretKey>,
    ) -> anyhow::Result<Client> {
        let socket = location.local.as_ref().map(socket_of).transpose()?;
        Ok(Client::new(Options {
            server: location.server,
            key,
            admin_token,
            sign: true,
            timeout: Duration::from_secs(self.timeout),
            ca_file: self.ca_file.clone(),
            socket,
        })?)
    }

    /// An explicit server is used as given, unless the secrets of the data directory are needed for it: then it must
    /// be the server of that directory.
    fn location(&self, wants_secrets: bool) -> anyhow::Result<ServerLocation> {
        let data = self.data.directory();
        let Some(named) = &self.server else {
            data.refuse_writable_by_others()?;
            if !data.socket_file().try_exists()? {
                return Err(self.not_running(&data));
            }
            let server = data.read_address()?.unwrap_or_else(|| NAMELESS.to_owned());
            return Ok(ServerLocation {
                server,
                local: Some(data),
            });
        };
        let named = Address::parse(named)?;
        let is_local = wants_secrets && {
            let local = data.read_address()?;
            local.is_some_and(|url| Address::parse(&url).is_ok_and(|local| local == named))
        };
        if is_local {
            data.refuse_writable_by_others()?;
        }
        Ok(ServerLocation {
            server: named.to_string(),
            local: is_local.then_some(data),
        })
    }

    fn not_running(&self, data: &DataDir) -> anyhow::Error {
        let shown = self.data.data.display();
        let Some(pid) = lock::holder(&data.lock_file()) else {
            let hint = "start it with: consign serve; or use another one with --server or --data";
            let message = format!("no server is running in {shown}");
            return Failure::new(Exit::Unreachable, message).hint(hint).into();
        };
        let message = format!(
            "the server in {shown} (pid {pid}) has no socket {}",
            data.socket_file().display()
        );
        let hint = "it may be starting or stopping, or an older version; if its file system does not support sockets, pass the server with --server and the key with --key-file or --admin-token-file";
        Failure::new(Exit::Unreachable, message).hint(hint).into()
    }
}

/// The name of a server without a recorded address.
const NAMELESS: &str = "http://localhost";

/// A server, and its data directory if it runs on this machine.
#[derive(Debug)]
struct ServerLocation {
    server: String,
    local: Option<DataDir>,
}

impl ServerLocation {
    fn local_key(&self, name: SecretName, variable: &str, flag: &str) -> anyhow::Result<SecretKey> {
        let message = match &self.local {
            Some(data) => match secrets::read(data, name)? {
                Some(secret) => return Ok(SecretKey::new(secret.reveal())),
                None => format!("{} does not exist", data.key_file(name.file()).display()),
            },
            None => format!("no key was given for {}", self.server),
        };
        Err(Failure::usage(message)
            .hint(format!("set the variable {variable}, or use {flag}"))
            .into())
    }
}

/// The socket of a directory, for a peer that is the server of that directory.
fn socket_of(data: &DataDir) -> anyhow::Result<Socket> {
    let (path, directory) = short_path(&data.socket_file())?;
    let data = data.clone();
    Ok(Socket::new(path, move |peer| {
        // The path may go through this descriptor.
        let _directory = &directory;
        verify(peer, &data)
    }))
}

/// Whether a process is the server of a data directory: it belongs to the owner or root, and holds the lock. The
/// connection is opened before the lock is checked, because a check holds the lock for a moment, which must not
/// disturb a starting server.
fn verify(peer: PeerProcess, data: &DataDir) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if peer.uid != own && peer.uid != 0 {
        return Err(format!(
            "its process belongs to another user (uid {})",
            peer.uid
        ));
    }
    let Some(holder) = lock::holder(&data.lock_file()) else {
        let lock = data.lock_file();
        return Err(format!("nobody holds {}", lock.display()));
    };
    // A process in another PID namespace, such as a container, is identified by its user and the lock alone.
    match peer.pid {
        Some(pid) if !is_called(pid, holder) => Err(format!(
            "its process is {pid}, and {} is held by {holder}",
            data.lock_file().display()
        )),
        _ => Ok(()),
    }
}

/// Whether a process has this id, here or in its own PID namespace.
fn is_called(pid: u32, id: u32) -> bool {
    if pid == id {
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut ids = line.unwrap_or_default().split_whitespace();
    ids.any(|inner| inner.parse() == Ok(id))
}

/// A secret from a file or from the command line; the file takes precedence.
pub(crate) fn given(
    flag: Option<&SecretKey>,
    file: Option<&Path>,
) -> anyhow::Result<Option<SecretKey>> {
    let (key, origin) = match (file, flag) {
        (Some(path), _) => {
            let shown = path.display().to_string();
            (SecretKey::new(&input::file("the key", &shown)?), shown)
        }
        (None, Some(key)) => (key.clone(), "the given key".to_owned()),
        (None, None) => return Ok(None),
    };
    if key.is_empty() {
        return Err(Failure::usage(format!("{origin} is empty")).into());
    }
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{Overrides, Secrets};

    fn args(data: &Path, server: Option<&str>) -> LinkArgs {
        LinkArgs {
            server: ServerArgs {
                server: server.map(str::to_owned),
                data: DataArgs {
                    data: data.to_owned(),
                },
                ca_file: None,
                timeout: 10,
            },
            key: None,
            key_file: None,
        }
    }

    fn started() -> (tempfile::TempDir, DataDir) {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::new(&directory.path().join("data"));
        Secrets::open(&data, &Overrides::default(), secrets::LedgerState::New).unwrap();
        data.write_address("http://127.0.0.1:7070").unwrap();
        std::fs::write(data.socket_file(), "").unwrap();
        (directory, data)
    }

    #[test]
    fn name_and_key_come_from_the_data_directory() {
        let (_directory, data) = started();
        let client = args(data.root(), None).client().unwrap();
        assert_eq!(client.address().to_string(), "http://127.0.0.1:7070");
        assert!(
            args(data.root(), Some("http://127.0.0.1:7070/"))
                .client()
                .is_ok()
        );
    }

    #[test]
    fn local_keys_are_never_sent_to_another_server() {
        let (_directory, data) = started();
        let error = args(data.root(), Some("http://127.0.0.1:7071"))
            .client()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "no key was given for http://127.0.0.1:7071"
        );
    }

    #[test]
    fn s8_local_keys_go_over_the_socket_alone_and_named_keys_where_they_are_sent() {
        let (_directory, data) = started();
        let url = "http://127.0.0.1:7070";
        for server in [None, Some(url)] {
            let args = args(data.root(), server);
            assert!(args.server.location(true).unwrap().local.is_some());
        }
        let named = args(data.root(), Some(url));
        assert!(named.server.location(false).unwrap().local.is_none());
    }

    #[test]
    fn s8_only_the_process_that_holds_the_lock_is_the_server() {
        let (_directory, data) = started();
        let own = PeerProcess {
            uid: rustix::process::geteuid().as_raw(),
            pid: Some(std::process::id()),
        };
        let refused = verify(own, &data).unwrap_err();
        assert!(refused.starts_with("nobody holds "), "{refused}");
        let _lock = lock::DataLock::acquire(&data).unwrap();
        verify(own, &data).unwrap();
        verify(PeerProcess { pid: None, ..own }, &data).unwrap();
        let other = PeerProcess {
            pid: Some(1),
            ..own
        };
        assert!(verify(other, &data).unwrap_err().contains("is held by"));
        let stranger = PeerProcess {
            uid: own.uid + 4321,
            ..own
        };
        let refused = verify(stranger, &data).unwrap_err();
        assert!(refused.contains("belongs to another user"), "{refused}");
    }

    #[test]
    fn a_directory_without_a_server_says_how_to_start_one() {
        let directory = tempfile::tempdir().unwrap();
        let error = args(directory.path(), None).client().unwrap_err();
        assert!(
            error.to_string().starts_with("no server is running in "),
            "{error}"
        );
    }

    #[test]
    fn a_key_file_wins_over_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "tk_file\n").unwrap();
        let flag = SecretKey::new("tk_flag");
        let chosen = given(Some(&flag), Some(&file)).unwrap().unwrap();
        assert_eq!(chosen.reveal(), "tk_file");
        std::fs::write(&file, "\n").unwrap();
        assert!(given(None, Some(&file)).is_err());
    }
}
