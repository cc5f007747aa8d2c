//! Tools that are not built here: the test runner, the real Python client, stand-ins of payment rails, independent
//! verifiers of receipts, cargo-deny, the browser.
//!
//! A missing tool is installed if possible; otherwise the error names it and the command that installs it.
//! A missing tool is a failure: a check that did not run proves nothing.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TaskResult;
use crate::context::{Context, read, write};
use crate::packages::{self, BUBBLEWRAP, GO, NODE, NPM, PROMETHEUS, Package};
use crate::postgres;
use crate::process::{self, Output};

/// The pinned packages of the Python environment: the published client of the Intent Protocol, the program that checks
/// responses against their schemas, a stand-in of Stripe, which tests run as a process, libraries that verify receipts
/// without our code, and libsodium for the mesh.
const PACKAGES: &[(&str, &str)] = &[
    ("intent-bus", "2.1.2"),
    ("schemathesis", "4.32.5"),
    ("localstripe", "1.15.10"),
    ("rfc8785", "0.1.4"),
    ("cryptography", "50.0.2"),
    ("pynacl", "1.6.2"),
];

/// The same for Node: another stand-in of Stripe, which unlike the one above honours idempotency keys, other libraries
/// that verify receipts, and the SDK of Beam.
const NODE_PACKAGES: &[(&str, &str)] = &[
    ("stripe-stateful-mock", "0.0.16"),
    ("canonicalize", "4.0.0"),
    ("@noble/ed25519", "3.2.0"),
    ("beam-protocol-sdk", "0.5.1"),
];

pub(crate) const CHROMIUM: &str = "/usr/bin/chromium";

/// Every test, with the features of the server that the outer stages start: another choice would build half of the tree
/// once more. Its planted defects are disabled.
const SELECTED: &[&str] = &["--workspace", "--features", "consign/planted", "--locked"];

/// The test binaries that the stage `security` runs; the stage `tests` leaves them out where the runner can.
const SECURITY: &[&str] = &["security", SECURITY_LEDGERS];

/// Those of the stage `security` that run once for each ledger.
const SECURITY_LEDGERS: &str = "security_ledgers";

/// The other test binaries that run once for each ledger: package and name. They are compiled once, and
/// `CONSIGN_TEST_LEDGER` selects the ledger.
const LEDGER_TESTS: &[(&str, &str)] = &[
    ("consign", "ledgers"),
    ("consign-automation", "http"),
    ("consign-automation", "runtime"),
    ("consign-beam", "http"),
    ("consign-engine", "it"),
    ("consign-intent", "it"),
    ("consign-mesh", "broker"),
    ("consign-mesh", "socket"),
    ("consign-mesh", "http"),
    ("consign-transactions", "http"),
    ("consign-transactions", "site"),
];

/// Those that also run on the model in memory.
const MODEL_TESTS: &[(&str, &str)] = &[("consign-engine", "it")];

/// Selects the ledger of the tests that run on each.
const LEDGER: &str = "CONSIGN_TEST_LEDGER";

/// How many tests nextest runs at once.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// Many tests wait for a process, a lease or a clock, so twice as many as there are cores keep them busy. The variable
/// overrides it.
pub(crate) fn at_once() -> usize {
    let set = std::env::var(TEST_THREADS).ok();
    let set = set.and_then(|number| number.parse().ok());
    set.filter(|number| *number > 0).unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        cores * 2
    })
}

/// The test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Nextest,
    CargoTest,
}

/// Which tests a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection<'a> {
    /// All but those of the stage `security`.
    Ordinary,
    /// Those of the stage `security`.
    Security,
    /// Those whose name contains this.
    Named(&'a str),
}

/// The ledger of the tests that run on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestLedger {
    /// The default. All other tests run in this run as well.
    Sqlite,
    Postgres,
    Memory,
}

impl TestLedger {
    const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
        }
    }
}

impl Runner {
    pub(crate) fn find(context: &Context) -> Self {
        match process::output_of(context.program("cargo-nextest", &["nextest", "--version"])) {
            Some(_) => Self::Nextest,
            None => Self::CargoTest,
        }
    }

    /// Builds the tests without running one.
    pub(crate) fn build_command(self, context: &Context) -> Command {
        let mut command = context.cargo(self.words());
        command.args(SELECTED).arg("--no-run");
        command
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Nextest => &["nextest", "run"],
            Self::CargoTest => &["test"],
        }
    }

    /// A test command of the whole workspace. Every caller gets the same flags, so that nothing is built twice.
    pub(crate) fn command(
        self,
        context: &Context,
        selection: Selection<'_>,
        ledger: TestLedger,
    ) -> Command {
        let mut command = context.cargo(self.words());
        command.args(SELECTED).arg("--no-fail-fast");
        // Results are read from this output, so a personal setting must not hide the tests that pass.
        command.env("NEXTEST_STATUS_LEVEL", "pass");
        command.env(LEDGER, ledger.name());
        if std::env::var_os(TEST_THREADS).is_none() {
            command.env(TEST_THREADS, at_once().to_string());
        }
        postgres::set_folder(&mut command);
        match self {
            Self::Nextest => {
                let filter = nextest_filter(selection, ledger);
                command.args(["--ignore-default-filter", "-E", &filter]);
            }
            Self::CargoTest => {
                command.args(libtest_words(selection, ledger));
            }
        }
        command
    }
}

/// In the filter language of nextest.
fn nextest_filter(selection: Selection<'_>, ledger: TestLedger) -> String {
    let security = any_of(SECURITY.iter().map(|name| format!("binary(={name})")));
    let selected = match selection {
        Selection::Ordinary => format!("not ({security})"),
        Selection::Security => security,
        Selection::Named(name) => format!("test({name})"),
    };
    let of = |tests: &[(&str, &str)]| {
        any_of(
            tests
                .iter()
                .map(|(package, name)| format!("(package(={package}) & binary(={name}))")),
        )
    };
    match ledger {
        TestLedger::Sqlite => format!("({selected}) - test(/^only_postgres_/)"),
        TestLedger::Postgres => {
            let each = of(LEDGER_TESTS);
            format!("({selected}) & ({each} + binary(={SECURITY_LEDGERS})) - test(/^only_sqlite_/)")
        }
        TestLedger::Memory => format!("({selected}) & ({})", of(MODEL_TESTS)),
    }
}

fn any_of(expressions: impl Iterator<Item = String>) -> String {
    expressions.collect::<Vec<_>>().join(" + ")
}

/// `cargo test` selects test binaries by name alone, and cannot leave one out: the stage `tests` runs those of `security`
/// as well.
fn libtest_words(selection: Selection<'_>, ledger: TestLedger) -> Vec<&str> {
    let each: Vec<&str> = match (selection, ledger) {
        (Selection::Security, TestLedger::Sqlite) => SECURITY.to_vec(),
        (_, TestLedger::Sqlite) => Vec::new(),
        (Selection::Security, TestLedger::Postgres) => vec![SECURITY_LEDGERS],
        (_, TestLedger::Postgres) => LEDGER_TESTS.iter().map(|(_, name)| *name).collect(),
        (_, TestLedger::Memory) => MODEL_TESTS.iter().map(|(_, name)| *name).collect(),
    };
    let mut words: Vec<&str> = each.into_iter().flat_map(|name| ["--test", name]).collect();
    if let Selection::Named(name) = selection {
        words.push(name);
    }
    match ledger {
        TestLedger::Sqlite => words.extend(["--", "--skip", "only_postgres_"]),
        TestLedger::Postgres => words.extend(["--", "--skip", "only_sqlite_"]),
        TestLedger::Memory => {}
    }
    words
}

/// A Python with the pinned packages; made on first use, kept in the target folder.
pub(crate) fn python(context: &Context) -> Result<PathBuf, String> {
    let venv = context.work_folder().join("venv");
    let python = venv.join("bin/python");
    if PACKAGES
        .iter()
        .all(|(name, version)| installed(context, &python, name).as_deref() == Some(version))
    {
        return Ok(python);
    }
    let shown = venv.to_string_lossy();
    // `--clear`: a half-made environment from an interrupted run must not be built upon.
    let make = context.program("python3", &["-m", "venv", "--clear", &shown]);
    process::run(make, Output::Terminal, context.deadline)
        .and_then(|ended| ended.require_success("making the Python environment"))
        .map_err(|error| {
            format!("{error}; install Python with: apt-get install -y python3 python3-venv")
        })?;
    let packages: Vec<String> = PACKAGES
        .iter()
        .map(|(name, version)| format!("{name}=={version}"))
        .collect();
    let mut install = context.program(
        &python,
        &[
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ],
    );
    install.args(&packages);
    process::run(install, Output::Terminal, context.deadline)
        .and_then(|ended| ended.require_success("installing the Python packages"))
        .map_err(|error| {
            let packages = packages.join(" ");
            let by_hand = format!("{} -m pip install {packages}", python.display());
            format!("{error}; it needs the network once, try by hand with: {by_hand}")
        })?;
    Ok(python)
}

fn installed(context: &Context, python: &Path, package: &str) -> Option<String> {
    let question = format!("from importlib.metadata import version; print(version('{package}'))");
    let answer = process::output_of(context.program(python, &["-c", &question]))?;
    Some(answer.trim().to_owned())
}

/// Installs the programs that tests of transactions, of the mesh, of hooks and of the metrics start, in `venv` and `node`
/// beside the logs.
pub(crate) fn stand_ins(context: &Context) -> TaskResult {
    python(context)?;
    packages::install(context, &GO)?;
    packages::install(context, &BUBBLEWRAP)?;
    packages::install(context, &PROMETHEUS)?;
    let folder = context.work_folder().join("node");
    let is_installed = |(name, version): &(&str, &str)| {
        let manifest = folder.join(format!("node_modules/{name}/package.json"));
        let entry = format!("\"version\": \"{version}\"");
        read(&manifest).is_ok_and(|text| text.contains(&entry))
    };
    if NODE_PACKAGES.iter().all(is_installed) {
        return Ok(());
    }
    packages::install(context, &NODE)?;
    packages::install(context, &NPM)?;
    // A manifest of its own, or npm would look for one in the folders above.
    write(&folder.join("package.json"), "{}\n")?;
    let packages: Vec<String> = NODE_PACKAGES
        .iter()
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    let mut install = context.program(
        "npm",
        &["install", "--no-audit", "--no-fund", "--ignore-scripts"],
    );
    install.args(&packages).current_dir(&folder);
    process::run(install, Output::Stderr, context.deadline)
        .and_then(|ended| ended.require_success("installing the Node packages"))
        .map_err(|error| {
            let packages = packages.join(" ");
            let by_hand = format!("npm install --prefix {} {packages}", folder.display());
            format!("{error}; it needs the network once, try by hand with: {by_hand}")
        })
}

/// The pinned version of cargo-deny, which checks `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

/// The cargo-deny on the path, whatever its version, or one of our own; building that takes about two minutes, once.
pub(crate) fn cargo_deny(context: &Context) -> Result<PathBuf, String> {
    let name = "cargo-deny";
    if process::output_of(context.program(name, &["--version"])).is_some() {
        return Ok(name.into());
    }
    let folder = context.work_folder().join(name);
    let program = folder.join("bin").join(name);
    let installed = process::output_of(context.program(&program, &["--version"]));
    if installed.is_some_and(|text| text.trim().ends_with(CARGO_DENY)) {
        return Ok(program);
    }
    // It runs for a second, so optimising it costs more than it saves.
    let mut install = context.cargo(&["install", name, "--locked", "--force", "--debug"]);
    install.args(["--version", CARGO_DENY]);
    install.arg("--root").arg(&folder);
    process::run(install, Output::Terminal, context.deadline)
        .and_then(|ended| ended.require_success("installing cargo-deny"))
        .map_err(|error| {
            let by_hand = format!("cargo install {name} --locked --version {CARGO_DENY}");
            format!("{error}; it needs the network once, try by hand with: {by_hand}")
        })?;
    Ok(program)
}

/// Installs Chromium if it is missing, which needs root.
pub(crate) fn chromium(context: &Context) -> TaskResult {
    let package = Package {
        name: "chromium",
        brings: CHROMIUM,
    };
    packages::install(context, &package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(runner: Runner, selection: Selection<'_>, ledger: TestLedger) -> Vec<String> {
        let context = Context::discover().unwrap();
        let command = runner.command(&context, selection, ledger);
        let words = command.get_args().map(|arg| arg.to_string_lossy());
        words.map(std::borrow::Cow::into_owned).collect()
    }

    #[test]
    fn one_test_is_run_with_the_flags_of_all_tests() {
        for runner in [Runner::Nextest, Runner::CargoTest] {
            for ledger in [TestLedger::Sqlite, TestLedger::Postgres] {
                let one = words(runner, Selection::Named("ip_012"), ledger);
                assert!(
                    SELECTED
                        .iter()
                        .all(|flag| one.iter().any(|word| word == flag))
                );
                assert!(one.iter().any(|word| word.contains("ip_012")));
            }
        }
    }

    #[test]
    fn the_security_tests_run_in_their_own_stage() {
        let ordinary = words(Runner::Nextest, Selection::Ordinary, TestLedger::Sqlite);
        let filter =
            "(not (binary(=security) + binary(=security_ledgers))) - test(/^only_postgres_/)";
        assert_eq!(ordinary.last().unwrap(), filter);
        let security = words(Runner::CargoTest, Selection::Security, TestLedger::Postgres);
        assert!(
            security
                .windows(2)
                .any(|two| two == ["--test", "security_ledgers"])
        );
    }

    /// A binary that is not in the list would silently run on SQLite alone.
    #[test]
    fn every_test_binary_that_selects_its_ledger_runs_on_each() {
        let context = Context::discover().unwrap();
        let tree = crate::tree::Tree::load(&context).unwrap();
        let mut selecting: Vec<&str> = tree
            .files
            .iter()
            .filter(|file| file.path.starts_with("crates/") && file.path.contains("/tests/"))
            .filter(|file| file.text.contains("Backend::selected()"))
            .map(|file| file.path.as_str())
            .collect();
        selecting.sort_unstable();
        let root = |(package, name): &(&str, &str)| {
            let folder = package.strip_prefix("consign-").unwrap_or("consign");
            match *name {
                "ledgers" => format!("crates/{folder}/tests/it/ledgers.rs"),
                "security_ledgers" => format!("crates/{folder}/tests/security/ledgers.rs"),
                name => format!("crates/{folder}/tests/{name}/main.rs"),
            }
        };
        let mut listed: Vec<String> = LEDGER_TESTS.iter().map(root).collect();
        listed.push(root(&("consign", SECURITY_LEDGERS)));
        listed.sort_unstable();
        assert_eq!(selecting, listed);
    }
}
