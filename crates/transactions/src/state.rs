//! The seven states of ATP: their words, the legal transitions, and their public meaning.
//!
//! The ledger refuses illegal transitions by two kernel profiles, since one permission may have several transactions. This
//! is the protocol's combined view; a test keeps both consistent.

use consign_kernel::profile::Profile;
use consign_kernel::state::{Cause, State};
use serde::{Serialize, Serializer};

/// The state of an intent or a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtpState {
    /// Received, signed, in scope.
    Created,
    /// Consent is recorded and the nonce used.
    Authorized,
    /// The effect may be in progress.
    Executing,
    /// The rail acknowledged the effect; settlement is pending.
    Executed,
    /// Done, with a receipt.
    Settled,
    /// Undone or never executed, with a compensation receipt.
    Compensated,
    /// Ended before anything was executed.
    Expired,
}

impl AtpState {
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Authorized,
        Self::Executing,
        Self::Executed,
        Self::Settled,
        Self::Compensated,
        Self::Expired,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Authorized => "authorized",
            Self::Executing => "executing",
            Self::Executed => "executed",
            Self::Settled => "settled",
            Self::Compensated => "compensated",
            Self::Expired => "expired",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// The state of a stored row; `None` for a profile of another protocol.
    pub fn of_row(profile: &Profile, state: State, cause: Cause) -> Option<Self> {
        profile.word(state, cause).and_then(Self::parse)
    }

    /// Whether one commit may lead from this state to `next`.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Created => matches!(next, Self::Authorized | Self::Expired),
            Self::Authorized => matches!(next, Self::Executing | Self::Expired),
            Self::Executing => matches!(next, Self::Executed | Self::Compensated),
            Self::Executed => matches!(next, Self::Settled | Self::Compensated),
            Self::Settled => matches!(next, Self::Compensated),
            Self::Compensated | Self::Expired => false,
        }
    }

    /// A final state. A settled transaction can still be compensated on request.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Settled | Self::Compensated | Self::Expired)
    }

    /// Whether it may still end as settled, so that waiting is useful.
    pub const fn may_settle(self) -> bool {
        matches!(
            self,
            Self::Created | Self::Authorized | Self::Executing | Self::Executed
        )
    }
}

impl Serialize for AtpState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use consign_kernel::profile::ProfileId;
    use consign_kernel::state::Cause;

    use super::*;

    const BOTH: [ProfileId; 2] = [ProfileId::AtpPermission, ProfileId::AtpTransaction];

    #[test]
    fn words_read_back() {
        for state in AtpState::ALL {
            assert_eq!(AtpState::parse(state.word()), Some(state));
        }
        assert_eq!(AtpState::parse("failed"), None);
        assert_eq!(AtpState::parse("Settled"), None);
    }

    /// A transaction begins as executing, in the commit that checks its authorized permission.
    #[test]
    fn the_edges_are_those_the_ledger_enforces() {
        let mut enforced = vec![(AtpState::Authorized, AtpState::Executing)];
        for id in BOTH {
            let profile = id.profile();
            let state = |state| AtpState::of_row(profile, state, Cause::None).unwrap();
            for row in profile.rows {
                enforced.extend(row.to.iter().map(|to| (state(row.from), state(*to))));
            }
        }
        for from in AtpState::ALL {
            for to in AtpState::ALL {
                // Taking a lease again is a step of the ledger, not of the protocol.
                let legal = from != to && enforced.contains(&(from, to));
                assert_eq!(from.may_become(to), legal, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn only_terminal_states_cannot_settle_any_more() {
        for state in AtpState::ALL {
            assert_eq!(state.may_settle(), !state.is_terminal());
        }
    }
}
