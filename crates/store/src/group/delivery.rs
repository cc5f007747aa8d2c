//! How answers and news reach those who wait.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::command::Reply;
use tokio::sync::oneshot;

use crate::{CommitListener, Error, News};

/// Who waits for which answer, in the order of the group.
pub(super) type PendingReplies = Vec<(ReplySender, Option<Reply>)>;
pub(super) type ReplySender = oneshot::Sender<Delivery>;

/// Those who want to hear what commits did.
#[derive(Default)]
pub(crate) struct CommitListeners {
    all: Mutex<Vec<CommitListener>>,
    /// Those who pass on what this node did, and nothing that others told.
    own: Mutex<Vec<CommitListener>>,
}

impl CommitListeners {
    pub(crate) fn add(&self, listener: CommitListener) {
        lock(&self.all).push(listener);
    }

    pub(crate) fn add_local(&self, listener: CommitListener) {
        lock(&self.own).push(listener);
    }

    /// What a commit of this node did.
    pub(crate) fn notify(&self, news: &News) {
        if !news.is_empty() {
            notify_each(&lock(&self.all), news);
            notify_each(&lock(&self.own), news);
        }
    }

    /// What another node told.
    pub(crate) fn notify_remote(&self, news: &News) {
        notify_each(&lock(&self.all), news);
    }
}

fn lock(listeners: &Mutex<Vec<CommitListener>>) -> MutexGuard<'_, Vec<CommitListener>> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

fn notify_each(listeners: &[CommitListener], news: &News) {
    for listener in listeners {
        // Its mistake must not end the thread that writes, and a hint may be lost.
        if catch_unwind(AssertUnwindSafe(|| listener(news))).is_err() {
            tracing::error!("a listener failed at the news of a commit");
        }
    }
}

impl fmt::Debug for CommitListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitListeners")
    }
}

/// Hands all answers to one of the group, which passes the others on: they wait on the same runtime, where a wake is
/// cheap, while each one sent from here might be a system call.
pub(super) fn deliver(mut answers: PendingReplies) {
    while let Some((reply_to, Some(own))) = answers.pop() {
        let delivery = Delivery {
            own: Some(Ok(own)),
            others: answers,
        };
        let Err(mut back) = reply_to.send(delivery) else {
            return;
        };
        // Who went away gives the delivery back, and the next one carries it.
        answers = std::mem::take(&mut back.others);
    }
}

pub(super) fn refuse(answers: PendingReplies, error: impl Fn() -> Error) {
    for (reply_to, _) in answers {
        // Nobody listens when the caller went away.
        let _ = reply_to.send(Delivery::alone(Err(error())));
    }
}

/// An answer, and those of the neighbours that come along with it.
pub(super) struct Delivery {
    /// `None` only once it was taken.
    own: Option<Result<Reply, Error>>,
    others: PendingReplies,
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
        for (reply_to, own) in self.others.drain(..) {
            if let Some(own) = own {
                // Nobody listens when the caller went away.
                let _ = reply_to.send(Self::alone(Ok(own)));
            }
        }
    }
}
