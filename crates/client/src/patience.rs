//! Sends a request until its answer is final or its time is over.
//!
//! The client below repeats a request only if nothing of it was sent. This one repeats what may have been carried out, and so
//! is only for what may be repeated: reads, and requests that bear the same idempotency key each time.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::retry::{self, Heard, Next};
use crate::{Error, Told};

/// Hears why a request is sent again, and after how long.
type Listener<'a> = &'a dyn Fn(&str, Duration);

pub struct Patience<'a> {
    expires_at: SystemTime,
    listener: Listener<'a>,
}

impl<'a> Patience<'a> {
    /// Nothing is sent again at or after `expires_at`; the first time it is sent in any case.
    pub fn until(expires_at: SystemTime, listener: Listener<'a>) -> Self {
        Self {
            expires_at,
            listener,
        }
    }

    /// The last answer, which is not final only if the time was over: then its status is 202, or it is an error.
    pub async fn send<T, F>(&self, attempt: impl Fn() -> F) -> Result<Told<T>, Error>
    where
        F: Future<Output = Result<Told<T>, Error>>,
    {
        let mut sent = 0;
        loop {
            let answer = attempt().await;
            let Some(heard) = heard(&answer) else {
                return answer;
            };
            let now = SystemTime::now();
            match retry::next(sent, heard, now, self.expires_at, random()?) {
                Next::Final | Next::TooLate => return answer,
                Next::Wait(wait) => {
                    (self.listener)(&why(&answer), wait);
                    tokio::time::sleep(wait).await;
                }
            }
            sent = sent.saturating_add(1);
        }
    }
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// None for a failure that another attempt would only repeat.
fn heard<T>(answer: &Result<Told<T>, Error>) -> Option<Heard> {
    match answer {
        Ok(told) => Some(Heard::Status {
            code: told.status,
            retry_after: told.retry_after,
        }),
        Err(Error::Refused {
            status,
            retry_after_s,
            ..
        }) => Some(Heard::Status {
            code: status.as_u16(),
            retry_after: retry_after_s.map(Duration::from_secs),
        }),
        Err(error) => (error.is_unreachable() && !error.is_distrust()).then_some(Heard::Nothing),
    }
}

fn why<T>(answer: &Result<Told<T>, Error>) -> String {
    match answer {
        Ok(_) => "not over yet".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn random() -> Result<u32, Error> {
    getrandom::u32().map_err(|error| Error::Entropy(error.to_string()))
}

#[cfg(test)]
mod tests;
