//! The stages of `cargo xtask test`, in order.
//!
//! Building and installing have stages of their own, so that the other stages measure their own work only.
//! Each stage still builds and installs what it needs, because it may run alone.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::TaskResult;
use crate::context::Context;
use crate::mutations;
use crate::packages::{self, POSTGRESQL};
use crate::postgres;
use crate::process::{self, Output};
use crate::product;
use crate::schemas;
use crate::stage::{self, BROWSER, BUILD, CLIENTS, CRASH, Stage, TESTS};
use crate::tidy;
use crate::tools::{self, Runner, Selection, TestLedger};
use crate::{cluster, crash, deny, fuzz, sim, tools::CHROMIUM};

pub(crate) const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        about: "every file is formatted",
        group: BUILD,
        log: None,
        run: fmt,
    },
    Stage {
        name: "clippy",
        about: "clippy reports no warning",
        group: BUILD,
        log: None,
        run: clippy,
    },
    Stage {
        name: "build",
        about: "tests, server, testkit and fuzz targets compile",
        group: BUILD,
        log: None,
        run: build,
    },
    Stage {
        name: "tools",
        about: "PostgreSQL, the real client, schemathesis, stand-ins of payment rails, verifiers of receipts, Go, cargo-deny and the browser are installed",
        group: BUILD,
        log: None,
        run: install,
    },
    Stage {
        name: "tests",
        about: "every test of the workspace passes, over SQLite where there is a choice",
        group: TESTS,
        log: Some("tests"),
        run: tests,
    },
    Stage {
        name: "tests-postgres",
        about: "the tests that run on each ledger pass over PostgreSQL",
        group: TESTS,
        log: Some("tests-postgres"),
        run: tests_on_postgres,
    },
    Stage {
        name: "tests-memory",
        about: "the tests of the engine pass over the model in memory",
        group: TESTS,
        log: Some("tests-memory"),
        run: tests_in_memory,
    },
    Stage {
        name: "security",
        about: "the properties of docs/security.md hold for a real process, within two minutes",
        group: TESTS,
        log: Some("security"),
        run: security,
    },
    Stage {
        name: "security-postgres",
        about: "those for which the database matters hold over PostgreSQL, within two minutes",
        group: TESTS,
        log: Some("security-postgres"),
        run: security_on_postgres,
    },
    Stage {
        name: "doc",
        about: "the documentation builds without warnings",
        group: BUILD,
        log: None,
        run: doc,
    },
    Stage {
        name: "tidy",
        about: "the repository follows the rules that the compiler does not check",
        group: BUILD,
        log: None,
        run: tidy::run,
    },
    Stage {
        name: "deny",
        about: "every dependency has an allowed licence and source, and none is banned",
        group: BUILD,
        log: None,
        run: deny::run,
    },
    Stage {
        name: "fuzz",
        about: "no generated input breaks a parser of untrusted input",
        group: TESTS,
        log: None,
        run: fuzz::stage,
    },
    Stage {
        name: "real-clients",
        about: "the protocol's own client works against the server, over SQLite and PostgreSQL",
        group: CLIENTS,
        log: Some("real_client"),
        run: real_clients,
    },
    Stage {
        name: "schemas",
        about: "every response matches the OpenAPI document",
        group: CLIENTS,
        log: Some("schemas"),
        run: schemas::stage,
    },
    Stage {
        name: "crash",
        about: "nothing is lost when the server is killed, and planted losses are found",
        group: CRASH,
        log: Some("crash"),
        run: crash::stage,
    },
    Stage {
        name: "cluster",
        about: "nothing is lost when nodes or databases of a cluster fail, and planted losses are found",
        group: CRASH,
        log: Some("cluster"),
        run: cluster::stage,
    },
    Stage {
        name: "sim",
        about: "simulated faults break no promise, and planted defects are found",
        group: CRASH,
        log: None,
        run: sim::stage,
    },
    Stage {
        name: "browser",
        about: "the dashboard works in a browser",
        group: BROWSER,
        log: Some("browser"),
        run: browser,
    },
    Stage {
        name: "mutations",
        about: "every planted defect that a test must find makes that test fail",
        group: TESTS,
        log: None,
        run: planted,
    },
    Stage {
        name: "conformance",
        about: "every requirement of the protocols is proven",
        group: TESTS,
        log: None,
        run: stage::conformance,
    },
];

fn fmt(context: &Context) -> TaskResult {
    // The crate that measures is a workspace of its own; formatting is the one check of it that costs nothing.
    for (words, repair) in [
        (&["--all"][..], "cargo fmt --all"),
        (
            &["--manifest-path", product::PEERS_MANIFEST],
            "cargo fmt --manifest-path peers/Cargo.toml",
        ),
    ] {
        let mut command = context.cargo(&["fmt", "--check"]);
        command.args(words);
        run_command(context, command, "the check of the formatting")
            .map_err(|error| format!("{error}; repair it with: {repair}"))?;
    }
    Ok(())
}

fn clippy(context: &Context) -> TaskResult {
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    run_command(context, context.cargo(&args), "clippy")
}

fn build(context: &Context) -> TaskResult {
    let command = Runner::find(context).build_command(context);
    run_command(context, command, "building the tests")?;
    product::build(context)?;
    fuzz::build(context)
}

fn tests(context: &Context) -> TaskResult {
    if Runner::find(context) == Runner::CargoTest {
        println!(
            "cargo-nextest is not installed, so `cargo test` runs; install it with: cargo install cargo-nextest"
        );
    }
    run_tests(context, "tests", TestLedger::Sqlite)
}

fn tests_on_postgres(context: &Context) -> TaskResult {
    run_tests(context, "tests-postgres", TestLedger::Postgres)
}

fn tests_in_memory(context: &Context) -> TaskResult {
    run_tests(context, "tests-memory", TestLedger::Memory)
}

fn run_tests(context: &Context, log: &str, ledger: TestLedger) -> TaskResult {
    packages::install(context, &POSTGRESQL)?;
    tools::stand_ins(context)?;
    let command = Runner::find(context).command(context, Selection::Ordinary, ledger);
    let log = context.log(log);
    let ran = process::run(command, Output::Copied(&log), context.deadline);
    postgres::stop(context);
    ran?.require_success("the tests")
}

/// How long each of the stages `security` may take, without the build.
const SECURITY_LIMIT: Duration = Duration::from_mins(2);

fn security(context: &Context) -> TaskResult {
    run_security(context, "security", TestLedger::Sqlite)
}

fn security_on_postgres(context: &Context) -> TaskResult {
    run_security(context, "security-postgres", TestLedger::Postgres)
}

fn run_security(context: &Context, log: &str, ledger: TestLedger) -> TaskResult {
    let runner = Runner::find(context);
    packages::install(context, &POSTGRESQL)?;
    run_command(
        context,
        runner.build_command(context),
        "building the security tests",
    )?;
    let command = runner.command(context, Selection::Security, ledger);
    let limit = Instant::now() + SECURITY_LIMIT;
    let deadline = context
        .deadline
        .map_or(limit, |deadline| deadline.min(limit));
    let log = context.log(log);
    let ran = process::run(command, Output::Copied(&log), Some(deadline));
    postgres::stop(context);
    ran?.require_success("the security tests")
}

fn doc(context: &Context) -> TaskResult {
    let mut command = context.cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_command(context, command, "cargo doc")
}

fn install(context: &Context) -> TaskResult {
    packages::install(context, &POSTGRESQL)?;
    tools::stand_ins(context)?;
    tools::cargo_deny(context)?;
    tools::chromium(context)
}

fn real_clients(context: &Context) -> TaskResult {
    let script = context.require_file(
        "tests/real_client/run.py",
        "it runs the real client against the server",
    )?;
    let python = tools::python(context)?;
    packages::install(context, &POSTGRESQL)?;
    product::build(context)?;
    let consign = product::consign(context);
    let databases = context.binary("test_postgres");
    let mut command = context.program(python, &[&script.to_string_lossy(), "--consign", &consign]);
    command.arg("--postgres").arg(databases);
    postgres::set_folder(&mut command);
    let log = context.log("real_client");
    let ran = process::run(command, Output::Copied(&log), context.deadline);
    postgres::stop(context);
    ran?.require_success("the real client")
}

fn browser(context: &Context) -> TaskResult {
    product::require_program(context, "browser")?;
    tools::chromium(context)?;
    product::build(context)?;
    let consign = product::consign(context);
    let args = ["--consign", consign.as_str(), "--chromium", CHROMIUM];
    let command = context.program(context.binary("browser"), &args);
    process::run(
        command,
        Output::Copied(&context.log("browser")),
        context.deadline,
    )?
    .require_success("the browser run")
}

fn planted(context: &Context) -> TaskResult {
    packages::install(context, &POSTGRESQL)?;
    let ran = mutations::run(context, None);
    postgres::stop(context);
    ran
}

fn run_command(context: &Context, command: Command, what: &str) -> TaskResult {
    process::run(command, Output::Terminal, context.deadline)?.require_success(what)
}
