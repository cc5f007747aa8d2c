//! Beam's two profiles: the directory that relays, and the message bus that holds and retries.
//!
//! As pairs of states they differ in one: only the bus dispatches what it has just received. They
//! also differ in what silence means: the directory fails the attempt, the bus queues it again.
//! Beam allows every state to follow itself; here that is the verb that led to it, asked again.

use super::{
    Delivery, Expiry, Face, LifeClock, LifeEnd, Profile, ProfileId, Retention, RetrySeed,
    Unconsented, row,
};
use crate::limits;
use crate::retry::Backoff;
use crate::state::Cause;
use crate::state::State::{
    self, Acked, DeadLetter, Delivered, Dispatched, Failed, Queued, Received, Validated,
};
use crate::state::Verb::{
    self, Admit, Claim, Complete, Deliver, Expire, Extend, Fail, Kill, Recover, Requeue, Retry,
    Validate,
};

/// On the wire Beam says what we say.
const WORDS: &[(State, Option<Cause>, &str)] = &[
    (Received, None, "received"),
    (Validated, None, "validated"),
    (Queued, None, "queued"),
    (Dispatched, None, "dispatched"),
    (Delivered, None, "delivered"),
    (Acked, None, "acked"),
    (Failed, None, "failed"),
    (DeadLetter, None, "dead_letter"),
];
const TERMINAL: &[State] = &[Acked, Failed, DeadLetter];
const OPERATOR: &[(State, Verb)] = &[(Failed, Requeue), (DeadLetter, Requeue)];
/// A sender that sends a failed nonce again, and a result that arrives after the failure.
const EXITS: &[(State, Verb)] = &[(Failed, Retry)];

pub(super) static DIRECTORY: Profile = Profile {
    id: ProfileId::BeamDirectory,
    face: Face::Beam,
    start: &[Received],
    rows: &[
        row(Received, Admit, &[Received]),
        row(Received, Validate, &[Validated]),
        row(Received, Retry, &[Queued]),
        row(Received, Fail, &[Failed]),
        row(Received, Recover, &[Failed]),
        row(Received, Kill, &[DeadLetter]),
        row(Validated, Validate, &[Validated]),
        row(Validated, Claim, &[Dispatched]),
        row(Validated, Retry, &[Queued]),
        row(Validated, Fail, &[Failed]),
        row(Validated, Recover, &[Failed]),
        row(Validated, Kill, &[DeadLetter]),
        row(Queued, Retry, &[Queued]),
        row(Queued, Claim, &[Dispatched]),
        row(Queued, Fail, &[Failed]),
        row(Queued, Recover, &[Failed]),
        row(Queued, Kill, &[DeadLetter]),
        // A second route after the first one failed.
        row(Dispatched, Claim, &[Dispatched]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Deliver, &[Delivered]),
        row(Dispatched, Retry, &[Queued]),
        row(Dispatched, Fail, &[Failed]),
        row(Dispatched, Expire, &[Failed]),
        row(Dispatched, Recover, &[Failed]),
        row(Dispatched, Kill, &[DeadLetter]),
        row(Delivered, Deliver, &[Delivered]),
        row(Delivered, Complete, &[Acked]),
        row(Delivered, Retry, &[Queued]),
        row(Delivered, Fail, &[Failed]),
        row(Delivered, Expire, &[Failed]),
        row(Delivered, Kill, &[DeadLetter]),
        row(Acked, Complete, &[Acked]),
        row(Failed, Fail, &[Failed]),
        row(Failed, Retry, &[Queued]),
        row(Failed, Requeue, &[Queued]),
        row(DeadLetter, Kill, &[DeadLetter]),
        row(DeadLetter, Requeue, &[Queued]),
    ],
    operator: OPERATOR,
    exits: EXITS,
    terminal: TERMINAL,
    words: WORDS,
    expiry: Expiry::FailAttempt,
    retry: |_| Backoff::Now,
    retry_seed: RetrySeed::Random,
    retention: Retention::ForUs(limits::RETENTION_US),
    life_end: LifeEnd::Never,
    life_clock: LifeClock::Engine,
    delivered: Delivery::AwaitsAckInLease,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    keeps_past_id: false,
};

pub(super) static BUS: Profile = Profile {
    id: ProfileId::BeamBus,
    face: Face::Beam,
    start: &[Received],
    rows: &[
        row(Received, Admit, &[Received]),
        row(Received, Validate, &[Validated]),
        row(Received, Claim, &[Dispatched]),
        row(Received, Retry, &[Queued]),
        row(Received, Recover, &[Queued]),
        row(Received, Fail, &[Failed]),
        row(Received, Kill, &[DeadLetter]),
        row(Validated, Validate, &[Validated]),
        row(Validated, Claim, &[Dispatched]),
        row(Validated, Retry, &[Queued]),
        row(Validated, Recover, &[Queued]),
        row(Validated, Fail, &[Failed]),
        row(Validated, Kill, &[DeadLetter]),
        row(Queued, Retry, &[Queued]),
        row(Queued, Claim, &[Dispatched]),
        row(Queued, Fail, &[Failed]),
        row(Queued, Kill, &[DeadLetter]),
        row(Dispatched, Claim, &[Dispatched]),
        row(Dispatched, Extend, &[Dispatched]),
        row(Dispatched, Deliver, &[Delivered]),
        row(Dispatched, Retry, &[Queued]),
        row(Dispatched, Recover, &[Queued]),
        row(Dispatched, Expire, &[Queued, DeadLetter]),
        row(Dispatched, Fail, &[Queued, Failed, DeadLetter]),
        row(Dispatched, Kill, &[DeadLetter]),
        row(Delivered, Deliver, &[Delivered]),
        row(Delivered, Complete, &[Acked]),
        row(Delivered, Retry, &[Queued]),
        row(Delivered, Fail, &[Failed]),
        row(Delivered, Kill, &[DeadLetter]),
        row(Acked, Complete, &[Acked]),
        row(Failed, Fail, &[Failed]),
        row(Failed, Retry, &[Queued]),
        row(Failed, Requeue, &[Queued]),
        row(DeadLetter, Kill, &[DeadLetter]),
        row(DeadLetter, Requeue, &[Queued]),
    ],
    operator: OPERATOR,
    exits: EXITS,
    terminal: TERMINAL,
    words: WORDS,
    expiry: Expiry::DueNow,
    retry: |_| Backoff::Bus,
    retry_seed: RetrySeed::OfKey,
    retention: Retention::ForUs(limits::RETENTION_US),
    life_end: LifeEnd::Never,
    life_clock: LifeClock::Engine,
    delivered: Delivery::AwaitsAck,
    unconsented: Unconsented::Kept,
    numbers_attempts: false,
    keeps_past_id: false,
};
