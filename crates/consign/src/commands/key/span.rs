//! A length of time as an argument: `90d`, `24h`, `30m`, `45s`, or `0`.

use std::str::FromStr;

/// Whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) seconds: u64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "use a number with s, m, h, d or w, like 45s, 24h or 90d".to_owned();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let unit = match &text[digits.len()..] {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 7 * 86_400,
            "" if number == 0 => 1,
            _ => return Err(wrong()),
        };
        let seconds = number.checked_mul(unit).ok_or_else(wrong)?;
        Ok(Self { seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_with_a_unit() {
        for (text, seconds) in [
            ("45s", 45),
            ("2m", 120),
            ("24h", 86_400),
            ("90d", 7_776_000),
            ("1w", 604_800),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Span { seconds }), "{text}");
        }
        for text in [
            "",
            "d",
            "5",
            "-1d",
            "1.5d",
            "1y",
            "99999999999999999999d",
            "1 d",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
