//! Figures for people: ages, sizes and counts, short enough for a column.

use serde_json::Value;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// A duration in its two largest units, such as `2h 5m`; below a minute in seconds.
pub(crate) fn age(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{:.1}s", seconds.max(0.0));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "negative ages are handled above, and a float beyond the range becomes the maximum"
    )]
    let whole = seconds as u64;
    let two = |large: u64, unit: char, small: u64, below: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{below}"),
    };
    match whole {
        ..MINUTE_S => format!("{whole}s"),
        MINUTE_S..HOUR_S => two(whole / MINUTE_S, 'm', whole % MINUTE_S, 's'),
        HOUR_S..DAY_S => two(whole / HOUR_S, 'h', whole % HOUR_S / MINUTE_S, 'm'),
        _ => two(whole / DAY_S, 'd', whole % DAY_S / HOUR_S, 'h'),
    }
}

/// A size with a unit, such as `1.5 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1 << 10 {
        return format!("{count} B");
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "one digit behind the point is shown"
    )]
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// A rate per second, without a point where it says nothing.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second == 0.0 {
        "0".to_owned()
    } else if per_second < 10.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

/// A count of a response; zero if it is absent.
pub(crate) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        for (seconds, shown) in [
            (-1.0, "0.0s"),
            (0.25, "0.2s"),
            (59.9, "59s"),
            (60.0, "1m"),
            (61.0, "1m 1s"),
            (3_599.0, "59m 59s"),
            (7_500.0, "2h 5m"),
            (180_000.0, "2d 2h"),
        ] {
            assert_eq!(age(seconds), shown);
        }
    }

    #[test]
    fn sizes_and_rates_are_short() {
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(0.44), "0.4");
        assert_eq!(rate(1_234.6), "1235");
    }
}
