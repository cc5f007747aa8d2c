//! A type name is declared once in the workspace, so that a reader of `NodeInfo` does not have to look up which one it is.
//!
//! Structs, enums, traits and type aliases count where they are items of a module, also inside a macro call. Types inside a
//! function, associated types and test code do not count. Of a macro call with its own syntax, only `Name { ... }` is seen.

use std::collections::BTreeMap;

use super::Finding;
use crate::rust::Source;
use crate::tree::{File, Tree};

/// Names that say enough with the module before them: `window::Error`, `server::Options`, `list::Args`.
const REPEATED: &[&str] = &["Error", "Options", "Args"];

/// Crates that hold only test code.
const TEST_CRATES: &[&str] = &["fuzz", "testkit"];

const KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| is_checked(tree, file)) {
        for (line, name) in declared(&file.source()) {
            if REPEATED.contains(&name.as_str()) {
                continue;
            }
            if let Some((path, at)) = first.get(&name) {
                let message = format!("the type name `{name}` is also declared at {path}:{at}");
                findings.push(Finding::violation(&file.path, line, message));
            } else {
                first.insert(name, (&file.path, line));
            }
        }
    }
    findings
}

fn is_checked(tree: &Tree, file: &File) -> bool {
    let of_product = file
        .crate_of_source()
        .is_some_and(|name| !TEST_CRATES.contains(&name));
    of_product
        && file.path.starts_with("crates/")
        && !file.is_test_file()
        && !is_test_module(tree, file)
}

/// Whether the module above declares the file with `#[cfg(test)]`.
fn is_test_module(tree: &Tree, file: &File) -> bool {
    let Some((folder, name)) = file.path.rsplit_once('/') else {
        return false;
    };
    let module = name.trim_end_matches(".rs");
    let parents = [
        format!("{folder}.rs"),
        format!("{folder}/mod.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}/main.rs"),
    ];
    parents
        .iter()
        .filter_map(|path| tree.get(path))
        .any(|parent| {
            let code = parent.source().code;
            code.windows(2).any(|pair| {
                pair[0].trim() == "#[cfg(test)]"
                    && pair[1].trim().trim_start_matches("pub(crate) ") == format!("mod {module};")
            })
        })
}

/// The types that the shipped code of a file declares as items, with their lines.
fn declared(source: &Source) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    let mut open: Vec<Block> = Vec::new();
    // The words since the last brace or semicolon.
    let mut words: Vec<String> = Vec::new();
    for (line, code) in source.shipped() {
        for word in split(code) {
            match word.as_str() {
                "{" => {
                    if let ([Block::MacroCall], Some(name)) = (&*open, bare_name(&words)) {
                        names.push((line, name.to_owned()));
                    }
                    open.push(Block::after(&words));
                    words.clear();
                }
                "}" => {
                    open.pop();
                    words.clear();
                }
                ";" => words.clear(),
                _ => {
                    let is_item = !open.contains(&Block::Other);
                    let after_keyword = words
                        .last()
                        .is_some_and(|last| KEYWORDS.contains(&last.as_str()));
                    if is_item && after_keyword && word.starts_with(char::is_uppercase) {
                        names.push((line, word.clone()));
                    }
                    words.push(word);
                }
            }
        }
    }
    names
}

/// The kind of block that a pair of braces encloses.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    Module,
    /// A macro call, which may declare items if it is an item itself.
    MacroCall,
    Other,
}

impl Block {
    /// The block whose brace follows these words.
    fn after(words: &[String]) -> Self {
        match words {
            [.., keyword, _] if keyword == "mod" => Self::Module,
            [.., name, mark] if mark == "!" && name != "macro_rules" => Self::MacroCall,
            _ => Self::Other,
        }
    }
}

/// The name of a type that a macro declares without a keyword, as in `stored! { State { ... } }`.
fn bare_name(words: &[String]) -> Option<&str> {
    let (name, before) = words.split_last()?;
    let is_first = before.last().is_none_or(|word| word == "]");
    (is_first && name.starts_with(char::is_uppercase)).then_some(name)
}

/// Names and single signs.
fn split(code: &str) -> Vec<String> {
    let part_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut words: Vec<String> = Vec::new();
    let mut in_name = false;
    for letter in code.chars() {
        match words.last_mut() {
            Some(word) if in_name && part_of_name(letter) => word.push(letter),
            _ if letter.is_whitespace() => {}
            _ => words.push(letter.to_string()),
        }
        in_name = part_of_name(letter);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let found = declared(&Source::read(text)).into_iter();
        found.map(|(_, name)| name).collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let findings = check(&Tree::of(files)).into_iter();
        findings
            .map(|finding| (finding.path, finding.line))
            .collect()
    }

    #[test]
    fn types_are_items_of_a_module_or_of_a_macro_call() {
        let cases: &[(&str, &[&str])] = &[
            ("pub struct A;\npub(in super::super) enum B {}", &["A", "B"]),
            (
                "trait C: Sized {\n type D;\n}\ntype E<'a> = &'a F;",
                &["C", "E"],
            ),
            ("mod inner {\n    struct G { x: u8 }\n}", &["G"]),
            ("codes! {\n    pub enum H { One = 1 }\n}", &["H"]),
            (
                "stored! {\n    #[derive(Debug)]\n    O { P = 1, Q { r: u8 } }\n}",
                &["O"],
            ),
            ("impl Iterator for A {\n    type Item = u8;\n}", &[]),
            ("fn f() {\n    struct Body;\n    x! { struct I; }\n}", &[]),
            ("macro_rules! m {\n    () => { struct J; }\n}", &[]),
            ("// struct K;\nlet x = \"struct L\";", &[]),
            (
                "struct M;\n#[cfg(test)]\nmod tests {\n struct N;\n}",
                &["M"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(&names(text), expected, "{text}");
        }
    }

    #[test]
    fn a_second_declaration_is_found_in_another_crate_and_in_the_same() {
        let node = "//! x\nstruct Node;";
        assert_eq!(
            found(&[
                ("crates/a/src/a.rs", node),
                ("crates/a/src/b.rs", node),
                ("crates/b/src/a.rs", node),
            ]),
            [
                ("crates/a/src/b.rs".to_owned(), 2),
                ("crates/b/src/a.rs".to_owned(), 2)
            ]
        );
    }

    #[test]
    fn test_code_and_names_of_every_module_may_repeat() {
        let node = "struct Node;";
        let pairs = [
            [("crates/a/src/a.rs", node), ("crates/a/tests/a.rs", node)],
            [("crates/a/src/a.rs", node), ("crates/a/src/tests.rs", node)],
            [
                ("crates/a/src/a.rs", node),
                ("crates/testkit/src/a.rs", node),
            ],
            [("crates/a/src/a.rs", node), ("peers/src/a.rs", node)],
            [
                ("crates/a/src/a.rs", "enum Error {}"),
                ("crates/b/src/a.rs", "enum Error {}"),
            ],
        ];
        for pair in &pairs {
            assert_eq!(found(pair), [], "{pair:?}");
        }
        let apart = [
            ("crates/a/src/a.rs", node),
            ("crates/a/src/json/mod.rs", "#[cfg(test)]\nmod samples;"),
            ("crates/a/src/json/samples.rs", node),
        ];
        assert_eq!(found(&apart), []);
    }
}
