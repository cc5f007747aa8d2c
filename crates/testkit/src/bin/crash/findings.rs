//! Promises, how often each was checked, and where one was broken.
//!
//! Invariant: a promise that was never checked is not kept but unproven, and counts as broken.

use std::collections::BTreeMap;

use crate::fault::Fault;

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
    LateRefused,
    HealthyAnswers,
    TroubleAnswered,
    Heals,
    EndsAfterLostSync,
    BackupWhole,
}

impl Promise {
    const ALL: [Self; 15] = [
        Self::PublishSurvives,
        Self::SettlementSurvives,
        Self::LeaseSurvives,
        Self::OneLease,
        Self::TokenChecked,
        Self::OfferedAgain,
        Self::OnceKey,
        Self::StoreSound,
        Self::SyncPerCommit,
        Self::LateRefused,
        Self::HealthyAnswers,
        Self::TroubleAnswered,
        Self::Heals,
        Self::EndsAfterLostSync,
        Self::BackupWhole,
    ];

    /// Whether a campaign with these faults must have checked it.
    fn is_due(self, faults: &[Fault]) -> bool {
        let any = |wanted: &[Fault]| faults.iter().any(|fault| wanted.contains(fault));
        match self {
            Self::PublishSurvives
            | Self::SettlementSurvives
            | Self::LeaseSurvives
            | Self::OneLease
            | Self::TokenChecked
            | Self::OfferedAgain
            | Self::OnceKey
            | Self::StoreSound
            | Self::SyncPerCommit => true,
            Self::LateRefused => any(&[Fault::Stop]),
            Self::HealthyAnswers => {
                any(&[Fault::Kill, Fault::Failpoint, Fault::Power, Fault::Stop])
            }
            Self::TroubleAnswered | Self::Heals => any(&[Fault::Full, Fault::Eio]),
            Self::EndsAfterLostSync => any(&[Fault::Eio]),
            Self::BackupWhole => any(&[Fault::Failpoint]),
        }
    }

    fn test(self) -> &'static str {
        match self {
            Self::PublishSurvives => "crash_ip_006_every_acknowledged_publish_survives",
            Self::SettlementSurvives => "crash_accepted_fulfils_and_fails_survive",
            Self::LeaseSurvives => "crash_a_lease_that_was_granted_survives",
            Self::OneLease => "crash_ip_004_no_intent_had_two_live_leases",
            Self::TokenChecked => "crash_ip_007_stale_and_foreign_tokens_are_always_refused",
            Self::OfferedAgain => "crash_ip_002_what_a_vanished_worker_held_is_offered_again",
            Self::OnceKey => "crash_a_once_key_admits_once_whatever_was_lost",
            Self::StoreSound => "crash_the_store_is_sound_after_each_fault",
            Self::SyncPerCommit => "crash_sync_per_acknowledged_batch",
            Self::LateRefused => "crash_whoever_comes_after_its_lease_is_refused",
            Self::HealthyAnswers => "crash_nobody_hears_of_trouble_while_the_disk_is_healthy",
            Self::TroubleAnswered => "crash_ip_162_a_disk_in_trouble_is_answered_with_an_error",
            Self::Heals => "crash_ip_162_a_disk_that_healed_is_written_to_again",
            Self::EndsAfterLostSync => "crash_a_server_whose_sync_failed_ends_and_says_so",
            Self::BackupWhole => "crash_a_backup_taken_under_load_is_whole",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    checked: BTreeMap<Promise, u64>,
    broken: BTreeMap<Promise, Vec<String>>,
    /// The faults of a campaign that came to its end, so that a promise without a check is a gap.
    completed: Option<Vec<Fault>>,
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

    /// All phases ran, with each of these faults.
    pub(crate) fn completed(&mut self, faults: &[Fault]) {
        self.completed = Some(faults.to_vec());
    }

    /// The promises that were broken, by name.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        self.broken.keys().map(|promise| promise.test()).collect()
    }

    /// Test name, evidence against it, and number of checks. After a broken promise the campaign
    /// stops, and what it could not check any more is left out.
    pub(crate) fn verdicts(&self) -> Vec<(&'static str, Vec<String>, u64)> {
        let mut verdicts = Vec::new();
        for promise in Promise::ALL {
            let checked = self.checked.get(&promise).copied().unwrap_or(0);
            let mut evidence = self.broken.get(&promise).cloned().unwrap_or_default();
            evidence.dedup();
            let due = self
                .completed
                .as_ref()
                .is_some_and(|faults| promise.is_due(faults));
            if checked == 0 && due {
                evidence.push("nothing was checked, so nothing is proven".to_owned());
            }
            if checked > 0 || due {
                verdicts.push((promise.test(), evidence, checked));
            }
        }
        verdicts
    }
}
