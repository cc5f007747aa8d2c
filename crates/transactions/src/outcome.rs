//! Decides what a rail's answer means for a transaction. Request handlers, callbacks and the sweep share this table, so they
//! cannot disagree.
//!
//! Invariant: nothing is guessed. An inconclusive answer causes no transition, and a payment is fenced off by cancelling it
//! before the transaction ends as not charged.

use crate::intent::Capture;
use crate::state::AtpState;

/// What the rail reports about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailOutcome {
    /// The money has moved.
    Succeeded,
    /// A hold is placed; capturing it completes the payment.
    Held,
    /// In progress; the rail will report the end.
    Processing,
    /// The payment exists and waits for confirmation.
    Unconfirmed,
    /// Failed, declined or cancelled.
    Failed,
    NotFound,
    /// The payment has another amount or currency than the transaction.
    Different,
    /// No answer, or one that asks to come back later.
    Unknown,
    /// The worker is lost, and no later check can reveal the outcome.
    Lost,
}

/// Whether the effect is known to have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Executing,
    Executed,
}

impl Phase {
    pub const fn state(self) -> AtpState {
        match self {
            Self::Executing => AtpState::Executing,
            Self::Executed => AtpState::Executed,
        }
    }
}

/// The state of the transaction when the rail answers.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    pub phase: Phase,
    /// The intent has expired, so no new payment may be started.
    pub expired: bool,
    pub capture: Capture,
    /// The rail was asked before, and has had time to make a late payment visible.
    pub asked_again: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Commit executed (unless it is already) and settled, with the receipt.
    Settle,
    /// Commit executed; settlement follows later.
    Acknowledge,
    /// Commit executed (unless it is already), then capture the hold.
    Capture,
    /// Confirm the existing payment.
    Confirm,
    /// Prepare and confirm again under the same reference.
    Resubmit,
    /// Cancel at the rail, so that it can never succeed, then compensate as not charged.
    FenceAsNotCharged,
    /// Cancel at the rail, then compensate as voided.
    FenceAsVoided,
    /// No transition now; ask again after the rail's delay or at the next sweep.
    AskAgain,
    /// No transition, and an operator must look.
    Alert,
}

/// The decision table.
pub const fn next(outcome: RailOutcome, situation: Situation) -> NextStep {
    use Phase::{Executed, Executing};
    match (outcome, situation.phase) {
        (RailOutcome::Succeeded, _) => NextStep::Settle,
        (RailOutcome::Held, _) if matches!(situation.capture, Capture::Automatic) => {
            NextStep::Capture
        }
        (RailOutcome::Held | RailOutcome::Processing, Executing) => NextStep::Acknowledge,
        (RailOutcome::Held | RailOutcome::Processing, Executed) => NextStep::AskAgain,
        (RailOutcome::Unconfirmed, Executing) if situation.expired => NextStep::FenceAsNotCharged,
        (RailOutcome::Unconfirmed, Executing) => NextStep::Confirm,
        (RailOutcome::Failed, Executing) => NextStep::FenceAsNotCharged,
        (RailOutcome::Failed, Executed) => NextStep::FenceAsVoided,
        (RailOutcome::NotFound, Executing) if !situation.expired => NextStep::Resubmit,
        // A request in transit may still arrive at the rail.
        (RailOutcome::NotFound, Executing) if situation.asked_again => NextStep::FenceAsNotCharged,
        (RailOutcome::NotFound, Executing) => NextStep::AskAgain,
        // An acknowledged effect must exist at the rail.
        (RailOutcome::Unconfirmed | RailOutcome::NotFound, Executed) => NextStep::Alert,
        (RailOutcome::Different | RailOutcome::Lost, _) => NextStep::Alert,
        (RailOutcome::Unknown, _) => NextStep::AskAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [RailOutcome; 9] = [
        RailOutcome::Succeeded,
        RailOutcome::Held,
        RailOutcome::Processing,
        RailOutcome::Unconfirmed,
        RailOutcome::Failed,
        RailOutcome::NotFound,
        RailOutcome::Different,
        RailOutcome::Unknown,
        RailOutcome::Lost,
    ];

    fn situations() -> impl Iterator<Item = Situation> {
        let flags = [false, true];
        let phases = [Phase::Executing, Phase::Executed].into_iter();
        phases.flat_map(move |phase| {
            flags.into_iter().flat_map(move |expired| {
                flags.into_iter().flat_map(move |asked_again| {
                    let captures = [Capture::Automatic, Capture::Manual].into_iter();
                    captures.map(move |capture| Situation {
                        phase,
                        expired,
                        capture,
                        asked_again,
                    })
                })
            })
        })
    }

    /// The states that a step enters, in order.
    fn entered(action: NextStep, phase: Phase) -> Vec<AtpState> {
        let begun = match phase {
            Phase::Executing => vec![AtpState::Executed],
            Phase::Executed => vec![],
        };
        match action {
            NextStep::Settle => [begun, vec![AtpState::Settled]].concat(),
            NextStep::Acknowledge | NextStep::Capture => begun,
            NextStep::FenceAsNotCharged | NextStep::FenceAsVoided => {
                vec![AtpState::Compensated]
            }
            NextStep::Confirm | NextStep::Resubmit | NextStep::AskAgain | NextStep::Alert => vec![],
        }
    }

    #[test]
    fn every_action_takes_legal_edges_only() {
        for situation in situations() {
            for outcome in ALL {
                let mut state = situation.phase.state();
                for next in entered(next(outcome, situation), situation.phase) {
                    assert!(state.may_become(next), "{outcome:?} {situation:?}");
                    state = next;
                }
            }
        }
    }

    #[test]
    fn only_money_that_moved_settles() {
        for situation in situations() {
            for outcome in ALL {
                let settles = next(outcome, situation) == NextStep::Settle;
                assert_eq!(settles, outcome == RailOutcome::Succeeded, "{situation:?}");
            }
        }
    }

    #[test]
    fn a_transaction_ends_without_a_charge_only_if_there_cannot_be_one() {
        for situation in situations() {
            for outcome in ALL {
                match next(outcome, situation) {
                    NextStep::FenceAsNotCharged => {
                        assert_eq!(situation.phase, Phase::Executing);
                        let expired = situation.expired;
                        assert!(
                            outcome == RailOutcome::Failed
                                || (outcome == RailOutcome::Unconfirmed && expired)
                                || (outcome == RailOutcome::NotFound
                                    && expired
                                    && situation.asked_again)
                        );
                    }
                    NextStep::FenceAsVoided => {
                        assert_eq!(
                            (outcome, situation.phase),
                            (RailOutcome::Failed, Phase::Executed)
                        );
                    }
                    NextStep::Settle
                    | NextStep::Acknowledge
                    | NextStep::Capture
                    | NextStep::Confirm
                    | NextStep::Resubmit
                    | NextStep::AskAgain
                    | NextStep::Alert => {}
                }
            }
        }
    }

    #[test]
    fn nothing_is_set_in_motion_after_expiry() {
        for situation in situations().filter(|situation| situation.expired) {
            for outcome in ALL {
                let action = next(outcome, situation);
                assert!(
                    !matches!(action, NextStep::Confirm | NextStep::Resubmit),
                    "{outcome:?} {situation:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_uncertain_changes_nothing() {
        for situation in situations() {
            assert_eq!(next(RailOutcome::Unknown, situation), NextStep::AskAgain);
            assert_eq!(next(RailOutcome::Different, situation), NextStep::Alert);
            assert_eq!(next(RailOutcome::Lost, situation), NextStep::Alert);
        }
    }

    #[test]
    fn a_hold_is_captured_unless_the_intent_says_otherwise() {
        for situation in situations() {
            let expected = match (situation.capture, situation.phase) {
                (Capture::Automatic, _) => NextStep::Capture,
                (Capture::Manual, Phase::Executing) => NextStep::Acknowledge,
                (Capture::Manual, Phase::Executed) => NextStep::AskAgain,
            };
            assert_eq!(next(RailOutcome::Held, situation), expected);
        }
    }
}
