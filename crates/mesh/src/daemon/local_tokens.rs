//! The token of the loopback listener: its file, and its replacement.
//!
//! Invariant: a replaced token works for a minute, so that programs have time to read the new file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::private_file::{self, PRIVATE};
use super::random;
use crate::ipc::LocalToken;
use crate::limits::OLD_TOKEN_GRACE_MS;

#[derive(Debug)]
pub(super) struct LocalTokens {
    path: PathBuf,
    tokens: Mutex<Tokens>,
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
        })
    }

    /// Writes a new token. The current one works for a while.
    pub(super) fn rotate(&self) -> io::Result<()> {
        let mut tokens = self.tokens();
        let new = write_new(&self.path)?;
        let until = Instant::now() + Duration::from_millis(OLD_TOKEN_GRACE_MS);
        let old = std::mem::replace(&mut tokens.current, new);
        tokens.earlier.push((old, until));
        Ok(())
    }

    /// Calls `check` with all tokens that work now.
    pub(super) fn with<T>(&self, check: impl FnOnce(&[&LocalToken]) -> T) -> T {
        let mut tokens = self.tokens();
        let now = Instant::now();
        tokens.earlier.retain(|(_, until)| *until > now);
        let earlier = tokens.earlier.iter().map(|(token, _)| token);
        let all: Vec<&LocalToken> = std::iter::once(&tokens.current).chain(earlier).collect();
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
