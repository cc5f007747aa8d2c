//! Reads the tables of the conformance documents.
//!
//! Only what those documents use: rows that begin with a bar, a rule under the header, bars escaped by a backslash.

/// One row below a table's header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) cells: Vec<String>,
}

/// The rows of all tables whose header names exactly these columns.
pub(crate) fn rows(text: &str, columns: &[&str]) -> Vec<Row> {
    let mut found = Vec::new();
    let mut header: Option<Vec<String>> = None;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            header = None;
            continue;
        };
        let is_rule = cells
            .iter()
            .all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-'));
        match &header {
            None => header = Some(cells),
            Some(_) if is_rule => {}
            Some(header) if header.iter().eq(columns) => found.push(Row {
                line: index + 1,
                cells,
            }),
            Some(_) => {}
        }
    }
    found
}

fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for letter in inner.chars() {
        match letter {
            '|' if !escaped => cells.push(String::new()),
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ => cells.last_mut()?.push(letter),
        }
        escaped = false;
    }
    Some(
        cells
            .iter()
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_under_their_own_header_only() {
        let text = "| a | b |\n|---|---|\n| `1` | x \\| y |\n\n| c | d |\n|---|---|\n| 2 | z |\n";
        let found = rows(text, &["a", "b"]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
        assert_eq!(found[0].cells, ["1", "x | y"]);
    }

    #[test]
    fn an_empty_last_cell_is_still_a_cell() {
        let found = rows("| a | b |\n|---|---|\n| 1 | |\n", &["a", "b"]);
        assert_eq!(found[0].cells, ["1", ""]);
    }
}
