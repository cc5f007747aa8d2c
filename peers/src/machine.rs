//! Processor time of single processes and of the whole machine, read from `/proc`.
//!
//! Linux reports times in ticks of a hundredth of a second on every machine.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::table;

use crate::error::Error;
use crate::load::Busy;

const TICKS_PER_SECOND: f64 = 100.0;

/// The machine is quiet if its processors are used less than this share.
const QUIET_BELOW: f64 = 0.12;
const QUIET_WAIT_MAX: Duration = Duration::from_secs(20);
const QUIET_POLL: Duration = Duration::from_millis(500);

/// Processor time at one moment, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTimes {
    at: Instant,
    /// Of all processes on all processors.
    all_processes: f64,
    /// Of this process and of its children that have ended.
    generator: f64,
    server: f64,
}

/// Processor time between two moments.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct CpuShares {
    pub(crate) busy: Busy,
    /// Used by neither side, as a share of all processors.
    pub(crate) other_of_all: f64,
}

impl CpuTimes {
    pub(crate) fn read(server: Option<u32>) -> Result<Self, Error> {
        Ok(Self {
            at: Instant::now(),
            all_processes: busy_seconds()?,
            generator: own_seconds(&stat("self")?),
            server: server.map_or(0.0, family_seconds),
        })
    }

    pub(crate) fn until(&self, later: &Self) -> CpuShares {
        let elapsed = later.at.duration_since(self.at).as_secs_f64();
        let generator = later.generator - self.generator;
        let server = later.server - self.server;
        let other = later.all_processes - self.all_processes - generator - server;
        CpuShares {
            busy: Busy {
                generator: generator / elapsed,
                server: server / elapsed,
            },
            other_of_all: (other / elapsed / processors()).max(0.0),
        }
    }
}

/// Waits until the machine is quiet or [`QUIET_WAIT_MAX`] has passed, and returns how busy it was at the end.
pub(crate) fn wait_until_quiet() -> Result<f64, Error> {
    let give_up_at = Instant::now() + QUIET_WAIT_MAX;
    loop {
        let before = busy_seconds()?;
        thread::sleep(QUIET_POLL);
        let busy = (busy_seconds()? - before) / QUIET_POLL.as_secs_f64() / processors();
        if busy < QUIET_BELOW || Instant::now() >= give_up_at {
            return Ok(busy);
        }
    }
}

fn family_seconds(first: u32) -> f64 {
    let members = table::family(first).into_iter();
    // A process that has ended since is counted by its parent.
    members
        .filter_map(|id| stat(&id.to_string()).ok())
        .map(|stat| own_seconds(&stat))
        .sum()
}

fn stat(process: &str) -> Result<String, Error> {
    let path = format!("/proc/{process}/stat");
    fs::read_to_string(&path).map_err(Error::io(path))
}

/// The fields after the name, which may hold spaces and parentheses; the first is the state.
fn fields(stat: &str) -> Vec<&str> {
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    rest.split_whitespace().collect()
}

/// User and system time of the process and of its children that it has waited for.
fn own_seconds(stat: &str) -> f64 {
    let fields = fields(stat);
    let ticks = fields.get(11..15).unwrap_or_default().iter();
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS_PER_SECOND
}

fn busy_seconds() -> Result<f64, Error> {
    let text = fs::read_to_string("/proc/stat").map_err(Error::io("/proc/stat"))?;
    Ok(busy_ticks(&text) / TICKS_PER_SECOND)
}

/// All but idle and iowait, the fourth and fifth; guests, after the eighth, are part of user already. The eighth, steal, counts
/// as work of other processes.
fn busy_ticks(stat: &str) -> f64 {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle = 3..5;
    let busy = ticks
        .iter()
        .take(8)
        .enumerate()
        .filter(|(index, _)| !idle.contains(index));
    busy.map(|(_, ticks)| ticks).sum()
}

/// Processor time that the hypervisor took from this machine, and the total.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steal {
    stolen: f64,
    all: f64,
}

impl Steal {
    pub(crate) fn read() -> Result<Self, Error> {
        let text = fs::read_to_string("/proc/stat").map_err(Error::io("/proc/stat"))?;
        Ok(Self::of(&text))
    }

    fn of(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let ticks = line.split_whitespace().skip(1).take(8);
        let ticks: Vec<f64> = ticks.filter_map(|field| field.parse().ok()).collect();
        Self {
            stolen: ticks.get(7).copied().unwrap_or(0.0),
            all: ticks.iter().sum(),
        }
    }

    /// As a share of all time since then.
    pub(crate) fn until(&self, later: &Self) -> f64 {
        (later.stolen - self.stolen) / (later.all - self.all).max(1.0)
    }
}

fn processors() -> f64 {
    let count = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(count).map_or(1.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_past_odd_names() {
        let stat = "12 (a) b) S 7 1 1 0 -1 0 0 0 0 0 100 50 25 25 20 0 1 0 99";
        assert!((own_seconds(stat) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn idle_time_is_not_busy() {
        let text = "cpu  10 1 5 1000 500 2 3 4 7 7\ncpu0 9 9 9 9 9\n";
        assert!((busy_ticks(text) - 25.0).abs() < 1e-9);
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let first = Steal::of("cpu  10 1 5 100 50 2 3 4 7 7\n");
        let later = Steal::of("cpu  20 1 5 180 50 2 3 14 9 9\n");
        assert!((first.until(&later) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn other_time_is_what_neither_side_used() {
        let first = CpuTimes {
            at: Instant::now(),
            all_processes: 10.0,
            generator: 1.0,
            server: 2.0,
        };
        let later = CpuTimes {
            at: first.at + Duration::from_secs(2),
            all_processes: 13.5,
            generator: 2.5,
            server: 3.0,
        };
        let shares = first.until(&later);
        assert!((shares.busy.generator - 0.75).abs() < 1e-9);
        assert!((shares.busy.server - 0.5).abs() < 1e-9);
        assert!((shares.other_of_all * processors() - 0.5).abs() < 1e-9);
    }
}
