//! One measurement each: a run of `consign bench` on a server of its own, or one of the baselines.
//!
//! Each returns a report in the format of `consign bench --json`, so that all figures are read in the same way.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::error::Error;
use crate::load::{BODY_BYTES, Load, RoundResult, Work};
use crate::machine::Steal;
use crate::server::output;
use crate::subject::{ENTRIES, Environment, Subject};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Probe {
    Cycle,
    Empty,
    Next,
    Batch,
    /// Bare SQLite in this process.
    Sqlite,
    /// A single client.
    One,
    /// Append and sync, in this process.
    Sync,
    /// As long as the goals of latency require.
    Long,
    FewWaiting,
    ManyWaiting,
    Finished,
    Handoff,
    /// Loaded, then killed and started a few times.
    Restart,
    /// With many nonces stored.
    Signed,
    /// Agents' transactions and cycles, one after the other on the same server.
    Transact,
    /// Signed intents of Beam and cycles, one after the other on the same server.
    Relay,
    /// The same with senders on sockets.
    RelaySocket,
    /// Agents and feeds of Beam that are connected and do nothing.
    IdleSockets,
    /// A daemon of the mesh and its broker, beside publishes on the same server.
    Mesh,
}

/// Duration and amount of work of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) seconds: f64,
    warmup_seconds: f64,
    long_seconds: f64,
    few: u64,
    many: u64,
    /// Messages that a daemon of the mesh stores before it delivers them.
    messages: u64,
    baseline_seconds: u64,
}

impl Size {
    pub(super) const FULL: Self = Self {
        seconds: 3.0,
        warmup_seconds: 1.0,
        long_seconds: 20.0,
        few: 1_000,
        many: 1_000_000,
        messages: 100_000,
        baseline_seconds: 2,
    };
    pub(super) const QUICK: Self = Self {
        seconds: 0.3,
        warmup_seconds: 0.1,
        long_seconds: 0.5,
        few: 100,
        many: 1_000,
        messages: 1_000,
        baseline_seconds: 1,
    };
}

/// The result of a probe.
#[derive(Debug, Clone)]
pub(super) struct Measurement {
    pub(super) report: Value,
    /// The share of the machine that the hypervisor took during the measurement.
    pub(super) stolen: f64,
}

/// A number in a report.
#[derive(Debug, Clone, Copy)]
pub(super) enum Metric {
    Cycles,
    /// In milliseconds, of an operation.
    P50(&'static str),
    P99(&'static str),
    IdleMegabytes,
    LoadedMegabytes,
    DiskBytesEach,
    FirstClaimSeconds,
    TransactionsPerCycle,
    ReceiptMicros,
    IntentsPerCycle,
    P99PerP50,
    KilobytesPerSocket,
    MessagesPerPublish,
    DrainRatio,
    IdleDaemonMegabytes,
}

impl Metric {
    /// Whether the figure depends on processor time.
    pub(super) const fn is_timed(self) -> bool {
        match self {
            Self::Cycles
            | Self::P50(_)
            | Self::P99(_)
            | Self::FirstClaimSeconds
            | Self::TransactionsPerCycle
            | Self::ReceiptMicros
            | Self::IntentsPerCycle
            | Self::MessagesPerPublish
            | Self::DrainRatio
            | Self::P99PerP50 => true,
            Self::IdleMegabytes
            | Self::LoadedMegabytes
            | Self::DiskBytesEach
            | Self::KilobytesPerSocket
            | Self::IdleDaemonMegabytes => false,
        }
    }

    pub(super) fn from(self, report: &Value) -> Option<f64> {
        let at = |path: &str| report.pointer(path)?.as_f64();
        let operation = |name: &str, what: &str| {
            let mut operations = report["operations"].as_array()?.iter();
            let found = operations.find(|operation| operation["name"] == name)?;
            Some(found[what].as_f64()? / 1e3)
        };
        match self {
            Self::Cycles => at("/cycles_per_s/median"),
            Self::P50(name) => operation(name, "p50_us"),
            Self::P99(name) => operation(name, "p99_us"),
            Self::IdleMegabytes => Some(at("/server/rss_start_bytes")? / 1e6),
            Self::LoadedMegabytes => Some(at("/server/rss_bytes")? / 1e6),
            Self::DiskBytesEach => Some(at("/server/disk_bytes")? / at("/backlog")?),
            Self::FirstClaimSeconds => Some(at("/max_ms")? / 1e3),
            Self::TransactionsPerCycle | Self::IntentsPerCycle | Self::MessagesPerPublish => {
                at("/ratio")
            }
            Self::DrainRatio => at("/drain_ratio"),
            Self::IdleDaemonMegabytes => Some(at("/idle_bytes")? / 1e6),
            Self::P99PerP50 => at("/p99_per_p50"),
            Self::KilobytesPerSocket => Some(at("/bytes_per_socket")? / 1e3),
            Self::ReceiptMicros => at("/receipt/read_and_verify_us"),
        }
    }
}

/// Runs the measurements; the baselines stay started between rounds.
pub(super) struct Bench {
    program: PathBuf,
    folder: PathBuf,
    size: Size,
    sqlite: Box<dyn Subject>,
    sync: Box<dyn Subject>,
    /// Each round of a baseline has a file of its own.
    serial: u64,
}

impl Bench {
    pub(super) fn new(
        program: &Path,
        folder: &Path,
        size: Size,
        mut environment: Environment,
    ) -> Result<Self, Error> {
        let mut start = |name: &str| {
            let entry = ENTRIES.iter().find(|entry| entry.name == name);
            let missing = || Error::Program(format!("there is no baseline `{name}`"));
            (entry.ok_or_else(missing)?.start)(&mut environment)
        };
        Ok(Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            size,
            sqlite: start("sqlite-64")?,
            sync: start("sync-4096")?,
            serial: 0,
        })
    }

    pub(super) fn measure(&mut self, probe: Probe) -> Result<Measurement, Error> {
        let Some(arguments) = arguments(probe, self.size) else {
            return self.baseline(probe);
        };
        let mut bench = Command::new(&self.program);
        bench.args(["bench", "--json"]).args(arguments);
        bench.args(["--payload-bytes", &BODY_BYTES.to_string()]);
        bench.arg("--dir").arg(&self.folder);
        let report: Value = serde_json::from_str(&output(&mut bench)?)?;
        // Reported by the program, because loading is no part of the measurement and may take minutes.
        let stolen = ["/usage/stolen_share", "/stolen_share"]
            .into_iter()
            .find_map(|path| report.pointer(path)?.as_f64());
        Ok(Measurement {
            report,
            stolen: stolen.unwrap_or(0.0),
        })
    }

    fn baseline(&mut self, probe: Probe) -> Result<Measurement, Error> {
        self.serial += 1;
        let load = Load {
            work: Work::Cycle,
            clients: 1,
            seconds: self.size.baseline_seconds,
            serial: self.serial,
        };
        let subject = if probe == Probe::Sqlite {
            &mut self.sqlite
        } else {
            &mut self.sync
        };
        let before = Steal::read()?;
        let done = subject.round(&load)?;
        if let Some(problem) = done.problems.first() {
            return Err(Error::Program(problem.clone()));
        }
        Ok(Measurement {
            report: as_report(&done),
            stolen: before.until(&Steal::read()?),
        })
    }
}

/// Flags of `consign bench`; `None` for a probe that is measured in this process.
fn arguments(probe: Probe, size: Size) -> Option<Vec<String>> {
    let Size {
        few,
        many,
        messages,
        ..
    } = size;
    let flags = match probe {
        Probe::Sqlite | Probe::Sync => return None,
        Probe::Cycle | Probe::Long => String::new(),
        Probe::Empty => "--work empty".to_owned(),
        Probe::Next => "--work next".to_owned(),
        Probe::Batch => "--work batch --batch 64".to_owned(),
        Probe::One => "--clients 1".to_owned(),
        Probe::FewWaiting => format!("--backlog {few} --backlog-mix"),
        Probe::ManyWaiting => format!("--backlog {many} --backlog-mix"),
        Probe::Finished => format!("--finished {many}"),
        Probe::Handoff => "--work handoff --clients 8".to_owned(),
        Probe::Restart => format!("--work restart --rounds 5 --backlog {many}"),
        Probe::Signed => format!("--signed --nonces {many}"),
        Probe::Transact => "--work transact".to_owned(),
        Probe::Relay => "--work relay".to_owned(),
        Probe::RelaySocket => "--work relay-socket".to_owned(),
        Probe::IdleSockets => "--work idle-sockets".to_owned(),
        Probe::Mesh => format!("--work mesh --backlog {messages}"),
    };
    let mut words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    // They end when they have started often enough, or have opened all sockets.
    if matches!(probe, Probe::Restart | Probe::IdleSockets) {
        return Some(words);
    }
    // At the low rate of a handoff a percentile needs as much time as the goals of latency require.
    let seconds = if matches!(probe, Probe::Long | Probe::Handoff) {
        size.long_seconds
    } else {
        size.seconds
    };
    words.extend(["--seconds".to_owned(), seconds.to_string()]);
    words.extend(["--warmup".to_owned(), size.warmup_seconds.to_string()]);
    Some(words)
}

fn as_report(done: &RoundResult) -> Value {
    let steps = done.steps.iter();
    let operations: Vec<Value> = steps
        .map(|step| json!({ "name": step.name, "p50_us": step.p50_ms * 1e3 }))
        .collect();
    json!({ "cycles_per_s": { "median": done.per_second() }, "operations": operations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Step;

    fn line(probe: Probe) -> String {
        arguments(probe, Size::FULL).unwrap_or_default().join(" ")
    }

    #[test]
    fn a_million_is_a_million_and_latencies_take_their_time() {
        assert_eq!(
            line(Probe::Signed),
            "--signed --nonces 1000000 --seconds 3 --warmup 1"
        );
        assert_eq!(line(Probe::Long), "--seconds 20 --warmup 1");
        assert_eq!(
            line(Probe::Restart),
            "--work restart --rounds 5 --backlog 1000000"
        );
        assert_eq!(line(Probe::IdleSockets), "--work idle-sockets");
        assert_eq!(
            line(Probe::Mesh),
            "--work mesh --backlog 100000 --seconds 3 --warmup 1"
        );
        assert_eq!(line(Probe::Sync), "");
    }

    #[test]
    fn figures_are_read_in_the_units_of_the_goals() {
        let report = json!({
            "cycles_per_s": { "median": 7.0 },
            "operations": [{ "name": "claim", "p50_us": 500.0, "p99_us": 2500.0 }],
            "server": { "rss_start_bytes": 20_000_000, "rss_bytes": null, "disk_bytes": 6000 },
            "backlog": 10,
            "max_ms": 30.0,
            "ratio": 0.4,
            "receipt": { "read_and_verify_us": 60.0 },
            "p99_per_p50": 2.5,
            "bytes_per_socket": 9000.0,
            "drain_ratio": 0.7,
            "idle_bytes": 9_000_000,
        });
        let found = |read: Metric| read.from(&report);
        assert_eq!(found(Metric::Cycles), Some(7.0));
        assert_eq!(found(Metric::P50("claim")), Some(0.5));
        assert_eq!(found(Metric::P99("claim")), Some(2.5));
        assert_eq!(found(Metric::P99("publish")), None);
        assert_eq!(found(Metric::IdleMegabytes), Some(20.0));
        assert_eq!(found(Metric::LoadedMegabytes), None);
        assert_eq!(found(Metric::DiskBytesEach), Some(600.0));
        assert_eq!(found(Metric::FirstClaimSeconds), Some(0.03));
        assert_eq!(found(Metric::TransactionsPerCycle), Some(0.4));
        assert_eq!(found(Metric::ReceiptMicros), Some(60.0));
        assert_eq!(found(Metric::IntentsPerCycle), Some(0.4));
        assert_eq!(found(Metric::P99PerP50), Some(2.5));
        assert_eq!(found(Metric::MessagesPerPublish), Some(0.4));
        assert_eq!(found(Metric::DrainRatio), Some(0.7));
        assert_eq!(found(Metric::IdleDaemonMegabytes), Some(9.0));
        assert_eq!(found(Metric::KilobytesPerSocket), Some(9.0));
    }

    #[test]
    fn a_baseline_reports_as_our_program_does() {
        let done = RoundResult {
            jobs: 10,
            published: 10,
            seconds: 2.0,
            steps: vec![Step {
                name: "sync".to_owned(),
                p50_ms: 0.3,
                p99_ms: None,
            }],
            problems: Vec::new(),
            busy: None,
        };
        let report = as_report(&done);
        assert_eq!(Metric::Cycles.from(&report), Some(5.0));
        let sync = Metric::P50("sync").from(&report).unwrap();
        assert!((sync - 0.3).abs() < 1e-9);
    }
}
