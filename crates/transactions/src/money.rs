//! Amounts of money: whole minor units of one currency, as ISO 4217 counts them. 1500 is 15 euros, 1500 yen or 1.5 Kuwaiti
//! dinars, whatever the name of the member.
//!
//! Invariant: an amount is an integer that every JSON parser represents exactly, so a signed document never rounds money.
//! Nothing is converted or truncated; an amount out of range is refused.

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

    /// The product, or the largest amount that a document can contain.
    #[must_use]
    pub fn times(self, count: u16) -> Self {
        Self(self.0.saturating_mul(u64::from(count)).min(Self::MAX.0))
    }

    /// The sum, unless it exceeds the largest amount that a document can contain.
    pub fn plus(self, other: Self) -> Option<Self> {
        // Two amounts of 53 bits cannot overflow 64.
        Self::new(self.0 + other.0)
    }
}

/// The maximum to be spent over all executions of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendCap(Cents);

impl SpendCap {
    /// Zero means no limit.
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

/// The currencies of ISO 4217 in use, by the digits of their minor unit. Metals, units of account, funds and codes for tests
/// are left out, because no payments are made in them.
const MINOR_DIGITS: [(&str, u8); 3] = [
    (
        "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF",
        0,
    ),
    (
        "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC \
         CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES \
         KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR \
         NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT \
         TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
        2,
    ),
    ("BHD IQD JOD KWD LYD OMR TND", 3),
];

/// A currency by its three letters of ISO 4217. Stored documents may have an unknown code; see [`Currency::minor_digits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    pub const EUR: Self = Self(*b"EUR");

    /// The number of digits of the minor unit; none for a code that is not a payment currency.
    pub fn minor_digits(self) -> Option<u8> {
        // The lists are concatenated codes, so a match across two codes does not count.
        let listed = |all: &str| {
            all.as_bytes()
                .chunks(4)
                .any(|code| code.starts_with(&self.0))
        };
        let (_, digits) = MINOR_DIGITS.iter().find(|(all, _)| listed(all))?;
        Some(*digits)
    }

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
    fn s18_a_currency_knows_the_digits_of_its_minor_unit() {
        for (code, digits) in [
            ("EUR", Some(2)),
            ("USD", Some(2)),
            ("MGA", Some(2)),
            ("ZWG", Some(2)),
            ("JPY", Some(0)),
            ("KRW", Some(0)),
            ("BIF", Some(0)),
            ("XPF", Some(0)),
            ("KWD", Some(3)),
            ("BHD", Some(3)),
            ("TND", Some(3)),
            ("XXX", None),
            ("XTS", None),
            ("XAU", None),
            ("ZZZ", None),
            ("FCL", None),
            ("DEM", None),
        ] {
            let currency: Currency = code.parse().unwrap();
            assert_eq!(currency.minor_digits(), digits, "{code}");
        }
        for (all, _) in MINOR_DIGITS {
            let mut codes = all.split(' ');
            assert!(codes.all(|code| code.len() == 3), "{all}");
        }
    }

    #[test]
    fn a_currency_is_three_upper_case_letters() {
        assert_eq!("EUR".parse(), Ok(Currency::EUR));
        for text in ["", "EU", "EURO", "eur", "E1R", "€"] {
            assert_eq!(text.parse::<Currency>(), Err(NotACurrency), "{text}");
        }
    }
}
