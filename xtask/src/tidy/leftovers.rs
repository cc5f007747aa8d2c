//! Leftovers that must not stay in the repository: debug macros, unfinished code, ignored tests, lint exceptions without a
//! reason, and paths that exist on one machine only.

use super::{Finding, scan};
use crate::rust::Source;
use crate::tree::{File, Tree};

const MACROS: &[&str] = &["dbg!", "todo!", "unimplemented!"];

/// Folders of development machines. Concatenated here, so that this file passes its own check.
const PRIVATE_FOLDERS: &[&str] = &[concat!("/", "work"), concat!("/", "farm")];

/// Words about how a text was written, in lower case, that have no meaning for a reader.
const PRIVATE_WORDS: &[&str] = &[concat!("sub", "agent")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.is_rust() {
            findings.extend(check_source(file));
        }
        findings.extend(check_text(file));
    }
    findings
}

fn check_source(file: &File) -> Vec<Finding> {
    let source = file.source();
    let mut findings = scan::forbidden(&file.path, source.lines(), MACROS, |name| {
        format!("`{name}` is left over")
    });
    for (line, code) in source.lines() {
        let mut report =
            |message: String| findings.push(Finding::violation(&file.path, line, message));
        if code.contains("#[ignore") {
            report("an ignored test: assert today's answer and explain it instead".to_owned());
        }
        for opening in ["#[allow(", "#![allow("] {
            if code.contains(opening) && !attribute_from(&source, line).contains("reason") {
                report(format!(
                    "`{opening}` without a reason; prefer `#[expect(..., reason = ...)]`"
                ));
            }
        }
    }
    findings
}

/// The attribute that opens on `line`, up to its end, however many lines it takes.
fn attribute_from(source: &Source, line: usize) -> String {
    let mut text = String::new();
    for code in &source.code[line - 1..] {
        text.push_str(code);
        if code.contains(")]") {
            break;
        }
    }
    text
}

fn check_text(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for folder in PRIVATE_FOLDERS {
            if has_folder(line, folder) {
                let message = format!("`{folder}` is a path on one machine only");
                findings.push(Finding::violation(&file.path, index + 1, message));
            }
        }
        let lower = line.to_lowercase();
        for word in PRIVATE_WORDS.iter().filter(|word| lower.contains(**word)) {
            let message = format!("`{word}` has no meaning for a reader");
            findings.push(Finding::violation(&file.path, index + 1, message));
        }
    }
    findings
}

/// An absolute path: nothing of a path before it, and the name ends there.
fn has_folder(line: &str, folder: &str) -> bool {
    let part_of_path = |letter: char| letter.is_alphanumeric() || "_-./}>".contains(letter);
    let part_of_name = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(part_of_path) && !line[at + folder.len()..].starts_with(part_of_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::scan::lines_found;

    #[test]
    fn unfinished_code_and_unexplained_exceptions_are_found() {
        let cases: &[(&str, &[usize])] = &[
            ("fn a() {\n    todo!()\n}", &[2]),
            ("let x = dbg!(y);", &[1]),
            ("#[test]\n#[ignore = \"slow\"]\nfn a() {}", &[2]),
            ("#[allow(dead_code)]\nfn a() {}", &[1]),
            ("#![allow(dead_code)]", &[1]),
            (
                "#[allow(\n    dead_code,\n    reason = \"generated\"\n)]",
                &[],
            ),
            ("#[expect(dead_code)] // todo! dbg!", &[]),
            ("f(\"unimplemented!\")", &[]),
        ];
        for (text, expected) in cases {
            let found = lines_found(check, "crates/a/src/a.rs", text);
            assert_eq!(&found, expected, "{text}");
        }
    }

    #[test]
    fn private_paths_and_words_are_found_in_any_file() {
        let found = |pattern: &str| !lines_found(check, "README.md", pattern).is_empty();
        assert!(found(&["see /", "work/notes.md"].concat()));
        assert!(found(&["cd /", "farm"].concat()));
        assert!(found(&["a Sub", "Agent wrote this"].concat()));
        assert!(!found(&["GET /", "workers"].concat()));
        assert!(!found(&["home/", "work/x"].concat()));
        assert!(!found(&["https://x.org/", "work/"].concat()));
    }
}
