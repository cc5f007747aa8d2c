//! The metrics of a daemon and their text in the format of Prometheus.
//!
//! Invariant: every listed name is in the text from the start, with its type and its labels, and a metric has at most
//! [`SERIES_MAX`] series: further label values are counted under `other`.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use table::DaemonMetric;
use table::MetricType;

/// Series of one metric. Labels come from settings, requests and peers, so their number must have a bound.
pub const SERIES_MAX: usize = 200;
const OTHER: &str = "other";

/// Upper bounds of the buckets of durations, in seconds.
const BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// The metrics. Clones count into the same series.
#[derive(Debug, Clone)]
pub struct DaemonMetrics(Arc<Registry>);

#[derive(Debug)]
struct Registry {
    mesh: String,
    series: Mutex<BTreeMap<SeriesKey, SeriesValue>>,
}

type SeriesKey = (DaemonMetric, Vec<String>);

#[derive(Debug, Clone)]
enum SeriesValue {
    Number(u64),
    Histogram(Durations),
}

#[derive(Debug, Clone, Default)]
struct Durations {
    /// Observations in each bucket alone; the text sums them up.
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

impl DaemonMetrics {
    pub fn new(mesh: &str) -> Self {
        let registry = Registry {
            mesh: mesh.to_owned(),
            series: Mutex::new(BTreeMap::new()),
        };
        let metrics = Self(Arc::new(registry));
        for &metric in DaemonMetric::ALL {
            for labels in metric.known_labels() {
                metrics.update(metric, &labels, |_| {});
            }
        }
        metrics
    }

    /// Counts one event. `labels` are the values after `mesh`, in the order of the table.
    pub fn count(&self, metric: DaemonMetric, labels: &[&str]) {
        self.add(metric, labels, 1);
    }

    pub fn add(&self, metric: DaemonMetric, labels: &[&str], number: u64) {
        self.update(metric, labels, |value| match value {
            SeriesValue::Number(total) => *total += number,
            SeriesValue::Histogram(_) => {}
        });
    }

    /// Sets a gauge. All gauges are whole numbers.
    pub fn set(&self, metric: DaemonMetric, labels: &[&str], number: u64) {
        self.update(metric, labels, |value| {
            *value = SeriesValue::Number(number);
        });
    }

    /// Adds a duration to a histogram.
    pub fn observe(&self, metric: DaemonMetric, labels: &[&str], duration: Duration) {
        self.update(metric, labels, |value| match value {
            SeriesValue::Histogram(durations) => durations.observe(duration.as_secs_f64()),
            SeriesValue::Number(_) => {}
        });
    }

    /// The value of a counter or gauge; 0 if it has no such series.
    pub fn get(&self, metric: DaemonMetric, labels: &[&str]) -> u64 {
        let key = (metric, self.values(metric, labels));
        match self.series().get(&key) {
            Some(SeriesValue::Number(number)) => *number,
            Some(SeriesValue::Histogram(_)) | None => 0,
        }
    }

    /// The text of `/v1/metrics`.
    pub fn to_text(&self) -> String {
        let series = self.series();
        let mut text = String::new();
        for &metric in DaemonMetric::ALL {
            let name = metric.name();
            let _ = writeln!(text, "# HELP {name} {}", metric.help());
            let _ = writeln!(text, "# TYPE {name} {}", metric.kind().as_str());
            let own = series.iter().filter(|((other, _), _)| *other == metric);
            for ((_, values), value) in own {
                let labels = label_text(metric, values);
                match value {
                    SeriesValue::Number(number) => write_sample(&mut text, name, &labels, number),
                    SeriesValue::Histogram(durations) => durations.write(&mut text, name, &labels),
                }
            }
        }
        text
    }

    fn update(&self, metric: DaemonMetric, labels: &[&str], change: impl FnOnce(&mut SeriesValue)) {
        let mut key = (metric, self.values(metric, labels));
        let mut series = self.series();
        let count = || series.keys().filter(|(other, _)| *other == metric).count();
        if !series.contains_key(&key) && !labels.is_empty() && count() >= SERIES_MAX {
            key.1 = self.values(metric, &vec![OTHER; labels.len()]);
        }
        change(series.entry(key).or_insert_with(|| metric.kind().zero()));
    }

    fn values(&self, metric: DaemonMetric, labels: &[&str]) -> Vec<String> {
        debug_assert_eq!(labels.len(), metric.labels().len(), "{metric:?}");
        let mesh = metric.has_mesh().then(|| self.0.mesh.clone());
        let labels = labels.iter().map(|&label| label.to_owned());
        mesh.into_iter().chain(labels).collect()
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<SeriesKey, SeriesValue>> {
        self.0.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricType {
    fn zero(self) -> SeriesValue {
        match self {
            Self::Counter | Self::Gauge => SeriesValue::Number(0),
            Self::Histogram => SeriesValue::Histogram(Durations::default()),
        }
    }
}

impl Durations {
    fn observe(&mut self, seconds: f64) {
        self.buckets.resize(BUCKETS.len(), 0);
        self.sum += seconds;
        self.count += 1;
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at] += 1;
        }
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (at, bound) in BUCKETS.iter().enumerate() {
            below += self.buckets.get(at).copied().unwrap_or_default();
            let _ = writeln!(
                text,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}"
            );
        }
        let count = self.count;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        write_sample(text, &format!("{name}_sum"), labels, &self.sum);
        let _ = writeln!(text, "{name}_count{} {count}", in_braces(labels));
    }
}

fn write_sample(text: &mut String, name: &str, labels: &str, number: &dyn Display) {
    let _ = writeln!(text, "{name}{} {number}", in_braces(labels));
}

fn in_braces(labels: &str) -> String {
    if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    }
}

fn label_text(metric: DaemonMetric, values: &[String]) -> String {
    let mesh = metric.has_mesh().then_some("mesh");
    let names = metric.labels().iter().map(|(name, _)| *name);
    let pairs = mesh.into_iter().chain(names).zip(values);
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    pairs.join(",")
}

/// A label value: `\`, `"` and line breaks are escaped.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text
}
