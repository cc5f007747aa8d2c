//! Instants and lengths of time as an operator writes them.

use crate::ids::{DAY_US, HOUR_US, Micros, SECOND_US};

/// A length of time, such as `30s`, `5m`, `2h` or `7d`.
pub(super) fn length_us(text: &str) -> Option<i64> {
    let unit_us = match text.chars().last()? {
        's' => SECOND_US,
        'm' => 60 * SECOND_US,
        'h' => HOUR_US,
        'd' => DAY_US,
        _ => return None,
    };
    digits(&text[..text.len() - 1])?.checked_mul(unit_us)
}

/// An instant of RFC 3339, such as `2026-11-02T08:30:00Z`, or a date, which begins at midnight UTC.
pub(super) fn instant(text: &str) -> Option<Micros> {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return Some(Micros(day(text)? * DAY_US));
    };
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let us = day(date)? * DAY_US + clock_us(clock)? - offset_us(zone)?;
    Some(Micros(us))
}

/// Days since 1970 of a date in the Gregorian calendar.
fn day(date: &str) -> Option<i64> {
    let (year, rest) = date.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let (year, month, day) = (fixed(year, 4)?, fixed(month, 2)?, fixed(day, 2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last day of a year.
    let shifted = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leaps = shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400);
    // The number of days from March of year 0 to 1970.
    Some(shifted * 365 + leaps + day_of_year - 719_468)
}

fn clock_us(clock: &str) -> Option<i64> {
    let (whole, fraction) = match clock.split_once('.') {
        Some((whole, fraction)) => (whole, fraction_us(fraction)?),
        None => (clock, 0),
    };
    let mut parts = whole.split(':');
    let (hour, minute) = (fixed(parts.next()?, 2)?, fixed(parts.next()?, 2)?);
    let second = fixed(parts.next()?, 2)?;
    let fits = hour < 24 && minute < 60 && second <= 60 && parts.next().is_none();
    fits.then(|| ((hour * 60 + minute) * 60 + second) * SECOND_US + fraction)
}

/// Digits after the sixth are dropped.
fn fraction_us(fraction: &str) -> Option<i64> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let six: String = fraction.chars().chain("000000".chars()).take(6).collect();
    six.parse().ok()
}

fn offset_us(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (fixed(hours, 2)?, fixed(minutes, 2)?);
    let fits = hours < 24 && minutes < 60;
    fits.then_some(sign * (hours * 60 + minutes) * 60 * SECOND_US)
}

fn fixed(text: &str, length: usize) -> Option<i64> {
    (text.len() == length).then(|| digits(text)).flatten()
}

fn digits(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_as_rfc_3339_and_as_dates() {
        for (text, us) in [
            ("1970-01-01", 0),
            ("1970-01-02T00:00:00Z", DAY_US),
            ("1969-12-31T23:59:59Z", -SECOND_US),
            ("2000-02-29", 951_782_400 * SECOND_US),
            ("2026-11-19T18:35:17+01:00", 1_795_109_717 * SECOND_US),
            (
                "2026-11-19t17:35:17.25z",
                1_795_109_717 * SECOND_US + 250_000,
            ),
            ("2026-11-19T16:05:17-01:30", 1_795_109_717 * SECOND_US),
        ] {
            assert_eq!(instant(text), Some(Micros(us)), "{text}");
        }
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-11-19T17:35:17",
            "2026-11-19T24:00:00Z",
            "2026-11-19T17:35Z",
            "2026-11-19T17:35:17.Z",
            "2026-11-19T17:35:17+1:00",
            "yesterday",
        ] {
            assert_eq!(instant(text), None, "{text}");
        }
    }

    #[test]
    fn lengths_have_a_unit() {
        for (text, us) in [
            ("30s", 30 * SECOND_US),
            ("5m", 300 * SECOND_US),
            ("2h", 2 * HOUR_US),
            ("7d", 7 * DAY_US),
        ] {
            assert_eq!(length_us(text), Some(us), "{text}");
        }
        for text in [
            "",
            "s",
            "5",
            "5w",
            "-5m",
            "1.5h",
            "9999999999999999999d",
            "5é",
        ] {
            assert_eq!(length_us(text), None, "{text}");
        }
    }
}
