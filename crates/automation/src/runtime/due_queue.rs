//! A heap of schedule entries by due time, so that entries that are not due cost nothing.
//!
//! The heap is only a hint. The record of an entry, which other nodes may change, decides whether it is due.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

/// Identifies an entry by its plugin and its index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryRef {
    pub(super) plugin: Arc<str>,
    pub(super) index: usize,
}

#[derive(Debug, Default)]
pub(super) struct DueQueue {
    entries: Vec<EntryRef>,
    numbers: HashMap<EntryRef, usize>,
    /// The current due time of each entry; any other time in the heap is stale.
    next: Vec<Option<Timestamp>>,
    heap: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl DueQueue {
    /// Entries with the same due time are checked in the order in which they were added.
    pub(super) fn add(&mut self, plugin: &Arc<str>, index: usize, next: Option<Timestamp>) {
        let entry = EntryRef {
            plugin: Arc::clone(plugin),
            index,
        };
        let number = self.entries.len();
        self.numbers.insert(entry.clone(), number);
        self.entries.push(entry);
        self.next.push(None);
        self.set(number, next);
    }

    /// Removes and returns the due entries, in the order in which they were added.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(usize, EntryRef)> {
        let mut due = Vec::new();
        while let Some(first) = self.heap.peek_mut()
            && first.0.0 <= now
        {
            let Reverse((at, number)) = PeekMut::pop(first);
            if self.next[number] == Some(at) {
                self.next[number] = None;
                due.push((number, self.entries[number].clone()));
            }
        }
        due.sort_unstable_by_key(|(number, _)| *number);
        due
    }

    /// Sets when to check this entry next; `None` if never.
    pub(super) fn set(&mut self, number: usize, next: Option<Timestamp>) {
        self.next[number] = next;
        if let Some(next) = next {
            self.heap.push(Reverse((next, number)));
        }
    }

    pub(super) fn number(&self, entry: &EntryRef) -> Option<usize> {
        self.numbers.get(entry).copied()
    }

    /// When to check the next entry; it may be too early.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
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
        let mut due_queue = DueQueue::default();
        let mail = Arc::from("mail");
        for (index, next) in [Some(20), Some(10), None, Some(10)].into_iter().enumerate() {
            due_queue.add(&mail, index, next.map(at));
        }
        let taken = |due_queue: &mut DueQueue, now| {
            let due = due_queue.due(at(now)).into_iter();
            due.map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(taken(&mut due_queue, 9), [] as [usize; 0]);
        assert_eq!(taken(&mut due_queue, 10), [1, 3]);
        assert_eq!(taken(&mut due_queue, 11), [] as [usize; 0], "taken out");
        due_queue.set(3, Some(at(15)));
        due_queue.set(3, Some(at(25)));
        assert_eq!(taken(&mut due_queue, 20), [0], "the last word counts");
        assert_eq!(due_queue.first(), Some(at(25)));
        assert_eq!(taken(&mut due_queue, 30), [3]);
        assert_eq!((due_queue.first(), due_queue.len()), (None, 4));
        let entry = |index| EntryRef {
            plugin: Arc::clone(&mail),
            index,
        };
        assert_eq!(
            (due_queue.number(&entry(3)), due_queue.number(&entry(4))),
            (Some(3), None)
        );
    }

    #[test]
    fn ten_thousand_entries_that_are_not_due_cost_nothing() {
        let mut due_queue = DueQueue::default();
        let mail = Arc::from("mail");
        for index in 0..10_000 {
            due_queue.add(&mail, index, Some(at(1_000_000)));
        }
        let began = std::time::Instant::now();
        for now in 0..1_000 {
            assert!(due_queue.due(at(now)).is_empty());
        }
        let took = began.elapsed();
        assert!(took.as_millis() < 100, "a thousand ticks took {took:?}");
    }
}
