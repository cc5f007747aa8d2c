//! Output for terminals: columns, fields, times.
//!
//! Invariant: untrusted text (goals, owners, errors, payloads) cannot move the cursor or colour the terminal, because
//! control characters are escaped.

use std::fmt::Write;

use jiff::Timestamp;

/// `text` with every control character escaped.
pub(crate) fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_direction_mark(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Left-aligned columns, two spaces apart, with a heading.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(heading[column].chars().count())
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    let heading: Vec<String> = heading.iter().map(|&title| title.to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `name  value` lines with the values aligned; absent values are left out.
pub(crate) fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let _ = writeln!(text, "{name:width$}  {value}");
        }
    }
    text
}

/// Unix seconds as UTC, to the second.
pub(crate) fn time(unix_s: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a time outside the range of i64 is outside the range of Timestamp too"
    )]
    let whole_s = unix_s.floor() as i64;
    match Timestamp::from_second(whole_s) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("{unix_s}"),
    }
}

/// Unix microseconds as UTC.
pub(crate) fn time_us(unix_us: i64) -> String {
    match Timestamp::from_microsecond(unix_us) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => unix_us.to_string(),
    }
}

/// Marks that reorder text and can disguise it.
fn is_direction_mark(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_space() {
        let rows = vec![
            vec!["a1".to_owned(), "open".to_owned()],
            vec!["b".to_owned(), String::new()],
        ];
        assert_eq!(table(&["ID", "STATUS"], &rows), "ID  STATUS\na1  open\nb\n");
    }

    #[test]
    fn absent_fields_are_left_out() {
        let text = fields(&[
            ("id", Some("a".to_owned())),
            ("error", None),
            ("status", Some("open".to_owned())),
        ]);
        assert_eq!(text, "id      a\nstatus  open\n");
    }

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(safe("a\u{1b}[31mb\nc é"), "a\\u{1b}[31mb\\u{a}c é");
        assert_eq!(safe("x\u{202e}y"), "x\\u{202e}y");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(1_700_000_000.75), "2023-11-14T22:13:20Z");
        assert_eq!(time(f64::MAX), format!("{}", f64::MAX));
    }
}
