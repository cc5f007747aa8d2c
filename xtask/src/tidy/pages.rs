//! Every error code has a page, and every page has its code. The page and the index list the protocols of the code.

use std::collections::BTreeMap;

use super::Finding;
use crate::errors::{self, Code, PAGES, SOURCE};
use crate::markdown;
use crate::tree::Tree;

const INDEX: &str = "docs/errors/README.md";
/// The parts of each page besides the table of protocols.
const PARTS: [(&str, &str); 2] = [
    ("\nWhat to do: ", "the page does not say what to do"),
    ("\n```json\n", "the page has no example body"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.get(SOURCE) else {
        return vec![Finding::violation(
            SOURCE,
            1,
            "the table of error codes is missing",
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
    // The status cell by protocol and code, as the pages have it.
    let mut stated = BTreeMap::new();
    for code in &codes {
        let page = errors::page_of(&code.name);
        if let Some(file) = tree.get(&page) {
            findings.extend(check_page(code, &page, &file.text, &mut stated));
        } else {
            let message = format!("error code `{}` has no page {page}", code.name);
            findings.push(Finding::violation(SOURCE, code.line, message));
        }
    }
    for (name, file) in tree.folder(PAGES) {
        let known = codes.iter().any(|code| name == format!("{}.md", code.name));
        if !known && file.path != INDEX {
            findings.push(Finding::violation(
                &file.path,
                1,
                "no error code has this page",
            ));
        }
    }
    let index = tree.get(INDEX).map_or("", |file| &file.text);
    findings.extend(check_index(index, stated));
    findings
}

type Stated = BTreeMap<(String, String), String>;

fn check_page(code: &Code, path: &str, text: &str, stated: &mut Stated) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut protocols = Vec::new();
    for row in markdown::rows(text, &["protocol", "HTTP status"]) {
        if let [protocol, status] = row.cells.as_slice() {
            protocols.push(protocol.clone());
            stated.insert((protocol.clone(), code.name.clone()), status.clone());
        }
    }
    let mut expected = code.protocols.clone();
    expected.sort_unstable();
    protocols.sort_unstable();
    if protocols != expected {
        let message = format!(
            "the page lists the protocols [{}], the table of codes [{}]",
            protocols.join(", "),
            expected.join(", ")
        );
        findings.push(Finding::violation(path, 1, message));
    }
    for (part, message) in PARTS {
        if !text.contains(part) {
            findings.push(Finding::violation(path, 1, message));
        }
    }
    findings
}

/// The index has a section for each protocol, with the statuses of the pages.
fn check_index(text: &str, mut stated: Stated) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut protocol = "";
    let sections: Vec<&str> = text
        .lines()
        .map(|line| {
            protocol = line.strip_prefix("## ").unwrap_or(protocol);
            protocol
        })
        .collect();
    for row in markdown::rows(text, &["code", "HTTP status"]) {
        let [link, status] = row.cells.as_slice() else {
            continue;
        };
        let name = link.trim_start_matches('[').split(']').next();
        let name = name.unwrap_or_default().to_owned();
        let protocol = sections[row.line - 1].to_owned();
        let of_page = stated.remove(&(protocol, name.clone()));
        let message = match of_page {
            Some(_) if *link != format!("[{name}]({name}.md)") => "the link leads elsewhere",
            Some(of_page) if of_page == *status => continue,
            Some(_) => "the page has another status",
            None => "the page does not list this protocol, or the row is there twice",
        };
        let message = format!("`{name}`: {message}");
        findings.push(Finding::violation(INDEX, row.line, message));
    }
    for (protocol, name) in stated.into_keys() {
        let message = format!("`{name}` is missing in the section {protocol}");
        findings.push(Finding::violation(INDEX, 1, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: &str = "codes! {\n    Gone => \"lease_lost\", Gone, [Intent];\n    \
                         Busy => \"store_busy\", Busy, [Intent, Automation];\n}\n";
    const LOST: &str = "# lease_lost\n\n| protocol | HTTP status |\n|---|---|\n| Intent Protocol | 410 Gone |\n\n\
                        What to do: Stop.\n\n```json\n{}\n```\n";
    const BUSY: &str = "# store_busy\n\n| protocol | HTTP status |\n|---|---|\n| Intent Protocol | 503 |\n\
                        | Automations | 503 |\n\nWhat to do: Wait.\n\n```json\n{}\n```\n";
    const README: &str = "# Error codes\n\n## Intent Protocol\n\n| code | HTTP status |\n|---|---|\n\
                          | [lease_lost](lease_lost.md) | 410 Gone |\n| [store_busy](store_busy.md) | 503 |\n\n\
                          ## Automations\n\n| code | HTTP status |\n|---|---|\n| [store_busy](store_busy.md) | 503 |\n";

    fn check_with(pages: &[(&str, &str)]) -> Vec<(String, usize)> {
        let files: Vec<(&str, &str)> = [(SOURCE, CODES)].iter().chain(pages).copied().collect();
        let findings = check(&Tree::of(&files));
        findings.into_iter().map(|f| (f.path, f.line)).collect()
    }

    /// The whole set, with one file replaced or added.
    fn check_changed(path: &str, text: &str) -> Vec<(String, usize)> {
        let mut pages = BTreeMap::from([
            ("docs/errors/lease_lost.md", LOST),
            ("docs/errors/store_busy.md", BUSY),
            (INDEX, README),
        ]);
        pages.insert(path, text);
        check_with(&pages.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn codes_and_pages_must_match_both_ways() {
        assert_eq!(check_changed(INDEX, README), []);
        let missing = check_with(&[("docs/errors/lease_lost.md", LOST), (INDEX, README)]);
        assert!(missing.contains(&(SOURCE.to_owned(), 3)), "{missing:?}");
        let stray = "docs/errors/old.md";
        assert_eq!(check_changed(stray, "x"), [(stray.to_owned(), 1)]);
        assert!(check_changed("docs/errors/store_busy.md", "\n").len() > 3);
    }

    #[test]
    fn a_page_lists_the_protocols_of_its_code_and_what_to_do() {
        let page = "docs/errors/lease_lost.md";
        let broken = [
            LOST.replace("What to do", "Hint"),
            LOST.replace("```json", "```"),
        ];
        for text in broken {
            assert_eq!(check_changed(page, &text), [(page.to_owned(), 1)]);
        }
        let more = LOST.replace("410 Gone |", "410 Gone |\n| Automations | 410 Gone |");
        let at = |path: &str| (path.to_owned(), 1);
        assert_eq!(check_changed(page, &more), [at(page), at(INDEX)]);
    }

    #[test]
    fn the_index_repeats_what_the_pages_say() {
        let at = |line| (INDEX.to_owned(), line);
        let other = README.replace("410 Gone", "404 Not Found");
        assert_eq!(check_changed(INDEX, &other), [at(7)]);
        let elsewhere = README.replace("(lease_lost.md)", "(store_busy.md)");
        assert_eq!(check_changed(INDEX, &elsewhere), [at(7)]);
        let without = README.replace("| [lease_lost](lease_lost.md) | 410 Gone |\n", "");
        assert_eq!(check_changed(INDEX, &without), [at(1)]);
        let section = README.replace("## Automations", "## Beam");
        assert_eq!(check_changed(INDEX, &section), [at(14), at(1)]);
    }

    #[test]
    fn a_table_that_cannot_be_found_is_a_violation() {
        assert_eq!(check(&Tree::default()).len(), 1);
        assert_eq!(check(&Tree::of(&[(SOURCE, "enum Code {}")])).len(), 1);
    }
}
