//! The process of the server and its machine, as far as operators ask: where the ledger is, free disk space, memory, processor
//! time, open files.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use consign_engine::{Error, Operator};
use consign_store::{postgres, sqlite};
use consign_web::shell::{
    MetricsText, MountFuture, PartReport, ProblemLevel, Reporter, ServerProblem,
};
use rustix::param::{clock_ticks_per_second, page_size};
use serde_json::{Map, Value, json};

use crate::data_dir::DataDir;
use crate::ledger_location::LedgerLocation;

/// Below this share of the disk, operators are warned.
const FREE_SHARE_MIN: f64 = 0.1;
/// A disk with this much space is never worth a warning.
const FREE_BYTES_ENOUGH: u64 = 5 << 30;
/// Below this, commits will soon fail.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Free and total space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// For this user.
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl DiskSpace {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        Some(Self {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            total: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    /// Why the space is a problem, if it is.
    pub(crate) fn problem(self, path: &Path) -> Option<ServerProblem> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "the share needs no more than two digits"
        )]
        let share = self.free as f64 / self.total.max(1) as f64;
        let level = if self.free < FREE_BYTES_MIN {
            ProblemLevel::Error
        } else if share < FREE_SHARE_MIN && self.free < FREE_BYTES_ENOUGH {
            ProblemLevel::Warning
        } else {
            return None;
        };
        let free_mib = self.free >> 20;
        Some(ServerProblem {
            level,
            id: "disk",
            what: format!("{free_mib} MiB are free on the disk of {}", path.display()),
            why: "without space nothing can be committed, and clients are refused".to_owned(),
            next: "free space on this disk, or move the data directory to a larger one".to_owned(),
        })
    }
}

/// What the process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProcessUse {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_files: u64,
}

impl ProcessUse {
    /// `None` where `/proc` has another form.
    fn own() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name may contain spaces and brackets; the fields begin after the last bracket.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = number(11)? + number(12)?;
        let pages = number(21)?;
        let files = fs::read_dir("/proc/self/fd").ok()?.count();
        #[expect(
            clippy::cast_precision_loss,
            reason = "2^53 ticks are a million years of processor time"
        )]
        let cpu_seconds = ticks as f64 / clock_ticks_per_second().max(1) as f64;
        Some(Self {
            cpu_seconds,
            resident_bytes: pages.saturating_mul(page_size() as u64),
            // Without the one that reads them.
            open_files: (files as u64).saturating_sub(1),
        })
    }
}

/// The reporter of the process.
pub(super) struct HostReporter {
    base_url: String,
    data: PathBuf,
    /// Without a password.
    ledger: String,
    ledger_kind: &'static str,
    schema: i64,
    /// The directory whose disk the server fills.
    disk_path: PathBuf,
    started_at: SystemTime,
}

impl HostReporter {
    pub(super) fn new(
        base_url: &str,
        data: &DataDir,
        location: &LedgerLocation,
        started_at: SystemTime,
    ) -> Self {
        let (ledger_kind, schema, disk_path) = match location {
            LedgerLocation::File(path) => (
                "SQLite",
                i64::from(sqlite::SCHEMA_VERSION),
                directory_of(path),
            ),
            LedgerLocation::Database(_) => (
                "PostgreSQL",
                i64::from(postgres::SCHEMA_VERSION),
                data.root().to_owned(),
            ),
        };
        let ledger = match location {
            LedgerLocation::File(path) => absolute(path).display().to_string(),
            LedgerLocation::Database(address) => address.to_string(),
        };
        Self {
            base_url: base_url.to_owned(),
            data: absolute(data.root()),
            ledger,
            ledger_kind,
            schema,
            disk_path,
            started_at,
        }
    }

    fn figures(&self) -> Map<String, Value> {
        let mut figures = Map::new();
        let mut put = |name: &str, value: Value| figures.insert(name.to_owned(), value);
        put("address", json!(self.base_url));
        put("pid", json!(std::process::id()));
        put("started_at", json!(unix_s(self.started_at)));
        put("data", json!(self.data));
        put("ledger", json!(self.ledger));
        put("ledger_kind", json!(self.ledger_kind));
        // The server migrates its ledger when it starts.
        put("schema", json!(self.schema));
        let disk = DiskSpace::of(&self.disk_path);
        put("disk_free_bytes", json!(disk.map(|disk| disk.free)));
        put("disk_bytes", json!(disk.map(|disk| disk.total)));
        if let Some(used) = ProcessUse::own() {
            put("cpu_seconds", json!(used.cpu_seconds));
            put("resident_bytes", json!(used.resident_bytes));
            put("open_files", json!(used.open_files));
        }
        figures
    }

    fn write_metrics(&self, text: &mut MetricsText) {
        if let Some(used) = ProcessUse::own() {
            let name = "process_cpu_seconds_total";
            text.family(name, "counter", "Processor time of this process");
            text.sample(name, &[], used.cpu_seconds);
            text.single(
                "process_resident_memory_bytes",
                "gauge",
                "Memory of this process",
                used.resident_bytes,
            );
            text.single(
                "process_open_fds",
                "gauge",
                "Open files and sockets of this process",
                used.open_files,
            );
        }
        let name = "process_start_time_seconds";
        text.family(name, "gauge", "When this process started, in Unix time");
        text.sample(name, &[], unix_s(self.started_at));
        if let Some(disk) = DiskSpace::of(&self.disk_path) {
            text.single(
                "consign_disk_free_bytes",
                "gauge",
                "Free space of the disk with the ledger, or with the data directory if the ledger is a database",
                disk.free,
            );
            text.single(
                "consign_disk_size_bytes",
                "gauge",
                "Size of that disk",
                disk.total,
            );
        }
    }
}

impl Reporter for HostReporter {
    fn name(&self) -> &'static str {
        "server"
    }

    fn report(&self, _: Operator) -> MountFuture<'_, Result<PartReport, Error>> {
        let path = self.disk_path.as_path();
        let problem = DiskSpace::of(path).and_then(|disk| disk.problem(path));
        let report = PartReport {
            figures: self.figures(),
            problems: problem.into_iter().collect(),
        };
        Box::pin(std::future::ready(Ok(report)))
    }

    fn metrics<'a>(
        &'a self,
        _: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>> {
        self.write_metrics(text);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl fmt::Debug for HostReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostReporter")
    }
}

/// The directory of a file, also of one that is named without a directory.
pub(crate) fn directory_of(file: &Path) -> PathBuf {
    let parent = file.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn unix_s(at: SystemTime) -> f64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_problem_when_little_is_left_of_it() {
        let level = |free: u64, total: u64| {
            let problem = DiskSpace { free, total }.problem(Path::new("/data"));
            problem.map(|problem| problem.level)
        };
        let gib = 1 << 30;
        assert_eq!(level(50 * gib, 100 * gib), None);
        assert_eq!(level(4 * gib, 100 * gib), Some(ProblemLevel::Warning));
        assert_eq!(level(50 * gib, 1_000 * gib), None, "5 percent, and plenty");
        assert_eq!(level(60 << 20, 100 << 20), Some(ProblemLevel::Error));
    }

    #[test]
    fn the_process_has_used_something() {
        let used = ProcessUse::own().unwrap();
        assert!(used.resident_bytes > 1 << 20, "{used:?}");
        assert!(used.open_files > 2, "{used:?}");
        assert!(used.cpu_seconds < 1e6, "{used:?}");
    }
}
