//! What this node has counted since its start, for the metrics.
//!
//! Invariant: the number of label values of a metric is bounded, because members and meshes come and go: what does not fit is
//! counted under `other`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// More combinations of labels than this are counted as one.
const LABELS_MAX: usize = 1_000;

/// A metric of the broker: its name, its kind and what it means, and the names of its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokerMetric {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) about: &'static str,
    pub(crate) labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($name:ident = $text:literal, $kind:literal, [$($label:literal),*], $about:literal;)*) => {
        impl BrokerMetric {
            $(pub(crate) const $name: Self = Self {
                name: $text, kind: $kind, about: $about, labels: &[$($label),*],
            };)*

            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

metrics! {
    CONNECTIONS = "broker_connections_total", "counter", [], "Connections that said hello";
    CONNECTIONS_REJECTED = "broker_connections_rejected_total", "counter", ["reason"], "Connections that were refused";
    CONNECTIONS_ACTIVE = "broker_connections_active", "gauge", [], "Open connections to this node";
    ROUTED = "broker_messages_routed_total", "counter", ["priority"], "Accepted messages";
    REJECTED = "broker_messages_rejected_total", "counter", ["reason"], "Messages that were not accepted";
    DROPPED_BY_GRANT = "broker_messages_dropped_by_grant_total", "counter", [], "Messages that a recipient does not want";
    TTL_SWEEPS = "broker_ttl_sweeps_total", "counter", [], "Passes of the retention";
    FINGERPRINT_MISMATCHES = "cm_broker_dedupe_fingerprint_mismatch_total", "counter", ["client_id", "mesh_id"], "Ids that were used for another request, by the member that sent it";
    CLONES_SUSPECTED = "cm_broker_member_clone_suspected_total", "counter", ["mesh_id"], "Daemons that connected from another machine than before";
    ORPHAN_CHECKS = "cm_broker_dedupe_orphan_check_total", "counter", [], "Passes of the check for ids without a message";
    ORPHANS = "cm_broker_dedupe_orphan_found", "counter", ["mesh_id"], "Ids without a message that a check found";
    MISCONFIGURED = "cm_broker_dedupe_misconfig_total", "counter", ["mesh_id", "retention_dedupe_days", "retention_message_days"], "Meshes that forget ids before messages";
    ATOMICITY_VIOLATIONS = "cm_broker_atomicity_violation_found", "counter", [], "Deliveries without a message that a check found";
    RATE_THEN_REJECTED = "cm_broker_rate_limit_consumed_then_b2_rejected_total", "counter", [], "Refused messages that the rate limit had counted";
    HOOK_REQUESTS = "broker_hook_requests_total", "counter", [], "Requests for hooks; this broker has none";
    HOOK_REQUESTS_LIMITED = "broker_hook_requests_rate_limited_total", "counter", [], "Requests for hooks over the limit; this broker has none";
}

type Counted = BTreeMap<(&'static str, Vec<String>), i64>;

#[derive(Debug, Default)]
pub(crate) struct BrokerCounters(Mutex<Counted>);

impl BrokerCounters {
    pub(crate) fn count(&self, metric: BrokerMetric, labels: &[&str]) {
        self.add(metric, labels, 1);
    }

    pub(crate) fn add(&self, metric: BrokerMetric, labels: &[&str], by: i64) {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (metric.name, labels);
        if let Some(value) = counted.get_mut(&key) {
            *value += by;
            return;
        }
        let is_full = counted
            .keys()
            .filter(|(name, _)| *name == metric.name)
            .count()
            >= LABELS_MAX;
        let key = if is_full {
            (metric.name, vec!["other".to_owned(); key.1.len()])
        } else {
            key
        };
        *counted.entry(key).or_default() += by;
    }

    /// The labels and values of a metric. One without labels has a value from the start.
    pub(crate) fn of(&self, metric: BrokerMetric) -> Vec<(Vec<String>, i64)> {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(Vec<String>, i64)> = counted
            .iter()
            .filter(|((name, _), _)| *name == metric.name)
            .map(|((_, labels), value)| (labels.clone(), *value))
            .collect();
        if found.is_empty() && metric.labels.is_empty() {
            found.push((Vec::new(), 0));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded() {
        let counters = BrokerCounters::default();
        assert_eq!(counters.of(BrokerMetric::CONNECTIONS), [(vec![], 0)]);
        assert_eq!(counters.of(BrokerMetric::ORPHANS), []);
        for mesh in 0..LABELS_MAX + 5 {
            counters.count(BrokerMetric::ORPHANS, &[&mesh.to_string()]);
        }
        counters.count(BrokerMetric::ORPHANS, &["7"]);
        let found = counters.of(BrokerMetric::ORPHANS);
        assert_eq!(found.len(), LABELS_MAX + 1);
        assert!(found.contains(&(vec!["other".to_owned()], 5)));
        assert!(found.contains(&(vec!["7".to_owned()], 2)));
    }

    #[test]
    fn names_and_labels_are_those_of_the_protocol_cm_115() {
        for metric in BrokerMetric::ALL {
            let is_known = ["broker_", "cm_broker_"]
                .iter()
                .any(|prefix| metric.name.starts_with(prefix));
            assert!(is_known, "{}", metric.name);
            assert!(["counter", "gauge"].contains(&metric.kind));
        }
    }
}
