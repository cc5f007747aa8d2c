//! Times as the frames of the mesh show them: RFC 3339 in UTC, with milliseconds.

use jiff::Timestamp;

pub(crate) fn text_of_ms(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

pub(crate) fn text_of_us(us: i64) -> String {
    text_of_ms(us.div_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_three_digits_of_milliseconds() {
        assert_eq!(text_of_ms(1_700_000_000_000), "2023-11-14T22:13:20.000Z");
        assert_eq!(
            text_of_us(1_700_000_000_123_999),
            "2023-11-14T22:13:20.123Z"
        );
    }
}
