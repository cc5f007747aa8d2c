//! How far commits are safe, for those who read: what a reader saw may be committed and not yet synced.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::Error;

/// Commits are made safe one after the other, so two numbers tell everything.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    committed: AtomicU64,
    synced: AtomicU64,
    lost: AtomicBool,
    /// It was the disk that failed: what is in the log may not be there.
    failed_sync: AtomicBool,
    why: OnceLock<String>,
    changed: Notify,
    /// Apart from the others, so that whoever waits for it is not woken by every commit.
    lost_now: Notify,
}

impl Durability {
    /// To be called before readers can see the commit.
    pub(super) fn begin_commit(&self) {
        self.committed.fetch_add(1, Ordering::SeqCst);
    }

    /// The last commit is safe, or was undone.
    pub(super) fn mark_synced(&self) {
        let committed = self.committed.load(Ordering::SeqCst);
        self.synced.store(committed, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Nothing more is accepted, because of this.
    pub(crate) fn mark_lost_by(&self, error: &Error) {
        if matches!(error, Error::Taken(_)) {
            self.why.get_or_init(|| error.to_string());
            self.mark_lost();
        } else {
            self.mark_sync_failed();
        }
    }

    /// The disk did not keep what it was given.
    pub(crate) fn mark_sync_failed(&self) {
        self.failed_sync.store(true, Ordering::SeqCst);
        self.mark_lost();
    }

    pub(crate) fn failed_sync(&self) -> bool {
        self.failed_sync.load(Ordering::SeqCst)
    }

    /// Why nothing is accepted any more, if it is not the disk's fault.
    pub(crate) fn why_lost(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    pub(crate) fn mark_lost(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.lost_now.notify_waiters();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn confirm(&self) -> Result<(), Error> {
        if self.is_lost() {
            return Err(Error::Lost);
        }
        Ok(())
    }

    /// Returns only if a commit was lost.
    pub(crate) async fn until_lost(&self) {
        let lost = self.lost_now.notified();
        if !self.is_lost() {
            lost.await;
        }
    }

    /// Returns when everything that can be read at the moment is safe.
    pub(crate) async fn until_synced(&self) -> Result<(), Error> {
        let seen = self.committed.load(Ordering::SeqCst);
        loop {
            let changed = self.changed.notified();
            self.confirm()?;
            if self.synced.load(Ordering::SeqCst) >= seen {
                return Ok(());
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_reader_waits_for_the_commits_it_may_have_seen_and_for_no_later_one() {
        let durability = Durability::default();
        assert!(matches!(
            poll(pin!(durability.until_synced())),
            Poll::Ready(Ok(()))
        ));
        durability.begin_commit();
        let mut reader = pin!(durability.until_synced());
        assert!(poll(reader.as_mut()).is_pending());
        durability.mark_synced();
        durability.begin_commit();
        assert!(matches!(poll(reader), Poll::Ready(Ok(()))));
        assert!(poll(pin!(durability.until_synced())).is_pending());
    }

    #[test]
    fn after_a_loss_readers_and_writers_are_refused_and_whoever_waits_for_it_hears() {
        let durability = Durability::default();
        durability.begin_commit();
        let (mut reader, mut server) = (
            pin!(durability.until_synced()),
            pin!(durability.until_lost()),
        );
        assert!(poll(reader.as_mut()).is_pending());
        assert!(poll(server.as_mut()).is_pending());
        durability.mark_lost();
        assert!(matches!(poll(reader), Poll::Ready(Err(Error::Lost))));
        assert!(poll(server).is_ready());
        assert!(matches!(durability.confirm(), Err(Error::Lost)));
    }
}
