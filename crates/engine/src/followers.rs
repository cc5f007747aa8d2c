//! Streams that follow the facts of an owner. A new fact wakes only the streams of its owner.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<HashMap<String, watch::Sender<()>>>);

impl Followers {
    /// Changes whenever the owner's intents have new facts; a hint to read them.
    pub(crate) fn follow(&self, owner: &str) -> watch::Receiver<()> {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|_, news| !news.is_closed());
        followed
            .entry(owner.to_owned())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe()
    }

    pub(crate) fn tell(&self, owners: &BTreeSet<String>) {
        let followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.is_empty() {
            return;
        }
        for news in owners.iter().filter_map(|owner| followed.get(owner)) {
            news.send_replace(());
        }
    }

    pub(crate) fn tell_all(&self) {
        let followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for news in followed.values() {
            news.send_replace(());
        }
    }
}
