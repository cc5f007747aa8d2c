//! Decides whether a request of the transaction protocol is sent again.
//!
//! Only for requests that may be repeated safely: reads, and requests with an idempotency key.
//! Invariant: a pure function; the caller supplies clock, randomness and network.

use std::time::{Duration, SystemTime};

const BASE: Duration = Duration::from_millis(250);
const CAP: Duration = Duration::from_secs(30);

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// No answer, or an incomplete one: whether the request arrived is unknown.
    Nothing,
    /// An answer with its status and requested delay.
    Status {
        code: u16,
        retry_after: Option<Duration>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Send the same request again after this delay.
    Wait(Duration),
    /// The answer is final.
    Final,
    /// A retry might help, but the time would be over.
    TooLate,
}

/// Decides after the attempt with this number, counted from zero; `random` is uniformly distributed.
pub fn next(
    attempt: u32,
    heard: AttemptOutcome,
    now: SystemTime,
    expires_at: SystemTime,
    random: u32,
) -> RetryDecision {
    let asked = match heard {
        AttemptOutcome::Nothing => Duration::ZERO,
        AttemptOutcome::Status {
            code: 202 | 408 | 425 | 429 | 500..=599,
            retry_after,
        } => retry_after.unwrap_or_default(),
        AttemptOutcome::Status { .. } => return RetryDecision::Final,
    };
    let wait = backoff(attempt, random).max(asked);
    match now.checked_add(wait) {
        Some(then) if then < expires_at => RetryDecision::Wait(wait),
        _ => RetryDecision::TooLate,
    }
}

/// Doubles up to the cap, with a jitter of half in both directions, so that clients which failed together do not retry
/// together.
fn backoff(attempt: u32, random: u32) -> Duration {
    let doubled = 2_u32
        .checked_pow(attempt)
        .and_then(|factor| BASE.checked_mul(factor));
    let share = f64::from(random) / f64::from(u32::MAX);
    doubled.unwrap_or(CAP).min(CAP).mul_f64(0.5 + share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u32 = u32::MAX / 2;

    fn status(code: u16, retry_after_s: Option<u64>) -> AttemptOutcome {
        AttemptOutcome::Status {
            code,
            retry_after: retry_after_s.map(Duration::from_secs),
        }
    }

    /// With an hour left.
    fn after(attempt: u32, heard: AttemptOutcome, random: u32) -> RetryDecision {
        let now = SystemTime::UNIX_EPOCH;
        next(attempt, heard, now, now + Duration::from_hours(1), random)
    }

    fn wait_ms(attempt: u32, random: u32) -> u128 {
        match after(attempt, AttemptOutcome::Nothing, random) {
            RetryDecision::Wait(wait) => wait.as_millis(),
            other @ (RetryDecision::Final | RetryDecision::TooLate) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_wait_doubles_from_250_ms_up_to_30_s() {
        let waits: Vec<u128> = (0..9).map(|attempt| wait_ms(attempt, MIDDLE)).collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        for (wait, expected) in waits.iter().zip(expected) {
            assert!(wait.abs_diff(expected) <= 1, "{waits:?}");
        }
        assert!(wait_ms(u32::MAX, MIDDLE).abs_diff(30_000) <= 1);
    }

    #[test]
    fn it_strays_by_half_to_either_side() {
        assert_eq!((wait_ms(0, 0), wait_ms(0, u32::MAX)), (125, 375));
        assert_eq!((wait_ms(20, 0), wait_ms(20, u32::MAX)), (15_000, 45_000));
    }

    #[test]
    fn what_may_still_change_is_asked_again_and_all_else_is_final() {
        for code in [202, 408, 425, 429, 500, 502, 503, 599] {
            assert!(
                matches!(after(0, status(code, None), 0), RetryDecision::Wait(_)),
                "{code}"
            );
        }
        for code in [200, 201, 301, 400, 401, 403, 404, 409, 410, 412, 413, 422] {
            assert_eq!(
                after(0, status(code, Some(1)), 0),
                RetryDecision::Final,
                "{code}"
            );
        }
    }

    #[test]
    fn what_the_server_asks_for_is_the_least_that_is_waited() {
        let asked = |attempt, seconds| after(attempt, status(429, Some(seconds)), 0);
        assert_eq!(asked(0, 7), RetryDecision::Wait(Duration::from_secs(7)));
        assert_eq!(asked(20, 7), RetryDecision::Wait(Duration::from_secs(15)));
        assert_eq!(asked(0, u64::MAX), RetryDecision::TooLate);
    }

    #[test]
    fn nothing_is_sent_at_or_after_the_end() {
        let now = SystemTime::UNIX_EPOCH;
        let left = |left_ms: u64| {
            let end = now + Duration::from_millis(left_ms);
            next(0, AttemptOutcome::Nothing, now, end, 0)
        };
        assert_eq!(left(126), RetryDecision::Wait(Duration::from_millis(125)));
        assert_eq!(left(125), RetryDecision::TooLate);
        assert_eq!(left(0), RetryDecision::TooLate);
        // A final answer stays final, however late it comes.
        assert_eq!(
            next(0, status(200, None), now, now, 0),
            RetryDecision::Final
        );
    }
}
