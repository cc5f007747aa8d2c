//! Searches of operators: which rows a page examines, and in which order.
//!
//! Invariant: a page examines at most `scan_max` rows, whatever the filter is, and names the place where the next one
//! continues. An index narrows what is examined where one exists for other reasons; none exists for searches alone, because
//! each index of all rows costs every publish ([ADR 0041](../../../docs/adr/0041-searches-are-bounded-scans.md)).

use std::cmp::Reverse;

use consign_kernel::filter::Filter;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Shelf;
use consign_kernel::profile::{Expiry, ProfileId};
use consign_kernel::state::State;

use crate::Outline;

/// Which rows to find. They are listed newest first; dead letters alone by their death, latest first.
#[derive(Clone, Debug)]
pub struct Search {
    pub filter: Filter,
    /// Ages count until this instant, so that all pages agree.
    pub now: Micros,
    /// Only rows after this place.
    pub after: Option<SearchPlace>,
    /// Only rows that have not changed since this fact.
    pub unchanged_since: Option<FactSeq>,
    pub limit: u32,
    /// How many rows are examined.
    pub scan_max: u32,
}

/// A place in the order of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchPlace {
    /// Only in a list of dead letters.
    pub settled_at: Option<Micros>,
    pub seq: Seq,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPage {
    pub outlines: Vec<Outline>,
    /// Where the next page starts; `None` at the end. A page may be short or empty and still have a next one.
    pub next: Option<SearchPlace>,
    /// How many rows were examined.
    pub examined: u32,
}

/// The shelves of rows that are leased, or whose lease lapsed.
pub(crate) const HELD: [Shelf; 2] = [Shelf::Leased, Shelf::Lapsed];

/// The rows among which a search looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchPath {
    /// No row can match.
    Nothing,
    Ids(Vec<IntentId>),
    /// Dead letters of these profiles.
    Dead(Vec<ProfileId>),
    /// Rows on the shelves of [`HELD`].
    Held,
    Owner(String),
    All,
}

impl SearchPath {
    /// The narrowest path that has an index.
    pub(crate) fn of(filter: &Filter) -> Self {
        let kinds = filter.kinds();
        let every = |wanted: fn(&(ProfileId, State)) -> bool| kinds.iter().all(wanted);
        if kinds.is_empty() {
            return Self::Nothing;
        }
        if let Some(ids) = filter.ids() {
            return Self::Ids(ids.to_vec());
        }
        if every(|(_, state)| *state == State::DeadLetter) {
            return Self::Dead(kinds.into_iter().map(|(profile, _)| profile).collect());
        }
        // A row whose state outlives its lease may also be delayed.
        let held = |(profile, state): &(ProfileId, State)| {
            *state == State::Dispatched && profile.profile().expiry != Expiry::StayLeased
        };
        if every(held) {
            return Self::Held;
        }
        match filter.owner() {
            Some(owner) => Self::Owner(owner.to_owned()),
            None => Self::All,
        }
    }

    /// The place of a row in the order of this path.
    fn place(&self, outline: &Outline) -> SearchPlace {
        let dead = matches!(self, Self::Dead(_));
        SearchPlace {
            settled_at: outline.settled_at.filter(|_| dead),
            seq: outline.seq,
        }
    }
}

/// A row as it is examined: with its payload only if the filter reads it.
pub(crate) type ExaminedRow = (Outline, Option<String>);

/// Rows of one read, at first.
const CHUNK_ROWS_MIN: u32 = 100;
/// Rows of one read, at most.
const CHUNK_ROWS_MAX: u32 = 1_000;

/// A page in the making. Its rows are read in chunks that grow, so that a page of many matches reads few rows.
pub(crate) struct PageInMaking<'s> {
    search: &'s Search,
    path: SearchPath,
    outlines: Vec<Outline>,
    last: Option<SearchPlace>,
    examined: u32,
    chunk: u32,
}

impl<'s> PageInMaking<'s> {
    pub(crate) fn new(search: &'s Search) -> Self {
        Self {
            search,
            path: SearchPath::of(&search.filter),
            outlines: Vec::new(),
            last: search.after,
            examined: 0,
            chunk: CHUNK_ROWS_MIN.max(search.limit.saturating_mul(2)),
        }
    }

    pub(crate) fn path(&self) -> &SearchPath {
        &self.path
    }

    pub(crate) fn reads_payload(&self) -> bool {
        self.search.filter.reads_payload()
    }

    /// How many rows to read next; `None` if the page is complete.
    pub(crate) fn next_chunk(&mut self) -> Option<u32> {
        let left = self.search.scan_max.saturating_sub(self.examined);
        if self.is_full() || left == 0 {
            return None;
        }
        let chunk = self.chunk.min(CHUNK_ROWS_MAX).min(left);
        self.chunk = self.chunk.saturating_mul(2);
        Some(chunk)
    }

    /// The end and the sequence after which the next row comes; a path without ends ignores the first.
    pub(crate) fn position(&self) -> (i64, i64) {
        let Some(place) = self.last else {
            return (i64::MAX, i64::MAX);
        };
        let settled_at = place.settled_at.map_or(i64::MAX, |at| at.0);
        (settled_at, i64::try_from(place.seq.0).unwrap_or(i64::MAX))
    }

    /// Rows that were read by their ids, in the order of the page and without those of earlier pages.
    pub(crate) fn in_order(&self, mut rows: Vec<ExaminedRow>) -> Vec<ExaminedRow> {
        let (_, before) = self.position();
        rows.retain(|(outline, _)| i64::try_from(outline.seq.0).is_ok_and(|seq| seq < before));
        rows.sort_by_key(|(outline, _)| Reverse(outline.seq));
        rows
    }

    fn is_full(&self) -> bool {
        self.outlines.len() >= self.search.limit as usize
    }

    /// Examines a row, in the order of the path. A row beyond a full page is left for the next one.
    pub(crate) fn examine(&mut self, outline: Outline, payload: Option<&str>) {
        if self.is_full() {
            return;
        }
        self.examined += 1;
        self.last = Some(self.path.place(&outline));
        let unchanged = match (self.search.unchanged_since, outline.last_fact) {
            (Some(since), Some(last)) => last <= since,
            _ => true,
        };
        let filter = &self.search.filter;
        if unchanged && filter.matches(&outline.candidate(payload), self.search.now) {
            self.outlines.push(outline);
        }
    }

    /// The page; `at_end` says whether the last chunk reached the last row of the path.
    pub(crate) fn finish(self, at_end: bool) -> SearchPage {
        let more = self.is_full() || !at_end;
        SearchPage {
            next: self.last.filter(|_| more),
            outlines: self.outlines,
            examined: self.examined,
        }
    }
}
