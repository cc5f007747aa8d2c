//! The rows that a transaction has loaded and locked, with the changes of its commands so far.
//!
//! Invariant: a row in the working set is the row as this transaction sees it. Other rows were not read, except where
//! [`LaneHeads::bound`] and [`WorkingSet::mark_searched`] say that no more rows exist.

use std::collections::{BTreeSet, HashMap};

use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Lanes, Probe};

/// The order of claimable rows, smallest first.
pub(super) type ClaimRank = (i64, i64, i64, u64);

pub(super) fn rank(intent: &Intent) -> ClaimRank {
    (
        -i64::from(intent.priority),
        intent.run_at.0,
        i64::from(intent.attempts),
        intent.seq.0,
    )
}

/// The pending write of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingWrite {
    Nothing,
    Insert,
    Update,
}

#[derive(Debug)]
pub(super) struct LoadedRow {
    pub(super) intent: Intent,
    pub(super) lanes: Option<Lanes>,
    pub(super) pending: PendingWrite,
}

/// The best rows of a lane.
#[derive(Debug, Default)]
struct LaneHeads {
    ranks: BTreeSet<ClaimRank>,
    /// The lane was not read beyond this rank; `None` if it was read to its end.
    bound: Option<ClaimRank>,
}

#[derive(Debug, Default)]
pub(super) struct WorkingSet {
    rows: HashMap<Seq, LoadedRow>,
    /// `None`: searched and not found.
    ids: HashMap<IntentId, Option<Seq>>,
    lanes: HashMap<Probe, LaneHeads>,
    /// The deadline up to which a shelf was read completely.
    searched: HashMap<Shelf, Micros>,
    removed: Vec<Seq>,
    /// The highest fact number of the loaded rows.
    last_fact: u64,
}

impl WorkingSet {
    /// Adds a row as stored in the database. A row that is in the working set already is not replaced.
    pub(super) fn load(&mut self, intent: Intent) -> Seq {
        let seq = intent.seq;
        if !self.rows.contains_key(&seq) && !self.removed.contains(&seq) {
            let last_fact = intent.last_fact.map_or(0, |fact| fact.0);
            self.last_fact = self.last_fact.max(last_fact);
            let lanes = intent.shelf.claimable().then(|| Lanes::of(&intent));
            self.put(intent, lanes, PendingWrite::Nothing);
        }
        seq
    }

    /// New facts must have numbers above this one, because they follow those of the loaded rows.
    pub(super) fn last_fact(&self) -> u64 {
        self.last_fact
    }

    pub(super) fn mark_absent(&mut self, id: IntentId) {
        self.ids.entry(id).or_insert(None);
    }

    /// Whether it is known if the row exists.
    pub(super) fn is_known(&self, id: IntentId) -> bool {
        self.ids.contains_key(&id)
    }

    pub(super) fn by_id(&self, id: IntentId) -> Option<&Intent> {
        let seq = (*self.ids.get(&id)?)?;
        self.get(seq)
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Intent> {
        self.rows.get(&seq).map(|row| &row.intent)
    }

    pub(super) fn put(&mut self, intent: Intent, lanes: Option<Lanes>, pending: PendingWrite) {
        let seq = intent.seq;
        let before = self.rows.remove(&seq);
        if let Some(row) = &before {
            self.remove_from_lanes(row);
        }
        let pending = match before.map(|row| row.pending) {
            // Not written yet, so it is still an insert.
            Some(PendingWrite::Insert) => PendingWrite::Insert,
            _ => pending,
        };
        let rank = rank(&intent);
        for probe in lanes.iter().flat_map(Lanes::probes) {
            if let Some(heads) = self.lanes.get_mut(&probe)
                && heads.bound.is_none_or(|bound| rank <= bound)
            {
                heads.ranks.insert(rank);
            }
        }
        self.ids.insert(intent.id, Some(seq));
        let row = LoadedRow {
            intent,
            lanes,
            pending,
        };
        self.rows.insert(seq, row);
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        let Some(row) = self.rows.remove(&seq) else {
            return;
        };
        self.remove_from_lanes(&row);
        self.ids.insert(row.intent.id, None);
        if row.pending != PendingWrite::Insert {
            self.removed.push(seq);
        }
    }

    fn remove_from_lanes(&mut self, row: &LoadedRow) {
        let rank = rank(&row.intent);
        for probe in row.lanes.iter().flat_map(Lanes::probes) {
            if let Some(heads) = self.lanes.get_mut(&probe) {
                heads.ranks.remove(&rank);
            }
        }
    }

    /// Adds the result of a lane search; `whole` if the lane has no more rows.
    pub(super) fn load_lane(&mut self, probe: Probe, found: Vec<Intent>, whole: bool) {
        let last = found.last().map(rank);
        let mut heads = LaneHeads {
            ranks: BTreeSet::new(),
            bound: last.filter(|_| !whole),
        };
        for intent in found {
            let seq = self.load(intent);
            // It may have been claimed by this transaction, and not be written yet.
            let row = self.rows.get(&seq);
            let there = row.filter(|row| {
                let mut lanes = row.lanes.iter().flat_map(Lanes::probes);
                lanes.any(|lane| lane == probe)
            });
            heads.ranks.extend(there.map(|row| rank(&row.intent)));
        }
        // Rows of this transaction that are not written yet.
        for row in self.rows.values() {
            let rank = rank(&row.intent);
            if row
                .lanes
                .iter()
                .flat_map(Lanes::probes)
                .any(|lane| lane == probe)
                && heads.bound.is_none_or(|bound| rank <= bound)
            {
                heads.ranks.insert(rank);
            }
        }
        self.lanes.insert(probe, heads);
    }

    /// The best rows of a lane, if enough of it was read.
    pub(super) fn heads(
        &self,
        probe: Probe,
        limit: usize,
    ) -> Option<impl Iterator<Item = ClaimRank>> {
        let heads = self.lanes.get(&probe)?;
        let enough = heads.bound.is_none() || heads.ranks.len() >= limit;
        enough.then(|| heads.ranks.iter().copied().take(limit))
    }

    /// The lanes of claimable rows without changes.
    pub(super) fn unchanged_lanes(&self) -> impl Iterator<Item = Probe> {
        let rows = self.rows.values();
        let left = rows.filter(|row| row.pending == PendingWrite::Nothing);
        left.filter_map(|row| row.lanes.as_ref())
            .flat_map(Lanes::probes)
    }

    /// Notes that all rows of the shelf up to this deadline are in the working set.
    pub(super) fn mark_searched(&mut self, shelf: Shelf, until: Micros) {
        self.searched.insert(shelf, until);
    }

    /// Rows of a shelf by deadline, if all of them are in the working set.
    pub(super) fn due(&self, shelf: Shelf, until: Micros) -> Option<Vec<&Intent>> {
        if *self.searched.get(&shelf)? < until {
            return None;
        }
        let rows = self.rows.values().map(|row| &row.intent);
        let mut due: Vec<&Intent> = rows
            .filter(|intent| intent.shelf == shelf && intent.wake_at <= until)
            .collect();
        due.sort_by_key(|intent| (intent.wake_at, intent.seq));
        Some(due)
    }

    /// The rows to insert and to update, and those to delete.
    pub(super) fn take_pending(&mut self) -> (Vec<&LoadedRow>, Vec<&LoadedRow>, Vec<Seq>) {
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for row in self.rows.values() {
            match row.pending {
                PendingWrite::Nothing => {}
                PendingWrite::Insert => new.push(row),
                PendingWrite::Update => changed.push(row),
            }
        }
        (new, changed, std::mem::take(&mut self.removed))
    }

    pub(super) fn mark_written(&mut self) {
        for row in self.rows.values_mut() {
            row.pending = PendingWrite::Nothing;
        }
    }
}
