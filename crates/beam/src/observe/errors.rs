//! The failed intents of a window, by code and by route.

use std::collections::{BTreeMap, HashSet};

use consign_engine::Error;

use super::scan::ScanEnd;
use crate::lifecycle::OutcomeBucket;
use crate::overview::{self, TimelineBucket};
use crate::relay::IntentRow;
use crate::service::Beam;

/// Recipients choose the codes of their failures, so their number is not known.
pub const CODES_MAX: usize = 100;
pub const ROUTES_MAX: usize = 10;
/// A failed intent that names no code.
const UNKNOWN: &str = "UNKNOWN";

#[derive(Clone, Debug)]
pub struct ErrorReport {
    pub window_hours: u32,
    pub total: u64,
    pub distinct_codes: usize,
    pub timeouts: u64,
    pub offline: u64,
    pub delivery_failed: u64,
    pub timeline: Vec<TimelineBucket>,
    /// The most frequent ones first.
    pub codes: Vec<ErrorCodeTally>,
    pub routes: Vec<ErrorRoute>,
    pub end: ScanEnd,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ErrorCodeTally {
    pub code: String,
    pub count: u64,
    pub last_seen_ms: i64,
    pub average_latency_ms: Option<f64>,
    pub senders: usize,
    pub recipients: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRoute {
    pub from: String,
    pub to: String,
    pub count: u64,
}

impl Beam {
    pub async fn error_report(&self, hours: u32) -> Result<ErrorReport, Error> {
        let (mut rows, end) = self.window_rows(hours).await?;
        rows.retain(|row| OutcomeBucket::of(row.state) == OutcomeBucket::Error);
        Ok(report(&rows, hours, end))
    }
}

/// The parts of a tally that are not counts yet.
#[derive(Default)]
struct CodeGroup<'a> {
    count: u64,
    last_seen_ms: i64,
    latencies: Vec<f64>,
    senders: HashSet<&'a str>,
    recipients: HashSet<&'a str>,
}

fn report(failed: &[IntentRow], window_hours: u32, end: ScanEnd) -> ErrorReport {
    let samples: Vec<_> = failed.iter().map(IntentRow::sample).collect();
    let mut groups: BTreeMap<&str, CodeGroup<'_>> = BTreeMap::new();
    let mut routes: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (row, sample) in failed.iter().zip(&samples) {
        let group = groups
            .entry(sample.error_code.unwrap_or(UNKNOWN))
            .or_default();
        group.count += 1;
        group.last_seen_ms = group.last_seen_ms.max(row.requested_at_ms);
        group.latencies.extend(sample.latency_ms);
        group.senders.insert(&row.from);
        group.recipients.insert(&row.to);
        *routes.entry((&row.from, &row.to)).or_default() += 1;
    }
    let count_of = |code: &str| groups.get(code).map_or(0, |group| group.count);
    let (timeouts, offline) = (count_of("TIMEOUT"), count_of("OFFLINE"));
    let delivery_failed = count_of("DELIVERY_FAILED");
    let distinct_codes = groups.len();
    let codes = groups.into_iter().map(|(code, group)| ErrorCodeTally {
        code: code.to_owned(),
        count: group.count,
        last_seen_ms: group.last_seen_ms,
        average_latency_ms: overview::average(&group.latencies),
        senders: group.senders.len(),
        recipients: group.recipients.len(),
    });
    let routes = routes.into_iter().map(|((from, to), count)| ErrorRoute {
        from: from.to_owned(),
        to: to.to_owned(),
        count,
    });
    ErrorReport {
        window_hours,
        total: failed.len() as u64,
        distinct_codes,
        timeouts,
        offline,
        delivery_failed,
        timeline: overview::timeline(&samples, window_hours),
        codes: most_frequent(codes, CODES_MAX, |tally| tally.count),
        routes: most_frequent(routes, ROUTES_MAX, |route| route.count),
        end,
    }
}

/// Equally frequent ones stay in the order of the alphabet.
fn most_frequent<T>(all: impl Iterator<Item = T>, max: usize, count: impl Fn(&T) -> u64) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_by_key(|item| std::cmp::Reverse(count(item)));
    all.truncate(max);
    all
}
