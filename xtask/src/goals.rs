//! `cargo xtask goals`: builds ours for release, then starts `consign-goals`, which measures it against our own goals.

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, Output};
use crate::product;

pub(crate) const HELP: &str = "
Usage: cargo xtask goals [--only A,B] [--rounds N] [--seconds S] [--quick] [--debug] [--json] [FLAGS]

Measures what docs/performance.md lists under `Against the goals`, as far as it needs no other queue, by `consign bench`
on servers of its own and by SQLite and the disk alone, in rounds in turn. Prints each goal with the median, the least
and the most of its rounds, and whether it is reached. Rounds in which the hypervisor took more than 1.5 % of the
machine are left out and counted. A whole run takes about half an hour, on a machine that does nothing else meanwhile.
Fails if something could not be measured, not if a goal is not reached.

  --only A,B    only these, by name or first word, such as empty or p99; all by default
  --rounds N    rounds of each, by default 5
  --seconds S   length of what runs at full speed, by default 3; latencies are measured over 20 in any case
  --quick       one round of small numbers in a few seconds, to see that it works; the figures mean nothing
  --debug       build for debugging, which takes less time; the figures mean nothing
  --json        print the findings as JSON
  --dir DIR     where the servers keep their files, on a disk; by default /var/tmp
  --lock FILE   lock this file while goals that belong together are measured once, for others that lock it
  --list        name the goals
";

/// For this command alone; the others are passed on to the program, which checks their values.
const DEBUG: &str = "--debug";

const FLAGS: &[Flag] = &[
    Flag::valued("--only"),
    Flag::valued("--rounds"),
    Flag::valued("--seconds"),
    Flag::valued("--dir"),
    Flag::valued("--lock"),
    Flag::switch("--quick"),
    Flag::switch(DEBUG),
    Flag::switch("--json"),
    Flag::switch("--list"),
];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    let built = product::build_measured(context, flags.has(DEBUG))?;
    let mut measure = context.program(built.programs.join("consign-goals"), &[]);
    measure.args(words.iter().filter(|word| *word != DEBUG));
    measure.arg("--consign").arg(built.consign);
    process::run(measure, Output::Terminal, context.deadline)?
        .require_success("measuring the goals")
}
