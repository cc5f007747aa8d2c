//! An intent as the ledger keeps it.
//!
//! Invariant: `shelf` and `wake_at` follow from the rest by [`Intent::reshelve`]; nothing sets them by hand
//! except the rules in `decide`.

use crate::ids::{FactSeq, IntentId, Micros, Seq, Token};
use crate::once::OnceKey;
use crate::plant::{self, Plant};
use crate::profile::{Delivery, Expiry, LifeEnd, ProfileId, Unconsented};
use crate::state::{Cause, State, Verb, stored};

stored! {
    /// The kind of deadline that a row waits for, kept in `wake_at`. Sweeps search by shelf and deadline.
    Shelf {
        /// Queued or released, due later. Deadline: when it becomes claimable. Or not claimable at all: the end of its life, and
        /// for a row that ended without consent, its removal.
        Delayed = 0 => "delayed",
        /// Queued, or delivered to a recipient, and claimable. Deadline: the end of its life.
        Ready = 1 => "ready",
        /// Held by a worker. Deadline: the end of the lease.
        Leased = 2 => "leased",
        /// Its lease ran out; claimable at once. Deadline: the end of its life.
        Lapsed = 3 => "lapsed",
        /// Past its life, waiting for the cleanup pass. No deadline.
        Parked = 4 => "parked",
        /// Settled. Deadline: the end of its retention.
        Done = 5 => "done",
    }
}

impl Shelf {
    /// Whether a claim may find the row.
    pub const fn claimable(self) -> bool {
        matches!(self, Self::Ready | Self::Lapsed)
    }
}

/// The format of a stored result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    Json,
    Text,
}

/// What the worker returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub kind: ResultKind,
    /// Compact JSON, or the text itself.
    pub body: String,
}

/// Relations of an intent to others of its ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ties {
    /// The intent whose outcome caused this one.
    pub parent: Option<IntentId>,
    /// Of all that name the same series, at most one is held at a time.
    pub series: Option<String>,
    /// Who sent it, where the owner is the recipient.
    pub sender: Option<String>,
}

/// The rows of a series that a rule may ask about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The one whose lease ends last. That lease may be over without a sweep having noticed.
    pub held: Option<Intent>,
    /// The oldest that is queued, due or not.
    pub waiting: Option<Intent>,
    /// The oldest that is due and was set back while another one was leased.
    pub behind: Option<Intent>,
    /// The one that was completed last.
    pub completed: Option<Intent>,
}

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub seq: Seq,
    pub id: IntentId,
    pub profile: ProfileId,
    pub namespace: String,
    pub goal: String,
    /// Key id of the publisher.
    pub owner: String,
    pub public: bool,
    pub target: Option<String>,
    pub capability: Option<String>,
    pub priority: i32,
    /// Compact JSON, tokens as sent.
    pub payload: String,
    pub traceparent: Option<String>,
    pub ties: Ties,
    pub attempts: u32,
    pub attempts_max: u32,
    pub backoff_us: i64,
    pub created_at: Micros,
    pub run_at: Micros,
    pub expires_at: Micros,

    pub state: State,
    pub cause: Cause,
    pub shelf: Shelf,
    pub wake_at: Micros,

    /// Key id of the last claimer; kept after the end so that it may still read the outcome.
    pub holder: Option<String>,
    /// The id that the last claimer gave itself, if it gave one; kept as long as `holder`.
    pub worker: Option<String>,
    pub token: Option<Token>,
    pub claimed_at: Option<Micros>,
    pub lease_until: Option<Micros>,
    pub settled_at: Option<Micros>,
    pub last_error: Option<String>,
    pub result: Option<Outcome>,
    /// Where its history ends; each fact names the one before it.
    pub last_fact: Option<FactSeq>,
}

impl Intent {
    /// Whether its lease runs at `now`.
    pub fn is_leased(&self, now: Micros) -> bool {
        self.is_out() && self.lease_until.is_some_and(|until| until > now)
    }

    /// Whether it was handed out and is not settled.
    fn is_out(&self) -> bool {
        matches!(self.state, State::Dispatched | State::Delivered)
    }

    /// Whether it waits for its recipient, without a lease.
    pub fn awaits_ack(&self) -> bool {
        self.state == State::Delivered && self.profile.profile().delivered == Delivery::AwaitsAck
    }

    /// Whether a row in its state has a lease. A delivered row has none if its recipient may acknowledge it at any time, or if
    /// nothing follows; one that may have had an effect can lose its lease and keep its state.
    pub fn demands_lease(&self) -> bool {
        let profile = self.profile.profile();
        match self.state {
            State::Dispatched => {}
            State::Delivered => match profile.delivered {
                Delivery::Claimable | Delivery::AwaitsAckInLease => {}
                Delivery::AwaitsAck | Delivery::Rests => return false,
            },
            State::Received
            | State::Validated
            | State::Queued
            | State::Acked
            | State::Failed
            | State::DeadLetter => return false,
        }
        profile.expiry != Expiry::StayLeased || self.token.is_some()
    }

    /// Whether a claim that does not name its owner may take it while it is claimable.
    pub fn is_for_all(&self) -> bool {
        self.public && (!self.awaits_ack() || plant::on(Plant::DeliveredIsPublic))
    }

    /// Whether it waits for consent, or ended without it and is to be removed. One that ended so stays on the delayed shelf.
    pub fn is_unconsented(&self) -> bool {
        matches!(
            self.profile.profile().unconsented,
            Unconsented::Removed { .. }
        ) && self.shelf == Shelf::Delayed
            && matches!(self.state, State::Received | State::DeadLetter)
    }

    /// Puts the row on the shelf where its next deadline is looked for.
    pub fn reshelve(&mut self, now: Micros) {
        let profile = self.profile.profile();
        (self.shelf, self.wake_at) = match (self.state, self.lease_until) {
            (_, Some(until)) if self.is_out() => (Shelf::Leased, until),
            (State::Delivered, None) if self.awaits_ack() && self.expires_at > now => {
                (Shelf::Ready, self.expires_at)
            }
            // No claim finds it: it waits for its recipient.
            (State::Delivered, None) if profile.delivered != Delivery::Claimable => {
                (Shelf::Delayed, self.waits_until())
            }
            // Released in its state: any holder may take it after the pause.
            (_, None) if self.is_out() && self.run_at > now => (Shelf::Delayed, self.run_at),
            (State::Dispatched | State::Delivered, _) => (Shelf::Lapsed, self.expires_at),
            // No claim finds it: it waits for the next step of its owner.
            (State::Received | State::Validated, _) => (Shelf::Delayed, self.waits_until()),
            (State::Queued, _) if self.expires_at <= now => match profile.life_end {
                LifeEnd::Never | LifeEnd::Park => (Shelf::Parked, Micros::MAX),
                // The next sweep ends it.
                LifeEnd::Dead { .. } | LifeEnd::Remove => (Shelf::Delayed, self.expires_at),
            },
            (State::Queued, _) if self.run_at > now => {
                (Shelf::Delayed, self.run_at.min(self.expires_at))
            }
            (State::Queued, _) => (Shelf::Ready, self.expires_at),
            (State::Acked | State::Failed | State::DeadLetter, _) => {
                let settled_at = self.settled_at.unwrap_or(now);
                (Shelf::Done, profile.retained_until(settled_at))
            }
        };
    }

    /// How long it waits for a step that another party takes. Without an edge for its end it waits for good.
    fn waits_until(&self) -> Micros {
        let profile = self.profile.profile();
        match profile.row(self.state, Verb::Expire) {
            _ if profile.life_end == LifeEnd::Remove => self.removed_at(),
            Some(_) => self.expires_at,
            None => Micros::MAX,
        }
    }

    /// The end of a row that is removed at the end of its life: earlier, if it began as received and no recipient has it.
    pub fn removed_at(&self) -> Micros {
        if self.state == State::Received {
            self.run_at.min(self.expires_at)
        } else {
            self.expires_at
        }
    }

    /// The once-key under which it is known after its removal: that of its namespace and of the id that its client chose.
    pub fn dedupe_key(&self) -> Option<OnceKey> {
        let scope = self.profile.profile().dedupe?;
        Some(OnceKey {
            scope,
            owner: self.namespace.clone(),
            key: self.capability.clone()?,
        })
    }

    /// Takes it out of its lanes until the leased row of its series is settled, at the latest until `until`.
    pub(crate) fn set_back(&mut self, until: Micros) {
        (self.shelf, self.wake_at) = (Shelf::Delayed, until.min(self.expires_at));
    }

    /// After this the last claimer may no longer read the outcome.
    pub fn forget_holder(&mut self) {
        self.holder = None;
        self.worker = None;
    }

    /// Ends the lease and clears the token, so that a late holder is refused.
    pub fn release(&mut self) {
        self.token = None;
        self.lease_until = None;
    }
}
