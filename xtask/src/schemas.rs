//! Schemathesis against the server: every response must match `/openapi.json`, whatever the request.

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, Output};
use crate::product;
use crate::tools;

pub(crate) const HELP: &str = "
Usage: cargo xtask schemas [--examples N] [--seed S]

Starts the server on a new data directory and runs schemathesis with its OpenAPI document: valid and invalid requests, N
cases per operation (80 by default). No response may be a 5xx, or differ from the document in status, media type, headers
or body. The seed (1 by default) repeats a run.
";

const FLAGS: &[Flag] = &[Flag::valued("--examples"), Flag::valued("--seed")];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    let mut args = Vec::new();
    for flag in FLAGS {
        if let Some(number) = flags.number(flag.name)? {
            args.extend([flag.name.to_owned(), number.to_string()]);
        }
    }
    run(context, &args)
}

/// The stage of `cargo xtask test`: few cases, always the same ones.
pub(crate) fn stage(context: &Context) -> TaskResult {
    run(context, &[])
}

fn run(context: &Context, args: &[String]) -> TaskResult {
    let script = context.require_file(
        "tests/schemas/run.py",
        "it runs schemathesis against the server",
    )?;
    let python = tools::python(context)?;
    product::build(context)?;
    let consign = product::consign(context);
    let mut command = context.program(python, &[&script.to_string_lossy(), "--consign", &consign]);
    command.args(args);
    process::run(
        command,
        Output::Copied(&context.log("schemas")),
        context.deadline,
    )?
    .require_success("schemathesis")
}
