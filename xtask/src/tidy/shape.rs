//! The shape of a source file: it starts with its module doc, and it is not too long.

use super::Finding;
use crate::tree::{File, Tree};

/// Above this a note suggests to split the file.
const LINES_NOTED: usize = 600;
/// Above this a file must be split.
const LINES_MAX: usize = 1000;

/// Extensions of files that are written by hand. Lock files and recorded data may have any length.
const MEASURED: &[&str] = &["rs", "py", "sh", "js", "css", "html"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        findings.extend(check_doc(file));
        findings.extend(check_length(file));
    }
    findings
}

fn check_doc(file: &File) -> Option<Finding> {
    let is_module = file.crate_of_source().is_some() || file.path.starts_with("xtask/src/");
    if !(file.is_rust() && is_module) {
        return None;
    }
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    let missing = !first.is_some_and(|line| line.starts_with("//!"));
    missing.then(|| {
        let message =
            "the file does not open with a module doc (`//!`: job, invariant, what it leaves out)";
        Finding::violation(&file.path, 1, message)
    })
}

fn check_length(file: &File) -> Option<Finding> {
    let measured = file
        .extension()
        .is_some_and(|extension| MEASURED.contains(&extension));
    let lines = file.text.lines().count();
    match lines {
        _ if !measured => None,
        _ if lines > LINES_MAX => {
            let message = format!("{lines} lines, and {LINES_MAX} is the limit: split the file");
            Some(Finding::violation(&file.path, lines, message))
        }
        _ if lines > LINES_NOTED => {
            let message = format!("{lines} lines: consider splitting the file");
            Some(Finding::note(&file.path, lines, message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Weight;

    fn weights(path: &str, text: &str) -> Vec<Weight> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.into_iter().map(|finding| finding.weight).collect()
    }

    #[test]
    fn a_source_file_opens_with_its_doc() {
        assert_eq!(weights("crates/a/src/b.rs", "\n//! Job.\n"), []);
        assert_eq!(
            weights("crates/a/src/b.rs", "use x;\n//! late"),
            [Weight::Violation]
        );
        assert_eq!(weights("crates/a/src/b.rs", ""), [Weight::Violation]);
        assert_eq!(weights("crates/a/tests/b.rs", "use x;"), []);
    }

    #[test]
    fn long_files_are_noted_and_longer_ones_refused() {
        let lines = |count: usize| format!("//! x\n{}", "\n".repeat(count - 1));
        assert_eq!(weights("crates/a/src/b.rs", &lines(600)), []);
        assert_eq!(weights("crates/a/src/b.rs", &lines(601)), [Weight::Note]);
        assert_eq!(
            weights("crates/a/src/b.rs", &lines(1001)),
            [Weight::Violation]
        );
        assert_eq!(weights("Cargo.lock", &lines(5000)), []);
    }
}
