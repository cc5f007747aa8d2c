//! How answers and news reach those who wait.
//!
//! Invariant: what a safe commit did is heard even if everybody who asked for it went away: others wait to be woken.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use consign_kernel::command::Reply;
use tokio::sync::oneshot;

use super::Shared;
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
            listener(news);
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listeners")
    }
}

/// Hands all answers to the first one in the group, which passes the others on: they wait on the same runtime, where
/// a wake is cheap, while each one sent from here might be a system call.
pub(super) fn deliver(mut answers: Answers, news: News, shared: &Arc<Shared>) {
    let mut delivery = Delivery {
        own: None,
        rest: Some(Rest {
            others: Vec::new(),
            news,
            shared: Arc::clone(shared),
        }),
    };
    while let Some((asker, own)) = answers.pop() {
        if let Some(rest) = &mut delivery.rest {
            rest.others = answers;
        }
        delivery.own = own.map(Ok);
        // Who went away gives the delivery back, and the next one carries it.
        let Err(back) = asker.send(delivery) else {
            return;
        };
        delivery = back;
        answers = delivery
            .rest
            .as_mut()
            .map(|rest| std::mem::take(&mut rest.others))
            .unwrap_or_default();
    }
}

pub(super) fn refuse(answers: Answers, error: impl Fn() -> Error) {
    for (asker, _) in answers {
        // Nobody listens when the caller went away.
        let _ = asker.send(Delivery::alone(Err(error())));
    }
}

/// An answer, and what comes along with it.
pub(super) struct Delivery {
    /// `None` only once it was taken.
    own: Option<Result<Reply, Error>>,
    rest: Option<Rest>,
}

impl Delivery {
    fn alone(own: Result<Reply, Error>) -> Self {
        Self {
            own: Some(own),
            rest: None,
        }
    }

    pub(super) fn take(mut self) -> Result<Reply, Error> {
        self.own.take().unwrap_or(Err(Error::Closed))
    }
}

/// The answers of the neighbours, and the news of the commit. They are passed on when this is dropped, wherever that is.
struct Rest {
    others: Answers,
    news: News,
    shared: Arc<Shared>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.shared.listeners.tell(&self.news);
        for (asker, own) in self.others.drain(..) {
            if let Some(own) = own {
                // Nobody listens when the caller went away.
                let _ = asker.send(Delivery::alone(Ok(own)));
            }
        }
    }
}
