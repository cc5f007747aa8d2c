//! Builds what the outer stages start: the server with its planted defects compiled in but asleep, and the testkit's programs.

use crate::Done;
use crate::context::Context;
use crate::process::{self, Output};

/// The tests are selected too, though nothing runs them from here: without them Cargo would choose other features
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

pub(crate) fn build(context: &Context) -> Done {
    process::run(context.cargo(BUILD), Output::Terminal, context.deadline)?
        .demand_success("building the server and the testkit's programs")
}

/// What is measured is what is shipped, so it is built for release even to see whether measuring works.
pub(crate) fn build_measured(context: &Context) -> Done {
    let args = [
        "build",
        "--release",
        "--locked",
        "-p",
        "consign",
        "-p",
        "consign-peers",
    ];
    process::run(context.cargo(&args), Output::Aside, context.deadline)?
        .demand_success("building ours and the program that measures")
}

/// The server binary, as an argument for programs that start it.
pub(crate) fn consign(context: &Context) -> String {
    context.binary("consign").to_string_lossy().into_owned()
}

/// Fails unless the testkit has the source of this program, either as a file or as a folder.
pub(crate) fn demand_program(context: &Context, name: &str) -> Done {
    let folder = format!("crates/testkit/src/bin/{name}/main.rs");
    if context.root.join(&folder).is_file() {
        return Ok(());
    }
    let file = format!("crates/testkit/src/bin/{name}.rs");
    let what = format!("the testkit must have a program `{name}`");
    context.demand(&file, &what).map(|_| ())
}
