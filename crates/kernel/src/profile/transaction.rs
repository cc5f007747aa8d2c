//! ATP's two profiles: a permission, and the transactions carried out under it.
//!
//! They are rows of their own because one permission may allow several executions. Both only move
//! forward and neither has operator edges: a payment is not undone by a button. A settled transaction
//! is left by explicit compensation alone, which adds a document and changes none.

use super::{
    Completion, Delivery, Expiry, Face, LifeClock, LifeEnd, Profile, ProfileId, Retention,
    RetrySeed, Unconsented, row,
};
use crate::limits;
use crate::record::Kind;
use crate::retry::Backoff;
use crate::state::Cause;
use crate::state::State::{Acked, DeadLetter, Delivered, Dispatched, Failed, Received, Validated};
use crate::state::Verb::{
    Cancel, Claim, Compensate, Complete, Deliver, Expire, Extend, Fail, Recover, Retry, Validate,
};

pub(super) static PERMISSION: Profile = Profile {
    id: ProfileId::AtpPermission,
    face: Face::Transaction,
    start: &[Received],
    rows: &[
        row(Received, Validate, &[Validated]),
        row(Received, Expire, &[DeadLetter]),
        row(Received, Cancel, &[DeadLetter]),
        row(Validated, Expire, &[DeadLetter]),
        row(Validated, Cancel, &[DeadLetter]),
    ],
    operator: &[],
    unleased: &[(Received, Validate)],
    exits: &[],
    terminal: &[DeadLetter],
    words: &[
        (Received, None, "created"),
        (Validated, None, "authorized"),
        (DeadLetter, None, "expired"),
    ],
    cancel_cause: Cause::Cancelled,
    expiry: Expiry::NoLease,
    retry: |_| Backoff::Now,
    retry_seed: RetrySeed::Random,
    retention: Retention::Forever,
    life_end: LifeEnd::Dead { reason: None },
    life_clock: LifeClock::Wall,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Removed {
        after_us: limits::UNCONSENTED_RETENTION_US,
        record: Kind::Permission,
    },
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: None,
};

pub(super) static TRANSACTION: Profile = Profile {
    id: ProfileId::AtpTransaction,
    face: Face::Transaction,
    // The row is committed as executing before the rail is called.
    start: &[Dispatched],
    rows: &[
        // The sweep takes new leases on rows whose lease ended. No expiry: the effect may have happened.
        row(Dispatched, Claim, &[Dispatched]),
        row(Dispatched, Extend, &[Dispatched]),
        // Released for a while, or recovered after a crash: the lease ends, the state stays.
        row(Dispatched, Retry, &[Dispatched]),
        row(Dispatched, Recover, &[Dispatched]),
        row(Dispatched, Deliver, &[Delivered]),
        row(Dispatched, Fail, &[Failed]),
        row(Delivered, Claim, &[Delivered]),
        row(Delivered, Extend, &[Delivered]),
        row(Delivered, Retry, &[Delivered]),
        row(Delivered, Recover, &[Delivered]),
        row(Delivered, Complete, &[Acked]),
        row(Delivered, Fail, &[Failed]),
        row(Delivered, Compensate, &[Failed]),
        row(Acked, Compensate, &[Failed]),
    ],
    operator: &[],
    unleased: &[(Delivered, Compensate), (Acked, Compensate)],
    exits: &[(Acked, Compensate)],
    terminal: &[Acked, Failed],
    words: &[
        (Dispatched, None, "executing"),
        (Delivered, None, "executed"),
        (Acked, None, "settled"),
        (Failed, None, "compensated"),
    ],
    cancel_cause: Cause::Cancelled,
    expiry: Expiry::StayLeased,
    retry: |_| Backoff::Now,
    retry_seed: RetrySeed::Random,
    retention: Retention::Forever,
    life_end: LifeEnd::Never,
    life_clock: LifeClock::Engine,
    delivered: Delivery::Claimable,
    completion: Completion::Alone,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    recovery_counts: true,
    keeps_past_id: false,
    dedupe: None,
};
