//! Objects with the order of members that ECMAScript defines for them.
//!
//! Invariant: keys are unique; array indices come first in ascending order, then all other keys in
//! the order of their first insertion.

use std::collections::HashMap;
use std::fmt;

use super::{BeamString, BeamValue};

/// The members of an object.
#[derive(Clone, Default, PartialEq)]
pub struct BeamObject {
    members: Vec<(BeamString, BeamValue)>,
}

impl BeamObject {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, key: &str) -> Option<&BeamValue> {
        let found = self.members.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Replaces the value of a key in its position, or adds the member where ECMAScript does.
    pub fn insert(&mut self, key: impl Into<BeamString>, value: impl Into<BeamValue>) {
        let (key, value) = (key.into(), value.into());
        if let Some((_, old)) = self.members.iter_mut().find(|(name, _)| *name == key) {
            *old = value;
            return;
        }
        let at = match key.array_index() {
            Some(index) => self
                .members
                .partition_point(|(name, _)| name.array_index().is_some_and(|other| other < index)),
            None => self.members.len(),
        };
        self.members.insert(at, (key, value));
    }

    pub fn remove(&mut self, key: &str) -> Option<BeamValue> {
        let at = self.members.iter().position(|(name, _)| name == key)?;
        Some(self.members.remove(at).1)
    }

    /// The members in the order in which they are printed.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&BeamString, &BeamValue)> {
        self.members.iter().map(|(key, value)| (key, value))
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn sorted(&self) -> Self {
        let members = self.in_unit_order().into_iter();
        members
            .map(|(key, value)| (key.clone(), value.sorted()))
            .collect()
    }

    pub(super) fn same_content(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .in_unit_order()
                .into_iter()
                .zip(other.in_unit_order())
                .all(|((key, value), (other_key, other_value))| {
                    key == other_key && value.same_content(other_value)
                })
    }

    fn in_unit_order(&self) -> Vec<(&BeamString, &BeamValue)> {
        let mut members: Vec<_> = self.iter().collect();
        members.sort_by_cached_key(|(key, _)| key.to_units());
        members
    }
}

/// Of members with equal keys, the last value counts, in the position of the first.
impl FromIterator<(BeamString, BeamValue)> for BeamObject {
    fn from_iter<I: IntoIterator<Item = (BeamString, BeamValue)>>(given: I) -> Self {
        let mut members: Vec<(BeamString, BeamValue)> = Vec::new();
        // A hash table, because a text of many short keys would take quadratic time otherwise.
        let mut positions: HashMap<BeamString, usize> = HashMap::new();
        for (key, value) in given {
            if let Some(&at) = positions.get(&key) {
                members[at].1 = value;
            } else {
                positions.insert(key.clone(), members.len());
                members.push((key, value));
            }
        }
        // The sort is stable, so keys that are no index keep their order.
        members.sort_by_key(|(key, _)| key.array_index().unwrap_or(u32::MAX));
        Self { members }
    }
}

/// Shows the size only, for the reason given at [`BeamValue`].
impl fmt::Debug for BeamObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} members)", self.len())
    }
}
