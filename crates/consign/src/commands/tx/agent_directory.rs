//! The directory of an agent: its key, the intents it signed, and the idempotency key of each request.
//!
//! Layout: `agent_key`, and for each intent a folder `intent-ID` with `intent.json` and a file per request, like `execute-1`.
//! Invariant: a value returned from here is on disk, complete and synced, and never replaced; two commands that begin the
//! same request concurrently get the same key.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use consign_client::SecretKey;
use consign_transactions::document::{AtpDocument, REQUEST_BYTES_MAX};
use consign_transactions::intent::SignedIntent;
use data_encoding::HEXLOWER;

use crate::data_dir::{create_private, sync_directory, write_private_once};
use crate::failure::Failure;

const ID_CHARS_MAX: usize = 128;
const KEY_BYTES: usize = 16;

/// The directory of an agent.
#[derive(Debug)]
pub(super) struct AgentDirectory {
    root: PathBuf,
}

impl AgentDirectory {
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn agent_key_file(&self) -> PathBuf {
        self.root.join("agent_key")
    }

    /// Stores a signed intent. If the id is taken, returns the stored one.
    pub(super) fn keep_intent(&self, id: &str, text: &str) -> anyhow::Result<String> {
        let folder = self.folder(id)?;
        create_private(&folder)?;
        let kept = write_private_once(&folder.join("intent.json"), text.as_bytes())?;
        String::from_utf8(kept).context("the stored intent is not UTF-8")
    }

    /// The intent with this id, if it was signed here.
    pub(super) fn intent(&self, id: &str) -> anyhow::Result<Option<SignedIntent>> {
        let path = self.folder(id)?.join("intent.json");
        let Some(bytes) = read(&path)? else {
            return Ok(None);
        };
        let intent = AtpDocument::read(&bytes, REQUEST_BYTES_MAX).and_then(SignedIntent::read);
        let intent = intent.map_err(|problem| {
            Failure::failed(format!("{} is damaged: {problem}", path.display()))
                .hint("restore it from a backup, or create a new intent with: consign tx create")
        })?;
        Ok(Some(intent))
    }

    /// The idempotency key of a request: that of the first attempt, created if this is the first.
    pub(super) fn request_key(&self, id: &str, request: &str) -> anyhow::Result<SecretKey> {
        let folder = self.folder(id)?;
        create_private(&folder)?;
        let path = folder.join(request);
        let fresh = format!("{}\n", HEXLOWER.encode(&random_bytes::<KEY_BYTES>()?));
        let kept = write_private_once(&path, fresh.as_bytes())?;
        let key = SecretKey::new(&String::from_utf8_lossy(&kept));
        if key.is_empty() {
            let message = format!("{} is empty", path.display());
            return Err(Failure::failed(message)
                .hint("check the outcome with: consign tx show; the key is lost")
                .into());
        }
        Ok(key)
    }

    /// Whether this request was begun before.
    pub(super) fn is_begun(&self, id: &str, request: &str) -> anyhow::Result<bool> {
        Ok(read(&self.folder(id)?.join(request))?.is_some())
    }

    /// Called after an answer that ends a request without effect: the next request is a new one.
    pub(super) fn forget_request(&self, id: &str, request: &str) -> anyhow::Result<()> {
        let folder = self.folder(id)?;
        let path = folder.join(request);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        sync_directory(&folder)
    }

    fn folder(&self, id: &str) -> anyhow::Result<PathBuf> {
        check_id("the intent", id)?;
        Ok(self.root.join(format!("intent-{id}")))
    }
}

/// The protocol's rule for ids, which also prevents path traversal.
pub(super) fn check_id(what: &str, id: &str) -> Result<(), Failure> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if (1..=ID_CHARS_MAX).contains(&id.len()) && id.chars().all(allowed) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{what} must have an id of 1 to {ID_CHARS_MAX} of the characters A-Z a-z 0-9 . _ : -"
    )))
}

pub(super) fn random_bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("no source of random numbers")?;
    Ok(bytes)
}

fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, AgentDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let state = AgentDirectory::at(directory.path().join("agent"));
        (directory, state)
    }

    #[test]
    fn a_request_has_one_key_until_it_is_forgotten() {
        let (_directory, state) = state();
        assert!(!state.is_begun("int_1", "execute-1").unwrap());
        let first = state.request_key("int_1", "execute-1").unwrap();
        assert_eq!(first.reveal().len(), 32);
        assert!(state.is_begun("int_1", "execute-1").unwrap());
        assert_eq!(state.request_key("int_1", "execute-1").unwrap(), first);
        assert_ne!(state.request_key("int_1", "execute-2").unwrap(), first);
        assert_ne!(state.request_key("int_2", "execute-1").unwrap(), first);
        state.forget_request("int_1", "execute-1").unwrap();
        assert_ne!(state.request_key("int_1", "execute-1").unwrap(), first);
    }

    #[test]
    fn commands_that_begin_a_request_together_get_the_same_key() {
        let (_directory, state) = state();
        let keys: Vec<SecretKey> = std::thread::scope(|scope| {
            let begin = || state.request_key("int_1", "execute-1").unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        let folder = state.folder("int_1").unwrap();
        assert_eq!(
            fs::read_dir(folder).unwrap().count(),
            1,
            "nothing is left over"
        );
    }

    #[test]
    fn an_id_cannot_lead_out_of_the_directory() {
        let (_directory, state) = state();
        for id in ["", "a/b", "../x", "a b", &"x".repeat(129)] {
            assert!(state.request_key(id, "authorize").is_err(), "{id}");
        }
        assert!(state.request_key("..", "authorize").is_ok());
        assert!(state.root.join("intent-..").join("authorize").is_file());
    }
}
