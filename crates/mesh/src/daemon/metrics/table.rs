//! The names, types and labels of the metrics, which dashboards rely on.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl MetricType {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A label and the values that it has from the start; none if they are not known before.
type LabelValues = (&'static str, &'static [&'static str]);

macro_rules! metrics {
    ($($variant:ident => $name:literal $kind:ident $has_mesh:literal [$(($label:literal, $values:expr)),*] $help:literal,)*) => {
        /// A metric. Those marked with a mesh have its slug as their first label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DaemonMetric {
            $(#[doc = $help] $variant,)*
        }

        impl DaemonMetric {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            pub(super) const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }

            pub(super) const fn kind(self) -> MetricType {
                match self { $(Self::$variant => MetricType::$kind,)* }
            }

            pub(super) const fn has_mesh(self) -> bool {
                match self { $(Self::$variant => $has_mesh,)* }
            }

            /// The labels after `mesh`.
            pub(super) const fn labels(self) -> &'static [LabelValues] {
                match self { $(Self::$variant => &[$(($label, $values)),*],)* }
            }
        }
    };
}

metrics! {
    Connected => "cm_daemon_connected" Gauge true [] "Whether the connection to the broker is open.",
    Reconnects => "cm_daemon_reconnects_total" Counter true [("reason", &["closed", "error", "stale"])] "Connections to the broker that ended and were tried again.",
    LagMs => "cm_daemon_lag_ms" Gauge true [] "Round trip to the broker in milliseconds.",
    OutboxDepth => "cm_daemon_outbox_depth" Gauge true [("status", &["pending", "inflight", "dead"])] "Rows of the outbox.",
    OutboxAge => "cm_daemon_outbox_age_seconds" Gauge true [] "Age of the oldest pending row of the outbox.",
    Dedupe => "cm_daemon_dedupe_total" Counter true [("direction", &["out", "in"])] "Messages that were found to be duplicates.",
    DiskPct => "cm_daemon_disk_pct" Gauge true [("kind", &["outbox", "inbox"])] "Used part of the space of a database in percent.",
    Send => "cm_daemon_send_total" Counter true [("kind", &["topic", "dm", "queue", "intent"]), ("status", &["done", "dead", "retry"])] "Outcomes of messages that were sent.",
    Recv => "cm_daemon_recv_total" Counter true [("kind", &["topic", "dm", "queue"]), ("from_type", &["peer", "apikey", "webhook"])] "Messages that were received.",
    HookInvocations => "cm_daemon_hook_invocations_total" Counter false [("hook", &[]), ("exit", &[])] "Runs of hooks by their exit.",
    HookDuration => "cm_daemon_hook_duration_seconds" Histogram false [("hook", &[])] "Duration of the runs of a hook.",
    HookCapabilityCalls => "cm_daemon_hook_capability_calls_total" Counter false [("hook", &[]), ("scope", &[])] "Requests with the token of a hook.",
    HookUnenforceable => "cm_daemon_hook_unenforceable_total" Counter false [("hook", &[]), ("reason", &[])] "Runs of hooks whose policy could not be enforced.",
    IpcRequests => "cm_daemon_ipc_request_total" Counter false [("endpoint", &[]), ("status", &[]), ("transport", &[])] "Requests to the local interface.",
    IpcDuration => "cm_daemon_ipc_duration_seconds" Histogram false [("endpoint", &[])] "Duration of requests to the local interface.",
    TokenRotations => "cm_daemon_local_token_rotations_total" Counter false [] "Rotations of the local token.",
    CloneSuspected => "cm_daemon_clone_suspected_total" Counter false [] "Starts on a machine other than the recorded one.",
    InvalidInbound => "cm_daemon_invalid_inbound_total" Counter false [] "Frames of the broker that were not valid.",
    DecryptArchived => "cm_daemon_decrypt_archived_total" Counter false [] "Messages that an archived key opened.",
    DecryptStale => "cm_daemon_decrypt_stale_total" Counter false [] "Messages that no key opened.",
    ArchiveForceExpired => "cm_daemon_archive_force_expired_total" Counter false [("key_id", &[])] "Archived keys that were removed because there were too many.",
    DedupeHistoryPruned => "cm_daemon_dedupe_history_pruned_total" Counter false [] "Duplicates whose first message the broker has removed.",
    RetryAfterDedupeExpired => "cm_daemon_retry_after_dedupe_expired_total" Counter false [] "Retries that came after the broker had forgotten their id.",
    LogLinesLost => "cm_daemon_log_lines_lost_total" Counter false [] "Lines of the log that could not be written.",
}

impl DaemonMetric {
    /// The label values that are known from the start, in all combinations; none if one label has no known values.
    pub(super) fn known_labels(self) -> Vec<Vec<&'static str>> {
        let mut known = vec![Vec::new()];
        for (_, values) in self.labels() {
            known = known
                .iter()
                .flat_map(|before: &Vec<&'static str>| {
                    values.iter().map(|value| [&before[..], &[*value]].concat())
                })
                .collect();
        }
        known
    }
}
