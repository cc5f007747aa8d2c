//! `cargo xtask deny`: licences, banned crates and sources of everything we depend on, as `deny.toml` has them.
//!
//! cargo-deny does it where it is installed. It takes minutes to build, so where it is missing this module reads the
//! lists itself: licences from `cargo tree`, names and sources from `Cargo.lock`, wildcards from our manifests. The
//! output says which of the two it was, and what was not looked up, since that needs a database and so the network.

mod policy;
mod spdx;
mod wildcards;

use std::time::{Duration, Instant};

use crate::Done;
use crate::context::Context;
use crate::flags::Flags;
use crate::process::{self, Ended, Output};
use crate::tree::Tree;
use policy::Policy;

pub(crate) const HELP: &str = "
Usage: cargo xtask deny

Checks the licence and the source of every crate we depend on, and that no banned one is among them, by the lists
in deny.toml, and that no manifest of ours takes any version (*). Uses cargo-deny if it is installed
(cargo install cargo-deny --locked), which also looks up known vulnerabilities and yanked versions if their
database can be fetched.
";

/// The registry that goes without saying, as Cargo.lock names it.
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// How long the database of vulnerabilities may take to arrive.
const FETCH: Duration = Duration::from_mins(1);

pub(crate) fn command(context: &Context, words: &[String]) -> Done {
    Flags::parse(words, &[])?;
    run(context)
}

pub(crate) fn run(context: &Context) -> Done {
    if process::ask(context.program("cargo-deny", &["deny", "--version"])).is_some() {
        with_cargo_deny(context)
    } else {
        by_ourselves(context)
    }
}

fn with_cargo_deny(context: &Context) -> Done {
    println!("deny: cargo-deny checks deny.toml");
    let check = |what: &[&str]| {
        let mut command = context.cargo(&["deny", "check", "--hide-inclusion-graph"]);
        command.args(what);
        process::run(command, Output::Terminal, context.deadline)
    };
    check(&["licenses", "bans", "sources"])?.demand_success("cargo-deny")?;
    let fetch = context.cargo(&["deny", "fetch", "db"]);
    let until = Instant::now() + FETCH;
    let log = context.log("deny-fetch");
    let fetched = process::run(fetch, Output::Logged(&log), Some(until))?;
    if fetched == Ended::Exit(Some(0)) {
        return check(&["advisories"])?.demand_success("the check for known vulnerabilities");
    }
    println!(
        "deny: known vulnerabilities were NOT looked up: their database could not be fetched, see {}",
        log.display()
    );
    Ok(())
}

fn by_ourselves(context: &Context) -> Done {
    println!(
        "deny: cargo-deny is not installed, so xtask reads deny.toml itself: licences, bans, wildcards and sources.\n\
         deny: NOT checked: advisories (known vulnerabilities, unmaintained crates), yanked versions, several \
         versions of one crate; for that: cargo install cargo-deny --locked"
    );
    let policy = Policy::read(&context.read("deny.toml")?)?;
    let tree = context.cargo(&[
        "tree",
        "--workspace",
        "--all-features",
        "--target=all",
        "--edges=normal,build,dev",
        "--prefix=none",
        "--format={p}\t{l}",
        "--locked",
    ]);
    let tree = process::ask(tree).ok_or("cargo tree does not list the dependencies")?;
    let lock = context.read("Cargo.lock")?;
    let mut findings = licences(&policy, &tree);
    findings.extend(bans(&policy, &lock));
    findings.extend(sources(&lock));
    if policy.refuses_wildcards {
        findings.extend(wildcards(&Tree::load(context)?));
    }
    for finding in &findings {
        println!("deny: {finding}");
    }
    println!(
        "deny: {} crates, {} findings",
        packages(&lock).len(),
        findings.len()
    );
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("deny found {count} things that are not allowed")),
    }
}

/// Lines of `cargo tree`: `name vVERSION (more)`, a tab, the licence. Those of our own crates have a path.
fn licences(policy: &Policy, tree: &str) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut findings = Vec::new();
    for line in tree.lines().filter(|line| !line.contains("(/")) {
        let line = line.strip_suffix(" (*)").unwrap_or(line);
        let Some((package, licence)) = line.split_once('\t') else {
            continue;
        };
        if seen.contains(&package) {
            continue;
        }
        seen.push(package);
        let name = package.split(' ').next().unwrap_or_default();
        if !spdx::satisfied(licence, &|one| policy.allows(one, name)) {
            findings.push(format!("{package}: the licence `{licence}` is not allowed"));
        }
    }
    if seen.is_empty() {
        findings.push("cargo tree named no dependency at all".to_owned());
    }
    findings
}

fn bans(policy: &Policy, lock: &str) -> Vec<String> {
    let names = packages(lock).into_iter().map(|package| package.name);
    let banned = names.filter(|name| policy.banned.contains(name));
    banned
        .map(|name| format!("{name}: banned, see deny.toml for the reason"))
        .collect()
}

fn sources(lock: &str) -> Vec<String> {
    let foreign = packages(lock).into_iter().filter_map(|package| {
        let source = package.source.filter(|source| source != DEFAULT_REGISTRY)?;
        Some(format!(
            "{}: comes from {source}, not from the default registry",
            package.name
        ))
    });
    foreign.collect()
}

/// A version that is left to chance makes every new lock file another program.
fn wildcards(tree: &Tree) -> Vec<String> {
    let ours = |path: &str| path == "Cargo.toml" || path.ends_with("/Cargo.toml");
    let manifests = tree.files.iter().filter(|file| ours(&file.path));
    let found = manifests.flat_map(|file| {
        let lines = wildcards::lines(&file.text).into_iter();
        lines.map(|line| format!("{}:{line}: any version is taken", file.path))
    });
    found.collect()
}

struct Package {
    name: String,
    /// Absent for our own crates.
    source: Option<String>,
}

fn packages(lock: &str) -> Vec<Package> {
    let entries = lock.split("[[package]]").skip(1);
    let value = |entry: &str, key: &str| {
        let found = entry.lines().find_map(|line| line.strip_prefix(key));
        found.map(|text| text.trim_matches('"').to_owned())
    };
    entries
        .map(|entry| Package {
            name: value(entry, "name = ").unwrap_or_default(),
            source: value(entry, "source = "),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::read(
            "[licenses]\nallow = [\"MIT\", \"ISC\"]\n[bans]\ndeny = [\n{ crate = \"bad\" },\n]\n",
        )
        .unwrap()
    }

    #[test]
    fn a_licence_that_is_not_listed_is_found_once() {
        let tree = "ours v0.1.0 (/src/ours)\tMIT\n\
                    good v1.0.0\tMIT OR GPL-3.0\n\
                    macros v1.0.0 (proc-macro)\tMIT AND ISC (*)\n\
                    viral v2.0.0\tGPL-3.0-only\nviral v2.0.0\tGPL-3.0-only (*)\nnameless v1.0.0\t\n";
        let found = licences(&policy(), tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("viral") && found[1].starts_with("nameless"));
        assert_eq!(licences(&policy(), "").len(), 1, "nothing read is no proof");
    }

    #[test]
    fn banned_crates_and_foreign_sources_are_found_in_the_lock_file() {
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n\
             [[package]]\nname = \"bad\"\nversion = \"1.0.0\"\nsource = \"{DEFAULT_REGISTRY}\"\n\n\
             [[package]]\nname = \"far\"\nversion = \"1.0.0\"\nsource = \"git+https://x.org/far\"\n"
        );
        assert_eq!(bans(&policy(), &lock).len(), 1);
        let foreign = sources(&lock);
        assert_eq!(foreign.len(), 1);
        assert!(foreign[0].starts_with("far: comes from git+"));
    }

    #[test]
    fn a_wildcard_is_found_in_our_manifests_alone() {
        let wild = "[dependencies]\na = \"*\"\n";
        let tree = Tree::of(&[("crates/x/Cargo.toml", wild), ("docs/example.toml", wild)]);
        assert_eq!(
            wildcards(&tree),
            ["crates/x/Cargo.toml:2: any version is taken"]
        );
    }
}
