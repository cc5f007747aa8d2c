//! The token of the loopback listener: its file, and its replacement; and the token for callers from other machines.
//!
//! Invariant: a replaced token works for a minute, so that programs have time to read the new file. A caller from another
//! machine needs the external token: the local one never leaves this machine.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::private_file::{self, PRIVATE};
use super::random;
use crate::ipc::LocalToken;
use crate::limits::OLD_TOKEN_GRACE_MS;

#[derive(Debug)]
pub(super) struct LocalTokens {
    path: PathBuf,
    tokens: Mutex<Tokens>,
    /// `None` if the listener is on loopback.
    external: Option<LocalToken>,
}

#[derive(Debug)]
struct Tokens {
    current: LocalToken,
    /// Earlier ones, with the end of their time.
    earlier: Vec<(LocalToken, Instant)>,
}

impl LocalTokens {
    /// Reads the file, or writes a new one.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let text = private_file::read(path)?;
        let current = match text.as_deref().and_then(LocalToken::parse) {
            // Written again, because the file must be private.
            Some(token) if private_file::mode(path)? == Some(PRIVATE) => token,
            _ => write_new(path)?,
        };
        Ok(Self {
            path: path.to_owned(),
            tokens: Mutex::new(Tokens {
                current,
                earlier: Vec::new(),
            }),
            external: None,
        })
    }

    /// Also reads the token for other machines, which the operator has written.
    pub(super) fn with_external(self, path: &Path) -> Result<Self, String> {
        let unfit = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = private_file::read(path).map_err(|error| unfit(&error))?;
        let text = Zeroizing::new(text.ok_or_else(|| unfit(&"the file does not exist"))?);
        let mode = private_file::mode(path).map_err(|error| unfit(&error))?;
        if mode.is_none_or(|mode| mode & 0o077 != 0) {
            return Err(unfit(
                &"other users can read it; make it private with: chmod 600",
            ));
        }
        let external = LocalToken::parse(&text).ok_or_else(|| {
            unfit(&"expected 43 characters of base64url, which is 32 random bytes")
        })?;
        Ok(Self {
            external: Some(external),
            ..self
        })
    }

    /// Whether callers from other machines are expected.
    pub(super) const fn has_external(&self) -> bool {
        self.external.is_some()
    }

    /// Writes a new token. The current one works for a while.
    pub(super) fn rotate(&self) -> io::Result<()> {
        self.rotate_at(Instant::now())
    }

    fn rotate_at(&self, now: Instant) -> io::Result<()> {
        let mut tokens = self.tokens();
        let new = write_new(&self.path)?;
        let until = now + Duration::from_millis(OLD_TOKEN_GRACE_MS);
        let old = std::mem::replace(&mut tokens.current, new);
        tokens.earlier.push((old, until));
        Ok(())
    }

    /// Calls `check` with all tokens that work now for a caller on this machine or on another one.
    pub(super) fn with<T>(&self, is_local: bool, check: impl FnOnce(&[&LocalToken]) -> T) -> T {
        self.with_at(is_local, Instant::now(), check)
    }

    fn with_at<T>(
        &self,
        is_local: bool,
        now: Instant,
        check: impl FnOnce(&[&LocalToken]) -> T,
    ) -> T {
        let external = self.external.as_ref();
        if !is_local {
            return check(&external.into_iter().collect::<Vec<_>>());
        }
        let mut tokens = self.tokens();
        tokens.earlier.retain(|(_, until)| *until > now);
        let earlier = tokens.earlier.iter().map(|(token, _)| token);
        let current = std::iter::once(&tokens.current);
        let all: Vec<&LocalToken> = current.chain(earlier).chain(external).collect();
        check(&all)
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_new(path: &Path) -> io::Result<LocalToken> {
    let token = LocalToken::from_random(&random::bytes());
    private_file::replace(path, token.reveal().as_bytes(), PRIVATE)?;
    Ok(token)
}
