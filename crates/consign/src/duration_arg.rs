//! Lengths of time on the command line: `30s`, `5m`, `2h`, `2d`; a number without a unit is in seconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longer than any limit, and small enough that every sum of it is exact.
const SECONDS_MAX: f64 = 36_500.0 * 86_400.0;

/// A length of time that was given as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationArg(Duration);

impl DurationArg {
    pub(crate) const fn of_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) const fn get(self) -> Duration {
        self.0
    }
}

/// Why an argument is no length of time.
#[derive(Debug)]
pub(crate) struct NotADuration;

impl fmt::Display for NotADuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("write it like 30s, 5m, 2h or 2d; a number alone is in seconds")
    }
}

impl std::error::Error for NotADuration {}

impl FromStr for DurationArg {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let text = text.trim();
        let (number, unit_s) = match text.char_indices().next_back() {
            Some((at, 's')) => (&text[..at], 1.0),
            Some((at, 'm')) => (&text[..at], 60.0),
            Some((at, 'h')) => (&text[..at], 3_600.0),
            Some((at, 'd')) => (&text[..at], 86_400.0),
            _ => (text, 1.0),
        };
        // Neither a sign nor an exponent, and no word such as `inf`.
        if !number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            return Err(NotADuration);
        }
        let seconds = number.parse::<f64>().map_err(|_| NotADuration)? * unit_s;
        if seconds > SECONDS_MAX {
            return Err(NotADuration);
        }
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| NotADuration)
    }
}

/// In the largest unit that leaves no rest.
impl fmt::Display for DurationArg {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if self.0.subsec_nanos() != 0 || seconds == 0 {
            return write!(formatter, "{}s", self.0.as_secs_f64());
        }
        let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
        let fits = units
            .iter()
            .find(|(unit_s, _)| seconds.is_multiple_of(*unit_s));
        match fits {
            Some((unit_s, unit)) => write!(formatter, "{}{unit}", seconds / unit_s),
            None => write!(formatter, "{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(Duration, String)> {
        let read: Option<DurationArg> = text.parse().ok();
        read.map(|arg| (arg.get(), arg.to_string()))
    }

    #[test]
    fn lengths_of_time_are_read_with_and_without_a_unit() {
        for (text, ms, shown) in [
            ("30s", 30_000, "30s"),
            ("30", 30_000, "30s"),
            ("0", 0, "0s"),
            ("0.25", 250, "0.25s"),
            ("5m", 300_000, "5m"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("2h", 7_200_000, "2h"),
            ("2d", 172_800_000, "2d"),
            ("1.5h", 5_400_000, "90m"),
            (" 7 ", 7_000, "7s"),
        ] {
            let expected = (Duration::from_millis(ms), shown.to_owned());
            assert_eq!(read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "s",
            "-1",
            "+1",
            "1e3",
            "inf",
            "NaN",
            "1.2.3",
            "5 m",
            "5w",
            "1h30m",
            "ten",
            "99999999d",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
