//! Promises: how often each was checked, and the violations.
//!
//! Invariant: a promise that was never checked is unproven and counts as broken.

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
    /// A client noticed the fault; otherwise the round proves nothing.
    Felt,
    /// Each node works again soon after a fault is over.
    Alive,
    /// The process whose clock was moved has read it.
    ClockMoved,
    /// An intent published on one node reaches a waiting client on another.
    Reached,
    BeamResultStays,
    BeamOneResult,
    BeamNonceFree,
    BeamStoredFirst,
    BeamDeliveredOpen,
    BeamLegalSteps,
    BusMessageStays,
    BusNonceOnce,
    BusAckStays,
    BusLegalSteps,
    BeamEnds,
    MeshMessageStays,
    MeshOneMessage,
    MeshPushStored,
    MeshReached,
}

impl Promise {
    const ALL: [Self; 34] = [
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
        Self::BeamResultStays,
        Self::BeamOneResult,
        Self::BeamNonceFree,
        Self::BeamStoredFirst,
        Self::BeamDeliveredOpen,
        Self::BeamLegalSteps,
        Self::BusMessageStays,
        Self::BusNonceOnce,
        Self::BusAckStays,
        Self::BusLegalSteps,
        Self::BeamEnds,
        Self::MeshMessageStays,
        Self::MeshOneMessage,
        Self::MeshPushStored,
        Self::MeshReached,
    ];

    /// The promises about the mesh that a campaign with its members must check.
    pub const MESH: [Self; 4] = [
        Self::MeshMessageStays,
        Self::MeshOneMessage,
        Self::MeshPushStored,
        Self::MeshReached,
    ];

    /// The promises about Beam that a campaign with its clients must check.
    pub const BEAM: [Self; 10] = [
        Self::BeamResultStays,
        Self::BeamOneResult,
        Self::BeamNonceFree,
        Self::BeamStoredFirst,
        Self::BeamLegalSteps,
        Self::BusMessageStays,
        Self::BusNonceOnce,
        Self::BusAckStays,
        Self::BusLegalSteps,
        Self::BeamEnds,
    ];

    /// The promises that every campaign must check.
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

    /// The name of its test, without the campaign.
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
            Self::BeamResultStays => {
                "be_094_be_155_a_result_that_a_sender_got_is_stored_and_repeated"
            }
            Self::BeamOneResult => "be_095_a_nonce_is_never_answered_with_two_results",
            Self::BeamNonceFree => "be_098_a_nonce_is_refused_for_another_intent_only",
            Self::BeamStoredFirst => "an_intent_is_stored_before_its_recipient_gets_it",
            Self::BeamDeliveredOpen => "be_154_a_delivered_intent_is_failed_by_its_timeout_only",
            Self::BeamLegalSteps => "be_008_every_trace_is_a_walk_of_legal_steps",
            Self::BusMessageStays => "be_045_an_accepted_message_survives_with_its_content",
            Self::BusNonceOnce => "be_024_be_025_a_nonce_of_the_bus_is_one_message",
            Self::BusAckStays => "be_038_an_acknowledged_message_keeps_its_first_response",
            Self::BusLegalSteps => "be_006_be_007_the_events_of_a_message_are_legal_steps",
            Self::BeamEnds => "every_intent_and_message_comes_to_its_end",
            Self::MeshMessageStays => "cm_071_an_accepted_message_of_the_mesh_is_accepted_once",
            Self::MeshOneMessage => "an_id_of_the_mesh_never_stands_for_two_messages",
            Self::MeshPushStored => "cm_074_a_message_of_the_mesh_is_stored_before_it_is_pushed",
            Self::MeshReached => "every_accepted_message_of_the_mesh_reaches_its_recipient",
        }
    }
}

#[derive(Debug)]
pub struct Findings {
    /// The campaign, which is the prefix of the test names.
    campaign: &'static str,
    checked: BTreeMap<Promise, u64>,
    broken: BTreeMap<Promise, Vec<String>>,
    /// The promises that a finished campaign must have checked; a promise without a check is a gap.
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

    /// Records one check; the evidence is built only for a violation.
    pub fn check(&mut self, promise: Promise, kept: bool, evidence: impl FnOnce() -> String) {
        *self.checked.entry(promise).or_default() += 1;
        if !kept {
            self.broken.entry(promise).or_default().push(evidence());
        }
    }

    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// The campaign is complete, so these promises must have been checked.
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

    /// Test name, evidence of violations, and number of checks. After a violation the campaign stops, and promises
    /// without a check are left out.
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
