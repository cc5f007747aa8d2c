//! What the directory does with a nonce that it has seen before.
//!
//! Invariant: an intent whose recipient has answered is not delivered again. The payload is not compared, so a sender that
//! repeats a nonce with another payload gets the first answer.

use consign_kernel::plant::{self, Plant};
use consign_kernel::state::State;

use crate::lifecycle::OutcomeBucket;
use crate::retryable::repeated_nonce_restarts;

/// How long an intent in flight blocks its nonce.
pub const IN_PROGRESS_MS: i64 = 120_000;

/// The stored intent with the nonce of a new one.
#[derive(Debug, Clone, Copy)]
pub struct EarlierIntent<'a> {
    /// Sender, recipient and type are those of the new intent.
    pub same_intent: bool,
    pub state: State,
    /// The time since it was requested.
    pub age_ms: i64,
    pub error_code: Option<&'a str>,
    /// The result frame is stored.
    pub has_result: bool,
}

/// The decision about the new intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceClaim {
    /// The nonce is new: deliver.
    Accept,
    /// The nonce belongs to another intent: refuse.
    Conflict,
    /// The earlier intent may still be answered: refuse for now.
    InProgress,
    /// Deliver the earlier intent again.
    Restart,
    /// Return the stored result, byte for byte.
    Repeat,
    /// The earlier intent ended for good and has no result to return: refuse.
    Spent,
}

/// Decides by the earlier intent with the nonce, if there is one.
pub fn claim_nonce(earlier: Option<&EarlierIntent<'_>>) -> NonceClaim {
    let Some(earlier) = earlier else {
        return NonceClaim::Accept;
    };
    if !earlier.same_intent {
        return NonceClaim::Conflict;
    }
    if OutcomeBucket::of(earlier.state) == OutcomeBucket::InFlight {
        return if earlier.age_ms <= IN_PROGRESS_MS {
            NonceClaim::InProgress
        } else {
            NonceClaim::Restart
        };
    }
    if earlier.state == State::Failed && repeated_nonce_restarts(earlier.error_code) {
        return NonceClaim::Restart;
    }
    match (earlier.has_result, earlier.state) {
        (true, State::Failed) if plant::on(Plant::FailureRestarts) => NonceClaim::Restart,
        (true, _) => NonceClaim::Repeat,
        // No answer is known, and the profile lets a failed intent be retried.
        (false, State::Failed) => NonceClaim::Restart,
        (false, _) => NonceClaim::Spent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_FLIGHT: [State; 5] = [
        State::Received,
        State::Validated,
        State::Queued,
        State::Dispatched,
        State::Delivered,
    ];

    fn earlier(state: State) -> EarlierIntent<'static> {
        EarlierIntent {
            same_intent: true,
            state,
            age_ms: 0,
            error_code: None,
            has_result: false,
        }
    }

    #[test]
    fn a_new_nonce_is_accepted() {
        assert_eq!(claim_nonce(None), NonceClaim::Accept);
    }

    #[test]
    fn a_nonce_of_another_intent_conflicts_in_every_state() {
        for state in State::ALL {
            let earlier = EarlierIntent {
                same_intent: false,
                age_ms: 10 * IN_PROGRESS_MS,
                error_code: Some("OFFLINE"),
                has_result: true,
                ..earlier(*state)
            };
            assert_eq!(claim_nonce(Some(&earlier)), NonceClaim::Conflict);
        }
    }

    #[test]
    fn an_intent_in_flight_blocks_its_nonce_for_two_minutes() {
        for state in IN_FLIGHT {
            for (age_ms, expected) in [
                (-1_000, NonceClaim::InProgress),
                (0, NonceClaim::InProgress),
                (120_000, NonceClaim::InProgress),
                (120_001, NonceClaim::Restart),
            ] {
                let earlier = EarlierIntent {
                    age_ms,
                    ..earlier(state)
                };
                assert_eq!(claim_nonce(Some(&earlier)), expected, "{state} {age_ms}");
            }
        }
    }

    #[test]
    fn an_acked_intent_is_repeated() {
        let earlier = EarlierIntent {
            has_result: true,
            age_ms: 10 * IN_PROGRESS_MS,
            ..earlier(State::Acked)
        };
        assert_eq!(claim_nonce(Some(&earlier)), NonceClaim::Repeat);
    }

    #[test]
    fn a_finally_failed_intent_is_repeated() {
        for state in [State::Failed, State::DeadLetter] {
            for error_code in [None, Some("RESULT_ERROR"), Some("OUT_OF_STOCK")] {
                let earlier = EarlierIntent {
                    error_code,
                    has_result: true,
                    ..earlier(state)
                };
                assert_eq!(claim_nonce(Some(&earlier)), NonceClaim::Repeat);
            }
        }
    }

    #[test]
    fn an_intent_that_was_not_answered_is_restarted() {
        for code in [
            "OFFLINE",
            "TIMEOUT",
            "DELIVERY_FAILED",
            "DIRECT_HTTP_FAILED",
        ] {
            for has_result in [false, true] {
                let earlier = EarlierIntent {
                    error_code: Some(code),
                    has_result,
                    ..earlier(State::Failed)
                };
                assert_eq!(claim_nonce(Some(&earlier)), NonceClaim::Restart, "{code}");
            }
        }
    }

    #[test]
    fn an_intent_that_ended_without_a_result_is_restarted_only_if_it_failed() {
        for (state, expected) in [
            (State::Acked, NonceClaim::Spent),
            (State::Failed, NonceClaim::Restart),
            (State::DeadLetter, NonceClaim::Spent),
        ] {
            assert_eq!(claim_nonce(Some(&earlier(state))), expected, "{state}");
        }
        // Only an operator takes an intent out of the dead letters.
        let offline = EarlierIntent {
            error_code: Some("OFFLINE"),
            ..earlier(State::DeadLetter)
        };
        assert_eq!(claim_nonce(Some(&offline)), NonceClaim::Spent);
    }

    #[test]
    fn what_has_an_answer_is_never_delivered_again() {
        let codes = [None, Some("OUT_OF_STOCK"), Some("RESULT_ERROR"), Some("")];
        for state in [State::Acked, State::Failed, State::DeadLetter] {
            for error_code in codes {
                for age_ms in [i64::MIN, -1, 0, IN_PROGRESS_MS + 1, i64::MAX] {
                    let earlier = EarlierIntent {
                        error_code,
                        age_ms,
                        has_result: true,
                        ..earlier(state)
                    };
                    let claim = claim_nonce(Some(&earlier));
                    assert_eq!(claim, NonceClaim::Repeat, "{state} {error_code:?} {age_ms}");
                }
            }
        }
    }
}
