//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters and runs libFuzzer on each for some seconds.
//!
//! The corpus stays in `target/fuzz/corpus`, so a campaign continues where the last one stopped, and each run adds a line to
//! `target/fuzz/results.jsonl`. An input that breaks a target is kept in `target/fuzz/crashes`; after the fix it moves to
//! `crates/fuzz/regressions`, where an ordinary test replays it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::TaskResult;
use crate::context::{self, Context};
use crate::flags::{Flag, Flags};
use crate::process::{self, ChildExit, Output};

pub(crate) const HELP: &str = "
Usage: cargo xtask fuzz [--seconds N] [--target NAME]... [--list]

Runs libFuzzer, guided by coverage, on each target, and fails if an input breaks one.

  --seconds N    how long each target runs (60 by default)
  --target NAME  run this target only; may be repeated
  --list         list the targets
";

/// For each target: of a campaign, and within `cargo xtask test`.
const SECONDS: u64 = 60;
const SECONDS_IN_TEST: u64 = 3;

/// Longer inputs are slow and show little. A body may have 8192 bytes, so this reaches beyond.
const INPUT_BYTES_MAX: u32 = 10_000;
/// An input that takes longer is a fault as well.
const SECONDS_PER_INPUT_MAX: u32 = 10;

/// The file that lists the targets, one `name: "..."` each.
const TABLE: &str = "crates/fuzz/src/lib.rs";

const FLAGS: &[Flag] = &[
    Flag::valued("--seconds"),
    Flag::valued("--target"),
    Flag::switch("--list"),
];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    let all = targets(&context.read(TABLE)?);
    if flags.has("--list") {
        println!("{}", all.join("\n"));
        return Ok(());
    }
    let wanted = flags.values("--target");
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !all.iter().any(|known| known == *name))
    {
        return Err(format!(
            "there is no target `{unknown}`; there are: {}",
            all.join(", ")
        ));
    }
    let chosen: Vec<String> = all
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.contains(&name.as_str()))
        .collect();
    campaign(
        context,
        &chosen,
        flags.number("--seconds")?.unwrap_or(SECONDS),
    )
}

/// The stage of `cargo xtask test`: every target for a few seconds.
pub(crate) fn stage(context: &Context) -> TaskResult {
    let all = targets(&context.read(TABLE)?);
    campaign(context, &all, SECONDS_IN_TEST)
}

fn campaign(context: &Context, names: &[String], seconds: u64) -> TaskResult {
    build(context)?;
    let mut broken = Vec::new();
    for name in names {
        let run = Run::of(context, name, seconds);
        let ended = run.start(context)?;
        let report = run.report(&context::read(&run.log)?)?;
        println!("{}", report.shown());
        report.append(&context.target.join("fuzz/results.jsonl"))?;
        if ended != ChildExit::Status(Some(0)) {
            broken.push(format!("{name} ({ended:?}): see {}", run.log.display()));
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nthe inputs are in {}; fix the fault and keep each as crates/fuzz/regressions/TARGET/DESCRIPTION",
        broken.join("\n"),
        context.target.join("fuzz/crashes").display()
    ))
}

/// Only our own crates are instrumented: the others are taken from the ordinary build, which saves minutes.
pub(crate) fn build(context: &Context) -> TaskResult {
    let args = [
        "build",
        "--package",
        "consign-fuzz",
        "--bin",
        "consign-fuzz",
        "--features",
        "consign-fuzz/libfuzzer",
        "--locked",
    ];
    let mut command = context.cargo(&args);
    let wrapper =
        context.require_file("crates/fuzz/instrument", "it adds the coverage counters")?;
    command.env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    process::run(command, Output::Terminal, context.deadline)?
        .require_success("building the fuzz targets")
}

/// The names in the table of targets, in its order.
fn targets(table: &str) -> Vec<String> {
    let lines = table.lines().map(str::trim);
    let names = lines.filter_map(|line| line.strip_prefix("name: \"")?.strip_suffix("\","));
    names.map(str::to_owned).collect()
}

/// One target for some seconds, and the paths of its files.
struct Run {
    name: String,
    seconds: u64,
    log: PathBuf,
    corpus: PathBuf,
    crashes: PathBuf,
}

impl Run {
    fn of(context: &Context, name: &str, seconds: u64) -> Self {
        let folder = context.target.join("fuzz");
        Self {
            name: name.to_owned(),
            seconds,
            log: context.log(&format!("fuzz-{name}")),
            corpus: folder.join("corpus").join(name),
            crashes: folder.join("crashes").join(name),
        }
    }

    fn start(&self, context: &Context) -> Result<ChildExit, String> {
        for folder in [&self.corpus, &self.crashes] {
            fs::create_dir_all(folder)
                .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        }
        let mut command = context.program(context.binary("consign-fuzz"), &[]);
        command
            .arg(format!("--target={}", self.name))
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-timeout={SECONDS_PER_INPUT_MAX}"))
            .arg("-dict=crates/fuzz/words.dict")
            .arg(format!("-artifact_prefix={}/", self.crashes.display()))
            .arg("-print_final_stats=1")
            // New inputs go into the first folder; the others are only read.
            .arg(&self.corpus);
        for kept in ["seeds", "regressions"] {
            let folder = context.root.join("crates/fuzz").join(kept).join(&self.name);
            if folder.is_dir() {
                command.arg(folder);
            }
        }
        process::run(command, Output::Logged(&self.log), context.deadline)
    }

    fn report(&self, log: &str) -> Result<Report, String> {
        Ok(Report {
            target: self.name.clone(),
            runs: statistic(log, "stat::number_of_executed_units:").unwrap_or(0),
            seconds: self.seconds,
            corpus: files_in(&self.corpus)?,
            crashes: files_in(&self.crashes)?,
        })
    }
}

/// A statistic that libFuzzer prints at its end.
fn statistic(log: &str, name: &str) -> Option<u64> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn files_in(folder: &Path) -> Result<usize, String> {
    fs::read_dir(folder)
        .map(Iterator::count)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))
}

struct Report {
    target: String,
    runs: u64,
    seconds: u64,
    /// Inputs kept so far because each reaches something new.
    corpus: usize,
    /// Inputs kept so far because they break the target.
    crashes: usize,
}

impl Report {
    fn shown(&self) -> String {
        format!(
            "fuzz {:<10} {:>9} runs in {} s, {} inputs kept, {} crashes",
            self.target, self.runs, self.seconds, self.corpus, self.crashes
        )
    }

    fn append(&self, results: &Path) -> TaskResult {
        let unix_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let line = format!(
            "{{\"unix_s\":{unix_s},\"target\":\"{}\",\"runs\":{},\"seconds\":{},\"corpus\":{},\"crashes\":{}}}\n",
            self.target, self.runs, self.seconds, self.corpus, self.crashes
        );
        let file = fs::File::options().create(true).append(true).open(results);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| format!("cannot add to {}: {error}", results.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_read_from_their_table_and_documented() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let names = targets(&context::read(&root.join(TABLE)).unwrap());
        assert!(names.iter().any(|name| name == "router"), "{names:?}");
        let page = context::read(&root.join("docs/reliability.md")).unwrap();
        for name in names {
            assert!(page.contains(&format!("\n| `{name}` | ")), "{name}");
            assert!(
                root.join("crates/fuzz/seeds").join(&name).is_dir(),
                "{name}"
            );
        }
    }

    #[test]
    fn the_count_is_taken_from_the_last_lines() {
        let log = "stat::number_of_executed_units: 5\nnoise\nstat::number_of_executed_units: 278804\nstat::x: 1\n";
        assert_eq!(
            statistic(log, "stat::number_of_executed_units:"),
            Some(278_804)
        );
        assert_eq!(statistic("", "stat::number_of_executed_units:"), None);
    }
}
