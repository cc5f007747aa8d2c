//! Where intents are published, and with which key.
//!
//! Invariant: a key that other users can read is not used. Settings and key are read for every attempt, so that a reload and a
//! new key need no restart.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_client::{Client, Options, SecretKey};

use crate::daemon::private_file;
use crate::daemon::shared::DaemonShared;
use crate::limits::ACK_TIMEOUT_MS;

/// A server and the API key for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IntentAccess {
    url: String,
    key: SecretKey,
}

/// The settings do not say where and how to publish.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntentAccessError {
    #[error(
        "intents_not_configured: set api_key_file in [intents] of {config} to a file with an API key of the server, with mode 0600"
    )]
    NoKey { config: PathBuf },
    #[error(
        "intents_not_configured: set url in [intents] of {config}; it does not follow from the broker's address {broker}"
    )]
    NoUrl { config: PathBuf, broker: String },
    #[error("intents_not_configured: api_key_file {path}: {why}")]
    BadKey { path: PathBuf, why: String },
}

impl IntentAccess {
    pub(super) fn read(shared: &DaemonShared) -> Result<Self, IntentAccessError> {
        let all = shared.config();
        let settings = &all.intents;
        let config = || shared.folder.config();
        let Some(file) = &settings.api_key_file else {
            return Err(IntentAccessError::NoKey { config: config() });
        };
        let path = shared.folder.path().join(file);
        let key = read_key(&path).map_err(|why| IntentAccessError::BadKey { path, why })?;
        let url = settings.url.clone();
        let url = url.or_else(|| server_of(&shared.broker_url));
        let url = url.ok_or_else(|| IntentAccessError::NoUrl {
            config: config(),
            broker: shared.broker_url.clone(),
        })?;
        Ok(Self { url, key })
    }

    /// A client whose calls have the time limit of an acknowledgement.
    pub(super) fn client(&self) -> Result<Client, consign_client::Error> {
        Client::new(Options {
            server: self.url.clone(),
            key: Some(self.key.clone()),
            timeout: Duration::from_millis(ACK_TIMEOUT_MS),
            ..Options::default()
        })
    }
}

fn read_key(path: &Path) -> Result<SecretKey, String> {
    let why = |error: io::Error| error.to_string();
    let mode = private_file::mode(path).map_err(why)?;
    let text = private_file::read(path).map_err(why)?;
    let (Some(mode), Some(text)) = (mode, text) else {
        return Err("there is no such file".to_owned());
    };
    if mode & 0o077 != 0 {
        return Err(format!(
            "other users may read it (mode {mode:04o}); set its mode to 0600"
        ));
    }
    let key = SecretKey::new(&text);
    if key.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(key)
}

/// The server beside a broker's `/ws`; `None` if the address has another form.
fn server_of(broker_url: &str) -> Option<String> {
    let (scheme, rest) = broker_url.split_once("://")?;
    let scheme = match scheme {
        "ws" => "http",
        "wss" => "https",
        _ => return None,
    };
    let authority = rest.strip_suffix("/ws")?;
    (!authority.contains(['/', '?', '#', '@'])).then(|| format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::private_file::{PRIVATE, PUBLIC};

    #[test]
    fn the_server_of_intents_is_beside_the_broker() {
        let server = |url: &str| server_of(url);
        assert_eq!(
            server("wss://bus.example.org/ws").as_deref(),
            Some("https://bus.example.org")
        );
        assert_eq!(
            server("ws://127.0.0.1:7070/ws").as_deref(),
            Some("http://127.0.0.1:7070")
        );
        for other in [
            "wss://bus.example.org/mesh/ws",
            "wss://bus.example.org/ws?token=x",
            "wss://bus.example.org",
            "http://bus.example.org/ws",
        ] {
            assert_eq!(server(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_is_read_from_a_file_that_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(read_key(&path).unwrap_err().contains("no such file"));
        private_file::replace(&path, b"ck_1\n", PUBLIC).unwrap();
        let error = read_key(&path).unwrap_err();
        assert!(error.contains("mode 0644"), "{error}");
        private_file::replace(&path, b"ck_1\n", PRIVATE).unwrap();
        assert_eq!(read_key(&path).unwrap().reveal(), "ck_1");
        private_file::replace(&path, b"\n", PRIVATE).unwrap();
        assert!(read_key(&path).unwrap_err().contains("empty"));
    }
}
