//! Sends a request until its answer is final or its time is over.
//!
//! The client itself repeats a request only if nothing of it was sent. This loop also repeats requests that may have been
//! executed, so it is only for reads and for requests with the same idempotency key each time.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::retry::{self, AttemptOutcome, RetryDecision};
use crate::{Error, ParsedResponse};

/// Called before a retry, with the reason and the delay.
type RetryListener<'a> = &'a dyn Fn(&str, Duration);

pub struct RetryLoop<'a> {
    expires_at: SystemTime,
    listener: RetryListener<'a>,
}

impl<'a> RetryLoop<'a> {
    /// No retry is sent at or after `expires_at`; the first attempt is always sent.
    pub fn until(expires_at: SystemTime, listener: RetryListener<'a>) -> Self {
        Self {
            expires_at,
            listener,
        }
    }

    /// Returns the last answer. It is not final only if the time is over: then its status is 202, or it is an error.
    pub async fn send<T, F>(&self, attempt: impl Fn() -> F) -> Result<ParsedResponse<T>, Error>
    where
        F: Future<Output = Result<ParsedResponse<T>, Error>>,
    {
        let mut sent = 0;
        loop {
            let answer = attempt().await;
            let Some(heard) = attempt_outcome(&answer) else {
                return answer;
            };
            let now = SystemTime::now();
            match retry::next(sent, heard, now, self.expires_at, random()?) {
                RetryDecision::Final | RetryDecision::TooLate => return answer,
                RetryDecision::Wait(wait) => {
                    (self.listener)(&why(&answer), wait);
                    tokio::time::sleep(wait).await;
                }
            }
            sent = sent.saturating_add(1);
        }
    }
}

impl fmt::Debug for RetryLoop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLoop")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// None for a failure that every attempt would repeat.
fn attempt_outcome<T>(answer: &Result<ParsedResponse<T>, Error>) -> Option<AttemptOutcome> {
    match answer {
        Ok(reply) => Some(AttemptOutcome::Status {
            code: reply.status,
            retry_after: reply.retry_after,
        }),
        Err(Error::Refused {
            status,
            retry_after_s,
            ..
        }) => Some(AttemptOutcome::Status {
            code: status.as_u16(),
            retry_after: retry_after_s.map(Duration::from_secs),
        }),
        Err(error) => {
            (error.is_unreachable() && !error.is_distrust()).then_some(AttemptOutcome::Nothing)
        }
    }
}

fn why<T>(answer: &Result<ParsedResponse<T>, Error>) -> String {
    match answer {
        Ok(_) => "still in progress".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn random() -> Result<u32, Error> {
    getrandom::u32().map_err(|error| Error::Entropy(error.to_string()))
}

#[cfg(test)]
mod tests;
