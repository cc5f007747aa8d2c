//! Amounts of money: whole minor units of one currency.
//!
//! Invariant: an amount is an integer that every reader of JSON holds exactly, so a signed document never rounds money.
//! Nothing is converted and nothing is truncated; what does not fit is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// An amount in minor units, at most 2^53-1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Cents(u64);

impl Cents {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self((1 << 53) - 1);

    pub const fn new(cents: u64) -> Option<Self> {
        if cents <= Self::MAX.0 {
            Some(Self(cents))
        } else {
            None
        }
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// So many times this, or as much as any document can tell.
    #[must_use]
    pub fn times(self, count: u16) -> Self {
        Self(self.0.saturating_mul(u64::from(count)).min(Self::MAX.0))
    }

    /// The sum, unless it is more than any document can tell.
    pub fn plus(self, other: Self) -> Option<Self> {
        // Two amounts of 53 bits cannot overflow 64.
        Self::new(self.0 + other.0)
    }
}

/// The most that an intent allows to be spent, over all its executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendCap(Cents);

impl SpendCap {
    /// Zero stands for no limit.
    pub const fn new(cents: Cents) -> Self {
        Self(cents)
    }

    pub const fn get(self) -> Cents {
        self.0
    }

    pub fn limit(self) -> Option<Cents> {
        (self.0 != Cents::ZERO).then_some(self.0)
    }
}

/// A currency by its three letters of ISO 4217. Whether it is in use is for the rail to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    pub const EUR: Self = Self(*b"EUR");

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("upper case letters are ASCII")
    }
}

/// The text is not three upper case letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not three upper case letters as in ISO 4217")]
pub struct NotACurrency;

impl FromStr for Currency {
    type Err = NotACurrency;

    fn from_str(text: &str) -> Result<Self, NotACurrency> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(letters) if letters.iter().all(u8::is_ascii_uppercase) => Ok(Self(letters)),
            _ => Err(NotACurrency),
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cents(cents: u64) -> Cents {
        Cents::new(cents).unwrap()
    }

    #[test]
    fn an_amount_ends_where_doubles_stop_being_exact() {
        assert_eq!(Cents::new((1 << 53) - 1), Some(Cents::MAX));
        assert_eq!(Cents::new(1 << 53), None);
        assert_eq!(Cents::MAX.plus(Cents::ZERO), Some(Cents::MAX));
        assert_eq!(Cents::MAX.plus(cents(1)), None);
    }

    #[test]
    fn a_multiple_stops_at_the_largest_amount() {
        assert_eq!(cents(1_500).times(3), cents(4_500));
        assert_eq!(cents(0).times(1_000), Cents::ZERO);
        assert_eq!(Cents::MAX.times(1), Cents::MAX);
        assert_eq!(Cents::MAX.times(u16::MAX), Cents::MAX);
    }

    #[test]
    fn zero_is_no_cap() {
        assert_eq!(SpendCap::new(cents(3_000)).limit(), Some(cents(3_000)));
        assert_eq!(SpendCap::new(Cents::ZERO).limit(), None);
    }

    #[test]
    fn a_currency_is_three_upper_case_letters() {
        assert_eq!("EUR".parse(), Ok(Currency::EUR));
        for text in ["", "EU", "EURO", "eur", "E1R", "€"] {
            assert_eq!(text.parse::<Currency>(), Err(NotACurrency), "{text}");
        }
    }
}
