//! Schemathesis against the server: whatever it sends, every answer is as `/openapi.json` tells.

use crate::Done;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, Output};
use crate::product;
use crate::tools;

pub(crate) const HELP: &str = "
Usage: cargo xtask schemas [--examples N] [--seed S]

Starts the server on a new data directory, takes its OpenAPI document, and lets schemathesis send what the document
allows and what it does not: N cases per operation (80 by default). No answer may be a 5xx, or differ from the
document in status, media type, headers or body. The seed (1 by default) repeats a run.
";

const FLAGS: &[Flag] = &[Flag::valued("--examples"), Flag::valued("--seed")];

pub(crate) fn command(context: &Context, words: &[String]) -> Done {
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
pub(crate) fn stage(context: &Context) -> Done {
    run(context, &[])
}

fn run(context: &Context, args: &[String]) -> Done {
    let script = context.demand(
        "tests/schemas/run.py",
        "it drives schemathesis against the server",
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
    .demand_success("schemathesis")
}
