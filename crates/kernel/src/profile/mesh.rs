//! The mesh outbox's profile: pending, inflight, done, dead, aborted.
//!
//! There is no requeue: the operator's requeue retires the old row for ever and admits a new one
//! under a new id. The table cannot see causes, so the rule for cancel refuses a row that is aborted
//! already.

use super::{
    Completion, Delivery, Expiry, Face, LifeClock, LifeEnd, Profile, ProfileId, Retention,
    RetrySeed, Unconsented, row,
};
use crate::limits;
use crate::retry::Backoff;
use crate::state::Cause::{self, Aborted, Cancelled};
use crate::state::State::{Acked, DeadLetter, Dispatched, Queued};
use crate::state::Verb::{Cancel, Claim, Complete, Expire, Extend, Fail, Kill, Recover, Retry};

/// A resend right after a crash would meet a broker still busy with the first send.
const RESEND_PAUSE_MS: u32 = 500;

/// The protocol's word for a message that is past its maximum age.
const TOO_OLD: &str = "max_age_exceeded";

pub(super) static OUTBOX: Profile = Profile {
    id: ProfileId::MeshOutbox,
    face: Face::Mesh,
    start: &[Queued],
    rows: &[
        row(Queued, Claim, &[Dispatched]),
        // Too old to send.
        row(Queued, Expire, &[DeadLetter]),
        row(Queued, Cancel, &[DeadLetter]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Complete, &[Acked]),
        row(Dispatched, Fail, &[Queued, DeadLetter]),
        row(Dispatched, Retry, &[Queued]),
        row(Dispatched, Kill, &[DeadLetter]),
        row(Dispatched, Expire, &[Queued, DeadLetter]),
        row(Dispatched, Recover, &[Queued]),
        row(Dispatched, Cancel, &[DeadLetter]),
        row(DeadLetter, Cancel, &[DeadLetter]),
    ],
    operator: &[(Queued, Cancel), (Dispatched, Cancel), (DeadLetter, Cancel)],
    unleased: &[],
    exits: &[],
    terminal: &[Acked, DeadLetter],
    words: &[
        (Queued, None, "pending"),
        (Dispatched, None, "inflight"),
        (Acked, None, "done"),
        (DeadLetter, Some(Aborted), "aborted"),
        (DeadLetter, Some(Cancelled), "aborted"),
        (DeadLetter, None, "dead"),
    ],
    cancel_cause: Cause::Aborted,
    expiry: Expiry::DueIn {
        ms: RESEND_PAUSE_MS,
    },
    retry: |_| Backoff::mesh(),
    retry_seed: RetrySeed::Random,
    retention: Retention::ForUs(limits::RETENTION_US),
    life_end: LifeEnd::Dead {
        reason: Some(TOO_OLD),
    },
    life_clock: LifeClock::Engine,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: None,
};
