//! Builds what the outer stages start: the server with its planted defects compiled in but asleep, and the testkit's programs.

use crate::Done;
use crate::context::Context;
use crate::process;

/// One build for both packages: apart they would select different features and compile their dependencies twice.
const BUILD: &[&str] = &[
    "build",
    "-p",
    "consign",
    "-p",
    "consign-testkit",
    "--bins",
    "--features",
    "consign/planted",
    "--locked",
];

pub(crate) fn build(context: &Context) -> Done {
    process::run(context.cargo(BUILD), None, context.deadline)?
        .demand_success("building the server and the testkit's programs")
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
