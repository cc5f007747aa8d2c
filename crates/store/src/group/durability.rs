//! Tracks which commits are synced, for readers: a read may have seen a commit that is not synced yet.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::Error;

/// Commits are synced one after the other, so two numbers describe the state.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    committed: AtomicU64,
    synced: AtomicU64,
    lost: AtomicBool,
    /// A sync failed: what the log shows may not be on the disk.
    failed_sync: AtomicBool,
    why: OnceLock<String>,
    changed: Notify,
    /// Separate from `changed`, so that its waiters are not woken by every commit.
    lost_now: Notify,
}

impl Durability {
    /// Must be called before readers can see the commit.
    pub(super) fn begin_commit(&self) {
        self.committed.fetch_add(1, Ordering::SeqCst);
    }

    /// The last commit is synced, or was undone.
    pub(super) fn mark_synced(&self) {
        let committed = self.committed.load(Ordering::SeqCst);
        self.synced.store(committed, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// The store accepts nothing any more, because of this error.
    pub(crate) fn mark_lost_by(&self, error: &Error) {
        if matches!(error, Error::Taken(_)) {
            self.why.get_or_init(|| error.to_string());
            self.mark_lost();
        } else {
            self.mark_sync_failed();
        }
    }

    /// A sync failed.
    pub(crate) fn mark_sync_failed(&self) {
        self.failed_sync.store(true, Ordering::SeqCst);
        self.mark_lost();
    }

    pub(crate) fn failed_sync(&self) -> bool {
        self.failed_sync.load(Ordering::SeqCst)
    }

    /// Why the store accepts nothing any more, if the reason is not the disk.
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

    /// Returns only after a commit was lost.
    pub(crate) async fn until_lost(&self) {
        let lost = self.lost_now.notified();
        if !self.is_lost() {
            lost.await;
        }
    }

    /// Returns when every commit that is visible now is synced.
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
