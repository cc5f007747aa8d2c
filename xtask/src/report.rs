//! The output of commands: tables with aligned columns, and JSON for other programs.

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A JSON string, quotes included. Control characters except the line end become spaces: no output here needs them.
pub(crate) fn json_string(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// A JSON array of strings.
pub(crate) fn json_strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(json_string).collect();
    format!("[{}]", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_do_not_trail() {
        let rows = [
            vec!["stage".to_owned(), "s".to_owned()],
            vec!["fmt".to_owned(), "12".to_owned()],
        ];
        assert_eq!(table(&rows), "stage  s\nfmt    12\n");
    }

    #[test]
    fn json_escapes_what_it_must() {
        assert_eq!(json_strings(["a\"\\\n"]), "[\"a\\\"\\\\\\n\"]");
    }
}
