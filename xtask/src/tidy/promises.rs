//! `docs/security.md` and the tests agree: each promise names a test that exists, and each security test is named.
//!
//! A test is named by a link whose text is the function and whose target is its file:
//! `` [`s4_idle_connections_are_closed`](../crates/consign/tests/security/connections.rs) ``.

use std::path::Path;

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "docs/security.md";
const SECURITY_TESTS: &str = "crates/consign/tests/security";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else {
        return vec![Finding::violation(PAGE, 1, "the page is missing")];
    };
    let mut findings = Vec::new();
    let mut named = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let links = links(line);
        if is_promise(line) && links.is_empty() {
            let message = "this promise names no test";
            findings.push(Finding::violation(PAGE, index + 1, message));
        }
        for (test, target) in links {
            let path = target.strip_prefix("../").unwrap_or(target);
            let defined = tree.get(path).is_some_and(|file| defines(&file.text, test));
            if !defined {
                let message = format!("{path} has no test `{test}`");
                findings.push(Finding::violation(PAGE, index + 1, message));
            }
            named.push(test);
        }
    }
    for (_, file) in tree.folder(SECURITY_TESTS) {
        for (line, test) in tests(&file.text) {
            if !named.contains(&test) {
                let message = format!("`{test}` is not named in {PAGE}");
                findings.push(Finding::violation(&file.path, line, message));
            }
        }
    }
    findings
}

/// A row of a table whose first cell is an id such as `S4`, or a word in bold.
fn is_promise(line: &str) -> bool {
    let Some(cell) = line
        .strip_prefix("| ")
        .and_then(|row| row.split(" |").next())
    else {
        return false;
    };
    let id = cell
        .strip_prefix('S')
        .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()));
    id || cell.starts_with("**")
}

/// The links of a line whose text is code.
fn links(line: &str) -> Vec<(&str, &str)> {
    let parts = line.split("[`").skip(1);
    let link = |part| -> Option<(&str, &str)> {
        let (test, rest): (&str, &str) = str::split_once(part, "`](")?;
        let (target, _) = rest.split_once(')')?;
        let is_source = Path::new(target)
            .extension()
            .is_some_and(|ending| ending == "rs");
        is_source.then_some((test, target))
    };
    parts.filter_map(link).collect()
}

fn defines(text: &str, test: &str) -> bool {
    text.contains(&format!("fn {test}("))
}

/// The functions that follow a test attribute, with their lines.
fn tests(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && let Some((_, rest)) = line.split_once("fn ") {
            is_test = false;
            found.push((index + 1, rest.split('(').next().unwrap_or_default()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = "#[test]\nfn s1_one() {}\n\n#[test]\nfn s2_two() {}\n";
    const FILE: &str = "crates/consign/tests/security/a.rs";

    fn check_with(page: &str) -> Vec<(String, usize)> {
        let findings = check(&Tree::of(&[(PAGE, page), (FILE, TESTS)]));
        let place = |finding: Finding| (finding.path, finding.line);
        findings.into_iter().map(place).collect()
    }

    fn row(id: &str, test: &str) -> String {
        format!("| {id} | holds | [`{test}`](../{FILE}) |\n")
    }

    #[test]
    fn promises_and_tests_must_match_both_ways() {
        let both = row("S1", "s1_one") + &row("**verify**", "s2_two");
        assert_eq!(check_with(&both), []);
        assert_eq!(check_with(&row("S1", "s1_one")), [(FILE.to_owned(), 5)]);
        let wrong = both.clone() + &row("S3", "s3_three");
        assert_eq!(check_with(&wrong), [(PAGE.to_owned(), 3)]);
        let bare = both + "| S4 | holds | trust us |\n| # | promise | test |\n";
        assert_eq!(check_with(&bare), [(PAGE.to_owned(), 3)]);
    }

    #[test]
    fn a_missing_page_is_a_violation() {
        assert_eq!(check(&Tree::default()).len(), 1);
    }
}
