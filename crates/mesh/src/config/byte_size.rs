//! Sizes in settings: a number of bytes, or a text such as `"5GB"`.

use serde::{Deserialize, Deserializer};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    pub const fn gigabytes(number: u64) -> Self {
        Self(number * 1_000_000_000)
    }

    /// Reads digits with an optional unit: B, KB, MB, GB, TB in powers of 1000, KiB to TiB in powers of 1024.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = text[..digits].parse().ok()?;
        let factor: u64 = match text[digits..].trim() {
            "" | "B" => 1,
            "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return None,
        };
        number.checked_mul(factor).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let size = match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Some(Self(bytes)),
            Written::Text(text) => Self::parse(&text),
        };
        size.ok_or_else(|| serde::de::Error::custom("expected a size such as 5GB"))
    }
}
