//! Released migrations never change: a checksum of each is kept beside them.
//!
//! The checksum (FNV-1a, 64 bits) detects accidents, not attacks. `cargo xtask tidy --bless` adds the line of a new
//! migration; a changed line in a review shows that an old one was edited.

use std::collections::BTreeMap;

use super::Finding;
use crate::TaskResult;
use crate::context::{self, Context};
use crate::tree::{File, Tree};

const FOLDERS: [&str; 2] = [
    "crates/store/src/sqlite/migrations",
    "crates/store/src/postgres/migrations",
];
const RECORD: &str = "CHECKSUMS";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let folders = FOLDERS.into_iter();
    folders
        .flat_map(|folder| check_folder(tree, folder))
        .collect()
}

fn check_folder(tree: &Tree, folder: &str) -> Vec<Finding> {
    let record_path = format!("{folder}/{RECORD}");
    let recorded = tree
        .get(&record_path)
        .map(|file| parse(&file.text))
        .unwrap_or_default();
    let mut findings = Vec::new();
    let mut seen = 0;
    for (name, file) in migrations(tree, folder) {
        seen += 1;
        match recorded.get(name) {
            Some((_, sum)) if *sum == checksum(&file.text) => {}
            Some((line, _)) => {
                let message = format!(
                    "{name} differs from its checksum: a released migration must not change"
                );
                findings.push(Finding::violation(&record_path, *line, message));
            }
            None => {
                let message =
                    format!("not in {RECORD}; if it is new, run: cargo xtask tidy --bless");
                findings.push(Finding::violation(&file.path, 1, message));
            }
        }
    }
    for (name, (line, _)) in &recorded {
        if tree.get(&format!("{folder}/{name}")).is_none() {
            let message = format!("{name} is gone: a released migration must stay");
            findings.push(Finding::violation(&record_path, *line, message));
        }
    }
    if seen == 0 && recorded.is_empty() {
        findings.push(Finding::violation(
            folder,
            1,
            "there is no migration to guard",
        ));
    }
    findings
}

/// Records every migration as it is now.
pub(super) fn bless(context: &Context, tree: &Tree) -> TaskResult {
    FOLDERS
        .into_iter()
        .try_for_each(|folder| bless_folder(context, tree, folder))
}

fn bless_folder(context: &Context, tree: &Tree, folder: &str) -> TaskResult {
    let path = context.root.join(folder).join(RECORD);
    let text = record(tree, folder);
    if text.is_empty() {
        return Err(format!("there is no .sql file in {folder}"));
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let before = parse(&before);
    for (name, (_, sum)) in parse(&text) {
        match before.get(&name) {
            Some((_, old)) if *old == sum => {}
            Some(_) => {
                println!("blessed CHANGED migration {folder}/{name}: was it never released?");
            }
            None => println!("blessed new migration {folder}/{name}"),
        }
    }
    context::write(&path, &text)
}

fn record(tree: &Tree, folder: &str) -> String {
    let lines =
        migrations(tree, folder).map(|(name, file)| format!("{} {name}\n", checksum(&file.text)));
    lines.collect()
}

fn migrations<'t>(tree: &'t Tree, folder: &'t str) -> impl Iterator<Item = (&'t str, &'t File)> {
    tree.folder(folder)
        .filter(|(_, file)| file.extension() == Some("sql"))
}

/// Name to line and checksum.
fn parse(record: &str) -> BTreeMap<String, (usize, String)> {
    let lines = record.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let (sum, name) = line.split_once(' ')?;
            Some((name.trim().to_owned(), (index + 1, sum.to_owned())))
        })
        .collect()
}

fn checksum(text: &str) -> String {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{sum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = FOLDERS[0];

    fn tree_with(name: &str, text: &str, record: &str) -> Tree {
        let migration = format!("{FOLDER}/{name}");
        let record_path = format!("{FOLDER}/{RECORD}");
        Tree::of(&[(&migration, text), (&record_path, record)])
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(checksum(""), "cbf29ce484222325");
        assert_eq!(checksum("a"), "af63dc4c8601ec8c");
    }

    #[test]
    fn an_edited_missing_or_unknown_migration_is_found() {
        let blessed = record(&tree_with("0001_first.sql", "a", ""), FOLDER);
        let count = |name: &str, text: &str, record: &str| {
            check_folder(&tree_with(name, text, record), FOLDER).len()
        };
        assert_eq!(count("0001_first.sql", "a", &blessed), 0);
        assert_eq!(count("0001_first.sql", "b", &blessed), 1);
        assert_eq!(count("0001_first.sql", "a", ""), 1);
        assert_eq!(count("0002_second.sql", "a", &blessed), 2);
        // Each database has migrations to guard.
        assert_eq!(check(&Tree::default()).len(), FOLDERS.len());
    }
}
