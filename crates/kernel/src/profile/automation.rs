//! The automation profile: queued, running, succeeded, failed, timed out, dead.
//!
//! A failing attempt is two steps in one commit: running to failed, then failed to queued or dead.
//! A row found at rest in `Failed` failed for good (no retry could cure it), so `Failed` counts as
//! terminal and the second step is an exit.

use super::{
    Completion, Delivery, Expiry, Face, LifeClock, LifeEnd, Profile, ProfileId, Retention,
    RetrySeed, Unconsented, row,
};
use crate::limits;
use crate::retry::Backoff;
use crate::state::Cause::{self, LeaseExpired, TimedOut};
use crate::state::State::{Acked, DeadLetter, Dispatched, Failed, Queued};
use crate::state::Verb::{
    Cancel, Claim, Complete, Expire, Extend, Fail, Kill, Recover, Requeue, Retry,
};

pub(super) static AUTOMATION: Profile = Profile {
    id: ProfileId::Automation,
    face: Face::Automation,
    start: &[Queued],
    rows: &[
        row(Queued, Claim, &[Dispatched]),
        // Also asked by the scheduler (cancel the one that runs) and by a reload (plugin removed).
        row(Queued, Cancel, &[DeadLetter]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Complete, &[Acked]),
        row(Dispatched, Fail, &[Failed]),
        row(Dispatched, Expire, &[Failed]),
        row(Dispatched, Cancel, &[DeadLetter]),
        // Given back by a holder that could not begin: no attempt was made.
        row(Dispatched, Retry, &[Queued]),
        // A crash is no outcome of the attempt: the orphan skips `Failed`.
        row(Dispatched, Recover, &[Queued, DeadLetter]),
        row(Failed, Retry, &[Queued]),
        row(Failed, Kill, &[DeadLetter]),
        row(Failed, Requeue, &[Queued]),
        row(DeadLetter, Requeue, &[Queued]),
    ],
    operator: &[
        (Queued, Cancel),
        (Dispatched, Cancel),
        (Failed, Requeue),
        (DeadLetter, Requeue),
    ],
    unleased: &[],
    exits: &[(Failed, Retry), (Failed, Kill)],
    terminal: &[Acked, Failed, DeadLetter],
    words: &[
        (Queued, None, "queued"),
        (Dispatched, None, "running"),
        (Acked, None, "succeeded"),
        (Failed, Some(TimedOut), "timed_out"),
        (Failed, Some(LeaseExpired), "timed_out"),
        (Failed, None, "failed"),
        (DeadLetter, None, "dead"),
    ],
    cancel_cause: Cause::Cancelled,
    expiry: Expiry::FailAttempt,
    retry: Backoff::automation,
    retry_seed: RetrySeed::Random,
    retention: Retention::ForUs(limits::RETENTION_US),
    life_end: LifeEnd::Park,
    life_clock: LifeClock::Engine,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: true,
    recovery_counts: true,
    keeps_past_id: true,
    dedupe: None,
};
