//! The circuit breaker of one plugin command: it stops scheduled jobs that keep failing.
//!
//! Only scheduled jobs are counted and checked. The breaker has no clock and no store: the caller saves the value and the
//! transitions together.

use std::time::Duration;

use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    pub threshold: u32,
    pub reset_after: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            threshold: 3,
            reset_after: Duration::from_mins(30),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    #[default]
    Closed,
    Open,
    HalfOpen,
}

impl BreakerState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Closed, Self::Open, Self::HalfOpen]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionReason {
    FailureThreshold,
    Success,
    CooldownElapsed,
    ManualReset,
}

impl TransitionReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FailureThreshold => "failure_threshold",
            Self::Success => "success",
            Self::CooldownElapsed => "cooldown_elapsed",
            Self::ManualReset => "manual_reset",
        }
    }
}

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerTransition {
    pub from: BreakerState,
    pub to: BreakerState,
    pub reason: TransitionReason,
    pub failures: u32,
    #[serde(with = "crate::instant")]
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Allowed,
    /// The circuit is open, or the probe of a half-open circuit has not ended yet.
    Refused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    pub state: BreakerState,
    /// Consecutive failures.
    pub failures: u32,
    #[serde(with = "crate::instant::maybe")]
    pub opened_at: Option<Timestamp>,
    /// The last job that was counted; observing it again changes nothing.
    pub last_job_id: Option<String>,
}

impl Breaker {
    /// Counts the final end of a scheduled job; a job with retries is counted once, when it is over.
    pub fn observe(
        &mut self,
        job_id: &str,
        succeeded: bool,
        policy: BreakerPolicy,
        now: Timestamp,
    ) -> Option<BreakerTransition> {
        if self.last_job_id.as_deref() == Some(job_id) {
            return None;
        }
        self.last_job_id = Some(job_id.to_owned());
        if succeeded {
            self.failures = 0;
            self.opened_at = None;
            return self.change(BreakerState::Closed, TransitionReason::Success, now);
        }
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            BreakerState::Closed if plant::on(Plant::BreakerStaysClosed) => false,
            BreakerState::Closed => self.failures >= policy.threshold.max(1),
            BreakerState::HalfOpen => true,
            // A job that was running when the circuit opened does not prolong the wait.
            BreakerState::Open => false,
        };
        if !opens {
            return None;
        }
        self.opened_at = Some(now);
        self.change(BreakerState::Open, TransitionReason::FailureThreshold, now)
    }

    /// Whether the scheduler may enqueue now. `outstanding` says whether a job of this command is queued or running: it is the
    /// probe of a half-open circuit, so a crash between this call and the enqueue leaves the circuit able to probe again.
    pub fn admit(
        &mut self,
        outstanding: bool,
        policy: BreakerPolicy,
        now: Timestamp,
    ) -> (Admission, Option<BreakerTransition>) {
        match self.state {
            BreakerState::Closed => (Admission::Allowed, None),
            BreakerState::HalfOpen if outstanding && !plant::on(Plant::TwoProbes) => {
                (Admission::Refused, None)
            }
            BreakerState::HalfOpen => (Admission::Allowed, None),
            BreakerState::Open if !self.cooled_down(policy, now) => (Admission::Refused, None),
            BreakerState::Open => {
                let transition = self.change(
                    BreakerState::HalfOpen,
                    TransitionReason::CooldownElapsed,
                    now,
                );
                let admission = if outstanding {
                    Admission::Refused
                } else {
                    Admission::Allowed
                };
                (admission, transition)
            }
        }
    }

    /// Closes the circuit on request of an operator. The transition is recorded even if nothing changes.
    pub fn reset(&mut self, now: Timestamp) -> BreakerTransition {
        let transition = BreakerTransition {
            from: self.state,
            to: BreakerState::Closed,
            reason: TransitionReason::ManualReset,
            failures: 0,
            at: now,
        };
        self.state = BreakerState::Closed;
        self.failures = 0;
        self.opened_at = None;
        transition
    }

    /// When an open circuit lets a probe through.
    pub fn probes_at(&self, policy: BreakerPolicy) -> Option<Timestamp> {
        let opened_at = self
            .opened_at
            .filter(|_| self.state == BreakerState::Open)?;
        Some(
            opened_at
                .saturating_add(policy.reset_after)
                .unwrap_or(Timestamp::MAX),
        )
    }

    fn cooled_down(&self, policy: BreakerPolicy, now: Timestamp) -> bool {
        let latest = now.saturating_add(policy.reset_after);
        let latest = latest.unwrap_or(Timestamp::MAX);
        // A later time means that the clock was set back after the circuit opened.
        self.opened_at.is_some_and(|at| at > latest)
            || self.probes_at(policy).is_none_or(|at| now >= at)
    }

    fn change(
        &mut self,
        to: BreakerState,
        reason: TransitionReason,
        at: Timestamp,
    ) -> Option<BreakerTransition> {
        if self.state == to {
            return None;
        }
        let from = std::mem::replace(&mut self.state, to);
        let failures = self.failures;
        Some(BreakerTransition {
            from,
            to,
            reason,
            failures,
            at,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for (job, second) in [("a", 0), ("b", 1), ("c", 2)] {
            breaker.observe(job, false, BreakerPolicy::default(), at(second));
        }
        breaker
    }

    #[test]
    fn third_failure_in_a_row_opens_and_a_success_between_starts_anew_du_074() {
        consign_testkit::plants::from_environment();
        let mut breaker = Breaker::default();
        let policy = BreakerPolicy::default();
        assert_eq!(breaker.observe("1", false, policy, at(0)), None);
        assert_eq!(breaker.observe("2", false, policy, at(1)), None);
        assert_eq!(breaker.observe("3", true, policy, at(2)), None);
        assert_eq!(breaker.observe("4", false, policy, at(3)), None);
        assert_eq!(breaker.observe("5", false, policy, at(4)), None);
        assert_eq!(breaker.observe("5", false, policy, at(5)), None, "seen");
        assert_eq!(
            breaker.admit(false, policy, at(5)),
            (Admission::Allowed, None)
        );
        let opened = breaker.observe("6", false, policy, at(6)).unwrap();
        assert_eq!(
            (opened.from, opened.to, opened.reason, opened.failures),
            (
                BreakerState::Closed,
                BreakerState::Open,
                TransitionReason::FailureThreshold,
                3
            )
        );
        assert_eq!(
            breaker.admit(false, policy, at(7)),
            (Admission::Refused, None)
        );
    }

    #[test]
    fn one_probe_after_the_wait_decides_du_076() {
        consign_testkit::plants::from_environment();
        let policy = BreakerPolicy::default();
        let mut breaker = opened();
        assert_eq!(breaker.probes_at(policy), Some(at(1_802)));
        assert_eq!(
            breaker.admit(false, policy, at(1_801)).0,
            Admission::Refused
        );
        let (admission, transition) = breaker.admit(false, policy, at(1_802));
        assert_eq!(admission, Admission::Allowed);
        assert_eq!(
            transition.unwrap().reason,
            TransitionReason::CooldownElapsed
        );
        assert_eq!(
            breaker.admit(true, policy, at(1_803)),
            (Admission::Refused, None),
            "the probe is out"
        );
        let mut healed = breaker.clone();
        let closed = healed.observe("p", true, policy, at(1_810)).unwrap();
        assert_eq!(
            (closed.from, closed.to, closed.reason),
            (
                BreakerState::HalfOpen,
                BreakerState::Closed,
                TransitionReason::Success
            )
        );
        assert_eq!(healed.failures, 0);
        let again = breaker.observe("p", false, policy, at(1_810)).unwrap();
        assert_eq!(
            (again.from, again.to),
            (BreakerState::HalfOpen, BreakerState::Open)
        );
        assert_eq!(breaker.probes_at(policy), Some(at(3_610)));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_keep_it_open() {
        let policy = BreakerPolicy::default();
        let mut breaker = opened();
        let admitted = |breaker: &mut Breaker, second| breaker.admit(false, policy, at(second)).0;
        assert_eq!(admitted(&mut breaker, -1_700), Admission::Refused);
        assert_eq!(admitted(&mut breaker, -100_000), Admission::Allowed);
    }

    #[test]
    fn reasons_and_states_have_their_words_and_reset_closes_du_077() {
        let mut breaker = opened();
        let reset = breaker.reset(at(9));
        assert_eq!(
            (reset.from, reset.to),
            (BreakerState::Open, BreakerState::Closed)
        );
        assert_eq!(reset.reason.as_str(), "manual_reset");
        assert_eq!(
            TransitionReason::FailureThreshold.as_str(),
            "failure_threshold"
        );
        assert_eq!(TransitionReason::Success.as_str(), "success");
        assert_eq!(
            TransitionReason::CooldownElapsed.as_str(),
            "cooldown_elapsed"
        );
        assert_eq!(
            breaker.admit(false, BreakerPolicy::default(), at(9)).0,
            Admission::Allowed
        );
        assert_eq!(
            BreakerState::parse("half_open"),
            Some(BreakerState::HalfOpen)
        );
        assert_eq!(BreakerState::parse("ajar"), None);
    }

    #[test]
    fn what_is_stored_keeps_its_shape_du_077() {
        let mut breaker = opened();
        let stored = r#"{"state":"open","failures":3,"opened_at":"2023-11-14T22:13:22.000000000Z","last_job_id":"c"}"#;
        assert_eq!(serde_json::to_string(&breaker).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Breaker>(stored).unwrap(), breaker);
        let transition = breaker.admit(false, BreakerPolicy::default(), at(1_802)).1;
        let stored = r#"{"from":"open","to":"half_open","reason":"cooldown_elapsed","failures":3,"at":"2023-11-14T22:43:22.000000000Z"}"#;
        assert_eq!(serde_json::to_string(&transition).unwrap(), stored);
        let read: BreakerTransition = serde_json::from_str(stored).unwrap();
        assert_eq!(Some(read), transition);
        for state in [
            BreakerState::Closed,
            BreakerState::Open,
            BreakerState::HalfOpen,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        let reasons = [
            TransitionReason::FailureThreshold,
            TransitionReason::Success,
            TransitionReason::CooldownElapsed,
            TransitionReason::ManualReset,
        ];
        for reason in reasons {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }

    proptest! {
        #[test]
        fn transitions_form_a_chain_and_open_always_knows_since_when_du_077(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0i64..2_000), 1..60),
        ) {
            let policy = BreakerPolicy::default();
            let mut breaker = Breaker::default();
            let mut last = BreakerState::Closed;
            let mut now = 0;
            for (number, (observes, flag, passed)) in steps.into_iter().enumerate() {
                now += passed;
                let transition = if observes {
                    breaker.observe(&number.to_string(), flag, policy, at(now))
                } else {
                    breaker.admit(flag, policy, at(now)).1
                };
                if let Some(transition) = transition {
                    prop_assert_eq!(transition.from, last);
                    prop_assert_ne!(transition.from, transition.to);
                    last = transition.to;
                }
                prop_assert_eq!(breaker.state, last);
                prop_assert_eq!(breaker.state == BreakerState::Closed, breaker.opened_at.is_none());
            }
        }
    }
}
