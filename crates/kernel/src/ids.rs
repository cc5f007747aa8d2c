//! Identifiers, instants and the entropy they are made of.
//!
//! Invariant: an [`IntentId`] sorts by admission: time first, then the store's sequence.
//! It draws nothing itself; entropy is handed in.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use subtle::ConstantTimeEq;

/// An instant of engine time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub i64);

pub const SECOND_US: i64 = 1_000_000;
pub const HOUR_US: i64 = 3_600 * SECOND_US;
pub const DAY_US: i64 = 24 * HOUR_US;

impl Micros {
    pub const MAX: Self = Self(i64::MAX);

    #[must_use]
    pub const fn plus(self, us: i64) -> Self {
        Self(self.0.saturating_add(us))
    }

    #[must_use]
    pub const fn minus(self, us: i64) -> Self {
        Self(self.0.saturating_sub(us))
    }

    /// Unix seconds with a fraction, the form most wire protocols use.
    #[expect(
        clippy::cast_precision_loss,
        reason = "microseconds since 1970 fit 53 bits until the year 2255"
    )]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Place of an intent in the order of admission; assigned by the store, never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// Place of a fact in the history; assigned by the store, never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactSeq(pub u64);

/// Public name of an intent: a UUID of version 7 whose random part begins with the admission sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId(pub [u8; 16]);

const SEQ_BITS_IN_ID: u32 = 20;

impl IntentId {
    /// Milliseconds, then microseconds, then the low bits of `seq`: ids made in one commit still sort by admission.
    #[expect(clippy::cast_sign_loss, reason = "engine time is after 1970")]
    pub fn new(now: Micros, seq: Seq, entropy: u128) -> Self {
        let us = now.0.max(0) as u64;
        let (ms, us_rest) = (us / 1_000, us % 1_000);
        let tail_bits = 62 - SEQ_BITS_IN_ID;
        let seq_low = seq.0 & ((1 << SEQ_BITS_IN_ID) - 1);
        let random = u64::try_from(entropy & ((1 << tail_bits) - 1)).expect("masked to 42 bits");
        let high = (ms & 0xffff_ffff_ffff) << 16 | 0x7000 | (us_rest << 2);
        let low = 1 << 63 | seq_low << tail_bits | random;
        Self((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0_u8; 32];
        HEXLOWER.encode_mut(&self.0, &mut text);
        f.write_str(std::str::from_utf8(&text).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IntentId({self})")
    }
}

/// The text is not 32 lowercase hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 32 lowercase hex digits")]
pub struct NotAnId;

impl FromStr for IntentId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        hex16(text).map(Self)
    }
}

/// Proof of holding a lease: 16 unguessable bytes, new for every claim.
#[derive(Clone, Copy)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// Constant-time: how many leading bytes agree must not show.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// The wire form. Not `Display`, so that a token cannot slip into a log by accident.
    pub fn reveal(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    pub fn parse(text: &str) -> Result<Self, NotAnId> {
        hex16(text).map(Self)
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn hex16(text: &str) -> Result<[u8; 16], NotAnId> {
    let mut bytes = [0_u8; 16];
    if text.len() != 32 {
        return Err(NotAnId);
    }
    HEXLOWER
        .decode_mut(text.as_bytes(), &mut bytes)
        .map_err(|_| NotAnId)?;
    Ok(bytes)
}

/// A stream of unpredictable values grown from one seed, so that a request needs a single draw from the outside.
#[derive(Clone)]
pub struct Entropy {
    seed: [u8; 32],
    drawn: u64,
}

impl Entropy {
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    pub fn draw(&mut self) -> u128 {
        let mut hasher = blake3::Hasher::new_keyed(&self.seed);
        hasher.update(&self.drawn.to_le_bytes());
        self.drawn += 1;
        let bytes = hasher.finalize();
        u128::from_le_bytes(
            bytes.as_bytes()[..16]
                .try_into()
                .expect("a hash has 32 bytes"),
        )
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_instant_sort_by_admission() {
        let now = Micros(1_700_000_000_123_456);
        let mut ids: Vec<IntentId> = Vec::new();
        for seq in 0..100 {
            ids.push(IntentId::new(now, Seq(seq), u128::MAX - u128::from(seq)));
        }
        assert!(ids.is_sorted());
        assert!(ids[99] < IntentId::new(now.plus(1), Seq(0), 0));
    }

    #[test]
    fn an_id_is_a_version_7_uuid_of_32_lowercase_hex_digits() {
        let text = IntentId::new(Micros(1_700_000_000_000_000), Seq(1), 7).to_string();
        assert_eq!(text.len(), 32);
        assert_eq!(&text[12..13], "7");
        assert!(matches!(&text[16..17], "8" | "9" | "a" | "b"));
        assert_eq!(text.parse::<IntentId>().unwrap().to_string(), text);
        assert_eq!("ABCDEF".parse::<IntentId>(), Err(NotAnId));
        assert_eq!(text.to_uppercase().parse::<IntentId>(), Err(NotAnId));
    }

    #[test]
    fn entropy_never_repeats_and_depends_on_its_seed() {
        let mut a = Entropy::new([1; 32]);
        let mut b = Entropy::new([2; 32]);
        let (first, second) = (a.draw(), a.draw());
        assert_ne!(first, second);
        assert_ne!(first, b.draw());
        assert_eq!(first, Entropy::new([1; 32]).draw());
    }
}
