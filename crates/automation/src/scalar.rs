//! Durations and sizes as written in configuration files.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScalarError {
    #[error("`{0}` is not a duration; write it as 90s, 15m, 1h30m, 7d or 2w")]
    Duration(String),
    #[error(
        "`{0}` is not an interval; write a duration such as 15m, or hourly, daily, weekly, monthly"
    )]
    Interval(String),
    #[error("`{0}` is not a size; write bytes as a number, or 64KB, 1MB, 2GB")]
    Size(String),
}

/// One or more numbers with units, such as `1h30m`. A number without a unit is refused, because it is ambiguous.
pub fn duration(text: &str) -> Result<Duration, ScalarError> {
    let unfit = || ScalarError::Duration(text.to_owned());
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(unfit());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(unfit)?;
        let (number, after) = rest.split_at(digits);
        let length = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(length);
        let number: f64 = number.parse().map_err(|_| unfit())?;
        seconds += number * unit_seconds(unit).ok_or_else(unfit)?;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| unfit())
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return None,
    })
}

/// A duration, or one of the names for schedules. A month is thirty days.
pub fn interval(text: &str) -> Result<Duration, ScalarError> {
    let hours = match text.trim() {
        "hourly" => 1,
        "daily" => 24,
        "weekly" => 168,
        "monthly" => 720,
        other => {
            let found = duration(other).ok().filter(|found| !found.is_zero());
            return found.ok_or_else(|| ScalarError::Interval(text.to_owned()));
        }
    };
    Ok(Duration::from_hours(hours))
}

/// Bytes, or `KB`, `MB`, `GB` of 1024 each.
pub fn size(text: &str) -> Result<u64, ScalarError> {
    let text = text.trim();
    let unfit = || ScalarError::Size(text.to_owned());
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "B" => 1,
        "KB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return Err(unfit()),
    };
    let number: u64 = number.parse().map_err(|_| unfit())?;
    number.checked_mul(factor).ok_or_else(unfit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_intervals_and_sizes_are_read_du_007() {
        let seconds = |text: &str| duration(text).map(|found| found.as_secs_f64());
        assert_eq!(seconds("1h30m"), Ok(5_400.0));
        assert_eq!(seconds("500ms"), Ok(0.5));
        assert_eq!(seconds("30d"), Ok(2_592_000.0));
        assert_eq!(seconds("1.5w"), Ok(907_200.0));
        assert_eq!(seconds("10µs"), Ok(0.000_01));
        for bad in [
            "",
            "5",
            "m",
            "1x",
            "-1s",
            "1h30",
            "1..2s",
            "99999999999999999999w",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(interval("daily"), Ok(Duration::from_hours(24)));
        assert_eq!(interval("monthly"), Ok(Duration::from_hours(720)));
        assert_eq!(interval("15m"), Ok(Duration::from_mins(15)));
        assert!(interval("0s").is_err() && interval("yearly").is_err());
        assert_eq!(size("1MB"), Ok(1_048_576));
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("2 GB"), Ok(2 << 30));
        assert!(size("1TB").is_err() && size("MB").is_err() && size("99999999999GB").is_err());
    }
}
