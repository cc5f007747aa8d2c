//! Counts and latencies of one load thread, by round and over time.
//!
//! Invariant: only requests that end inside a round are counted, in that round; successes, empty
//! claims and errors are three separate counts. Latencies are in histograms with three significant
//! digits, so memory does not grow with the run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 600_000_000_000;
const DIGITS: u8 = 3;
/// Enough of an error's body to see the cause.
const EXAMPLE_CHARS: usize = 200;

/// The timed operations. All but the last two are requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Publish,
    Claim,
    Fulfil,
    Settle,
    Post,
    Authorize,
    Execute,
    /// One intent of Beam, from its sender to the result.
    Relay,
    /// From the start of a publish to the answer of the claim that returned it.
    Handoff,
    /// All requests of one cycle.
    Cycle,
}

impl Op {
    pub(crate) const ALL: [Self; 10] = [
        Self::Publish,
        Self::Claim,
        Self::Fulfil,
        Self::Settle,
        Self::Post,
        Self::Authorize,
        Self::Execute,
        Self::Relay,
        Self::Handoff,
        Self::Cycle,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Claim => "claim",
            Self::Fulfil => "fulfil",
            Self::Settle => "settle",
            Self::Post => "post",
            Self::Authorize => "authorize",
            Self::Execute => "execute",
            Self::Relay => "relay",
            Self::Handoff => "handoff",
            Self::Cycle => "cycle",
        }
    }

    const fn is_request(self) -> bool {
        !matches!(self, Self::Handoff | Self::Cycle)
    }
}

/// The times of the rounds, and the resolution of the timeline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    /// The end of the warm-up.
    pub(crate) measure_from: Instant,
    pub(crate) round: Duration,
    pub(crate) rounds: usize,
    pub(crate) bucket: Duration,
}

impl Phases {
    pub(crate) fn end(&self) -> Instant {
        self.boundary(self.rounds)
    }

    /// The beginning of a round; the end of the one before.
    pub(crate) fn boundary(&self, round: usize) -> Instant {
        let times = u32::try_from(round).unwrap_or(u32::MAX);
        self.measure_from + self.round * times
    }

    fn round_at(&self, at: Instant) -> Option<usize> {
        position(self.measure_from, self.round, at).filter(|round| *round < self.rounds)
    }

    pub(crate) fn buckets(&self) -> usize {
        let whole = self.round.as_nanos() * self.rounds as u128;
        usize::try_from(whole.div_ceil(self.bucket.as_nanos())).unwrap_or(usize::MAX)
    }
}

fn position(from: Instant, width: Duration, at: Instant) -> Option<usize> {
    let since = at.checked_duration_since(from)?;
    usize::try_from(since.as_nanos() / width.as_nanos()).ok()
}

/// An error by operation and result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ErrorSample {
    pub(crate) op: Op,
    /// A status, or a connection error.
    pub(crate) what: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ErrorSamples {
    pub(crate) count: u64,
    pub(crate) example: String,
}

/// One round, or several merged.
#[derive(Debug, Clone, Default)]
pub(crate) struct RoundTally {
    latencies: [Option<Histogram<u64>>; Op::ALL.len()],
    pub(crate) requests: u64,
    /// Completed intents, or their equivalent in this workload.
    pub(crate) cycles: u64,
    pub(crate) empty_claims: u64,
    pub(crate) faults: BTreeMap<ErrorSample, ErrorSamples>,
}

impl RoundTally {
    pub(crate) fn latency(&self, op: Op) -> Option<&Histogram<u64>> {
        self.latencies[op as usize].as_ref()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_with(fresh);
                mine.add(theirs)
                    .expect("all histograms have the same bounds");
            }
        }
        self.requests += other.requests;
        self.cycles += other.cycles;
        self.empty_claims += other.empty_claims;
        for (fault, faults) in &other.faults {
            let mine = self.faults.entry(fault.clone()).or_default();
            mine.count += faults.count;
            if mine.example.is_empty() {
                mine.example.clone_from(&faults.example);
            }
        }
    }
}

fn fresh() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS);
    histogram.expect("the bounds are constants that fit")
}

/// Counts of a short interval.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bucket {
    pub(crate) requests: u64,
    pub(crate) cycles: u64,
    pub(crate) errors: u64,
}

#[derive(Debug)]
pub(crate) struct RunTally {
    phases: Phases,
    pub(crate) rounds: Vec<RoundTally>,
    pub(crate) timeline: Vec<Bucket>,
    /// When the last success ended.
    pub(crate) last_at: Option<Instant>,
    pub(crate) unfinished: UnfinishedCycles,
}

/// Requests without an answer when the run ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UnfinishedCycles {
    pub(crate) requests: u64,
    pub(crate) oldest: Duration,
}

impl RunTally {
    pub(crate) fn new(phases: Phases) -> Self {
        Self {
            phases,
            rounds: vec![RoundTally::default(); phases.rounds],
            timeline: vec![Bucket::default(); phases.buckets()],
            last_at: None,
            unfinished: UnfinishedCycles::default(),
        }
    }

    /// A success that took from `from` to `to`.
    pub(crate) fn done(&mut self, op: Op, from: Instant, to: Instant) {
        let Some((round, bucket)) = self.place(to) else {
            return;
        };
        let nanos = to.saturating_duration_since(from).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(HIGHEST_NS);
        let histogram = round.latencies[op as usize].get_or_insert_with(fresh);
        histogram.saturating_record(nanos);
        if op.is_request() {
            round.requests += 1;
            bucket.requests += 1;
        }
        self.last_at = self.last_at.max(Some(to));
    }

    /// A completed cycle of `intents` intents.
    pub(crate) fn cycle(&mut self, intents: u64, from: Instant, to: Instant) {
        if let Some((round, bucket)) = self.place(to) {
            round.cycles += intents;
            bucket.cycles += intents;
        }
        self.done(Op::Cycle, from, to);
    }

    pub(crate) fn empty_claim(&mut self, at: Instant) {
        if let Some((round, _)) = self.place(at) {
            round.empty_claims += 1;
        }
    }

    /// Errors during the warm-up count in the first round: a run that lost requests is not clean.
    pub(crate) fn fault(&mut self, op: Op, what: String, count: u64, example: &[u8], at: Instant) {
        let at = at.max(self.phases.measure_from);
        let Some((round, bucket)) = self.place(at) else {
            return;
        };
        bucket.errors += count;
        let faults = round.faults.entry(ErrorSample { op, what }).or_default();
        faults.count += count;
        if faults.example.is_empty() {
            let text = String::from_utf8_lossy(example);
            faults.example = text.chars().take(EXAMPLE_CHARS).collect();
        }
    }

    /// A request that had waited for `age` when the run ended.
    pub(crate) fn unfinished(&mut self, age: Duration) {
        self.unfinished.requests += 1;
        self.unfinished.oldest = self.unfinished.oldest.max(age);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.unfinished.requests += other.unfinished.requests;
        self.unfinished.oldest = self.unfinished.oldest.max(other.unfinished.oldest);
        for (mine, theirs) in self.rounds.iter_mut().zip(&other.rounds) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.timeline.iter_mut().zip(&other.timeline) {
            mine.requests += theirs.requests;
            mine.cycles += theirs.cycles;
            mine.errors += theirs.errors;
        }
        self.last_at = self.last_at.max(other.last_at);
    }

    fn place(&mut self, at: Instant) -> Option<(&mut RoundTally, &mut Bucket)> {
        let round = self.phases.round_at(at)?;
        let bucket = position(self.phases.measure_from, self.phases.bucket, at)?;
        Some((self.rounds.get_mut(round)?, self.timeline.get_mut(bucket)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> Phases {
        Phases {
            measure_from: Instant::now() + Duration::from_secs(10),
            round: Duration::from_secs(1),
            rounds: 2,
            bucket: Duration::from_millis(300),
        }
    }

    #[test]
    fn only_what_ends_inside_a_round_counts_for_that_round() {
        let phases = phases();
        let mut tally = RunTally::new(phases);
        let at = |millis: u64| phases.measure_from + Duration::from_millis(millis);
        let before = phases
            .measure_from
            .checked_sub(Duration::from_millis(1))
            .unwrap();
        tally.done(Op::Publish, before, before);
        tally.done(Op::Publish, before, at(999));
        tally.cycle(5, at(0), at(1000));
        tally.done(Op::Publish, before, at(2000));
        assert_eq!(tally.rounds[0].requests, 1);
        assert_eq!((tally.rounds[1].requests, tally.rounds[1].cycles), (0, 5));
        assert_eq!((tally.timeline.len(), tally.timeline[3].cycles), (7, 5));
        let publish = tally.rounds[0].latency(Op::Publish).unwrap();
        assert!(publish.max() >= 1_000_000_000, "it began in the warm-up");
    }

    #[test]
    fn an_error_is_never_a_success_and_none_is_lost_in_the_warm_up() {
        let phases = phases();
        let mut tally = RunTally::new(phases);
        let early = phases
            .measure_from
            .checked_sub(Duration::from_secs(1))
            .unwrap();
        tally.fault(Op::Claim, "503".to_owned(), 1, b"busy", early);
        tally.fault(
            Op::Claim,
            "503".to_owned(),
            2,
            b"later",
            phases.measure_from,
        );
        let mut sum = RoundTally::default();
        sum.merge(&tally.rounds[0]);
        sum.merge(&tally.rounds[1]);
        let (fault, faults) = sum.faults.iter().next().unwrap();
        assert_eq!((fault.what.as_str(), faults.count), ("503", 3));
        assert_eq!(faults.example, "busy");
        assert_eq!(sum.requests, 0);
    }
}
