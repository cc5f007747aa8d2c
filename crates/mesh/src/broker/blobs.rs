//! Files that members share, named by the SHA-256 of their bytes: a record in the ledger, the bytes in a folder.
//!
//! Invariant: a file under its name has the bytes that its name says, because it is written under another name, hashed while
//! it arrives, and renamed. The record precedes the rename, so a file without a record is waste; a record without its file,
//! which a crash can leave, is a blob that does not exist.
//! A folder belongs to one ledger. Nodes of a shared ledger need a shared folder.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::ids::DAY_US;
use consign_kernel::record::{Key, Kind};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Broker, BrokerError, MeshRecord, PAGE};
use crate::limits::{BLOB_BYTES_MAX, BLOB_BYTES_PER_MESH_DEFAULT, BLOB_FREE_BYTES_MIN};

/// An upload that a crash cut off is removed after this time.
const UNFINISHED_FOR: Duration = Duration::from_hours(24);

/// Where blobs are, and how large one may be.
#[derive(Clone, Debug)]
pub struct BlobSettings {
    pub folder: PathBuf,
    pub bytes_max: u64,
    /// Of all files of a mesh.
    pub mesh_bytes_max: u64,
    /// An upload that would leave less of the disk is refused.
    pub free_bytes_min: u64,
}

impl BlobSettings {
    pub const fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            bytes_max: BLOB_BYTES_MAX,
            mesh_bytes_max: BLOB_BYTES_PER_MESH_DEFAULT,
            free_bytes_min: BLOB_FREE_BYTES_MIN,
        }
    }

    /// How many bytes may be written before the disk is as full as it may be. Blocks.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.folder)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(self.free_bytes_min))
    }
}

/// What the ledger knows of a blob. Times are milliseconds of the wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRecord {
    pub bytes: u64,
    /// The member that shared it first.
    pub member_id: String,
    pub created_at: i64,
    pub expires_at: i64,
}

/// The name of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlobName(String);

impl BlobName {
    /// 64 hex digits in lower case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_name = text.len() == 64 && text.bytes().all(is_hex);
        is_name.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file that is being written. Unless it is finished, it is removed.
#[derive(Debug)]
pub(crate) struct BlobUpload {
    file: File,
    hash: Sha256,
    written: u64,
    temporary: PathBuf,
    path: PathBuf,
}

impl Drop for BlobUpload {
    fn drop(&mut self) {
        // After the rename there is nothing to remove.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl BlobUpload {
    /// Blocks.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Whether the bytes are those that the name says, and how many there are. They are on the disk afterwards. Blocks.
    pub(crate) fn verify(&mut self, name: &BlobName) -> io::Result<Option<u64>> {
        let hash = HEXLOWER.encode(&self.hash.finalize_reset());
        if hash != name.0 {
            return Ok(None);
        }
        self.file.sync_all()?;
        Ok(Some(self.written))
    }

    /// Gives the file its name. Blocks.
    pub(crate) fn finish(self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        let folder = self.path.parent().unwrap_or(&self.path);
        File::open(folder)?.sync_all()
    }
}

impl Broker {
    pub(crate) fn blob_settings(&self) -> Option<&BlobSettings> {
        self.inner.settings.blobs.as_ref()
    }

    /// Begins a file in the folder of a mesh. Blocks.
    pub(crate) fn begin_blob(
        &self,
        settings: &BlobSettings,
        mesh_id: &str,
        name: &BlobName,
    ) -> io::Result<BlobUpload> {
        let path = blob_path(&settings.folder, mesh_id, name);
        let folder = path.parent().unwrap_or(&settings.folder);
        fs::create_dir_all(folder)?;
        let number = self.engine().entropy().draw();
        let temporary = folder.join(format!("{}.{number:032x}.part", name.0));
        Ok(BlobUpload {
            file: File::create_new(&temporary)?,
            hash: Sha256::new(),
            written: 0,
            temporary,
            path,
        })
    }

    /// How many bytes a mesh may still store under this name: a file that it has already takes no more room.
    pub(crate) async fn blob_room(
        &self,
        settings: &BlobSettings,
        mesh_id: &str,
        name: &BlobName,
    ) -> Result<u64, BrokerError> {
        let now = self.engine().now();
        let (mut stored, mut after) = (0_u64, String::new());
        loop {
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshBlob, mesh_id, &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let is_over = record.expires_at.is_some_and(|end| end <= now);
                if !is_over && record.key.name != name.0 {
                    let blob = Versioned::<BlobRecord>::read(record)?.value;
                    stored = stored.saturating_add(blob.bytes);
                }
            }
            if is_last {
                return Ok(settings.mesh_bytes_max.saturating_sub(stored));
            }
        }
    }

    /// Notes a blob of a mesh, or keeps one for longer. Answers whether it is new.
    pub(crate) async fn note_blob(
        &self,
        mesh: &MeshRecord,
        name: &BlobName,
        member_id: &str,
        bytes: u64,
    ) -> Result<(BlobRecord, bool), BrokerError> {
        let key = record_key(&mesh.id, name);
        let known = self.engine().load::<BlobRecord>(key.clone()).await?;
        let kept_us = i64::from(mesh.message_days).saturating_mul(DAY_US);
        let is_new = known.is_none();
        let mut blob = known.map_or_else(
            || BlobRecord {
                bytes,
                member_id: member_id.to_owned(),
                created_at: self.wall_ms(),
                expires_at: 0,
            },
            |known| known.value,
        );
        blob.expires_at = self.wall_ms().saturating_add(kept_us / 1_000);
        let mut unit = UnitOfWork::default();
        unit.put_until(key, &blob, self.engine().now().plus(kept_us));
        self.engine().commit(unit).await?;
        Ok((blob, is_new))
    }

    /// A blob of a mesh.
    pub(crate) async fn blob(
        &self,
        mesh_id: &str,
        name: &BlobName,
    ) -> Result<Option<BlobRecord>, BrokerError> {
        let found = self
            .engine()
            .load::<BlobRecord>(record_key(mesh_id, name))
            .await?;
        let now = self.engine().now();
        let found = found.filter(|found| found.expires_at.is_none_or(|end| end > now));
        Ok(found.map(|found| found.value))
    }

    /// Opens the file of a blob. Blocks.
    pub(crate) fn open_blob(
        settings: &BlobSettings,
        mesh_id: &str,
        name: &BlobName,
    ) -> io::Result<Option<File>> {
        match File::open(blob_path(&settings.folder, mesh_id, name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes files whose records have ended, and uploads that were cut off. A blob that is shared again in this moment may
    /// be removed: then it does not exist, and can be shared once more.
    pub(super) async fn remove_old_blobs(&self) -> Result<u64, BrokerError> {
        let Some(settings) = self.blob_settings() else {
            return Ok(0);
        };
        let folder = settings.folder.clone();
        let listed = tokio::task::spawn_blocking(move || listed_files(&folder)).await;
        let files = listed.map_err(internal)?.map_err(internal)?;
        let mut removed = 0;
        for (mesh_id, file) in files {
            let text = file.file_name().and_then(|name| name.to_str());
            let is_waste = match text.and_then(BlobName::parse) {
                Some(name) => self.blob(&mesh_id, &name).await?.is_none(),
                None => is_unfinished(&file),
            };
            if is_waste {
                match fs::remove_file(&file) {
                    Ok(()) => removed += 1,
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(internal(error)),
                }
            }
        }
        Ok(removed)
    }
}

fn internal(error: impl std::fmt::Display) -> BrokerError {
    Error::Internal(format!("the folder of blobs: {error}")).into()
}

/// All files below the folder, with the mesh that they belong to.
fn listed_files(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for mesh in entries(folder)? {
        let name = mesh
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        for shard in entries(&mesh)? {
            for file in entries(&shard)? {
                files.push((name.clone().unwrap_or_default(), file));
            }
        }
    }
    Ok(files)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn is_unfinished(file: &Path) -> bool {
    let is_part = file
        .extension()
        .is_some_and(|extension| extension == "part");
    let changed = file.metadata().and_then(|metadata| metadata.modified());
    let age = changed.map(|changed| SystemTime::now().duration_since(changed));
    is_part && matches!(age, Ok(Ok(age)) if age > UNFINISHED_FOR)
}

fn blob_path(folder: &Path, mesh_id: &str, name: &BlobName) -> PathBuf {
    // Ids of meshes are hex digits of this broker's own making.
    folder.join(mesh_id).join(&name.0[..2]).join(&name.0)
}

fn record_key(mesh_id: &str, name: &BlobName) -> Key {
    Key {
        kind: Kind::MeshBlob,
        owner: mesh_id.to_owned(),
        name: name.0.clone(),
    }
}
