//! Alerts: figures of the overview beyond their thresholds.

use crate::overview::{ErrorTally, OutcomeCounts};

/// Fewer ended intents say nothing about the error rate.
const ENDED_MIN: u32 = 10;
const ERROR_RATE: Threshold = Threshold(0.1, 0.25);
const LATENCY_MS: Threshold = Threshold(2_000.0, 5_000.0);
const STUCK: Threshold = Threshold(1.0, 5.0);
const STALE_PEERS: Threshold = Threshold(1.0, 2.0);
const ERRORS_OF_A_CODE: Threshold = Threshold(5.0, 10.0);

/// The figures at which a warning and a critical alert are raised.
#[derive(Clone, Copy)]
struct Threshold(f64, f64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertSeverity {
    Critical,
    Warning,
}

impl AlertSeverity {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct BeamAlert {
    pub id: String,
    pub severity: AlertSeverity,
    pub title: String,
    /// `network`, `federation` or `agent`.
    pub scope: &'static str,
    pub message: String,
    pub metric: &'static str,
    pub value: f64,
    pub threshold: f64,
    /// `ratio`, `ms` or `count`.
    pub value_unit: &'static str,
    pub started_at_ms: i64,
}

/// The figures that alerts are raised for.
#[derive(Clone, Copy, Debug)]
pub struct AlertInput<'a> {
    pub counts: OutcomeCounts,
    pub p95_latency_ms: Option<f64>,
    pub stuck: u64,
    pub stale_peers: u64,
    pub top_error: Option<&'a ErrorTally>,
    pub now_ms: i64,
}

/// The alerts, critical ones first.
pub fn raise(input: &AlertInput<'_>) -> Vec<BeamAlert> {
    let now_ms = input.now_ms;
    let mut alerts = Vec::new();
    let ended = input.counts.success + input.counts.error;
    if ended >= ENDED_MIN {
        let rate = f64::from(input.counts.error) / f64::from(ended);
        let percent = (rate * 100.0).round();
        alerts.extend(ERROR_RATE.check(rate, |severity, threshold| BeamAlert {
            id: "network-error-rate".to_owned(),
            severity,
            title: "High error rate".to_owned(),
            scope: "network",
            message: format!("{percent}% of the intents that ended in the window failed."),
            metric: "error_rate",
            value: (rate * 10_000.0).round() / 10_000.0,
            threshold,
            value_unit: "ratio",
            started_at_ms: now_ms,
        }));
    }
    let p95 = input.p95_latency_ms.unwrap_or(0.0);
    alerts.extend(LATENCY_MS.check(p95, |severity, threshold| BeamAlert {
        id: "network-latency-p95".to_owned(),
        severity,
        title: "High latency".to_owned(),
        scope: "network",
        message: format!("5% of the intents took {p95} ms or longer."),
        metric: "p95_latency_ms",
        value: p95,
        threshold,
        value_unit: "ms",
        started_at_ms: now_ms,
    }));
    let stuck = float(input.stuck);
    alerts.extend(STUCK.check(stuck, |severity, threshold| BeamAlert {
        id: "network-in-flight-backlog".to_owned(),
        severity,
        title: "Intents are stuck".to_owned(),
        scope: "network",
        message: format!("{stuck} intents are in flight for more than 15 minutes."),
        metric: "in_flight_older_than_15m",
        value: stuck,
        threshold,
        value_unit: "count",
        started_at_ms: now_ms,
    }));
    let stale = float(input.stale_peers);
    alerts.extend(STALE_PEERS.check(stale, |severity, threshold| BeamAlert {
        id: "federation-stale-peers".to_owned(),
        severity,
        title: "Directories are stale".to_owned(),
        scope: "federation",
        message: format!("{stale} directories are not active or were not seen for a day."),
        metric: "stale_peers",
        value: stale,
        threshold,
        value_unit: "count",
        started_at_ms: now_ms,
    }));
    if let Some(top) = input.top_error {
        let count = f64::from(top.count);
        alerts.extend(
            ERRORS_OF_A_CODE.check(count, |severity, threshold| BeamAlert {
                id: format!("error-hotspot-{}", top.code.to_lowercase()),
                severity,
                title: format!("Many errors {}", top.code),
                scope: "agent",
                message: format!("{count} intents failed with {}.", top.code),
                metric: "error_code_count",
                value: count,
                threshold,
                value_unit: "count",
                started_at_ms: top.last_seen_ms,
            }),
        );
    }
    alerts.sort_by_key(|alert| alert.severity);
    alerts
}

impl Threshold {
    fn check(
        self,
        value: f64,
        alert: impl FnOnce(AlertSeverity, f64) -> BeamAlert,
    ) -> Option<BeamAlert> {
        let Self(warning, critical) = self;
        let severity = if value >= critical {
            AlertSeverity::Critical
        } else {
            AlertSeverity::Warning
        };
        (value >= warning).then(|| alert(severity, warning))
    }
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_begin_at_their_thresholds_and_critical_ones_come_first() {
        let quiet = AlertInput {
            counts: OutcomeCounts {
                success: 91,
                error: 9,
                in_flight: 3,
            },
            p95_latency_ms: Some(1_999.0),
            stuck: 0,
            stale_peers: 0,
            top_error: None,
            now_ms: 7,
        };
        assert_eq!(raise(&quiet), []);
        let few = OutcomeCounts {
            error: ENDED_MIN - 1,
            ..OutcomeCounts::default()
        };
        assert_eq!(
            raise(&AlertInput {
                counts: few,
                ..quiet
            }),
            []
        );
        let tally = ErrorTally {
            code: "OFFLINE".to_owned(),
            count: 10,
            last_seen_ms: 5,
        };
        let loud = AlertInput {
            counts: OutcomeCounts {
                success: 90,
                error: 10,
                in_flight: 0,
            },
            p95_latency_ms: Some(2_000.0),
            stuck: 1,
            stale_peers: 2,
            top_error: Some(&tally),
            ..quiet
        };
        let alerts = raise(&loud);
        let raised: Vec<_> = alerts
            .iter()
            .map(|alert| (alert.severity, alert.id.as_str()))
            .collect();
        let expected = [
            (AlertSeverity::Critical, "federation-stale-peers"),
            (AlertSeverity::Critical, "error-hotspot-offline"),
            (AlertSeverity::Warning, "network-error-rate"),
            (AlertSeverity::Warning, "network-latency-p95"),
            (AlertSeverity::Warning, "network-in-flight-backlog"),
        ];
        assert_eq!(raised, expected);
    }
}
