//! Streams that follow the facts of an owner. A new fact wakes only the streams of its owner.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{broadcast, watch};

/// Commits that a reader of owners may fall behind.
const OWNER_NEWS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Followers {
    followed: Mutex<HashMap<String, watch::Sender<()>>>,
    owners: broadcast::Sender<Arc<BTreeSet<String>>>,
}

impl Default for Followers {
    fn default() -> Self {
        Self {
            followed: Mutex::default(),
            owners: broadcast::channel(OWNER_NEWS_MAX).0,
        }
    }
}

impl Followers {
    /// Changes whenever the owner's intents have new facts; a hint to read them.
    pub(crate) fn follow(&self, owner: &str) -> watch::Receiver<()> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|_, news| !news.is_closed());
        followed
            .entry(owner.to_owned())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe()
    }

    /// Receives the owners of all new facts; an empty set if they are unknown.
    pub(crate) fn follow_owners(&self) -> broadcast::Receiver<Arc<BTreeSet<String>>> {
        self.owners.subscribe()
    }

    pub(crate) fn tell(&self, owners: &BTreeSet<String>) {
        if !owners.is_empty() && self.owners.receiver_count() > 0 {
            let _ = self.owners.send(Arc::new(owners.clone()));
        }
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.is_empty() {
            return;
        }
        for news in owners.iter().filter_map(|owner| followed.get(owner)) {
            news.send_replace(());
        }
    }

    pub(crate) fn tell_all(&self) {
        let _ = self.owners.send(Arc::default());
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        for news in followed.values() {
            news.send_replace(());
        }
    }
}
