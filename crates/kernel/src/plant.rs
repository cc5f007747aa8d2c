//! Defects planted on purpose, so that the tests can prove that they would notice.
//!
//! Invariant: without the feature `planted`, which no shipped binary has, [`on`] is a constant `false`
//! and every planted branch compiles to nothing.

/// One planted defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    AnswerBeforeCommit,
    SkipTokenCheck,
    SkipReplayCheck,
    CrossNamespaces,
    PrivateIsPublic,
    ForgetAttempt,
    FlatBackoff,
    IgnoreFingerprint,
    CapabilityByPrefix,
    NeverDead,
    AdminFallback,
    DropFrameHeader,
    NoRateLimit,
    NormalSync,
    LostWake,
    JitterOutOfRange,
    OnceApart,
    SweepLiveLease,
    DedupeByLook,
    WallClockTime,
    TornBatch,
    StaleReceipt,
    UnboundedOutput,
    SignalLeaderOnly,
    DefaultDeadline,
    RetryRefused,
    EnvironmentLeak,
    TrimmedSignature,
    UnsignedWebhook,
    ReaderWrites,
    RootIsTree,
    SealWarns,
    ExactRedaction,
    KeyIsTarget,
    EndlessDedupe,
    BaggageOverwritten,
    BreakerStaysClosed,
    TwoProbes,
    FreeRecovery,
    SpentShotFires,
    OtherZone,
    OpenEnd,
    EndlessHops,
    FactsApart,
    ForgottenHooks,
    RailBeforeCommit,
    UnknownIsPaid,
    SettleUnseen,
    KeyWithoutIntent,
    UncountedExecution,
    CapForEach,
    BurnBeforeSignature,
    UnsignedCallback,
    UnfencedLease,
    ExecuteExpired,
    UnlistedRefund,
    EmbeddedKey,
    AnyRequest,
    EverybodyWaits,
    GroupRefused,
}

impl Plant {
    pub const ALL: &[Self] = &[
        Self::AnswerBeforeCommit,
        Self::SkipTokenCheck,
        Self::SkipReplayCheck,
        Self::CrossNamespaces,
        Self::PrivateIsPublic,
        Self::ForgetAttempt,
        Self::FlatBackoff,
        Self::IgnoreFingerprint,
        Self::CapabilityByPrefix,
        Self::NeverDead,
        Self::AdminFallback,
        Self::DropFrameHeader,
        Self::NoRateLimit,
        Self::NormalSync,
        Self::LostWake,
        Self::JitterOutOfRange,
        Self::OnceApart,
        Self::SweepLiveLease,
        Self::DedupeByLook,
        Self::WallClockTime,
        Self::TornBatch,
        Self::StaleReceipt,
        Self::UnboundedOutput,
        Self::SignalLeaderOnly,
        Self::DefaultDeadline,
        Self::RetryRefused,
        Self::EnvironmentLeak,
        Self::TrimmedSignature,
        Self::UnsignedWebhook,
        Self::ReaderWrites,
        Self::RootIsTree,
        Self::SealWarns,
        Self::ExactRedaction,
        Self::KeyIsTarget,
        Self::EndlessDedupe,
        Self::BaggageOverwritten,
        Self::BreakerStaysClosed,
        Self::TwoProbes,
        Self::FreeRecovery,
        Self::SpentShotFires,
        Self::OtherZone,
        Self::OpenEnd,
        Self::EndlessHops,
        Self::FactsApart,
        Self::ForgottenHooks,
        Self::RailBeforeCommit,
        Self::UnknownIsPaid,
        Self::SettleUnseen,
        Self::KeyWithoutIntent,
        Self::UncountedExecution,
        Self::CapForEach,
        Self::BurnBeforeSignature,
        Self::UnsignedCallback,
        Self::UnfencedLease,
        Self::ExecuteExpired,
        Self::UnlistedRefund,
        Self::EmbeddedKey,
        Self::AnyRequest,
        Self::EverybodyWaits,
        Self::GroupRefused,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AnswerBeforeCommit => "answer-before-commit",
            Self::SkipTokenCheck => "skip-token-check",
            Self::SkipReplayCheck => "skip-replay-check",
            Self::CrossNamespaces => "cross-namespaces",
            Self::PrivateIsPublic => "private-is-public",
            Self::ForgetAttempt => "forget-attempt",
            Self::FlatBackoff => "flat-backoff",
            Self::IgnoreFingerprint => "ignore-fingerprint",
            Self::CapabilityByPrefix => "capability-by-prefix",
            Self::NeverDead => "never-dead",
            Self::AdminFallback => "admin-fallback",
            Self::DropFrameHeader => "drop-frame-header",
            Self::NoRateLimit => "no-rate-limit",
            Self::NormalSync => "normal-sync",
            Self::LostWake => "lost-wake",
            Self::JitterOutOfRange => "jitter-out-of-range",
            Self::OnceApart => "once-apart",
            Self::SweepLiveLease => "sweep-live-lease",
            Self::DedupeByLook => "dedupe-by-look",
            Self::WallClockTime => "wall-clock-time",
            Self::TornBatch => "torn-batch",
            Self::StaleReceipt => "stale-receipt",
            Self::UnboundedOutput => "unbounded-output",
            Self::SignalLeaderOnly => "signal-leader-only",
            Self::DefaultDeadline => "default-deadline",
            Self::RetryRefused => "retry-refused",
            Self::EnvironmentLeak => "environment-leak",
            Self::TrimmedSignature => "trimmed-signature",
            Self::UnsignedWebhook => "unsigned-webhook",
            Self::ReaderWrites => "reader-writes",
            Self::RootIsTree => "root-is-tree",
            Self::SealWarns => "seal-warns",
            Self::ExactRedaction => "exact-redaction",
            Self::KeyIsTarget => "key-is-target",
            Self::EndlessDedupe => "endless-dedupe",
            Self::BaggageOverwritten => "baggage-overwritten",
            Self::BreakerStaysClosed => "breaker-stays-closed",
            Self::TwoProbes => "two-probes",
            Self::FreeRecovery => "free-recovery",
            Self::SpentShotFires => "spent-shot-fires",
            Self::OtherZone => "other-zone",
            Self::OpenEnd => "open-end",
            Self::EndlessHops => "endless-hops",
            Self::FactsApart => "facts-apart",
            Self::ForgottenHooks => "forgotten-hooks",
            Self::RailBeforeCommit => "rail-before-commit",
            Self::UnknownIsPaid => "unknown-is-paid",
            Self::SettleUnseen => "settle-unseen",
            Self::KeyWithoutIntent => "key-without-intent",
            Self::UncountedExecution => "uncounted-execution",
            Self::CapForEach => "cap-for-each",
            Self::BurnBeforeSignature => "burn-before-signature",
            Self::UnsignedCallback => "unsigned-callback",
            Self::UnfencedLease => "unfenced-lease",
            Self::ExecuteExpired => "execute-expired",
            Self::UnlistedRefund => "unlisted-refund",
            Self::EmbeddedKey => "embedded-key",
            Self::AnyRequest => "any-request",
            Self::EverybodyWaits => "everybody-waits",
            Self::GroupRefused => "group-refused",
        }
    }
}

/// The active defect as its number plus one; zero for none. A process has one at a time, which `CONSIGN_PLANT` names.
#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Activates a defect for the rest of the process, instead of the one that was active. Returns whether the name is known.
#[cfg(feature = "planted")]
pub fn set(name: &str) -> bool {
    let Some(plant) = Plant::ALL.iter().find(|plant| plant.name() == name) else {
        return false;
    };
    PLANTED.store(*plant as usize + 1, std::sync::atomic::Ordering::Relaxed);
    true
}

#[cfg(feature = "planted")]
pub fn on(plant: Plant) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == plant as usize + 1
}

#[cfg(not(feature = "planted"))]
pub const fn on(_: Plant) -> bool {
    false
}

/// Plants what the environment names; the tests of this crate have no testkit to do it for them.
#[cfg(test)]
pub(crate) fn wake_from_environment() {
    #[cfg(feature = "planted")]
    #[expect(
        clippy::disallowed_methods,
        reason = "a test process is told by its environment which defect to wake"
    )]
    if let Ok(name) = std::env::var("CONSIGN_PLANT") {
        assert!(set(&name), "CONSIGN_PLANT={name} is no planted defect");
    }
}
