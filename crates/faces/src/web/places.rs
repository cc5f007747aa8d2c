//! Places that are counted for each holder, so that one of them cannot take all.
//!
//! Invariant: a place is free again as soon as it is dropped, and a holder without places is forgotten. How many there are in
//! all is somebody else's bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Cloning gives another handle on the same places.
#[derive(Clone, Debug)]
pub struct Places<K> {
    each_max: usize,
    taken: Taken<K>,
}

type Taken<K> = Arc<Mutex<BTreeMap<K, usize>>>;

impl<K: Ord + Clone> Places<K> {
    pub fn new(each_max: usize) -> Self {
        Self {
            each_max,
            taken: Arc::default(),
        }
    }

    /// Nothing if the holder has as many as one may have.
    pub fn take(&self, holder: &K) -> Option<Place<K>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let held = taken.get(holder).copied().unwrap_or(0);
        if held >= self.each_max {
            return None;
        }
        taken.insert(holder.clone(), held + 1);
        Some(Place {
            holder: holder.clone(),
            taken: Arc::clone(&self.taken),
        })
    }
}

/// One place, for as long as it is kept.
#[derive(Debug)]
pub struct Place<K: Ord> {
    holder: K,
    taken: Taken<K>,
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.holder) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(taken.remove(&self.holder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_places_of_others_and_a_dropped_one_is_free() {
        let places = Places::new(2);
        let first = places.take(&"a").unwrap();
        let second = places.take(&"a").unwrap();
        assert!(places.take(&"a").is_none());
        assert!(places.take(&"b").is_some());
        drop(first);
        let third = places.take(&"a").unwrap();
        assert!(places.take(&"a").is_none());
        drop((second, third));
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
