//! A full disk: a small file system where mounting is permitted, else ENOSPC from the shim.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::seeded_random::SeededRandom;
use crate::shim::{Fault, Shim};

const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub enum Space {
    Unlimited,
    /// A tmpfs over the folder.
    Mounted {
        at: PathBuf,
    },
    /// The shim returns ENOSPC.
    Pretended,
}

impl Space {
    /// Limits an existing empty folder to this many bytes.
    pub fn limited(data: &Path, bytes: u64) -> Self {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={bytes},mode=700"))
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
    pub fn about(&self) -> &'static str {
        match self {
            Self::Unlimited => "",
            Self::Mounted { .. } => " (a small tmpfs, filled up)",
            Self::Pretended => " (ENOSPC by the shim: mounting is not permitted here)",
        }
    }

    /// Leaves no space, or so little that the next commits fit and the following do not.
    pub fn fill(&self, shim: &Shim, random: &mut SeededRandom) -> io::Result<()> {
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
        ballast.set_len(filled.saturating_sub(random.below(32) * 4096))
    }

    pub fn free(&self, shim: &Shim) -> io::Result<()> {
        match self {
            Self::Mounted { at } => fs::remove_file(at.join("ballast")),
            Self::Unlimited | Self::Pretended => shim.set(Fault::None),
        }
    }

    /// A mounted file system is removed with the trial, so its files are copied.
    pub fn keep(&self, to: &Path) -> io::Result<()> {
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
            // Errors cannot be reported here; a mount that stays is visible.
            let _ = Command::new("umount").arg(at).status();
        }
    }
}
