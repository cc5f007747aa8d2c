//! Which server a command talks to, and as whom.
//!
//! Invariant: the keys of the data directory are only ever sent to the server whose address lies in
//! that same directory. A server named with `--server` needs a key named by the user, so that a
//! typing mistake cannot hand the main key to a stranger.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};
use consign_client::{Address, Client, Key, Options};

use crate::data_dir::{DataArgs, DataDir};
use crate::failure::{Exit, Failure};
use crate::input;
use crate::secrets::{self, Name};

/// How to reach a server.
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
    key: Option<Key>,

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

    /// Admin token; prefer --admin-token-file or the variable, other users can see arguments
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CONSIGN_ADMIN_TOKEN",
        hide_env_values = true
    )]
    admin_token: Option<Key>,

    /// File that holds the admin token; wins over --admin-token
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl LinkArgs {
    /// A client with the API key.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let place = self.server.place()?;
        let key = match given(self.key.as_ref(), self.key_file.as_deref())? {
            Some(key) => key,
            None => place.local_key(Name::BusSecret, "CONSIGN_KEY", "--key-file")?,
        };
        self.server.connect(place, Some(key), None)
    }
}

impl AdminArgs {
    /// A client with the admin token.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let place = self.server.place()?;
        let token = match given(self.admin_token.as_ref(), self.admin_token_file.as_deref())? {
            Some(token) => token,
            None => place.local_key(
                Name::AdminSecret,
                "CONSIGN_ADMIN_TOKEN",
                "--admin-token-file",
            )?,
        };
        self.server.connect(place, None, Some(token))
    }

    /// A client for what needs no token.
    pub(crate) fn public_client(&self) -> anyhow::Result<Client> {
        self.server.client()
    }
}

impl ServerArgs {
    /// Whether it is the server of the data directory.
    pub(crate) fn is_local(&self) -> anyhow::Result<bool> {
        Ok(self.place()?.local.is_some())
    }

    /// A client for what needs no key.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.connect(self.place()?, None, None)
    }

    fn connect(
        &self,
        place: Place,
        key: Option<Key>,
        admin_token: Option<Key>,
    ) -> anyhow::Result<Client> {
        Ok(Client::new(Options {
            server: place.server,
            key,
            admin_token,
            sign: true,
            timeout: Duration::from_secs(self.timeout),
            ca_file: self.ca_file.clone(),
        })?)
    }

    fn place(&self) -> anyhow::Result<Place> {
        let data = self.data.directory();
        let local = data.read_address()?;
        let (server, is_local) = match (&self.server, local) {
            (Some(named), local) => {
                let named = Address::parse(named)?;
                let local = local.and_then(|url| Address::parse(&url).ok());
                (named.to_string(), local.as_ref() == Some(&named))
            }
            (None, Some(local)) => (local, true),
            (None, None) => {
                return Err(Failure::new(
                    Exit::Unreachable,
                    format!("no server has been started in {}", self.data.data.display()),
                )
                .hint("start it with: consign serve; or name another one with --server or --data")
                .into());
            }
        };
        Ok(Place {
            server,
            local: is_local.then_some(data),
        })
    }
}

/// A server, and its data directory when it is the one on this machine.
#[derive(Debug)]
struct Place {
    server: String,
    local: Option<DataDir>,
}

impl Place {
    fn local_key(&self, name: Name, variable: &str, flag: &str) -> anyhow::Result<Key> {
        let message = match &self.local {
            Some(data) => match secrets::read(data, name)? {
                Some(secret) => return Ok(Key::new(secret.reveal())),
                None => format!("{} does not exist", data.key_file(name.file()).display()),
            },
            None => format!("no key was given for {}", self.server),
        };
        Err(Failure::usage(message)
            .hint(format!("set the variable {variable}, or use {flag}"))
            .into())
    }
}

/// A secret from a file or from the command line; the file wins.
pub(crate) fn given(flag: Option<&Key>, file: Option<&Path>) -> anyhow::Result<Option<Key>> {
    let (key, origin) = match (file, flag) {
        (Some(path), _) => {
            let shown = path.display().to_string();
            (Key::new(&input::file("the key", &shown)?), shown)
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
        Secrets::open(&data, &Overrides::default(), secrets::Ledger::New).unwrap();
        data.write_address("http://127.0.0.1:7070").unwrap();
        (directory, data)
    }

    #[test]
    fn address_and_key_come_from_the_data_directory() {
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
    fn a_directory_without_a_server_says_how_to_start_one() {
        let directory = tempfile::tempdir().unwrap();
        let error = args(directory.path(), None).client().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("no server has been started in "),
            "{error}"
        );
    }

    #[test]
    fn a_key_file_wins_over_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "tk_file\n").unwrap();
        let flag = Key::new("tk_flag");
        let chosen = given(Some(&flag), Some(&file)).unwrap().unwrap();
        assert_eq!(chosen.reveal(), "tk_file");
        std::fs::write(&file, "\n").unwrap();
        assert!(given(None, Some(&file)).is_err());
    }
}
