//! What operators find and change across owners and protocols.
//!
//! Invariant: an operator takes only the steps that the profile of a row lists as an operator's, whichever protocol the row
//! belongs to. A read is bounded: it examines a fixed number of rows and names the place where the next one continues.

use consign_kernel::command::{Command, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::filter::Filter;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::limits::{COUNT_ROWS_MAX, SEARCH_PAYLOADS_MAX, SEARCH_ROWS_MAX};
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};
use consign_store::{Search, SearchPage, SearchPlace, TypedReads as _};

use crate::{Engine, Error, Operator};

/// What an operator does with single rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    Retry,
    Cancel,
    Delete,
}

impl OperatorAction {
    pub const ALL: [Self; 3] = [Self::Retry, Self::Cancel, Self::Delete];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// The state to which it leads; a deleted row has none.
    pub const fn leads_to(self) -> Option<State> {
        match self {
            Self::Retry => Some(State::Queued),
            Self::Cancel => Some(State::DeadLetter),
            Self::Delete => None,
        }
    }

    /// Whether the profile of the row lets an operator do this in its state. Only intents are deleted by hand: rows of other
    /// protocols are parts of a history that those keep.
    pub fn allowed_on(self, intent: &Intent) -> bool {
        let profile = intent.profile.profile();
        let may = |verb| profile.operator_verbs(intent.state).any(|own| own == verb);
        match self {
            Self::Retry => may(Verb::Requeue),
            Self::Cancel => may(Verb::Cancel),
            Self::Delete => profile.face == Face::Intent,
        }
    }
}

/// How many rows match a filter, as far as they were examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchCount {
    pub count: u64,
    pub examined: u64,
    /// Where the rest begins, if not all rows were examined.
    pub next: Option<SearchPlace>,
}

impl Engine {
    /// One page of the rows of all owners and protocols that match.
    pub async fn search(
        &self,
        _: Operator,
        filter: Filter,
        after: Option<SearchPlace>,
        limit: u32,
    ) -> Result<SearchPage, Error> {
        let search = Search {
            now: self.now(),
            after,
            unchanged_since: None,
            limit,
            scan_max: scan_max(&filter),
            filter,
        };
        Ok(self.inner.store.search(search).await?)
    }

    /// Counts the rows that match, among at most [`COUNT_ROWS_MAX`] rows after a place.
    pub async fn count_matching(
        &self,
        _: Operator,
        filter: &Filter,
        after: Option<SearchPlace>,
    ) -> Result<MatchCount, Error> {
        let mut found = MatchCount {
            count: 0,
            examined: 0,
            next: after,
        };
        let now = self.now();
        while found.examined < u64::from(COUNT_ROWS_MAX) {
            let scan_max = scan_max(filter);
            let page = self.inner.store.search(Search {
                filter: filter.clone(),
                now,
                after: found.next,
                unchanged_since: None,
                limit: scan_max,
                scan_max,
            });
            let page = page.await?;
            found.count += page.outlines.len() as u64;
            found.examined += u64::from(page.examined);
            found.next = page.next;
            if found.next.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// Does this with one row, and returns the row as it was; `None` if there is no such row. Work that is completed is
    /// repeated or contradicted only by `force`.
    pub async fn operate(
        &self,
        operator: Operator,
        id: IntentId,
        action: OperatorAction,
        force: bool,
        reason: &str,
    ) -> Result<Option<Intent>, Error> {
        let Some(intent) = self.observe(id).await? else {
            return Ok(None);
        };
        let face = intent.profile.profile().face;
        if !action.allowed_on(&intent) {
            return Err(Refusal::IllegalState.into());
        }
        match (action, force) {
            (OperatorAction::Retry, true) => self.requeue(operator, face, id, reason).await,
            (OperatorAction::Retry, false) => {
                self.requeue_unfinished(operator, face, id, reason).await
            }
            (OperatorAction::Cancel, true) => self.cancel(operator, face, id, reason).await,
            (OperatorAction::Cancel, false) => {
                self.cancel_unfinished(operator, face, id, reason).await
            }
            (OperatorAction::Delete, _) => self.remove(face, id, reason).await,
        }?;
        Ok(Some(intent))
    }

    /// Removes a row on which no holder works.
    async fn remove(&self, face: Face, id: IntentId, reason: &str) -> Result<(), Error> {
        let operate = Operate {
            id,
            face,
            reason: reason.to_owned(),
        };
        self.apply(None, Command::Remove(operate)).await.map(|_| ())
    }
}

/// How many rows one page examines.
pub(crate) fn scan_max(filter: &Filter) -> u32 {
    if filter.reads_payload() {
        SEARCH_PAYLOADS_MAX
    } else {
        SEARCH_ROWS_MAX
    }
}
