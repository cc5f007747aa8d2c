//! The closed vocabularies of the ledger: where an intent is, what was asked, and why it moved.
//!
//! Invariant: every number here is stored in databases and never changes its meaning; a new member
//! takes the next free number. A profile decides which moves are legal and which states are final:
//! `failed` ends a Beam message, but an automation job may leave it.

/// Declares a closed enum whose numbers are stored: code, conversion from a code, stable name, list of all.
macro_rules! stored {
    (
        $(#[$meta:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal => $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $code,)+
        }

        impl $name {
            /// Every member, in the order of its code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The number under which this is stored.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The member stored under this number.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Our own name in lower snake case: for logs, metrics and the timeline, never for a
            /// protocol's wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use stored;

stored! {
    /// Where an intent is in its life. Each profile uses some of these and has its own words.
    State {
        /// Accepted, not yet checked.
        Received = 0 => "received",
        /// Checked and allowed.
        Validated = 1 => "validated",
        /// Waiting to be taken, now or at a later time.
        Queued = 2 => "queued",
        /// Leased to one holder.
        Dispatched = 3 => "dispatched",
        /// The holder accepted it; its outcome is still open.
        Delivered = 4 => "delivered",
        /// Done.
        Acked = 5 => "acked",
        /// An attempt failed; or, with ATP, the effect was undone.
        Failed = 6 => "failed",
        /// Given up.
        DeadLetter = 7 => "dead_letter",
    }
}

stored! {
    /// The step that a command asks for, whichever face it comes from.
    Verb {
        /// Put a new intent into the ledger.
        Admit = 0 => "admit",
        /// Declare it checked and allowed.
        Validate = 1 => "validate",
        /// Take the lease.
        Claim = 2 => "claim",
        /// Keep the lease longer.
        Extend = 3 => "extend",
        /// Report that the other side accepted it.
        Deliver = 4 => "deliver",
        /// Settle: done.
        Complete = 5 => "complete",
        /// Settle: this attempt failed; policy decides what follows.
        Fail = 6 => "fail",
        /// Settle: put it back for another attempt.
        Retry = 7 => "retry",
        /// Settle: give it up, whatever attempts are left.
        Kill = 8 => "kill",
        /// Say that a lease or a life time ran out.
        Expire = 9 => "expire",
        /// Stop it on request.
        Cancel = 10 => "cancel",
        /// Give it a fresh start on an operator's request.
        Requeue = 11 => "requeue",
        /// Release it from a process that died.
        Recover = 12 => "recover",
        /// Undo the effect.
        Compensate = 13 => "compensate",
    }
}

stored! {
    /// Why a row is in its state. Together with the state it decides the word on the wire.
    Cause {
        /// No special cause: the usual step forward.
        None = 0 => "none",
        /// The holder finished it.
        Completed = 1 => "completed",
        /// The holder reported a failure after which another attempt may succeed.
        WorkerFailed = 2 => "worker_failed",
        /// The lease ran out without a settlement.
        LeaseExpired = 3 => "lease_expired",
        /// No attempts were left.
        Exhausted = 4 => "exhausted",
        /// The attempt took longer than it was allowed to.
        TimedOut = 5 => "timed_out",
        /// It was stopped on request.
        Cancelled = 6 => "cancelled",
        /// An operator retired the row; its id is never used again.
        Aborted = 7 => "aborted",
        /// An operator moved it.
        Operator = 8 => "operator",
        /// Its own life time ended before the work began or the send succeeded.
        Expired = 9 => "expired",
        /// Refused for good: no attempt can succeed, or the rail declined.
        Rejected = 10 => "rejected",
        /// The effect was refunded on explicit request.
        Compensated = 11 => "compensated",
        /// The effect was voided before it was settled.
        Voided = 12 => "voided",
        /// Found after a restart, leased to a process that died.
        Recovered = 13 => "recovered",
        /// The other side could not be reached; another attempt may reach it.
        Unreachable = 14 => "unreachable",
    }
}

impl Verb {
    /// The past tense of the verb: the name of its fact.
    pub const fn fact(self) -> &'static str {
        match self {
            Self::Admit => "admitted",
            Self::Validate => "validated",
            Self::Claim => "claimed",
            Self::Extend => "extended",
            Self::Deliver => "delivered",
            Self::Complete => "completed",
            Self::Fail => "failed",
            Self::Retry => "retried",
            Self::Kill => "killed",
            Self::Expire => "expired",
            Self::Cancel => "cancelled",
            Self::Requeue => "requeued",
            Self::Recover => "recovered",
            Self::Compensate => "compensated",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Cause, State, Verb};

    #[test]
    fn every_code_leads_back_to_its_member_and_no_other_code_does() {
        for code in 0..=u8::MAX {
            assert!(State::from_code(code).is_none_or(|state| state.code() == code));
            assert!(Verb::from_code(code).is_none_or(|verb| verb.code() == code));
            assert!(Cause::from_code(code).is_none_or(|cause| cause.code() == code));
        }
        let known = |found: fn(u8) -> bool| (0..=u8::MAX).filter(|code| found(*code)).count();
        assert_eq!(
            known(|code| State::from_code(code).is_some()),
            State::ALL.len()
        );
        assert_eq!(
            known(|code| Verb::from_code(code).is_some()),
            Verb::ALL.len()
        );
        assert_eq!(
            known(|code| Cause::from_code(code).is_some()),
            Cause::ALL.len()
        );
    }

    // Databases hold these numbers: this list may grow at its end and change nowhere else.
    #[test]
    fn stored_numbers_keep_their_meaning() {
        let listed = |names: Vec<&str>| names.join(" ");
        assert_eq!(
            listed(State::ALL.iter().map(|state| state.name()).collect()),
            "received validated queued dispatched delivered acked failed dead_letter"
        );
        assert_eq!(
            listed(Verb::ALL.iter().map(|verb| verb.name()).collect()),
            "admit validate claim extend deliver complete fail retry kill expire cancel requeue \
             recover compensate"
        );
        assert_eq!(
            listed(Cause::ALL.iter().map(|cause| cause.name()).collect()),
            "none completed worker_failed lease_expired exhausted timed_out cancelled aborted \
             operator expired rejected compensated voided recovered unreachable"
        );
    }

    #[test]
    fn no_two_verbs_tell_the_same_fact() {
        let facts: BTreeSet<_> = Verb::ALL.iter().map(|verb| verb.fact()).collect();
        assert_eq!(facts.len(), Verb::ALL.len());
    }
}
