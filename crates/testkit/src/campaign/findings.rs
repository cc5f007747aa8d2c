//! Promises, how often each was checked, and where one was broken.
//!
//! Invariant: a promise that was never checked is not kept but unproven, and counts as broken.

use std::collections::BTreeMap;

/// The promises, by the name of the test that proves each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
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
    /// The fault reached somebody, or the round proves nothing.
    Felt,
    /// Each node works again soon after a fault is over.
    Alive,
    /// Whoever was to have another clock did read it.
    ClockMoved,
    /// Work that one node takes reaches whoever waits at another.
    Reached,
}

impl Promise {
    const ALL: [Self; 19] = [
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
        Self::Felt,
        Self::Alive,
        Self::ClockMoved,
        Self::Reached,
    ];

    /// What every campaign must have checked, whatever its faults.
    pub const ALWAYS: [Self; 8] = [
        Self::PublishSurvives,
        Self::SettlementSurvives,
        Self::LeaseSurvives,
        Self::OneLease,
        Self::TokenChecked,
        Self::OfferedAgain,
        Self::OnceKey,
        Self::StoreSound,
    ];

    /// The name of its test, without that of the campaign.
    fn test(self) -> &'static str {
        match self {
            Self::PublishSurvives => "ip_006_every_acknowledged_publish_survives",
            Self::SettlementSurvives => "accepted_fulfils_and_fails_survive",
            Self::LeaseSurvives => "a_lease_that_was_granted_survives",
            Self::OneLease => "ip_004_no_intent_had_two_live_leases",
            Self::TokenChecked => "ip_007_stale_and_foreign_tokens_are_always_refused",
            Self::OfferedAgain => "ip_002_what_a_vanished_worker_held_is_offered_again",
            Self::OnceKey => "a_once_key_admits_once_whatever_was_lost",
            Self::StoreSound => "the_store_is_sound_after_each_fault",
            Self::SyncPerCommit => "sync_per_acknowledged_batch",
            Self::LateRefused => "whoever_comes_after_its_lease_is_refused",
            Self::HealthyAnswers => "nobody_hears_of_trouble_while_the_disk_is_healthy",
            Self::TroubleAnswered => "ip_162_a_disk_in_trouble_is_answered_with_an_error",
            Self::Heals => "ip_162_a_disk_that_healed_is_written_to_again",
            Self::EndsAfterLostSync => "a_server_whose_sync_failed_ends_and_says_so",
            Self::BackupWhole => "a_backup_taken_under_load_is_whole",
            Self::Felt => "somebody_felt_each_fault",
            Self::Alive => "every_node_works_again_soon_after_a_fault",
            Self::ClockMoved => "a_clock_that_was_moved_was_read",
            Self::Reached => "whoever_waits_at_another_node_gets_an_intent",
        }
    }
}

#[derive(Debug)]
pub struct Findings {
    /// The campaign, with which the names of its tests begin.
    campaign: &'static str,
    checked: BTreeMap<Promise, u64>,
    broken: BTreeMap<Promise, Vec<String>>,
    /// What a campaign that came to its end must have checked, so that a promise without a check is a gap.
    due: Vec<Promise>,
}

impl Findings {
    pub fn new(campaign: &'static str) -> Self {
        Self {
            campaign,
            checked: BTreeMap::new(),
            broken: BTreeMap::new(),
            due: Vec::new(),
        }
    }

    /// Notes one check; the evidence is only asked for when the promise was broken.
    pub fn check(&mut self, promise: Promise, kept: bool, evidence: impl FnOnce() -> String) {
        *self.checked.entry(promise).or_default() += 1;
        if !kept {
            self.broken.entry(promise).or_default().push(evidence());
        }
    }

    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// All phases ran, so that these must have been checked.
    pub fn completed(&mut self, due: Vec<Promise>) {
        self.due = due;
    }

    /// The promises that were broken, by name.
    pub fn broken(&self) -> Vec<String> {
        self.broken
            .keys()
            .map(|promise| self.name(*promise))
            .collect()
    }

    fn name(&self, promise: Promise) -> String {
        format!("{}_{}", self.campaign, promise.test())
    }

    /// Test name, evidence against it, and number of checks. After a broken promise the campaign
    /// stops, and what it could not check any more is left out.
    pub fn verdicts(&self) -> Vec<(String, Vec<String>, u64)> {
        let mut verdicts = Vec::new();
        for promise in Promise::ALL {
            let checked = self.checked.get(&promise).copied().unwrap_or(0);
            let mut evidence = self.broken.get(&promise).cloned().unwrap_or_default();
            evidence.dedup();
            let due = self.due.contains(&promise);
            if checked == 0 && due {
                evidence.push("nothing was checked, so nothing is proven".to_owned());
            }
            if checked > 0 || due {
                verdicts.push((self.name(promise), evidence, checked));
            }
        }
        verdicts
    }
}
