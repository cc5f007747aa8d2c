//! The identity of an agent: a file with its Beam-ID and its key pair, in the form that the SDKs export.
//!
//! Invariant: the private key is never printed, and a file that other users can read is refused.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use consign_beam::beam_id::BeamId;
use consign_beam::keys::BeamPrivateKey;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::data_dir::{write_private, write_private_once};
use crate::failure::{Exit, Failure};
use crate::{input, secrets};

/// The file itself.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityFile {
    beam_id: String,
    public_key_base64: String,
    private_key_base64: String,
}

impl Drop for IdentityFile {
    fn drop(&mut self) {
        self.private_key_base64.zeroize();
    }
}

pub(crate) struct BeamIdentity {
    pub(crate) beam_id: BeamId,
    pub(crate) path: PathBuf,
    key: BeamPrivateKey,
    /// The key as it is stored.
    key_text: Zeroizing<String>,
}

impl fmt::Debug for BeamIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeamIdentity")
            .field("beam_id", &self.beam_id)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl BeamIdentity {
    /// The identity in a file; `None` if there is no such file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        if !path.try_exists()? {
            return Ok(None);
        }
        secrets::refuse_loose_mode(path, "600")?;
        let shown = path.display().to_string();
        let text = Zeroizing::new(input::file("the identity", &shown)?);
        let unfit = |why: String| Failure::usage(format!("{shown} is no identity: {why}"));
        let file: IdentityFile =
            serde_json::from_str(&text).map_err(|error| unfit(error.to_string()))?;
        let beam_id = BeamId::parse(&file.beam_id)
            .map_err(|_| unfit("its beamId is no Beam-ID".to_owned()))?;
        let key = BeamPrivateKey::parse(&file.private_key_base64)
            .map_err(|error| unfit(error.to_string()))?;
        if key.public_key().to_string() != file.public_key_base64 {
            return Err(unfit("its keys do not belong together".to_owned()).into());
        }
        Ok(Some(Self {
            beam_id,
            path: path.to_owned(),
            key,
            key_text: Zeroizing::new(file.private_key_base64.clone()),
        }))
    }

    /// The identity in a file that must exist.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        Self::read(path)?.ok_or_else(|| {
            let message = format!("file not found: {}", path.display());
            let hint = "create an identity with: consign agent register NAME";
            Failure::new(Exit::Nothing, message).hint(hint).into()
        })
    }

    /// A new key pair, not stored yet.
    pub(crate) fn new(beam_id: BeamId, path: &Path) -> anyhow::Result<Self> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *seed).context("no source of random numbers")?;
        Ok(Self {
            beam_id,
            path: path.to_owned(),
            key: BeamPrivateKey::from_seed(&seed),
            key_text: BeamPrivateKey::text_of_seed(&seed),
        })
    }

    pub(crate) fn public_key(&self) -> String {
        self.key.public_key().to_string()
    }

    pub(crate) fn key(&self) -> &BeamPrivateKey {
        &self.key
    }

    /// Stores the identity in a new file.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        let text = self.text()?;
        let written = write_private_once(&self.path, text.as_bytes())?;
        if written != text.as_bytes() {
            let message = format!("{} was created by another command", self.path.display());
            return Err(Failure::failed(message).into());
        }
        Ok(())
    }

    /// Stores the identity instead of the one in the file.
    pub(crate) fn replace(&self) -> anyhow::Result<()> {
        write_private(&self.path, self.text()?.as_bytes())
    }

    fn text(&self) -> anyhow::Result<Zeroizing<String>> {
        let file = IdentityFile {
            beam_id: self.beam_id.to_string(),
            public_key_base64: self.public_key(),
            private_key_base64: self.key_text.to_string(),
        };
        let text = serde_json::to_string_pretty(&file)?;
        Ok(Zeroizing::new(format!("{text}\n")))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_identity_is_read_back_and_its_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alice.json");
        assert!(BeamIdentity::read(&path).unwrap().is_none());
        let beam_id = BeamId::parse("alice@acme.beam.directory").unwrap();
        let made = BeamIdentity::new(beam_id, &path).unwrap();
        made.create().unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = BeamIdentity::load(&path).unwrap();
        assert_eq!(read.public_key(), made.public_key());
        assert_eq!(read.beam_id, made.beam_id);
        assert!(!format!("{read:?}").contains(&*read.key_text));

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(BeamIdentity::load(&path).is_err());
    }

    #[test]
    fn a_file_with_keys_of_two_pairs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mixed.json");
        let beam_id = BeamId::parse("alice@acme.beam.directory").unwrap();
        let first = BeamIdentity::new(beam_id.clone(), &path).unwrap();
        let second = BeamIdentity::new(beam_id, &path).unwrap();
        let text = first.text().unwrap();
        let mixed = text.replace(&first.public_key(), &second.public_key());
        write_private(&path, mixed.as_bytes()).unwrap();
        let error = BeamIdentity::load(&path).unwrap_err();
        assert!(
            error.to_string().contains("do not belong together"),
            "{error}"
        );
    }
}
