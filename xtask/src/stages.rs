//! The stages of `cargo xtask test`, in their order, and what each of them does.
//!
//! Building and installing have stages of their own, so that the budgets of the others measure what they name.
//! Each stage still sees to what it needs, because it may be run alone.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Done;
use crate::context::Context;
use crate::mutations;
use crate::packages::{self, POSTGRESQL};
use crate::postgres;
use crate::process::{self, Output};
use crate::product;
use crate::schemas;
use crate::stage::{self, BROWSER, BUILD, CLIENTS, CRASH, Stage, TESTS};
use crate::tidy;
use crate::tools::{self, Runner, Selection};
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
        about: "no lint complains",
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
        about: "PostgreSQL, the real client, schemathesis, stand-ins of payment rails, verifiers of receipts, cargo-deny and the browser are installed",
        group: BUILD,
        log: None,
        run: install,
    },
    Stage {
        name: "tests",
        about: "every test of the workspace passes",
        group: TESTS,
        log: Some("tests"),
        run: tests,
    },
    Stage {
        name: "security",
        about: "the properties of docs/security.md hold for a real process, within two minutes",
        group: TESTS,
        log: Some("security"),
        run: security,
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
        about: "the rules that compilers do not know hold",
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
        about: "no made-up bytes break a reader of foreign bytes",
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
        about: "every answer is as the OpenAPI document tells",
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

fn fmt(context: &Context) -> Done {
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
        demand(context, command, "the check of the formatting")
            .map_err(|error| format!("{error}; repair it with: {repair}"))?;
    }
    Ok(())
}

fn clippy(context: &Context) -> Done {
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    demand(context, context.cargo(&args), "clippy")
}

fn build(context: &Context) -> Done {
    let command = Runner::find(context).build_command(context);
    demand(context, command, "building the tests")?;
    product::build(context)?;
    fuzz::build(context)
}

fn tests(context: &Context) -> Done {
    let runner = Runner::find(context);
    if runner == Runner::CargoTest {
        println!(
            "cargo-nextest is not installed, so `cargo test` runs; install it with: cargo install cargo-nextest"
        );
    }
    packages::install(context, &POSTGRESQL)?;
    tools::stand_ins(context)?;
    let command = runner.command(context, Selection::Ordinary);
    let log = context.log("tests");
    let ran = process::run(command, Output::Copied(&log), context.deadline);
    postgres::stop(context);
    ran?.demand_success("the tests")
}

/// How long the stage `security` may take, without the build.
const SECURITY_LIMIT: Duration = Duration::from_mins(2);

fn security(context: &Context) -> Done {
    let runner = Runner::find(context);
    packages::install(context, &POSTGRESQL)?;
    demand(
        context,
        runner.build_command(context),
        "building the security tests",
    )?;
    let command = runner.command(context, Selection::Security);
    let limit = Instant::now() + SECURITY_LIMIT;
    let deadline = context
        .deadline
        .map_or(limit, |deadline| deadline.min(limit));
    let log = context.log("security");
    let ran = process::run(command, Output::Copied(&log), Some(deadline));
    postgres::stop(context);
    ran?.demand_success("the security tests")
}

fn doc(context: &Context) -> Done {
    let mut command = context.cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    demand(context, command, "cargo doc")
}

fn install(context: &Context) -> Done {
    packages::install(context, &POSTGRESQL)?;
    tools::stand_ins(context)?;
    tools::cargo_deny(context)?;
    tools::chromium(context)
}

fn real_clients(context: &Context) -> Done {
    let script = context.demand(
        "tests/real_client/run.py",
        "it drives the real client against the server",
    )?;
    let python = tools::python(context)?;
    packages::install(context, &POSTGRESQL)?;
    product::build(context)?;
    let consign = product::consign(context);
    let databases = context.binary("test_postgres");
    let mut command = context.program(python, &[&script.to_string_lossy(), "--consign", &consign]);
    command.arg("--postgres").arg(databases);
    postgres::lend(&mut command);
    let log = context.log("real_client");
    let ran = process::run(command, Output::Copied(&log), context.deadline);
    postgres::stop(context);
    ran?.demand_success("the real client")
}

fn browser(context: &Context) -> Done {
    product::demand_program(context, "browser")?;
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
    .demand_success("the browser run")
}

fn planted(context: &Context) -> Done {
    packages::install(context, &POSTGRESQL)?;
    let ran = mutations::run(context, None);
    postgres::stop(context);
    ran
}

fn demand(context: &Context, command: Command, what: &str) -> Done {
    process::run(command, Output::Terminal, context.deadline)?.demand_success(what)
}
