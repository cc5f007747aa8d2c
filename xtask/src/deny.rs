//! `cargo xtask deny`: licences, banned crates, sources and known vulnerabilities of everything the product depends on, by
//! cargo-deny and its lists in `deny.toml`.

use std::time::{Duration, Instant};

use crate::TaskResult;
use crate::context::Context;
use crate::flags::Flags;
use crate::process::{self, Output};
use crate::tools;

pub(crate) const HELP: &str = "
Usage: cargo xtask deny

Runs cargo-deny with the lists in deny.toml: the licence and the source of every crate we depend on, that no banned one
is among them, that no manifest of ours takes any version (*), and, if their database can be fetched, known
vulnerabilities and yanked versions. Installs cargo-deny in the target folder if it is not on the path.
";

/// The time limit of fetching the database of vulnerabilities.
const FETCH_MAX: Duration = Duration::from_mins(1);

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    Flags::parse(words, &[])?;
    run(context)
}

pub(crate) fn run(context: &Context) -> TaskResult {
    let program = tools::cargo_deny(context)?;
    let check = |what: &[&str]| {
        let mut command = context.program(&program, &["check", "--hide-inclusion-graph"]);
        command.args(what);
        process::run(command, Output::Terminal, context.deadline)
    };
    check(&["licenses", "bans", "sources"])?.require_success("cargo-deny")?;
    let fetch = context.program(&program, &["fetch", "db"]);
    let log = context.log("deny-fetch");
    let until = Instant::now() + FETCH_MAX;
    let fetched = process::run(fetch, Output::Logged(&log), Some(until))?;
    if fetched.success() {
        return check(&["advisories"])?.require_success("the check for known vulnerabilities");
    }
    println!(
        "deny: known vulnerabilities were NOT looked up: their database could not be fetched, see {}",
        log.display()
    );
    Ok(())
}
