//! Resource usage of processes: processor time, memory, disk. Read from `/proc`, so only on Linux.
//!
//! Invariant: a value that cannot be read is `None` and never 0.

use std::fs;
use std::path::Path;

/// Linux reports processor time in hundredths of a second on all supported architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor seconds of a process, all its threads together; `self` names this one.
pub(crate) fn cpu_seconds(process: &str) -> Option<f64> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The name in brackets may contain anything, so parsing begins after the last bracket.
#[expect(
    clippy::cast_precision_loss,
    reason = "ticks of a process are far below 2^52"
)]
fn parse_stat(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

/// Processor time of the whole machine since it started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    /// Time that the hypervisor gave to other machines while this one had work.
    stolen: u64,
}

impl Ticks {
    pub(crate) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line sums all cores. Stolen time is the eighth number; guest time, after it, is part of the
    /// first.
    fn parse(stat: &str) -> Option<Self> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
        let numbers = numbers.split_whitespace().take(8).map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        Some(Self {
            all: numbers.iter().sum(),
            stolen: *numbers.get(7)?,
        })
    }

    /// The share of stolen time between two samples.
    #[expect(
        clippy::cast_precision_loss,
        reason = "ticks of a machine are far below 2^52"
    )]
    pub(crate) fn stolen_until(self, later: Self) -> Option<f64> {
        let all = later.all.checked_sub(self.all).filter(|all| *all > 0)?;
        let stolen = later.stolen.checked_sub(self.stolen)?;
        Some(stolen as f64 / all as f64)
    }
}

/// Resident bytes of a process, now and at most.
pub(crate) fn memory(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((kibibytes(&status, "VmRSS:")?, kibibytes(&status, "VmHWM:")?))
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

/// Bytes of all files under a directory. A file that disappears during the walk is not counted.
pub(crate) fn disk_bytes(directory: &Path) -> Option<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        sum += if metadata.is_dir() {
            disk_bytes(&entry.path()).unwrap_or(0)
        } else {
            metadata.len()
        };
    }
    Some(sum)
}

/// The file system of a directory, such as `ext4`; a sync on `tmpfs` proves nothing.
pub fn filesystem(directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    mounted(&fs::read_to_string("/proc/self/mounts").ok()?, &directory)
}

fn mounted(mounts: &str, directory: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    // Of two mounts on the same path, the later one is visible.
    mounts
        .filter(|(place, _)| directory.starts_with(place))
        .max_by_key(|(place, _)| place.len())
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(parse_stat(stat), Some(2.0));
        assert_eq!(parse_stat("12 (x) S 1"), None);
        assert!(cpu_seconds("self").is_some());
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let first = Ticks::parse("cpu  10 1 5 100 50 2 3 4 7 7\ncpu0 9 9\n").unwrap();
        let later = Ticks::parse("cpu  20 1 5 180 50 2 3 14 9 9\ncpu0 9 9\n").unwrap();
        let share = first.stolen_until(later).unwrap();
        assert!((share - 0.1).abs() < 1e-9, "{share}");
        assert_eq!(first.stolen_until(first), None, "no time went by");
        assert_eq!(Ticks::parse("cpu  10 1 5 100\n"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }

    #[test]
    fn the_deepest_mount_names_the_file_system() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/b /run/b xfs rw 0 0\n";
        let found = |path: &str| mounted(mounts, Path::new(path)).unwrap();
        assert_eq!(found("/home"), "ext4");
        assert_eq!(found("/run/a"), "tmpfs");
        assert_eq!(found("/run/b/c"), "xfs");
        assert_eq!(found("/running"), "ext4");
    }
}
