//! The figures of the overview: counts, rates and latencies of the intents in a window of time.
//!
//! Invariant: every intent is counted in exactly one outcome and in one bucket of the timeline, so the sums of the timeline are
//! the counts of the summary.

use std::collections::BTreeMap;

use consign_kernel::state::State;

use crate::lifecycle::OutcomeBucket;

#[cfg(test)]
mod tests;

/// The window of an overview that does not name one.
pub const WINDOW_HOURS_DEFAULT: u32 = 24;
/// The longest window: 90 days.
pub const WINDOW_HOURS_MAX: u32 = 24 * 90;
/// How many intent types and error codes are listed.
pub const TOP_MAX: usize = 8;

const HOUR_MS: i64 = 60 * 60 * 1000;

/// What the overview needs to know of an intent.
#[derive(Debug, Clone, Copy)]
pub struct IntentSample<'a> {
    pub intent: &'a str,
    pub state: State,
    pub requested_at_ms: i64,
    pub latency_ms: Option<f64>,
    pub error_code: Option<&'a str>,
}

/// How many intents are in each bucket of outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    pub success: u32,
    pub error: u32,
    pub in_flight: u32,
}

/// The intents that were requested in one part of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineBucket {
    pub start_ms: i64,
    pub counts: OutcomeCounts,
    pub p95_latency_ms: Option<f64>,
}

/// The intents of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct IntentTally {
    pub intent: String,
    pub total: u32,
    pub errors: u32,
    pub average_latency_ms: Option<f64>,
}

/// The intents with one error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorTally {
    pub code: String,
    pub count: u32,
    pub last_seen_ms: i64,
}

impl OutcomeCounts {
    pub fn of(samples: &[IntentSample<'_>]) -> Self {
        let mut counts = Self::default();
        for sample in samples {
            counts.add(sample.state);
        }
        counts
    }

    pub fn add(&mut self, state: State) {
        match OutcomeBucket::of(state) {
            OutcomeBucket::Success => self.success += 1,
            OutcomeBucket::Error => self.error += 1,
            OutcomeBucket::InFlight => self.in_flight += 1,
        }
    }

    pub const fn total(self) -> u32 {
        self.success + self.error + self.in_flight
    }

    /// The share of successes among all intents, to four decimals; 0 if there are none.
    pub fn success_rate(self) -> f64 {
        match self.total() {
            0 => 0.0,
            total => rounded(f64::from(self.success) / f64::from(total), 10_000.0),
        }
    }
}

/// The window that a request asks for, within the limits.
pub fn window_hours(requested: Option<i64>) -> u32 {
    match requested {
        None => WINDOW_HOURS_DEFAULT,
        Some(hours) => {
            u32::try_from(hours.clamp(1, i64::from(WINDOW_HOURS_MAX))).unwrap_or(WINDOW_HOURS_MAX)
        }
    }
}

/// The smallest latency that at least 95 % of all do not exceed.
pub fn p95(latencies_ms: &[f64]) -> Option<f64> {
    let mut sorted = latencies_ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * 95).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// The mean, to two decimals.
pub fn average(values: &[f64]) -> Option<f64> {
    let count = u32::try_from(values.len())
        .ok()
        .filter(|count| *count > 0)?;
    Some(rounded(
        values.iter().sum::<f64>() / f64::from(count),
        100.0,
    ))
}

/// The length of a bucket of the timeline: an hour up to a day, six hours up to a week, a day beyond.
pub const fn bucket_hours(window_hours: u32) -> u32 {
    match window_hours {
        0..=24 => 1,
        25..=168 => 6,
        _ => 24,
    }
}

/// The start of the bucket that contains a time. Buckets begin at midnight UTC, because a day is a multiple of each length.
pub fn bucket_start_ms(at_ms: i64, bucket_hours: u32) -> i64 {
    let length_ms = i64::from(bucket_hours.max(1)) * HOUR_MS;
    at_ms.saturating_sub(at_ms.rem_euclid(length_ms))
}

/// The buckets in which intents were requested, earliest first.
pub fn timeline(samples: &[IntentSample<'_>], window_hours: u32) -> Vec<TimelineBucket> {
    let hours = bucket_hours(window_hours);
    let mut buckets: BTreeMap<i64, (OutcomeCounts, Vec<f64>)> = BTreeMap::new();
    for sample in samples {
        let start_ms = bucket_start_ms(sample.requested_at_ms, hours);
        let (counts, latencies) = buckets.entry(start_ms).or_default();
        counts.add(sample.state);
        latencies.extend(sample.latency_ms);
    }
    buckets
        .into_iter()
        .map(|(start_ms, (counts, latencies))| TimelineBucket {
            start_ms,
            counts,
            p95_latency_ms: p95(&latencies),
        })
        .collect()
}

/// The most frequent types of intents; of equally frequent ones, the first in the alphabet.
pub fn top_intents(samples: &[IntentSample<'_>]) -> Vec<IntentTally> {
    let mut tallies: BTreeMap<&str, (OutcomeCounts, Vec<f64>)> = BTreeMap::new();
    for sample in samples {
        let (counts, latencies) = tallies.entry(sample.intent).or_default();
        counts.add(sample.state);
        latencies.extend(sample.latency_ms);
    }
    let tallies = tallies.into_iter().map(|(intent, (counts, latencies))| {
        let average_latency_ms = average(&latencies);
        IntentTally {
            intent: intent.to_owned(),
            total: counts.total(),
            errors: counts.error,
            average_latency_ms,
        }
    });
    top(tallies, |tally| tally.total)
}

/// The most frequent error codes; of equally frequent ones, the first in the alphabet.
pub fn top_errors(samples: &[IntentSample<'_>]) -> Vec<ErrorTally> {
    let mut tallies: BTreeMap<&str, (u32, i64)> = BTreeMap::new();
    for sample in samples {
        let Some(code) = sample.error_code else {
            continue;
        };
        let (count, last_seen_ms) = tallies.entry(code).or_insert((0, i64::MIN));
        *count += 1;
        *last_seen_ms = sample.requested_at_ms.max(*last_seen_ms);
    }
    let tallies = tallies
        .into_iter()
        .map(|(code, (count, last_seen_ms))| ErrorTally {
            code: code.to_owned(),
            count,
            last_seen_ms,
        });
    top(tallies, |tally| tally.count)
}

fn top<T>(tallies: impl Iterator<Item = T>, count: impl Fn(&T) -> u32) -> Vec<T> {
    let mut tallies: Vec<T> = tallies.collect();
    // A stable sort, so equal counts stay in order.
    tallies.sort_by_key(|tally| std::cmp::Reverse(count(tally)));
    tallies.truncate(TOP_MAX);
    tallies
}

fn rounded(value: f64, per_unit: f64) -> f64 {
    (value * per_unit).round() / per_unit
}
