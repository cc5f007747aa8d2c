//! Every error code has a page, and every page has its code.

use super::Finding;
use crate::errors::{self, PAGES, SOURCE};
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.get(SOURCE) else {
        return vec![Finding::violation(
            SOURCE,
            1,
            "the list of error codes is missing",
        )];
    };
    let codes = errors::codes(&source.text);
    if codes.is_empty() {
        return vec![Finding::violation(
            SOURCE,
            1,
            "there is no code in `codes! { ... }`",
        )];
    }
    let mut findings = Vec::new();
    for code in &codes {
        let page = errors::page_of(&code.name);
        match tree.get(&page) {
            Some(file) if !file.text.trim().is_empty() => {}
            Some(_) => findings.push(Finding::violation(&page, 1, "the page is empty")),
            None => {
                let message = format!("error code `{}` has no page {page}", code.name);
                findings.push(Finding::violation(SOURCE, code.line, message));
            }
        }
    }
    for (name, file) in tree.folder(PAGES) {
        let known = codes.iter().any(|code| name == format!("{}.md", code.name));
        if !known && name != "README.md" {
            findings.push(Finding::violation(
                &file.path,
                1,
                "no error code has this page",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: &str =
        "codes! {\n    Gone => \"lease_lost\", Gone;\n    Busy => \"store_busy\", Busy;\n}\n";

    fn check_with(pages: &[(&str, &str)]) -> Vec<(String, usize)> {
        let files: Vec<(&str, &str)> = [(SOURCE, CODES)].iter().chain(pages).copied().collect();
        let findings = check(&Tree::of(&files));
        findings.into_iter().map(|f| (f.path, f.line)).collect()
    }

    #[test]
    fn codes_and_pages_must_match_both_ways() {
        let full = [
            ("docs/errors/lease_lost.md", "x"),
            ("docs/errors/store_busy.md", "x"),
            ("docs/errors/README.md", "x"),
        ];
        assert_eq!(check_with(&full), []);
        assert_eq!(check_with(&full[..1]), [(SOURCE.to_owned(), 3)]);
        let stray = [full[0], full[1], ("docs/errors/old.md", "x")];
        assert_eq!(check_with(&stray), [("docs/errors/old.md".to_owned(), 1)]);
        let empty = [full[0], ("docs/errors/store_busy.md", "\n")];
        assert_eq!(
            check_with(&empty),
            [("docs/errors/store_busy.md".to_owned(), 1)]
        );
    }

    #[test]
    fn a_list_that_cannot_be_found_is_a_violation() {
        assert_eq!(check(&Tree::default()).len(), 1);
        assert_eq!(check(&Tree::of(&[(SOURCE, "enum Code {}")])).len(), 1);
    }
}
