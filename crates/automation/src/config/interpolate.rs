//! Substitutes `${NAME}` in the text of a file, and reads dotenv files.
//!
//! Substitution happens once, before parsing, and is not recursive. There is no default syntax and no escape.

use std::ops::Range;

/// Stand for `${` and `}` while a file is parsed for its includes: private-use characters without meaning in YAML.
const OPEN: char = '\u{E0F1}';
const CLOSE: char = '\u{E0F2}';

/// Substitutes every known name; unknown ones stay as they are.
pub(super) fn fill<'v>(text: &str, value_of: impl Fn(&str) -> Option<&'v str>) -> String {
    replace(text, |name| value_of(name).map(str::to_owned))
}

/// Replaces every placeholder by harmless text, so that the structure can be parsed before any value is known.
pub(super) fn outline(text: &str) -> String {
    replace(text, |name| Some(format!("{OPEN}{name}{CLOSE}")))
}

/// The original text of an outline.
pub(super) fn original(outline: &str) -> String {
    outline.replace(OPEN, "${").replace(CLOSE, "}")
}

/// Like [`outline`], but with the same length in bytes, so that positions match those of the text.
pub(super) fn same_length_outline(text: &str) -> String {
    replace(text, |name| Some(format!("x_{name}_")))
}

pub(super) fn has_placeholder(text: &str) -> bool {
    text.contains(OPEN)
}

/// The names that a text uses; after [`fill`], those without a value.
pub(super) fn unfilled(text: &str) -> impl Iterator<Item = &str> {
    placeholders(text).map(|(_, name)| name)
}

fn replace(text: &str, value_of: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut copied = 0;
    for (range, name) in placeholders(text) {
        if let Some(value) = value_of(name) {
            filled.push_str(&text[copied..range.start]);
            filled.push_str(&value);
            copied = range.end;
        }
    }
    filled.push_str(&text[copied..]);
    filled
}

fn placeholders(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices("${").filter_map(move |(start, _)| {
        let rest = &text[start + 2..];
        let name = &rest[..rest.find('}')?];
        is_name(name).then(|| (start..start + name.len() + 3, name))
    })
}

fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(word)
}

/// The pairs of a dotenv file, or the numbers of its invalid lines.
pub(super) fn dotenv(text: &str) -> Result<Vec<(String, String)>, Vec<u32>> {
    let mut pairs = Vec::new();
    let mut unfit = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        match line.split_once('=') {
            Some((name, value)) if is_name(name.trim()) => {
                pairs.push((name.trim().to_owned(), unquoted(value.trim()).to_owned()));
            }
            _ => unfit.push(number),
        }
    }
    if unfit.is_empty() {
        Ok(pairs)
    } else {
        Err(unfit)
    }
}

fn unquoted(value: &str) -> &str {
    let inside = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_filled_once_and_others_stay_du_005() {
        let value_of = |name: &str| match name {
            "A" => Some("1"),
            "_b2" => Some("${A}"),
            _ => None,
        };
        let text = "x: ${A}${_b2} ${MISSING} ${A:-2} ${2A} $A ${} ${A";
        let filled = fill(text, value_of);
        assert_eq!(filled, "x: 1${A} ${MISSING} ${A:-2} ${2A} $A ${} ${A");
        let left: Vec<_> = unfilled("${MISSING} ${a b} ${ok}").collect();
        assert_eq!(left, ["MISSING", "ok"]);
        assert!(has_placeholder(&outline("[${A}]")) && !outline("[${A}]").contains('{'));
    }

    #[test]
    fn dotenv_lines_are_read_du_006() {
        let text = "# note\n\nA=1\nexport B = two words \nC=\"q#\"\nD='it''s'\nE=\"open\nF=a=b\n";
        let pairs = dotenv(text).unwrap();
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "q#"),
            ("D", "it''s"),
            ("E", "\"open"),
            ("F", "a=b"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs, expected);
        assert_eq!(dotenv("A=1\nnonsense\n1X=2\n"), Err(vec![2, 3]));
    }
}
