//! `.checksums`: the sealed hashes of the files.
//!
//! The file is replaced atomically and readable by its owner only. Its keys are absolute paths, so a seal cannot be moved.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use super::sources;
use super::yaml;

pub(super) const FILE: &str = ".checksums";
const VERSION: u64 = 2;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigSeal {
    version: u64,
    pub generated_at: String,
    #[serde(default)]
    pub hashes: BTreeMap<PathBuf, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugin_fingerprints: Vec<Fingerprint>,
}

/// The program of a plugin at the time of sealing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub name: String,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<String>,
    pub manifest_path: PathBuf,
    pub manifest_resolved_path: PathBuf,
    pub manifest_hash: String,
    pub entrypoint_path: PathBuf,
    pub entrypoint_resolved_path: PathBuf,
    pub entrypoint_hash: String,
}

impl ConfigSeal {
    pub(super) fn new(generated_at: String) -> Self {
        Self {
            version: VERSION,
            generated_at,
            hashes: BTreeMap::new(),
            plugin_fingerprints: Vec::new(),
        }
    }

    /// The seal of a directory, if it has one. An unreadable seal is an error, because it might have been damaged on purpose.
    pub fn read(dir: &Path) -> Result<Option<Self>, String> {
        let bytes = match sources::read(&dir.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("the seal cannot be read: {error}")),
        };
        let text = String::from_utf8(bytes).map_err(|_| "the seal is not UTF-8".to_owned())?;
        let seal: Self =
            yaml::parse_as(&text).map_err(|error| format!("the seal is damaged: {error}"))?;
        match seal.version {
            VERSION => Ok(Some(seal)),
            other => Err(format!("the seal has version {other}, not {VERSION}")),
        }
    }

    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let text = serde_saphyr::to_string(self).map_err(io::Error::other)?;
        files::write(&dir.join(FILE), text.as_bytes())
    }
}
