//! Builds the programs that stages start: the server with its planted defects compiled in but disabled, and the testkit's
//! programs.

use std::path::PathBuf;

use crate::TaskResult;
use crate::context::Context;
use crate::process::{self, Output};

/// The tests are built too, though this command does not run them: without them Cargo would choose other features
/// for the dependencies than the test command does, and compile most of the tree a second time.
const BUILD: &[&str] = &[
    "build",
    "--workspace",
    "--bins",
    "--tests",
    "--features",
    "consign/planted",
    "--locked",
];

pub(crate) fn build(context: &Context) -> TaskResult {
    process::run(context.cargo(BUILD), Output::Terminal, context.deadline)?
        .require_success("building the server and the testkit's programs")
}

/// The crate that measures, a workspace of its own.
pub(crate) const PEERS_MANIFEST: &str = "peers/Cargo.toml";

/// The target folder of that crate, separate from the one of the product.
pub(crate) fn peers_target(context: &Context) -> PathBuf {
    context.target.join("peers/build")
}

/// The binaries for `cargo xtask peers` and `cargo xtask goals`.
pub(crate) struct Measured {
    pub(crate) consign: PathBuf,
    /// Holds `consign-peers` and `consign-goals`.
    pub(crate) programs: PathBuf,
}

/// Builds the server and the programs that measure it. The server is measured as it is shipped, so both are built for
/// release unless `debug` requests a quick build, whose figures mean nothing.
pub(crate) fn build_measured(context: &Context, debug: bool) -> Result<Measured, String> {
    let (profile, folder) = if debug {
        ("dev", "debug")
    } else {
        ("release", "release")
    };
    let args = ["build", "--locked", "--profile", profile];
    let mut server = context.cargo(&args);
    server.args(["--package", "consign"]);
    let mut programs = context.cargo(&args);
    programs.args(["--manifest-path", PEERS_MANIFEST]);
    programs.arg("--target-dir").arg(peers_target(context));
    for (command, what) in [
        (server, "building the server"),
        (programs, "building the programs that measure"),
    ] {
        process::run(command, Output::Stderr, context.deadline)?.require_success(what)?;
    }
    Ok(Measured {
        consign: context.target.join(folder).join("consign"),
        programs: peers_target(context).join(folder),
    })
}

/// The server binary, as an argument for programs that start it.
pub(crate) fn consign(context: &Context) -> String {
    context.binary("consign").to_string_lossy().into_owned()
}

/// Fails unless the testkit has the source of this program, either as a file or as a folder.
pub(crate) fn require_program(context: &Context, name: &str) -> TaskResult {
    let folder = format!("crates/testkit/src/bin/{name}/main.rs");
    if context.root.join(&folder).is_file() {
        return Ok(());
    }
    let file = format!("crates/testkit/src/bin/{name}.rs");
    let what = format!("the testkit must have a program `{name}`");
    context.require_file(&file, &what).map(|_| ())
}
