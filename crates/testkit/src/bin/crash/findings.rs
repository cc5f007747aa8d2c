//! Promises, how often each was checked, and where one was broken.
//!
//! Invariant: a promise that was never checked is not kept but unproven, and counts as broken.

use std::collections::BTreeMap;

/// The promises, by the name of the test that proves each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    PublishSurvives,
    SettlementSurvives,
    LeaseSurvives,
    OneLease,
    TokenChecked,
    OfferedAgain,
    OnceKey,
    StoreSound,
    SyncPerCommit,
}

impl Promise {
    const ALL: [Self; 9] = [
        Self::PublishSurvives,
        Self::SettlementSurvives,
        Self::LeaseSurvives,
        Self::OneLease,
        Self::TokenChecked,
        Self::OfferedAgain,
        Self::OnceKey,
        Self::StoreSound,
        Self::SyncPerCommit,
    ];

    fn test(self) -> &'static str {
        match self {
            Self::PublishSurvives => "crash_ip_006_every_acknowledged_publish_survives_a_kill",
            Self::SettlementSurvives => "crash_accepted_fulfils_and_fails_survive_a_kill",
            Self::LeaseSurvives => "crash_a_lease_that_was_granted_survives_a_kill",
            Self::OneLease => "crash_ip_004_no_intent_had_two_live_leases",
            Self::TokenChecked => "crash_ip_007_stale_and_foreign_tokens_are_always_refused",
            Self::OfferedAgain => "crash_ip_002_what_a_vanished_worker_held_is_offered_again",
            Self::OnceKey => "crash_a_once_key_admits_once_whatever_was_lost",
            Self::StoreSound => "crash_the_store_is_sound_after_kills",
            Self::SyncPerCommit => "crash_sync_per_acknowledged_batch",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    checked: BTreeMap<Promise, u64>,
    broken: BTreeMap<Promise, Vec<String>>,
    complete: bool,
}

impl Findings {
    /// Notes one check; the evidence is only asked for when the promise was broken.
    pub(crate) fn check(
        &mut self,
        promise: Promise,
        kept: bool,
        evidence: impl FnOnce() -> String,
    ) {
        *self.checked.entry(promise).or_default() += 1;
        if !kept {
            self.broken.entry(promise).or_default().push(evidence());
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// All phases ran, so a promise without a check is a gap.
    pub(crate) fn completed(&mut self) {
        self.complete = true;
    }

    /// Test name, evidence against it, and number of checks. After a broken promise the campaign
    /// stops, and what it could not check any more is left out.
    pub(crate) fn verdicts(&self) -> Vec<(&'static str, Vec<String>, u64)> {
        let mut verdicts = Vec::new();
        for promise in Promise::ALL {
            let checked = self.checked.get(&promise).copied().unwrap_or(0);
            let mut evidence = self.broken.get(&promise).cloned().unwrap_or_default();
            evidence.dedup();
            if checked == 0 && self.complete {
                evidence.push("nothing was checked, so nothing is proven".to_owned());
            }
            if checked > 0 || self.complete {
                verdicts.push((promise.test(), evidence, checked));
            }
        }
        verdicts
    }
}
