//! Sends replies to callers, and the effects of commits to listeners.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::command::Reply;
use tokio::sync::oneshot;

use crate::{CommitListener, Error, News};

/// The callers of a group with their replies, in the order of the group.
pub(super) type PendingReplies = Vec<(ReplySender, Option<Reply>)>;
pub(super) type ReplySender = oneshot::Sender<ReplyBatch>;

/// Listeners for the effects of commits.
#[derive(Default)]
pub(crate) struct CommitListeners {
    all: Mutex<Vec<CommitListener>>,
    /// Listeners that forward the commits of this node, and not those of other nodes.
    own: Mutex<Vec<CommitListener>>,
}

impl CommitListeners {
    pub(crate) fn add(&self, listener: CommitListener) {
        lock(&self.all).push(listener);
    }

    pub(crate) fn add_local(&self, listener: CommitListener) {
        lock(&self.own).push(listener);
    }

    /// Reports a commit of this node.
    pub(crate) fn notify(&self, news: &News) {
        if !news.is_empty() {
            notify_each(&lock(&self.all), news);
            notify_each(&lock(&self.own), news);
        }
    }

    /// Reports a commit of another node.
    pub(crate) fn notify_remote(&self, news: &News) {
        notify_each(&lock(&self.all), news);
    }
}

fn lock(listeners: &Mutex<Vec<CommitListener>>) -> MutexGuard<'_, Vec<CommitListener>> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

fn notify_each(listeners: &[CommitListener], news: &News) {
    for listener in listeners {
        // A panic of a listener must not end the writer thread; losing a hint is harmless.
        if catch_unwind(AssertUnwindSafe(|| listener(news))).is_err() {
            tracing::error!("a listener panicked at a commit");
        }
    }
}

impl fmt::Debug for CommitListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitListeners")
    }
}

/// Sends all replies to one caller of the group, which forwards the others: the callers wait on the same runtime, where a
/// wake is cheap, while each send from this thread might be a system call.
pub(super) fn deliver(mut answers: PendingReplies) {
    while let Some((reply_to, Some(own))) = answers.pop() {
        let delivery = ReplyBatch {
            own: Some(Ok(own)),
            others: answers,
        };
        let Err(mut back) = reply_to.send(delivery) else {
            return;
        };
        // A caller that is gone returns the delivery, and the next caller gets it.
        answers = std::mem::take(&mut back.others);
    }
}

pub(super) fn refuse(answers: PendingReplies, error: impl Fn() -> Error) {
    for (reply_to, _) in answers {
        // The caller may be gone.
        let _ = reply_to.send(ReplyBatch::alone(Err(error())));
    }
}

/// A reply, and the replies of other callers that are sent with it.
pub(super) struct ReplyBatch {
    /// `None` only after it was taken.
    own: Option<Result<Reply, Error>>,
    others: PendingReplies,
}

impl ReplyBatch {
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

/// The other callers get their replies even if this caller is gone.
impl Drop for ReplyBatch {
    fn drop(&mut self) {
        for (reply_to, own) in self.others.drain(..) {
            if let Some(own) = own {
                // The caller may be gone.
                let _ = reply_to.send(Self::alone(Ok(own)));
            }
        }
    }
}
