//! `unsafe` code is allowed in one crate only, which is reserved for system calls.
//!
//! The workspace denies `unsafe_code`, but a crate that leaves the workspace's lints out, or an attribute that lifts
//! the lint, would go unnoticed.

use super::{Finding, scan};
use crate::tree::{File, Tree};

/// The folder of the crate `consign-sys`, the only one that may contain it.
const ALLOWED: &str = "crates/sys/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let elsewhere = tree
        .files
        .iter()
        .filter(|file| !file.path.starts_with(ALLOWED));
    elsewhere
        .flat_map(|file| {
            if file.is_rust() {
                check_source(file)
            } else {
                check_lints(file).into_iter().collect()
            }
        })
        .collect()
}

fn check_source(file: &File) -> Vec<Finding> {
    let words = ["unsafe", "unsafe_code"];
    scan::forbidden(&file.path, file.source().lines(), &words, |word| {
        format!("`{word}` outside of consign-sys")
    })
}

/// A manifest of ours must take the workspace's lints.
fn check_lints(file: &File) -> Option<Finding> {
    let is_ours = file.path.ends_with("/Cargo.toml") && file.text.contains("[package]");
    let takes_them = file.text.contains("[lints]\nworkspace = true");
    (is_ours && !takes_them).then(|| {
        let message = "the crate does not take the workspace's lints (`[lints] workspace = true`)";
        Finding::violation(&file.path, 1, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        scan::lines_found(check, path, text)
    }

    #[test]
    fn unsafe_code_and_the_lifting_of_its_lint_are_found_outside_of_one_crate() {
        let text = "fn a() {\n    unsafe { b() }\n}\n#![allow(unsafe_code, reason = \"x\")]\n";
        assert_eq!(lines("crates/store/src/a.rs", text), [2, 4]);
        assert_eq!(lines("crates/store/tests/it/a.rs", text), [2, 4]);
        assert_eq!(lines("xtask/src/a.rs", text), [2, 4]);
        assert_eq!(lines("crates/sys/src/lib.rs", text), [] as [usize; 0]);
        let prose = "// unsafe\nlet unsafely = \"unsafe\";\n";
        assert_eq!(lines("crates/store/src/a.rs", prose), [] as [usize; 0]);
    }

    #[test]
    fn a_crate_without_the_workspaces_lints_is_found() {
        let bare = "[package]\nname = \"consign-x\"\n";
        assert_eq!(lines("crates/x/Cargo.toml", bare), [1]);
        let linted = format!("{bare}\n[lints]\nworkspace = true\n");
        assert_eq!(lines("crates/x/Cargo.toml", &linted), [] as [usize; 0]);
    }
}
