//! SQL is in the store only: no statement in a string and no driver anywhere else.
//!
//! Tests and the testkit may look into a database, since that is how they prove what the store wrote. The crate `peers`
//! is not below `crates/`: it measures databases of others, and bare SQLite as a baseline.

use super::{Finding, scan};
use crate::manifest::{self, Kind};
use crate::tree::{File, Tree};

/// A statement is recognised by its first words and, where those are common, by a later one.
const STATEMENTS: &[(&str, &str)] = &[
    ("SELECT ", " FROM "),
    ("INSERT INTO ", ""),
    ("UPDATE ", " SET "),
    ("DELETE FROM ", ""),
    ("CREATE TABLE ", ""),
    ("PRAGMA ", ""),
];

const DRIVERS: &[&str] = &["rusqlite", "tokio_postgres", "tokio-postgres"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let bound = tree.files.iter().filter(|file| is_bound(file));
    bound
        .flat_map(|file| match file.extension() {
            Some("rs") => check_source(file),
            Some("toml") => check_manifest(file),
            _ => Vec::new(),
        })
        .collect()
}

fn is_bound(file: &File) -> bool {
    let free = ["crates/store/", "crates/testkit/"];
    file.path.starts_with("crates/")
        && !free.iter().any(|folder| file.path.starts_with(folder))
        && !file.is_test_file()
}

fn check_source(file: &File) -> Vec<Finding> {
    let source = file.source();
    let shipped = source.lines_before_tests();
    let mut findings = Vec::new();
    for (line, text) in source.strings.iter().filter(|(line, _)| *line <= shipped) {
        if let Some(statement) = statement_in(text) {
            let message = format!("SQL (`{}`) outside of the store", statement.trim());
            findings.push(Finding::violation(&file.path, *line, message));
        }
    }
    let named = scan::forbidden(&file.path, source.shipped(), DRIVERS, |driver| {
        format!("`{driver}` outside of the store")
    });
    findings.extend(named);
    findings
}

fn check_manifest(file: &File) -> Vec<Finding> {
    let shipped = manifest::dependencies(&file.text)
        .into_iter()
        .filter(|dependency| {
            dependency.kind != Kind::Dev && DRIVERS.contains(&dependency.name.as_str())
        });
    shipped
        .map(|dependency| {
            let message = format!("`{}` outside of the store", dependency.name);
            Finding::violation(&file.path, dependency.line, message)
        })
        .collect()
}

fn statement_in(text: &str) -> Option<&'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = format!(" {} ", words.join(" "));
    let found = STATEMENTS.iter().find(|(start, later)| {
        let start = format!(" {start}");
        line.find(&start)
            .is_some_and(|at| line[at + start.len() - 1..].contains(later))
    });
    found.map(|(start, _)| *start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::scan::lines_found;

    #[test]
    fn statements_are_found_over_lines_and_prose_is_left_alone() {
        let cases: &[(&str, &[usize])] = &[
            ("\n f(\"SELECT id\n   FROM intents\")", &[2]),
            ("f(\"INSERT INTO facts VALUES (1)\")", &[1]),
            ("f(r#\"UPDATE intents SET state = 1\"#)", &[1]),
            ("f(\"PRAGMA journal_mode\")", &[1]),
            ("f(\"SELECT one of these\")", &[]),
            ("f(\"update the set\") // DELETE FROM x", &[]),
            ("use rusqlite::Connection;", &[1]),
        ];
        for (text, expected) in cases {
            assert_eq!(
                &lines_found(check, "crates/engine/src/a.rs", text),
                expected,
                "{text}"
            );
            assert_eq!(
                lines_found(check, "crates/store/src/a.rs", text),
                [],
                "{text}"
            );
        }
    }

    #[test]
    fn the_driver_is_no_dependency_but_of_tests() {
        let text = "[package]\nname = \"consign\"\n[dependencies]\nrusqlite = \"1\"\n";
        assert_eq!(lines_found(check, "crates/consign/Cargo.toml", text), [4]);
        let dev = text.replace("[dep", "[dev-dep");
        assert_eq!(lines_found(check, "crates/consign/Cargo.toml", &dev), []);
    }
}
