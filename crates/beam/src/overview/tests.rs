//! Percentiles, rates and buckets, by hand.

use super::*;

const DAY_MS: i64 = 24 * HOUR_MS;

fn sample(state: State, requested_at_ms: i64, latency_ms: Option<f64>) -> IntentSample<'static> {
    IntentSample {
        intent: "agent.ping",
        state,
        requested_at_ms,
        latency_ms,
        error_code: None,
    }
}

#[test]
fn p95_is_the_value_of_the_95th_rank_of_a_hundred() {
    for (count, expected) in [
        (0, None),
        (1, Some(1.0)),
        (2, Some(2.0)),
        (19, Some(19.0)),
        (20, Some(19.0)),
        (21, Some(20.0)),
        (100, Some(95.0)),
        (101, Some(96.0)),
    ] {
        // Descending: the order of arrival does not matter.
        let latencies: Vec<f64> = (1..=count).rev().map(f64::from).collect();
        assert_eq!(p95(&latencies), expected, "{count}");
    }
}

#[test]
fn averages_and_rates_are_rounded() {
    assert_eq!(average(&[]), None);
    assert_eq!(average(&[1.0, 2.0, 2.0]), Some(1.67));
    for (success, error, in_flight, expected) in [
        (0, 0, 0, "0"),
        (1, 1, 1, "0.3333"),
        (2, 1, 0, "0.6667"),
        (3, 0, 0, "1"),
    ] {
        let counts = OutcomeCounts {
            success,
            error,
            in_flight,
        };
        assert_eq!(counts.success_rate().to_string(), expected);
    }
}

#[test]
fn the_window_decides_the_length_of_a_bucket() {
    for (window, expected) in [(1, 1), (24, 1), (25, 6), (168, 6), (169, 24), (2160, 24)] {
        assert_eq!(bucket_hours(window), expected, "{window}");
    }
    for (requested, expected) in [
        (None, 24),
        (Some(48), 48),
        (Some(0), 1),
        (Some(i64::MIN), 1),
        (Some(2161), 2160),
    ] {
        assert_eq!(window_hours(requested), expected, "{requested:?}");
    }
}

#[test]
fn a_bucket_begins_at_a_multiple_of_its_length_since_midnight() {
    let at_ms = 20_000 * DAY_MS + 13 * HOUR_MS + 59 * 60_000;
    for (hours, expected_hour) in [(1, 13), (6, 12), (24, 0)] {
        let start_ms = bucket_start_ms(at_ms, hours);
        assert_eq!(start_ms, 20_000 * DAY_MS + expected_hour * HOUR_MS);
        assert_eq!(bucket_start_ms(start_ms, hours), start_ms);
    }
    assert_eq!(bucket_start_ms(-1, 1), -HOUR_MS);
}

#[test]
fn the_timeline_adds_up_to_the_summary() {
    let samples: Vec<IntentSample<'_>> = State::ALL
        .iter()
        .zip(0_i64..)
        .map(|(state, index)| sample(*state, index * HOUR_MS * 5, Some(10.0)))
        .collect();
    let summary = OutcomeCounts::of(&samples);
    assert_eq!(
        (summary.success, summary.error, summary.in_flight),
        (1, 2, 5)
    );
    for window in [24, 100, 1000] {
        let buckets = timeline(&samples, window);
        let sum = |count: fn(&OutcomeCounts) -> u32| -> u32 {
            buckets.iter().map(|bucket| count(&bucket.counts)).sum()
        };
        assert_eq!(sum(|counts| counts.success), summary.success);
        assert_eq!(sum(|counts| counts.error), summary.error);
        assert_eq!(sum(|counts| counts.in_flight), summary.in_flight);
        assert_eq!(sum(|counts| counts.total()), 8);
    }
}

#[test]
fn the_timeline_lists_the_buckets_with_intents_in_order() {
    let samples = [
        sample(State::Failed, 3 * HOUR_MS + 1, None),
        sample(State::Acked, 10, Some(30.0)),
        sample(State::Acked, 20, Some(20.0)),
        sample(State::Queued, 30, None),
    ];
    let bucket = |start_ms, success, error, in_flight, p95_latency_ms| TimelineBucket {
        start_ms,
        counts: OutcomeCounts {
            success,
            error,
            in_flight,
        },
        p95_latency_ms,
    };
    let expected = [
        bucket(0, 2, 0, 1, Some(30.0)),
        bucket(3 * HOUR_MS, 0, 1, 0, None),
    ];
    assert_eq!(timeline(&samples, 24), expected);
    assert_eq!(timeline(&samples, 48), [bucket(0, 2, 1, 1, Some(30.0))]);
    assert_eq!(timeline(&[], 24), []);
}

#[test]
fn the_most_frequent_intents_and_errors_come_first() {
    let names = ["j", "i", "h", "g", "f", "e", "d", "c", "b", "a"];
    let mut samples = Vec::new();
    for name in names {
        samples.push(IntentSample {
            intent: name,
            error_code: Some(name),
            ..sample(State::Failed, 5, Some(1.0))
        });
    }
    samples.push(IntentSample {
        intent: "h",
        error_code: Some("h"),
        ..sample(State::Acked, 3, Some(2.0))
    });
    let intents = top_intents(&samples);
    let listed: Vec<&str> = intents.iter().map(|tally| tally.intent.as_str()).collect();
    assert_eq!(listed, ["h", "a", "b", "c", "d", "e", "f", "g"]);
    let first = IntentTally {
        intent: "h".to_owned(),
        total: 2,
        errors: 1,
        average_latency_ms: Some(1.5),
    };
    assert_eq!(intents[0], first);

    let errors = top_errors(&samples);
    assert_eq!(errors.len(), TOP_MAX);
    let first = ErrorTally {
        code: "h".to_owned(),
        count: 2,
        last_seen_ms: 5,
    };
    assert_eq!(errors[0], first);
}
