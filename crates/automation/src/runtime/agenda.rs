//! Which schedule is to be looked at when: a heap, so that those whose time has not come cost nothing.
//!
//! It is only a hint. Whether an entry is due is decided by its record, which others may have changed.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

/// An entry: which one of which plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) plugin: Arc<str>,
    pub(super) index: usize,
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    slots: Vec<Slot>,
    numbers: HashMap<Slot, usize>,
    /// What holds of each; whatever else the heap says of it is out of date.
    next: Vec<Option<Timestamp>>,
    heap: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl Agenda {
    /// Added in the order in which entries of the same instant are looked at.
    pub(super) fn add(&mut self, plugin: &Arc<str>, index: usize, next: Option<Timestamp>) {
        let slot = Slot {
            plugin: Arc::clone(plugin),
            index,
        };
        let number = self.slots.len();
        self.numbers.insert(slot.clone(), number);
        self.slots.push(slot);
        self.next.push(None);
        self.set(number, next);
    }

    /// Takes out those whose time has come, in the order in which they were added.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(usize, Slot)> {
        let mut due = Vec::new();
        while let Some(first) = self.heap.peek_mut()
            && first.0.0 <= now
        {
            let Reverse((at, number)) = PeekMut::pop(first);
            if self.next[number] == Some(at) {
                self.next[number] = None;
                due.push((number, self.slots[number].clone()));
            }
        }
        due.sort_unstable_by_key(|(number, _)| *number);
        due
    }

    /// When this one is to be looked at, unless it never comes again.
    pub(super) fn set(&mut self, number: usize, next: Option<Timestamp>) {
        self.next[number] = next;
        if let Some(next) = next {
            self.heap.push(Reverse((next, number)));
        }
    }

    pub(super) fn number(&self, slot: &Slot) -> Option<usize> {
        self.numbers.get(slot).copied()
    }

    /// When to look at any of them; it may turn out to be too early.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_what_is_due_is_taken_and_comes_back_when_it_is_set() {
        let mut agenda = Agenda::default();
        let mail = Arc::from("mail");
        for (index, next) in [Some(20), Some(10), None, Some(10)].into_iter().enumerate() {
            agenda.add(&mail, index, next.map(at));
        }
        let taken = |agenda: &mut Agenda, now| {
            let due = agenda.due(at(now)).into_iter();
            due.map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(taken(&mut agenda, 9), [] as [usize; 0]);
        assert_eq!(taken(&mut agenda, 10), [1, 3]);
        assert_eq!(taken(&mut agenda, 11), [] as [usize; 0], "taken out");
        agenda.set(3, Some(at(15)));
        agenda.set(3, Some(at(25)));
        assert_eq!(taken(&mut agenda, 20), [0], "the last word counts");
        assert_eq!(agenda.first(), Some(at(25)));
        assert_eq!(taken(&mut agenda, 30), [3]);
        assert_eq!((agenda.first(), agenda.len()), (None, 4));
        let slot = |index| Slot {
            plugin: Arc::clone(&mail),
            index,
        };
        assert_eq!(
            (agenda.number(&slot(3)), agenda.number(&slot(4))),
            (Some(3), None)
        );
    }

    #[test]
    fn ten_thousand_entries_that_are_not_due_cost_nothing() {
        let mut agenda = Agenda::default();
        let mail = Arc::from("mail");
        for index in 0..10_000 {
            agenda.add(&mail, index, Some(at(1_000_000)));
        }
        let began = std::time::Instant::now();
        for now in 0..1_000 {
            assert!(agenda.due(at(now)).is_empty());
        }
        let took = began.elapsed();
        assert!(took.as_millis() < 100, "a thousand ticks took {took:?}");
    }
}
