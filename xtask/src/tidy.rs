//! `cargo xtask tidy`: rules that the compiler does not check, each a function from the repository's files to findings.
//!
//! A violation fails the command, a note does not. Only `--bless` writes a file.

mod edges;
mod leftovers;
mod migrations;
mod names;
mod pages;
mod promises;
mod purity;
mod scan;
mod shape;
mod sql;
mod unsafety;

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::tree::Tree;

pub(crate) const HELP: &str = "
Usage: cargo xtask tidy [--bless]

Checks rules that the compiler does not know and prints file:line for each violation:
  edges        crates depend on each other only as the architecture allows
  purity       the kernel has no clock, randomness, IO or async; only the binary reads the environment
  sql          SQL and its driver stay in the store
  pages        every error code has its page in docs/errors, with its protocols, and no page is left over
  promises     every promise of docs/security.md names a test that exists, and every security test is named there
  leftovers    no dbg!, todo!, unimplemented!, ignored test, or allow without a reason; no private paths or words
  shape        every source file opens with its module doc and stays below 1000 lines
  names        a type name is declared once, except Error, Options and Args
  migrations   released migration files are unchanged
  unsafe       unsafe code is in consign-sys only, and every crate takes the workspace's lints

  --bless      write the checksums of the migrations as they are now, then check
";

/// One finding of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1, which also stands for the whole file.
    line: usize,
    message: String,
    weight: Weight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Violation,
    Note,
}

impl Finding {
    fn violation(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
            weight: Weight::Violation,
        }
    }

    fn note(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            weight: Weight::Note,
            ..Self::violation(path, line, message)
        }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: &[(&str, Check)] = &[
    ("edges", edges::check),
    ("purity", purity::check),
    ("sql", sql::check),
    ("pages", pages::check),
    ("promises", promises::check),
    ("leftovers", leftovers::check),
    ("shape", shape::check),
    ("names", names::check),
    ("migrations", migrations::check),
    ("unsafe", unsafety::check),
];

const FLAGS: &[Flag] = &[Flag::switch("--bless")];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    if flags.has("--bless") {
        migrations::bless(context, &Tree::load(context)?)?;
    }
    run(context)
}

pub(crate) fn run(context: &Context) -> TaskResult {
    let tree = Tree::load(context)?;
    let mut violations = 0;
    for (name, check) in CHECKS {
        let findings = check(&tree);
        for finding in &findings {
            println!("{}", shown(name, finding));
        }
        violations += count_violations(&findings);
    }
    let files = tree.files.len();
    println!(
        "tidy: {files} files, {} checks, {violations} violations",
        CHECKS.len()
    );
    match violations {
        0 => Ok(()),
        _ => Err(format!("tidy found {violations} violations, listed above")),
    }
}

fn count_violations(findings: &[Finding]) -> usize {
    let violations = findings
        .iter()
        .filter(|finding| finding.weight == Weight::Violation);
    violations.count()
}

fn shown(check: &str, finding: &Finding) -> String {
    let word = match finding.weight {
        Weight::Violation => check.to_owned(),
        Weight::Note => format!("{check} (note)"),
    };
    format!(
        "{}:{}: {word}: {}",
        finding.path, finding.line, finding.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_check() {
        for (name, _) in CHECKS {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }

    #[test]
    fn notes_do_not_count_as_violations() {
        let findings = [
            Finding::violation("a.rs", 3, "bad"),
            Finding::note("b.rs", 1, "long"),
        ];
        assert_eq!(count_violations(&findings), 1);
        assert_eq!(shown("shape", &findings[0]), "a.rs:3: shape: bad");
    }
}
