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

/// One line for a text of several: the line that tells most, cut after so many characters.
pub(crate) fn summary(text: &str, chars_max: usize) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    // The cause is the last line of a Python traceback, whatever comes before it.
    let is_traceback = text.contains("Traceback (most recent call last)");
    let line = lines.next_back().filter(|_| is_traceback).unwrap_or(first);
    let line = safe(line);
    if line.chars().count() <= chars_max {
        return line;
    }
    let cut: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

/// A text below its name: several lines each on a line of its own, indented, so that none looks like a field. Other
/// control characters are escaped.
pub(crate) fn block(text: &str, indent: usize) -> String {
    let text = text.trim_end();
    if !text.contains('\n') {
        return safe(text);
    }
    let lines = text.lines().map(|line| {
        let line = line.trim_end().replace('\t', "    ");
        let line = safe(&line);
        let space = if line.is_empty() { 0 } else { indent };
        format!("\n{:space$}{line}", "")
    });
    lines.collect()
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
            let _ = match value.strip_prefix('\n') {
                Some(lines) => writeln!(text, "{name}\n{lines}"),
                None => writeln!(text, "{name:width$}  {value}"),
            };
        }
    }
    text
}

/// The time of this machine, in Unix seconds.
pub(crate) fn now() -> f64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A length of time in its largest unit, such as `5m`.
pub(crate) fn age(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and the number is not negative"
    )]
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m", seconds / 60),
        3_600..=86_399 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
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
    fn a_text_of_many_lines_is_summed_up_by_the_line_that_tells_most() {
        assert_eq!(summary("no paper\nin tray 2", 20), "no paper");
        assert_eq!(
            summary(
                "Traceback (most recent call last):\n  x\nKeyError: 'a'\n\n",
                20
            ),
            "KeyError: 'a'"
        );
        assert_eq!(summary("", 5), "");
        assert_eq!(summary("abcdefgh", 5), "abcd…");
        assert_eq!(summary("abcde", 5), "abcde");
    }

    #[test]
    fn lines_below_a_name_cannot_look_like_another_field() {
        assert_eq!(block("one line\n", 4), "one line");
        assert_eq!(
            block("a\r\n\tb\u{1b}[2J\n\nstatus: ok", 4),
            "\n    a\n        b\\u{1b}[2J\n\n    status: ok"
        );
    }

    #[test]
    fn an_age_has_one_unit() {
        let ages = [-1.0, 0.9, 59.9, 60.0, 3_600.0, 86_399.0, 86_400.0, 1e6];
        let ages = ages.map(age).join(" ");
        assert_eq!(ages, "0s 0s 59s 1m 1h 23h 1d 11d");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(1_700_000_000.75), "2023-11-14T22:13:20Z");
        assert_eq!(time(f64::MAX), format!("{}", f64::MAX));
    }
}
