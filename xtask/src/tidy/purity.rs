//! The kernel has no IO, clock, randomness or async, and only the binary reads the environment.
//!
//! The kernel's decisions must be the same on every machine, or a seed no longer reproduces a bug.

use super::{Finding, scan};
use crate::rust::Source;
use crate::tree::{File, Tree};

/// Names that the kernel must not use, with the reason.
const KERNEL: &[(&str, &str)] = &[
    ("std::time", "time comes in as a value"),
    ("SystemTime", "time comes in as a value"),
    ("Instant", "time comes in as a value"),
    ("std::fs", "the kernel does no IO"),
    ("std::env", "settings come in as values"),
    ("std::net", "the kernel does no IO"),
    ("std::io", "the kernel does no IO"),
    ("std::thread", "the kernel starts nothing"),
    ("std::process", "the kernel starts nothing"),
    ("tokio", "the kernel has no async"),
    ("async fn", "the kernel has no async"),
    ("async move", "the kernel has no async"),
    (".await", "the kernel has no async"),
    ("rand", "entropy comes in as a value"),
    ("getrandom", "entropy comes in as a value"),
    ("print!", "the kernel does no IO"),
    ("println!", "the kernel does no IO"),
    ("eprintln!", "the kernel does no IO"),
];

/// Names that only the crates of [`READ_ENVIRONMENT`] may use.
const ENVIRONMENT: &[&str] = &[
    "env::var",
    "env::var_os",
    "env::vars",
    "env::vars_os",
    "env::args",
    "env::args_os",
];

/// The crates that may read the environment: the binary for its settings, the testkit and the fuzzer for their binaries.
const READ_ENVIRONMENT: &[&str] = &["consign", "testkit", "fuzz"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test_file()) {
        match file.crate_of_source() {
            Some("kernel") => findings.extend(check_kernel(file)),
            Some(name) if !READ_ENVIRONMENT.contains(&name) => {
                findings.extend(check_environment(file));
            }
            _ => {}
        }
    }
    findings
}

fn check_kernel(file: &File) -> Vec<Finding> {
    let source = file.source();
    let message = |token: &str| {
        let rule = KERNEL.iter().find(|(name, _)| *name == token);
        let why = rule.map_or("", |(_, why)| why);
        format!("`{token}` in the kernel: {why}")
    };
    let tokens: Vec<&str> = KERNEL.iter().map(|(token, _)| *token).collect();
    let mut findings = scan::forbidden(&file.path, source.shipped(), &tokens, message);
    for (line, module) in grouped_std_imports(&source) {
        let path = format!("std::{module}");
        if KERNEL.iter().any(|(token, _)| *token == path) {
            findings.push(Finding::violation(&file.path, line, message(&path)));
        }
    }
    findings
}

fn check_environment(file: &File) -> Vec<Finding> {
    scan::forbidden(&file.path, file.source().shipped(), ENVIRONMENT, |token| {
        format!("`{token}`: only crates/consign reads the environment; take an option instead")
    })
}

/// The first names inside `std::{...}`, which hide a path from a search for it.
fn grouped_std_imports(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (line, code) in source.shipped() {
        let mut rest = code;
        if depth == 0 {
            let Some((_, group)) = code.split_once("std::{") else {
                continue;
            };
            depth = 1;
            rest = group;
        }
        let mut name = String::new();
        for letter in rest.chars().chain([' ']) {
            if depth == 1 && (letter.is_alphanumeric() || letter == '_') {
                name.push(letter);
                continue;
            }
            if depth == 1 && !name.is_empty() {
                found.push((line, std::mem::take(&mut name)));
            }
            match letter {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::scan::lines_found;

    #[test]
    fn the_kernel_may_not_look_at_a_clock_in_any_spelling() {
        let cases: &[(&str, &[usize])] = &[
            ("use std::time::Duration;", &[1]),
            ("fn a() {\n    let now = Instant::now();\n}", &[2]),
            ("use std::{\n    fmt,\n    fs::File,\n};", &[3]),
            ("use std::{fmt, collections::{BTreeMap, BTreeSet}};", &[]),
            ("async fn decide() {}", &[1]),
            (
                "// no tokio, no rand\nfn operand() { log(\"std::io\") }",
                &[],
            ),
            (
                "fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
                &[],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(
                &lines_found(check, "crates/kernel/src/a.rs", text),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_binary_and_the_testkit_read_the_environment() {
        let text = "fn a() { std::env::var(\"X\"); }";
        assert_eq!(lines_found(check, "crates/engine/src/a.rs", text), [1]);
        assert_eq!(lines_found(check, "crates/consign/src/a.rs", text), []);
        assert_eq!(lines_found(check, "crates/testkit/src/a.rs", text), []);
        assert_eq!(lines_found(check, "crates/engine/tests/it/a.rs", text), []);
    }
}
