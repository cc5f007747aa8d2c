//! The mesh broker's profiles: an accepted message, its delivery to one recipient, and an item of a named queue.
//!
//! A message has its mesh as namespace, its destination in `goal` (kind) and `target` (reference), the client's id in
//! `capability` and its sender in `ties`. No claim finds it. A delivery has its message as parent, so that the message is
//! stored once for all of its recipients.

use super::{
    Completion, Delivery, Expiry, Face, LifeClock, LifeEnd, Profile, ProfileId, Retention,
    RetrySeed, Unconsented, row,
};
use crate::limits;
use crate::once::Scope;
use crate::retry::Backoff;
use crate::state::Cause;
use crate::state::State::{Acked, DeadLetter, Delivered, Dispatched, Queued, Received};
use crate::state::Verb::{
    Cancel, Claim, Complete, Deliver, Expire, Extend, Fail, Recover, Requeue, Retry,
};

/// It is kept until the end of its life. One that no recipient has acknowledged by its `run_at` ends then.
pub(super) static MESSAGE: Profile = Profile {
    id: ProfileId::MeshMessage,
    face: Face::Mesh,
    start: &[Received],
    rows: &[row(Received, Deliver, &[Delivered])],
    operator: &[],
    unleased: &[(Received, Deliver)],
    exits: &[],
    terminal: &[],
    words: &[(Received, None, "accepted"), (Delivered, None, "delivered")],
    cancel_cause: Cause::Cancelled,
    expiry: Expiry::NoLease,
    retry: |_| Backoff::mesh(),
    retry_seed: RetrySeed::Random,
    retention: Retention::Forever,
    life_end: LifeEnd::Remove,
    life_clock: LifeClock::Engine,
    delivered: Delivery::Rests,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: Some(Scope::MeshMessage),
};

/// The lease lasts as long as the connection that pushed it may take to acknowledge. A recipient whose lease has ended
/// acknowledges without one.
pub(super) static DELIVERY: Profile = Profile {
    id: ProfileId::MeshDelivery,
    face: Face::Mesh,
    start: &[Queued],
    rows: &[
        row(Queued, Claim, &[Dispatched]),
        row(Queued, Complete, &[Acked]),
        row(Queued, Cancel, &[DeadLetter]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Complete, &[Acked]),
        // The connection ended.
        row(Dispatched, Retry, &[Queued]),
        row(Dispatched, Expire, &[Queued]),
        row(Dispatched, Recover, &[Queued]),
        row(Dispatched, Cancel, &[DeadLetter]),
        row(Acked, Complete, &[Acked]),
    ],
    operator: &[(Queued, Cancel), (Dispatched, Cancel)],
    unleased: &[(Queued, Complete), (Acked, Complete)],
    exits: &[],
    terminal: &[Acked, DeadLetter],
    words: &[
        (Queued, None, "queued"),
        (Dispatched, None, "claimed"),
        (Acked, None, "delivered"),
        (DeadLetter, None, "cancelled"),
    ],
    cancel_cause: Cause::Cancelled,
    expiry: Expiry::InPlace,
    retry: |_| Backoff::mesh(),
    retry_seed: RetrySeed::Random,
    retention: Retention::ForUs(limits::RETENTION_US),
    life_end: LifeEnd::Remove,
    life_clock: LifeClock::Engine,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: None,
};

/// It waits for workers of the Intent Protocol, so its leases end as theirs do.
pub(super) static QUEUE: Profile = Profile {
    id: ProfileId::MeshQueue,
    face: Face::Mesh,
    start: &[Queued],
    rows: &[
        row(Queued, Claim, &[Dispatched]),
        row(Queued, Cancel, &[DeadLetter]),
        // Taking a lease that ran out.
        row(Dispatched, Claim, &[Dispatched]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Complete, &[Acked]),
        row(Dispatched, Fail, &[Queued, DeadLetter]),
        row(Dispatched, Expire, &[Queued, DeadLetter]),
        row(Dispatched, Cancel, &[DeadLetter]),
        row(DeadLetter, Requeue, &[Queued]),
    ],
    operator: &[
        (Queued, Cancel),
        (Dispatched, Cancel),
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
    life_end: LifeEnd::Remove,
    life_clock: LifeClock::Engine,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: None,
};
