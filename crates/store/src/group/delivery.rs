//! How answers and news reach those who wait.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use consign_kernel::command::Reply;
use tokio::sync::oneshot;

use crate::{Error, Listener, News};

/// Who waits for which answer, in the order of the group.
pub(super) type Answers = Vec<(Asker, Option<Reply>)>;
pub(super) type Asker = oneshot::Sender<Delivery>;

/// Those who want to hear what commits did.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<Listener>>);

impl Listeners {
    pub(crate) fn add(&self, listener: Listener) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(listener);
    }

    pub(crate) fn tell(&self, news: &News) {
        if news.is_empty() {
            return;
        }
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.iter() {
            // Its mistake must not end the thread that writes, and a hint may be lost.
            if catch_unwind(AssertUnwindSafe(|| listener(news))).is_err() {
                tracing::error!("a listener failed at the news of a commit");
            }
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listeners")
    }
}

/// Hands all answers to one of the group, which passes the others on: they wait on the same runtime, where a wake is
/// cheap, while each one sent from here might be a system call.
pub(super) fn deliver(mut answers: Answers) {
    while let Some((asker, Some(own))) = answers.pop() {
        let delivery = Delivery {
            own: Some(Ok(own)),
            others: answers,
        };
        let Err(mut back) = asker.send(delivery) else {
            return;
        };
        // Who went away gives the delivery back, and the next one carries it.
        answers = std::mem::take(&mut back.others);
    }
}

pub(super) fn refuse(answers: Answers, error: impl Fn() -> Error) {
    for (asker, _) in answers {
        // Nobody listens when the caller went away.
        let _ = asker.send(Delivery::alone(Err(error())));
    }
}

/// An answer, and those of the neighbours that come along with it.
pub(super) struct Delivery {
    /// `None` only once it was taken.
    own: Option<Result<Reply, Error>>,
    others: Answers,
}

impl Delivery {
    fn alone(own: Result<Reply, Error>) -> Self {
        Self {
            own: Some(own),
            others: Vec::new(),
        }
    }

    pub(super) fn take(mut self) -> Result<Reply, Error> {
        self.own.take().unwrap_or(Err(Error::Closed))
    }
}

/// The others are answered even if whoever carries them went away.
impl Drop for Delivery {
    fn drop(&mut self) {
        for (asker, own) in self.others.drain(..) {
            if let Some(own) = own {
                // Nobody listens when the caller went away.
                let _ = asker.send(Self::alone(Ok(own)));
            }
        }
    }
}
