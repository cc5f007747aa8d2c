//! Instants as Beam writes them, `YYYY-MM-DDTHH:MM:SS.mmmZ`, and the window in which one is current.
//!
//! The parser accepts the ISO 8601 forms that ECMAScript's `Date` accepts. It refuses what some
//! engines read beside them: other notations of dates, days that a month does not have, and years
//! of more than four digits.

use std::borrow::Cow;

use consign_kernel::ids::Micros;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// How far the clock of a sender may differ from ours, in either direction.
pub const WINDOW_MS: i64 = 300_000;

/// Digits of a second that count; senders may write more.
const FRACTION_DIGITS: usize = 6;

/// The instant of an ISO 8601 text, rounded down to the microsecond; `None` if it is malformed.
///
/// A date without a time is midnight UTC. A time without an offset is UTC too, where ECMAScript
/// would use the time zone of the server.
pub fn parse(text: &str) -> Option<Micros> {
    let bytes = text.as_bytes();
    let dashes = bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-');
    let known = |byte: &u8| byte.is_ascii_digit() || b"-+:.TtZz ".contains(byte);
    // A leap second has no instant in ECMAScript. The library would read it as the second before.
    if !dashes || !bytes.iter().all(known) || bytes.get(16..19) == Some(b":60") {
        return None;
    }
    let text = with_short_fraction(text);
    let instant = match text.parse::<Timestamp>() {
        Ok(instant) => instant,
        Err(_) => Offset::UTC
            .to_timestamp(without_offset(&text)?.parse::<DateTime>().ok()?)
            .ok()?,
    };
    Some(Micros(instant.as_microsecond()))
}

/// The text that ECMAScript's `toISOString` prints, which rounds down to the millisecond.
pub fn format(at: Micros) -> String {
    let instant = Timestamp::from_millisecond(at.0.div_euclid(1_000));
    format!("{:.3}", instant.unwrap_or(Timestamp::MAX))
}

/// The same for milliseconds.
pub fn format_ms(at_ms: i64) -> String {
    format(Micros(at_ms.saturating_mul(1_000)))
}

/// Whether an instant is at most [`WINDOW_MS`] before or after `now`.
pub fn is_current(at: Micros, now: Micros) -> bool {
    at.0.abs_diff(now.0) <= WINDOW_MS.unsigned_abs() * 1_000
}

/// The text, with the digits of the fraction that count.
fn with_short_fraction(text: &str) -> Cow<'_, str> {
    let Some((head, tail)) = text.split_once('.') else {
        return Cow::Borrowed(text);
    };
    let end = tail.find(|char: char| !char.is_ascii_digit());
    let (digits, rest) = tail.split_at(end.unwrap_or(tail.len()));
    match digits.len() {
        0..=FRACTION_DIGITS => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{head}.{}{rest}", &digits[..FRACTION_DIGITS])),
    }
}

/// The text, if it is a date or a date and time without an offset.
fn without_offset(text: &str) -> Option<&str> {
    let (_, time) = text.split_at_checked("YYYY-MM-DD".len())?;
    (!time.contains(['Z', 'z', '+', '-'])).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-01-01T00:00:00Z.
    const NEW_YEAR: i64 = 1_767_225_600_000_000;

    #[test]
    fn forms_of_iso_8601_are_read_as_ecmascript_reads_them() {
        for (text, offset_us) in [
            ("2026-01-01T00:00:00.000Z", 0),
            ("2026-01-01T00:00:00Z", 0),
            ("2026-01-01T00:00:00.1Z", 100_000),
            ("2026-01-01T00:00:00.123Z", 123_000),
            ("2026-01-01T00:00:00.123456Z", 123_456),
            ("2026-01-01T00:00:00.9999999Z", 999_999),
            ("2026-01-01T00:00:00.1234567890123Z", 123_456),
            ("2026-01-01T00:00:00.1234567890123+00:00", 123_456),
            ("2026-01-01T01:00:00+01:00", 0),
            ("2026-01-01T01:00:00+0100", 0),
            ("2025-12-31T18:30:00-05:30", 0),
            ("2026-01-01T00:00:00-00:00", 0),
            ("2026-01-01", 0),
            ("2026-01-01T00:00Z", 0),
            ("2026-01-01T00:00:01", 1_000_000),
            ("2026-01-01 00:00:00Z", 0),
            ("2026-01-01t00:00:00z", 0),
        ] {
            assert_eq!(parse(text), Some(Micros(NEW_YEAR + offset_us)), "{text}");
        }
    }

    #[test]
    fn malformed_times_are_refused() {
        for text in [
            "",
            "now",
            "yesterday at noon",
            "1767225600000",
            "2026-01-01T23:59:60Z",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T25:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:00,5Z",
            "2026-01-01T00:00:00.Z",
            " 2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z ",
            "2026-01-01T00:00:00Z[UTC]",
            "20260101T000000Z",
            "2026-001T00:00:00Z",
            "2026-01-01T00:00:00ZZ",
            "2026-01-01T",
            "2026-01-0é",
            "Thu, 01 Jan 2026 00:00:00 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn instants_print_with_milliseconds() {
        for (us, expected) in [
            (NEW_YEAR, "2026-01-01T00:00:00.000Z"),
            (NEW_YEAR + 123_999, "2026-01-01T00:00:00.123Z"),
            (NEW_YEAR - 1, "2025-12-31T23:59:59.999Z"),
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(format(Micros(us)), expected);
        }
        assert!(format(Micros::MAX).starts_with("9999-12-"));
    }

    #[test]
    fn be_068_a_time_is_current_for_five_minutes_in_both_directions() {
        let now = Micros(NEW_YEAR);
        for (seconds, current) in [
            (0, true),
            (2, true),
            (-2, true),
            (300, true),
            (-300, true),
            (301, false),
            (-301, false),
        ] {
            let at = now.plus(seconds * 1_000_000);
            assert_eq!(is_current(at, now), current, "{seconds}");
        }
        assert!(!is_current(now.plus(300_000_001), now));
        assert!(!is_current(Micros(i64::MIN), Micros::MAX));
    }

    proptest! {
        #[test]
        fn printed_instants_read_back(ms in 0_i64..253_000_000_000_000) {
            let at = Micros(ms * 1_000);
            prop_assert_eq!(parse(&format(at)), Some(at));
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9]{4}-[0-9]{2}-.{0,20}") {
            let _ = parse(&text);
        }
    }
}
