//! The Intent Protocol's profile: open, claimed, fulfilled, dead.
//!
//! An open intent whose life time ends is deleted, not moved, so there is no expiry out of
//! `Queued`. Cancel and retry work from every state, because the protocol's admin calls do.

use super::{
    Completion, Delivery, Expiry, Face, LifeClock, LifeEnd, Profile, ProfileId, Retention,
    RetrySeed, Unconsented, row,
};
use crate::limits;
use crate::retry::Backoff;
use crate::state::Cause;
use crate::state::State::{Acked, DeadLetter, Dispatched, Queued};
use crate::state::Verb::{Cancel, Claim, Complete, Expire, Extend, Fail, Requeue};

pub(super) static INTENT: Profile = Profile {
    id: ProfileId::Intent,
    face: Face::Intent,
    start: &[Queued],
    rows: &[
        row(Queued, Claim, &[Dispatched]),
        row(Queued, Cancel, &[DeadLetter]),
        row(Queued, Requeue, &[Queued]),
        // Taking a lease that ran out.
        row(Dispatched, Claim, &[Dispatched]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Complete, &[Acked]),
        row(Dispatched, Fail, &[Queued, DeadLetter]),
        row(Dispatched, Expire, &[Queued, DeadLetter]),
        row(Dispatched, Cancel, &[DeadLetter]),
        row(Dispatched, Requeue, &[Queued]),
        row(Acked, Cancel, &[DeadLetter]),
        row(Acked, Requeue, &[Queued]),
        row(DeadLetter, Cancel, &[DeadLetter]),
        row(DeadLetter, Requeue, &[Queued]),
    ],
    operator: &[
        (Queued, Cancel),
        (Queued, Requeue),
        (Dispatched, Cancel),
        (Dispatched, Requeue),
        (Acked, Cancel),
        (Acked, Requeue),
        (DeadLetter, Cancel),
        (DeadLetter, Requeue),
    ],
    unleased: &[],
    exits: &[],
    terminal: &[Acked, DeadLetter],
    words: &[
        (Queued, None, "open"),
        (Dispatched, None, "claimed"),
        (Acked, None, "fulfilled"),
        (DeadLetter, None, "dead"),
    ],
    cancel_cause: Cause::Cancelled,
    expiry: Expiry::TakeOver,
    retry: Backoff::intent,
    retry_seed: RetrySeed::Random,
    retention: Retention::ForUs(limits::RETENTION_US),
    life_end: LifeEnd::Park,
    life_clock: LifeClock::Engine,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: None,
};
