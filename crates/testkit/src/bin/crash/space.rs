//! How a full disk is made: a small file system of its own where mounting is permitted, else the shim's ENOSPC.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use consign_testkit::chance::Chance;
use consign_testkit::shim::{Fault, Shim};

/// Room for a stretch, and quickly filled.
const MOUNT_BYTES: u64 = 96 << 20;
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) enum Space {
    Unlimited,
    /// A tmpfs over the data directory.
    Mounted {
        at: PathBuf,
    },
    /// The shim pretends.
    Pretended,
}

impl Space {
    pub(crate) fn limited(data: &Path) -> Self {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={MOUNT_BYTES},mode=700"))
            .arg("tmpfs")
            .arg(data)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Self::Mounted {
                at: data.to_owned(),
            };
        }
        Self::Pretended
    }

    /// For the report: which kind of full disk this was.
    pub(crate) fn about(&self) -> &'static str {
        match self {
            Self::Unlimited => "",
            Self::Mounted { .. } => " (a small tmpfs, filled up)",
            Self::Pretended => " (ENOSPC by the shim: mounting is not permitted here)",
        }
    }

    /// Leaves no space, or so little that the next commits fit and the following do not.
    pub(crate) fn fill(&self, shim: &Shim, chance: &mut Chance) -> io::Result<()> {
        let Self::Mounted { at } = self else {
            return shim.set(Fault::Writes);
        };
        let mut ballast = File::create(at.join("ballast"))?;
        let mut chunk = vec![1; CHUNK_BYTES];
        let mut filled = 0;
        while !chunk.is_empty() {
            match ballast.write(&chunk) {
                Ok(written) => filled += written as u64,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    chunk.truncate(chunk.len() / 2);
                }
                Err(error) => return Err(error),
            }
        }
        ballast.set_len(filled.saturating_sub(chance.below(32) * 4096))
    }

    pub(crate) fn free(&self, shim: &Shim) -> io::Result<()> {
        match self {
            Self::Mounted { at } => fs::remove_file(at.join("ballast")),
            Self::Unlimited | Self::Pretended => shim.set(Fault::None),
        }
    }

    /// What is mounted goes away with the stretch, so it is copied to stay.
    pub(crate) fn keep(&self, to: &Path) -> io::Result<()> {
        if let Self::Mounted { at } = self {
            let status = Command::new("cp").arg("-a").args([at, to]).status()?;
            if !status.success() {
                return Err(io::Error::other("cp failed"));
            }
        }
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Self::Mounted { at } = self {
            // Nobody is left who could be told; a mount that stays is seen by whoever looks.
            let _ = Command::new("umount").arg(at).status();
        }
    }
}
