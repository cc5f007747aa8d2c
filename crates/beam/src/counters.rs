//! What this server has relayed, attempted and called since its start, for the metrics.
//!
//! Invariant: every label has a fixed set of values, so the number of series does not grow with the traffic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use consign_web::shell::MetricsText;
use serde::Deserialize;

use crate::outbound::{OutboundError, OutboundResponse};
use crate::relay::{Ingress, RelayError, Relayed};

/// The bounds of the histogram of relays, in seconds. The last ones are the default times for a result.
const RELAY_BOUNDS_S: [f64; 13] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// A label with a fixed set of values.
trait Label: Copy + 'static {
    const ALL: &'static [Self];

    fn word(self) -> &'static str;

    /// The position in `ALL`.
    fn index(self) -> usize;
}

macro_rules! label {
    ($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $value:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$note])* $value),+
        }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// How an intent reached the relay.
    RelayPath {
        Http = "http",
        WebSocket = "websocket",
        Federation = "federation",
        Bus = "bus",
    }
}

label! {
    /// How the relay of an intent ended.
    RelayOutcome {
        Success = "success",
        /// The recipient reported a failure.
        Failure = "failure",
        /// The result was stored before.
        Repeated = "repeated",
        Offline = "offline",
        Timeout = "timeout",
        DeliveryFailed = "delivery_failed",
        /// The intent with this nonce has not ended yet.
        InProgress = "in_progress",
        RateLimited = "rate_limited",
        Refused = "refused",
        /// The ledger did not do its part.
        Error = "error",
    }
}

label! {
    /// What an attempt of the bus led to.
    BusAttemptOutcome {
        Delivered = "delivered",
        /// The recipient cannot be reached, and its workers get the message.
        HandedOver = "handed_over",
        Queued = "queued",
        DeadLetter = "dead_letter",
        /// Its outcome was not stored.
        Error = "error",
    }
}

label! {
    /// What a call to the endpoint of an agent led to.
    EndpointCallOutcome {
        Accepted = "accepted",
        /// A status other than 2xx.
        Status = "status",
        Timeout = "timeout",
        Unreachable = "unreachable",
        /// The response was not complete, not HTTP or too large.
        BadResponse = "bad_response",
        /// Too many calls were running.
        Busy = "busy",
        /// The address guard does not allow the address, or the request cannot be expressed in HTTP.
        NotCalled = "not_called",
    }
}

impl RelayPath {
    pub(crate) const fn of(ingress: &Ingress) -> Self {
        match ingress {
            Ingress::Http => Self::Http,
            Ingress::Federation { .. } => Self::Federation,
            Ingress::Socket { .. } => Self::WebSocket,
        }
    }
}

impl RelayOutcome {
    pub(crate) fn of(relayed: &Result<Relayed, RelayError>) -> Self {
        match relayed {
            Ok(Relayed::Repeated(_)) => Self::Repeated,
            Ok(Relayed::Ended(result)) => Self::of_result(result),
            Err(RelayError::Offline) => Self::Offline,
            Err(RelayError::Timeout { .. }) => Self::Timeout,
            Err(RelayError::DeliveryFailed(_)) => Self::DeliveryFailed,
            Err(RelayError::InProgress(_)) => Self::InProgress,
            Err(RelayError::RateLimited(_)) => Self::RateLimited,
            Err(RelayError::Shape(_) | RelayError::BadRequest(_) | RelayError::Forbidden(_)) => {
                Self::Refused
            }
            Err(RelayError::Ledger(_)) => Self::Error,
        }
    }

    /// Members other than `success` are skipped and not kept.
    fn of_result(result: &str) -> Self {
        #[derive(Deserialize)]
        struct Reported {
            success: bool,
        }
        match serde_json::from_str::<Reported>(result) {
            Ok(Reported { success: true }) => Self::Success,
            Ok(Reported { success: false }) | Err(_) => Self::Failure,
        }
    }

    /// Whether the intent was on its way to its recipient, so that the time it took says something.
    const fn is_timed(self) -> bool {
        match self {
            Self::Success
            | Self::Failure
            | Self::Offline
            | Self::Timeout
            | Self::DeliveryFailed => true,
            Self::Repeated | Self::InProgress | Self::RateLimited | Self::Refused | Self::Error => {
                false
            }
        }
    }
}

impl EndpointCallOutcome {
    pub(crate) fn of(called: &Result<OutboundResponse, OutboundError>) -> Self {
        match called {
            Ok(response) if response.status.is_success() => Self::Accepted,
            Ok(_) => Self::Status,
            Err(OutboundError::Timeout { .. }) => Self::Timeout,
            Err(OutboundError::Connect(_)) => Self::Unreachable,
            Err(
                OutboundError::TooLarge { .. }
                | OutboundError::Malformed(_)
                | OutboundError::Broken(_),
            ) => Self::BadResponse,
            Err(OutboundError::Busy) => Self::Busy,
            Err(
                OutboundError::Refused(_)
                | OutboundError::Header { .. }
                | OutboundError::Request(_),
            ) => Self::NotCalled,
        }
    }
}

/// The counters of a server. They begin at zero with each start.
#[derive(Debug, Default)]
pub(crate) struct BeamCounters {
    relayed: [[AtomicU64; RelayOutcome::ALL.len()]; RelayPath::ALL.len()],
    relay_times: RelayTimes,
    bus_attempts: [AtomicU64; BusAttemptOutcome::ALL.len()],
    endpoint_calls: [AtomicU64; EndpointCallOutcome::ALL.len()],
}

impl BeamCounters {
    pub(crate) fn relayed(&self, path: RelayPath, outcome: RelayOutcome, took: Duration) {
        increase(&self.relayed[path.index()][outcome.index()]);
        if outcome.is_timed() {
            self.relay_times.observe(took);
        }
    }

    pub(crate) fn bus_attempted(&self, outcome: BusAttemptOutcome) {
        increase(&self.bus_attempts[outcome.index()]);
    }

    pub(crate) fn endpoint_called(&self, outcome: EndpointCallOutcome) {
        increase(&self.endpoint_calls[outcome.index()]);
    }

    pub(crate) fn write(&self, text: &mut MetricsText) {
        let name = "consign_beam_relayed_total";
        text.family(
            name,
            "counter",
            "Intents that this server was asked to relay",
        );
        for path in RelayPath::ALL {
            for outcome in RelayOutcome::ALL {
                let count = read(&self.relayed[path.index()][outcome.index()]);
                let labels = [("path", path.word()), ("outcome", outcome.word())];
                text.sample(name, &labels, count);
            }
        }
        let about = "Time from the arrival of an intent to its end";
        self.relay_times
            .write(text, "consign_beam_relay_seconds", about);
        let about = "Attempts of the bus to deliver a message";
        let name = "consign_beam_bus_attempts_total";
        write_outcomes::<BusAttemptOutcome>(text, name, about, &self.bus_attempts);
        let about = "Calls to HTTP endpoints of agents";
        let name = "consign_beam_endpoint_calls_total";
        write_outcomes::<EndpointCallOutcome>(text, name, about, &self.endpoint_calls);
    }
}

fn write_outcomes<L: Label>(text: &mut MetricsText, name: &str, about: &str, counts: &[AtomicU64]) {
    text.family(name, "counter", about);
    for outcome in L::ALL {
        let count = read(&counts[outcome.index()]);
        text.sample(name, &[("outcome", outcome.word())], count);
    }
}

/// A histogram with the bounds [`RELAY_BOUNDS_S`].
#[derive(Debug, Default)]
struct RelayTimes {
    /// How many took up to each bound and longer than the one before; the last ones exceed all bounds.
    buckets: [AtomicU64; RELAY_BOUNDS_S.len() + 1],
    sum_us: AtomicU64,
}

impl RelayTimes {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = RELAY_BOUNDS_S.iter().position(|bound| seconds <= *bound);
        increase(&self.buckets[bucket.unwrap_or(RELAY_BOUNDS_S.len())]);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(took_us, Ordering::Relaxed);
    }

    /// The count is the sum of the buckets that were written, so that they agree.
    fn write(&self, text: &mut MetricsText, name: &str, about: &str) {
        text.family(name, "histogram", about);
        let bounds = RELAY_BOUNDS_S.iter().map(f64::to_string);
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let bucket_name = format!("{name}_bucket");
        let mut below = 0;
        for (bound, bucket) in bounds.zip(&self.buckets) {
            below += read(bucket);
            text.sample(&bucket_name, &[("le", &bound)], below);
        }
        let sum = Duration::from_micros(read(&self.sum_us)).as_secs_f64();
        text.sample(&format!("{name}_sum"), &[], sum);
        text.sample(&format!("{name}_count"), &[], below);
    }
}

fn increase(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::BeamProblem;
    use consign_kernel::error::Code;

    fn samples(counters: &BeamCounters) -> String {
        let mut text = MetricsText::default();
        counters.write(&mut text);
        // The text is shown only as that of a string in `Debug`.
        format!("{text:?}")
            .replace("\\\"", "\"")
            .replace("\\n", "\n")
    }

    #[track_caller]
    fn assert_line(text: &str, line: &str) {
        assert!(text.lines().any(|own| own == line), "{line}:\n{text}");
    }

    #[test]
    fn a_duration_counts_in_every_bucket_from_its_own_bound() {
        let counters = BeamCounters::default();
        for ms in [5, 6, 700, 61_000] {
            let took = Duration::from_millis(ms);
            counters.relayed(RelayPath::Http, RelayOutcome::Success, took);
        }
        let text = samples(&counters);
        for (bound, count) in [
            ("0.005", 1),
            ("0.01", 2),
            ("0.5", 2),
            ("1", 3),
            ("60", 3),
            ("+Inf", 4),
        ] {
            let line = format!("consign_beam_relay_seconds_bucket{{le=\"{bound}\"}} {count}");
            assert_line(&text, &line);
        }
        assert_line(&text, "consign_beam_relay_seconds_sum 61.711");
        assert_line(&text, "consign_beam_relay_seconds_count 4");
    }

    #[test]
    fn only_intents_that_were_on_their_way_are_timed() {
        let counters = BeamCounters::default();
        for outcome in [RelayOutcome::Refused, RelayOutcome::Repeated] {
            counters.relayed(RelayPath::Bus, outcome, Duration::from_secs(1));
        }
        let text = samples(&counters);
        assert_line(&text, "consign_beam_relay_seconds_count 0");
        for outcome in ["refused", "repeated"] {
            let labels = format!("path=\"bus\",outcome=\"{outcome}\"");
            assert_line(&text, &format!("consign_beam_relayed_total{{{labels}}} 1"));
        }
    }

    #[test]
    fn every_end_of_a_relay_has_its_word() {
        let ended = |text: &str| Ok(Relayed::Ended(text.to_owned()));
        let error = || BeamProblem::new(Code::RelayError, "Failed to relay intent");
        for (relayed, word) in [
            (ended(r#"{"v":"1","success":true,"nonce":"n"}"#), "success"),
            (ended(r#"{"v":"1","success":false,"nonce":"n"}"#), "failure"),
            (Ok(Relayed::Repeated("{}".to_owned())), "repeated"),
            (Err(RelayError::Offline), "offline"),
            (Err(RelayError::Timeout { ms: 1 }), "timeout"),
            (
                Err(RelayError::DeliveryFailed("d".to_owned())),
                "delivery_failed",
            ),
            (Err(RelayError::InProgress("n".to_owned())), "in_progress"),
            (Err(RelayError::RateLimited("a".to_owned())), "rate_limited"),
            (Err(RelayError::Forbidden("f".to_owned())), "refused"),
            (Err(RelayError::BadRequest("b".to_owned())), "refused"),
            (Err(RelayError::Shape("s".to_owned())), "refused"),
            (Err(RelayError::Ledger(error())), "error"),
        ] {
            assert_eq!(RelayOutcome::of(&relayed).word(), word, "{relayed:?}");
        }
        // A payload may be deeper than a parser of values descends.
        let deep = format!(
            r#"{{"payload":{}{},"success":true}}"#,
            "[".repeat(1_000),
            "]".repeat(1_000)
        );
        assert_eq!(RelayOutcome::of(&ended(&deep)), RelayOutcome::Success);
    }

    #[test]
    fn every_word_of_a_label_is_different() {
        fn check<L: Label>() {
            let mut words: Vec<&str> = L::ALL.iter().map(|value| value.word()).collect();
            assert!(
                L::ALL
                    .iter()
                    .enumerate()
                    .all(|(at, value)| value.index() == at)
            );
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), L::ALL.len());
        }
        check::<RelayPath>();
        check::<RelayOutcome>();
        check::<BusAttemptOutcome>();
        check::<EndpointCallOutcome>();
    }
}
