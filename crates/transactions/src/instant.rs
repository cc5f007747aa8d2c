//! Times on the wire: RFC 3339 is parsed; UTC with exactly three fractional digits and `Z` is printed.
//!
//! The fixed width keeps signed bytes stable. Anything finer than a millisecond is truncated, never rounded up: a printed
//! time must not be later than the actual one.

use consign_kernel::ids::Micros;
use jiff::Timestamp;
use serde::Serializer;

/// Prints a time.
pub fn print(at: Micros) -> String {
    let floor = at.0.div_euclid(1_000);
    // Times beyond the year 9999 have no text; validated input never gets there.
    let at = Timestamp::from_millisecond(floor).unwrap_or(Timestamp::MAX);
    format!("{at:.3}")
}

/// Parses a time in RFC 3339 format.
pub fn parse(text: &str) -> Option<Micros> {
    // The parser below accepts more than RFC 3339: other separators, shorter offsets, zone names.
    let bytes = text.as_bytes();
    let zoned = bytes.ends_with(b"Z")
        || (bytes.len() > 6
            && matches!(bytes[bytes.len() - 6], b'+' | b'-')
            && bytes[bytes.len() - 3] == b':');
    let dated = bytes.len() >= "2026-05-25T12:00:00Z".len()
        && bytes[4] == b'-'
        && bytes[10] == b'T'
        && bytes[16] == b':'
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"-+:.TZ".contains(byte));
    if !(zoned && dated) {
        return None;
    }
    let at: Timestamp = text.parse().ok()?;
    Some(Micros(at.as_microsecond()))
}

/// For members that are times.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(crate) fn serialize<S: Serializer>(at: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&print(*at))
}

/// For members that are times or null.
pub(crate) mod maybe {
    use consign_kernel::ids::Micros;
    use serde::Serializer;

    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(
        at: &Option<Micros>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_instant_is_printed_with_three_digits_and_never_rounded_up() {
        for (us, text) in [
            (1_779_710_405_250_000, "2026-05-25T12:00:05.250Z"),
            (1_779_710_405_250_999, "2026-05-25T12:00:05.250Z"),
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(print(Micros(us)), text);
        }
        assert_eq!(print(Micros::MAX), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn rfc_3339_is_read_and_its_lookalikes_are_not() {
        let noon = Some(Micros(1_779_710_400_000_000));
        for text in [
            "2026-05-25T12:00:00Z",
            "2026-05-25T12:00:00.000Z",
            "2026-05-25T14:00:00.0+02:00",
            "2026-05-25T06:30:00-05:30",
        ] {
            assert_eq!(parse(text), noon, "{text}");
        }
        assert_eq!(
            parse("2026-05-25T12:00:00.000001Z"),
            noon.map(|at| at.plus(1))
        );
        for text in [
            "",
            "Z",
            "2026-05-25",
            "2026-05-25T12:00:00",
            "2026-05-25 12:00:00Z",
            "2026-05-25t12:00:00Z",
            "2026-05-25T12:00:00z",
            "2026-05-25T12:00Z",
            "20260525T120000.00000Z",
            "2026-05-25T12:00:00+02",
            "2026-05-25T12:00:00Z[UTC]",
            "2026-05-25T12:00:00+00:00[UTC]",
            "2026-13-25T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "1779710400",
            "2026-05-25T12:00:00\u{e9}Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_to_the_millisecond(ms in 0..253_402_200_000_000_i64) {
            let at = Micros(ms * 1_000);
            prop_assert_eq!(parse(&print(at)), Some(at));
        }
    }
}
