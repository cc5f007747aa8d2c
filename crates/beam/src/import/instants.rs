//! Times of the file.

use consign_kernel::ids::Micros;

use crate::timestamp;

/// The last second whose microseconds a double can represent, in the year 2255.
const INSTANT_S_MAX: f64 = 9_007_199_254.0;

/// ISO 8601, as the directory writes it.
pub(super) fn iso(column: &str, text: &str) -> Result<Micros, String> {
    timestamp::parse(text).ok_or_else(|| format!("its {column} is no ISO 8601 time"))
}

/// ISO 8601 in milliseconds.
pub(super) fn iso_ms(column: &str, text: &str) -> Result<i64, String> {
    Ok(iso(column, text)?.0 / 1_000)
}

pub(super) fn maybe_iso_ms(column: &str, text: Option<&str>) -> Result<Option<i64>, String> {
    text.map(|text| iso_ms(column, text)).transpose()
}

/// ISO 8601 or milliseconds.
pub(super) fn iso_or_ms(column: &str, text: &str) -> Result<i64, String> {
    match text.parse::<f64>() {
        Ok(ms) => seconds(column, ms / 1_000.0).map(|at| at.0 / 1_000),
        Err(_) => iso_ms(column, text),
    }
}

/// Unix seconds, as the bus writes them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the bound fits 53 bits in microseconds"
)]
pub(super) fn seconds(column: &str, unix_s: f64) -> Result<Micros, String> {
    if (0.0..=INSTANT_S_MAX).contains(&unix_s) {
        return Ok(Micros((unix_s * 1e6).round() as i64));
    }
    Err(format!(
        "its {column} {unix_s:e} is no time in seconds since 1970"
    ))
}

pub(super) fn maybe_seconds(column: &str, unix_s: Option<f64>) -> Result<Option<Micros>, String> {
    unix_s.map(|unix_s| seconds(column, unix_s)).transpose()
}
