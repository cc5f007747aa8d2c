//! What the answer of the server does to the row of an intent.
//!
//! Invariant: a row is dead only if the server itself refused the request in a way that another attempt would not change.

use consign_client::{Error, Published};

use crate::outbox::AckOutcome;

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IntentAttempt {
    pub(super) outcome: AckOutcome,
    /// Whether the server was there; while it is not, nothing else is tried.
    pub(super) is_reached: bool,
}

pub(super) fn attempt(answer: Result<Published, Error>) -> IntentAttempt {
    let (outcome, is_reached) = match answer {
        Ok(published) => (
            AckOutcome::Done {
                broker_message_id: published.id,
                // The server gives the same answer again, so this cannot be known.
                is_duplicate: false,
                is_pruned: false,
            },
            true,
        ),
        Err(error) => {
            let text = error.to_string();
            match error.status().map(|status| status.as_u16()) {
                Some(409) => (
                    AckOutcome::Dead {
                        error: text,
                        is_reused: true,
                    },
                    true,
                ),
                Some(408 | 425 | 429) => (AckOutcome::Retry(text), true),
                Some(400..=499) => (
                    AckOutcome::Dead {
                        error: text,
                        is_reused: false,
                    },
                    true,
                ),
                _ => (AckOutcome::Retry(text), !error.is_unreachable()),
            }
        }
    };
    IntentAttempt {
        outcome,
        is_reached,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use consign_client::{Address, StatusCode};

    use super::*;

    fn refused(status: u16) -> IntentAttempt {
        attempt(Err(Error::Refused {
            status: StatusCode::from_u16(status).unwrap(),
            code: "some_code".to_owned(),
            message: "Some words.".to_owned(),
            retry_after_s: None,
        }))
    }

    #[test]
    fn what_another_attempt_cannot_change_is_dead_with_the_words_of_the_server() {
        for status in [400, 401, 403, 404, 405, 413, 422] {
            let expected = AckOutcome::Dead {
                error: format!("Some words. (some_code, status {status})"),
                is_reused: false,
            };
            assert_eq!(refused(status).outcome, expected);
        }
        assert!(matches!(
            refused(409).outcome,
            AckOutcome::Dead {
                is_reused: true,
                ..
            }
        ));
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for status in [408, 425, 429, 500, 502, 503, 504] {
            let attempt = refused(status);
            assert!(matches!(attempt.outcome, AckOutcome::Retry(_)), "{status}");
            assert!(attempt.is_reached, "{status}");
        }
        let lost = attempt(Err(Error::TimedOut {
            server: Address::parse("http://127.0.0.1:1").unwrap(),
            after: Duration::from_secs(1),
        }));
        assert!(matches!(lost.outcome, AckOutcome::Retry(_)) && !lost.is_reached);
        let unreadable = attempt(Err(Error::Unreadable {
            what: "publish",
            why: "no JSON".to_owned(),
        }));
        assert!(matches!(unreadable.outcome, AckOutcome::Retry(_)) && unreadable.is_reached);
    }
}
