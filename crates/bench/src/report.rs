//! The result of a run as one value, from which the table, the JSON and the picture are made.
//!
//! Invariant: everything in the table is in the report. Rates are over the actual length of a round;
//! latencies are in microseconds; unknown values are null and never 0.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::plan::{BenchPlan, BenchTarget, Workload};
use crate::run::ServerSample;
use crate::tally::{Op, Phases, RoundTally, RunTally};
use crate::usage;

/// Steps of the distribution per halving of the distance to 100 percent.
const DISTRIBUTION_TICKS: u32 = 4;

#[derive(Debug, Clone, Serialize)]
pub struct BenchReport {
    pub consign_version: &'static str,
    pub work: Workload,
    pub settings: ReportSettings,
    pub server: ServerReport,
    /// Whether work was done without errors.
    pub clean: bool,
    pub requests_per_s: RoundSpread,
    pub cycles_per_s: RoundSpread,
    /// Over all rounds.
    pub operations: Vec<OperationReport>,
    pub empty_claims: u64,
    pub unfinished: UnfinishedReport,
    pub errors: Vec<ErrorCount>,
    pub usage: UsageReport,
    pub rounds: Vec<RoundReport>,
    pub timeline: ThroughputTimeline,
}

#[derive(Debug, Clone, Serialize)]
pub struct ReportSettings {
    pub clients: usize,
    pub threads: usize,
    pub seconds: f64,
    pub warmup_seconds: f64,
    pub rounds: usize,
    pub rate: Option<f64>,
    pub payload_bytes: usize,
    pub backlog: u64,
    pub backlog_mix: bool,
    pub finished: u64,
    pub signed: bool,
    pub nonces: u64,
    pub batch: usize,
    pub wait_seconds: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct ServerReport {
    pub url: String,
    pub dir: Option<String>,
    pub filesystem: Option<String>,
    pub cores: usize,
    /// Before anything was loaded: idle memory, if the server was just started.
    pub rss_start_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub rss_max_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
}

/// The distribution of a number over the rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoundSpread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct OperationReport {
    pub name: &'static str,
    pub count: u64,
    pub per_s: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Of each round that had any.
    pub p99_rounds_us: Vec<f64>,
    pub p99_median_us: f64,
    /// Percentile and microseconds.
    pub distribution: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ErrorCount {
    pub operation: &'static str,
    /// A status, or a connection error.
    pub what: String,
    pub count: u64,
    pub example: String,
}

/// Requests in progress when the run ended; they are in no other number.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct UnfinishedReport {
    /// Requests without an answer, except claims that wait for work.
    pub requests: u64,
    pub oldest_us: f64,
    /// Starts that were due while no client was free.
    pub not_started: u64,
}

/// Processor time and commits. Shares are of all cores of this machine.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct UsageReport {
    pub generator_cpu_s: Option<f64>,
    pub server_cpu_s: Option<f64>,
    pub generator_share: Option<f64>,
    pub server_share: Option<f64>,
    pub commits: Option<u64>,
    pub commits_per_s: Option<f64>,
    /// Requests to the ledger, as the server counts them.
    pub requests_per_commit: Option<f64>,
    /// Time that the hypervisor gave to other machines; a round with much of it is not reliable.
    pub stolen_share: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RoundReport {
    pub seconds: f64,
    pub requests: u64,
    pub requests_per_s: f64,
    pub cycles: u64,
    pub cycles_per_s: f64,
    pub errors: u64,
    pub usage: UsageReport,
}

/// Rates over short intervals.
#[derive(Debug, Clone, Serialize)]
pub struct ThroughputTimeline {
    pub step_seconds: f64,
    pub requests_per_s: Vec<f64>,
    pub cycles_per_s: Vec<f64>,
    pub errors: Vec<u64>,
}

/// The raw measurements.
#[derive(Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) plan: &'a BenchPlan,
    pub(crate) phases: Phases,
    pub(crate) tally: &'a RunTally,
    /// One at the beginning of each round, and one at the end of the last.
    pub(crate) samples: &'a [ServerSample],
    pub(crate) rss_start_bytes: Option<u64>,
    pub(crate) not_started: u64,
}

impl BenchReport {
    pub(crate) fn of(measured: &Measured<'_>) -> Self {
        let Measured { plan, tally, .. } = measured;
        let cores = cores();
        let rounds: Vec<RoundReport> = (0..plan.rounds)
            .filter_map(|index| round(measured, index, cores))
            .collect();
        let mut all = RoundTally::default();
        for round in &tally.rounds {
            all.merge(round);
        }
        let seconds: f64 = rounds.iter().map(|round| round.seconds).sum();
        let spread = |of: fn(&RoundReport) -> f64| RoundSpread::of(rounds.iter().map(of).collect());
        Self {
            consign_version: env!("CARGO_PKG_VERSION"),
            work: plan.work,
            settings: settings(plan),
            server: server(&plan.target, measured.rss_start_bytes),
            clean: all.requests > 0 && all.faults.is_empty(),
            requests_per_s: spread(|round| round.requests_per_s),
            cycles_per_s: spread(|round| round.cycles_per_s),
            operations: operations(&all, &tally.rounds, seconds),
            empty_claims: all.empty_claims,
            unfinished: UnfinishedReport {
                requests: tally.unfinished.requests,
                oldest_us: tally.unfinished.oldest.as_secs_f64() * 1e6,
                not_started: measured.not_started,
            },
            errors: errors(&all),
            usage: match (measured.samples.first(), measured.samples.last()) {
                (Some(first), Some(last)) => usage_between(first, last, cores),
                _ => UsageReport::default(),
            },
            timeline: timeline(measured),
            rounds,
        }
    }

    /// The picture and the table omit operations that are part of another number.
    pub(crate) fn has_cycles(&self) -> bool {
        self.cycles_per_s.max > 0.0
    }
}

impl RoundSpread {
    pub(crate) fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        let median = match numbers.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => numbers[middle],
            _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
        };
        Self {
            median,
            min: numbers.first().copied().unwrap_or(0.0),
            max: numbers.last().copied().unwrap_or(0.0),
        }
    }
}

/// `None` for a round without work, after the backlog was drained.
fn round(measured: &Measured<'_>, index: usize, cores: usize) -> Option<RoundReport> {
    let (phases, tally) = (&measured.phases, measured.tally);
    let (begin, mut end) = (phases.boundary(index), phases.boundary(index + 1));
    if measured.plan.work == Workload::Drain {
        end = end.min(tally.last_at?);
    }
    let seconds = end.checked_duration_since(begin)?.as_secs_f64();
    let counts = &tally.rounds[index];
    if seconds <= 0.0 {
        return None;
    }
    let samples = measured
        .samples
        .get(index)
        .zip(measured.samples.get(index + 1));
    Some(RoundReport {
        seconds,
        requests: counts.requests,
        requests_per_s: whole(counts.requests) / seconds,
        cycles: counts.cycles,
        cycles_per_s: whole(counts.cycles) / seconds,
        errors: counts.faults.values().map(|faults| faults.count).sum(),
        usage: samples.map_or_else(UsageReport::default, |(first, last)| {
            usage_between(first, last, cores)
        }),
    })
}

fn usage_between(first: &ServerSample, last: &ServerSample, cores: usize) -> UsageReport {
    let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
    let used = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
    let share = |used: Option<f64>| {
        used.filter(|_| seconds > 0.0)
            .map(|used| used / (seconds * whole(cores as u64)))
    };
    let generator = used(first.generator_cpu_s, last.generator_cpu_s);
    let server = used(first.server_cpu_s, last.server_cpu_s);
    let counted = first.counters.zip(last.counters).map(|(first, last)| {
        let commits = last.commits.saturating_sub(first.commits);
        (commits, last.requests.saturating_sub(first.requests))
    });
    UsageReport {
        generator_cpu_s: generator,
        server_cpu_s: server,
        generator_share: share(generator),
        server_share: share(server),
        commits: counted.map(|(commits, _)| commits),
        commits_per_s: counted
            .filter(|_| seconds > 0.0)
            .map(|(commits, _)| whole(commits) / seconds),
        requests_per_commit: counted
            .filter(|(commits, _)| *commits > 0)
            .map(|(commits, requests)| whole(requests) / whole(commits)),
        stolen_share: first
            .machine
            .zip(last.machine)
            .and_then(|(first, last)| first.stolen_until(last)),
    }
}

fn operations(all: &RoundTally, rounds: &[RoundTally], seconds: f64) -> Vec<OperationReport> {
    let measured = Op::ALL.into_iter();
    measured
        .filter_map(|op| {
            let of_rounds = rounds.iter().filter_map(|round| round.latency(op));
            let p99 = of_rounds.map(|latency| micros(latency.value_at_quantile(0.99)));
            Some(operation(op, all.latency(op)?, p99.collect(), seconds))
        })
        .collect()
}

fn operation(
    op: Op,
    latency: &Histogram<u64>,
    p99_rounds_us: Vec<f64>,
    seconds: f64,
) -> OperationReport {
    let at = |quantile| micros(latency.value_at_quantile(quantile));
    let count = latency.len();
    let steps = latency.iter_quantiles(DISTRIBUTION_TICKS);
    let distribution = steps.map(|step| {
        (
            step.quantile_iterated_to() * 100.0,
            micros(step.value_iterated_to()),
        )
    });
    OperationReport {
        name: op.name(),
        count,
        per_s: if seconds > 0.0 {
            whole(count) / seconds
        } else {
            0.0
        },
        mean_us: latency.mean() / 1000.0,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: micros(latency.max()),
        p99_median_us: RoundSpread::of(p99_rounds_us.clone()).median,
        p99_rounds_us,
        distribution: distribution.collect(),
    }
}

fn errors(all: &RoundTally) -> Vec<ErrorCount> {
    let faults = all.faults.iter();
    faults
        .map(|(fault, faults)| ErrorCount {
            operation: fault.op.name(),
            what: fault.what.clone(),
            count: faults.count,
            example: faults.example.clone(),
        })
        .collect()
}

fn timeline(measured: &Measured<'_>) -> ThroughputTimeline {
    let step_seconds = measured.phases.bucket.as_secs_f64();
    let buckets = &measured.tally.timeline;
    ThroughputTimeline {
        step_seconds,
        requests_per_s: buckets
            .iter()
            .map(|bucket| whole(bucket.requests) / step_seconds)
            .collect(),
        cycles_per_s: buckets
            .iter()
            .map(|bucket| whole(bucket.cycles) / step_seconds)
            .collect(),
        errors: buckets.iter().map(|bucket| bucket.errors).collect(),
    }
}

fn settings(plan: &BenchPlan) -> ReportSettings {
    ReportSettings {
        clients: plan.clients,
        threads: plan.threads,
        seconds: plan.round.as_secs_f64(),
        warmup_seconds: plan.warmup.as_secs_f64(),
        rounds: plan.rounds,
        rate: plan.rate,
        payload_bytes: plan.payload_bytes,
        backlog: plan.backlog,
        backlog_mix: plan.backlog_mix,
        finished: plan.finished,
        signed: plan.signed,
        nonces: plan.nonces,
        batch: plan.batch,
        wait_seconds: plan.wait.as_secs_f64(),
    }
}

pub(crate) fn server(target: &BenchTarget, rss_start_bytes: Option<u64>) -> ServerReport {
    let dir = target.dir.as_deref();
    let memory = target.pid.and_then(usage::memory);
    ServerReport {
        url: target.server.to_string(),
        dir: dir.map(|dir| dir.display().to_string()),
        filesystem: dir.and_then(usage::filesystem),
        cores: cores(),
        rss_start_bytes,
        rss_bytes: memory.map(|(now, _)| now),
        rss_max_bytes: memory.map(|(_, most)| most),
        disk_bytes: dir.and_then(usage::disk_bytes),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn micros(nanos: u64) -> f64 {
    whole(nanos) / 1000.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds here are far below 2^52"
)]
fn whole(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_is_in_the_middle() {
        let spread = |numbers: &[f64]| RoundSpread::of(numbers.to_vec());
        let odd = spread(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert!((spread(&[1.0, 2.0]).median - 1.5).abs() < 1e-9);
        assert!(spread(&[]).median.abs() < 1e-9);
    }
}
