//! The figures of each face for operators: how much is in which state, and since when the oldest row waits.

use std::collections::BTreeMap;

use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use consign_store::TypedReads as _;

use crate::{Engine, Error, Operator};

/// How many rows are examined for the oldest one.
const OLDEST_SCAN_MAX: u32 = 1_000;

/// How much a face has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceFigures {
    pub face: Face,
    pub states: BTreeMap<State, u64>,
    /// Since when the oldest claimable row has been due. If lives differ, it is the oldest among those that end first.
    pub oldest_since: Option<Micros>,
}

impl FaceFigures {
    pub fn count(&self, state: State) -> u64 {
        self.states.get(&state).copied().unwrap_or(0)
    }

    /// Rows that nobody holds and that are not settled.
    pub fn waiting(&self) -> u64 {
        [State::Received, State::Validated, State::Queued]
            .into_iter()
            .map(|state| self.count(state))
            .sum()
    }

    /// Rows that somebody has accepted and not settled.
    pub fn held(&self) -> u64 {
        self.count(State::Dispatched) + self.count(State::Delivered)
    }

    pub fn dead(&self) -> u64 {
        self.count(State::DeadLetter)
    }
}

impl Engine {
    /// The figures of all faces, from counters that the commits maintain and a bounded scan.
    pub async fn face_figures(&self, _: Operator) -> Result<Vec<FaceFigures>, Error> {
        self.sweep().await?;
        let mut figures = Vec::with_capacity(Face::ALL.len());
        for face in Face::ALL.iter().copied() {
            let mut states: BTreeMap<State, u64> = BTreeMap::new();
            for count in self.inner.store.counts(face).await? {
                *states.entry(count.state).or_default() += count.count;
            }
            let mut one = FaceFigures {
                face,
                states,
                oldest_since: None,
            };
            if one.waiting() > 0 {
                one.oldest_since = self.oldest_since(face).await?;
            }
            figures.push(one);
        }
        Ok(figures)
    }

    async fn oldest_since(&self, face: Face) -> Result<Option<Micros>, Error> {
        if face == Face::Automation {
            // Jobs have no end of life, so they would come last; they have an index of their own.
            let queued = self.jobs_by_state(Some(State::Queued), 1).await?;
            let now = self.now();
            let due = queued.first().map(|job| job.run_at);
            return Ok(due.filter(|due| *due <= now));
        }
        let store = &self.inner.store;
        Ok(store.oldest_claimable(face, OLDEST_SCAN_MAX).await?)
    }
}
