//! ULIDs: 48 bits of time and 80 random bits in 26 digits of Crockford's base 32.
//!
//! The daemon mints them as ids of its rows and of messages whose sender named none. Texts sort as the times do.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Mutex, PoisonError};

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LENGTH: usize = 26;

/// A minted id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeshUlid(u128);

impl MeshUlid {
    /// Milliseconds since 1970, and random bits of which 80 are used.
    pub const fn new(ms: u64, entropy: u128) -> Self {
        let time = (ms & 0xffff_ffff_ffff) as u128;
        Self(time << 80 | entropy & ((1 << 80) - 1))
    }

    /// Whether the text is a ULID in upper case, as [`MeshUlid`] prints it.
    pub fn is_valid(text: &str) -> bool {
        text.len() == LENGTH
            && text.as_bytes()[0] <= b'7'
            && text.bytes().all(|byte| DIGITS.contains(&byte))
    }
}

/// The ids of one process: each is greater than the one before, also within a millisecond or after the clock was set back.
#[derive(Debug, Default)]
pub struct UlidSequence(Mutex<u128>);

impl UlidSequence {
    /// Milliseconds since 1970, and random bits.
    pub fn next(&self, ms: u64, entropy: u128) -> MeshUlid {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = MeshUlid::new(ms, entropy).0.max(last.saturating_add(1));
        MeshUlid(*last)
    }
}

impl fmt::Display for MeshUlid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(LENGTH);
        for at in (0..LENGTH).rev() {
            let digit = (self.0 >> (5 * at)) & 31;
            text.push(DIGITS[usize::try_from(digit).expect("five bits")] as char);
        }
        f.pad(&text)
    }
}

impl fmt::Debug for MeshUlid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshUlid({self})")
    }
}
