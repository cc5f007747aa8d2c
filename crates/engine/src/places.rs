//! How many of a thing one key may have open at a time; a place is free again when it is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_key: HashMap<String, usize>,
}

/// One place, held by its owner.
#[derive(Debug)]
pub struct Place {
    places: Places,
    key: String,
}

impl Places {
    /// `None` when the key, or everybody together, has as many as allowed.
    pub(crate) fn take(&self, key: &str, key_max: usize, all_max: usize) -> Option<Place> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_key.get(key).copied().unwrap_or(0);
        if own >= key_max || taken.all >= all_max {
            return None;
        }
        taken.by_key.insert(key.to_owned(), own + 1);
        taken.all += 1;
        Some(Place {
            places: self.clone(),
            key: key.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        match taken.by_key.get_mut(&self.key) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.by_key.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gets_its_share_and_a_dropped_place_is_free_again() {
        let places = Places::default();
        let first = places.take("a", 2, 3).unwrap();
        let _second = places.take("a", 2, 3).unwrap();
        assert!(places.take("a", 2, 3).is_none(), "its share is used up");
        let _other = places.take("b", 2, 3).unwrap();
        assert!(places.take("c", 2, 3).is_none(), "all places are taken");
        drop(first);
        assert!(places.take("c", 2, 3).is_some());
    }
}
