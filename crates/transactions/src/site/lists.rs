//! Lists for operators: intents, transactions and refunds, and the log of transitions.
//!
//! Invariant: the cost of a page depends only on its rows.

use consign_engine::{EventFilter, IntentFilter};
use consign_kernel::fact::Event;
use consign_kernel::ids::{FactSeq, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, Profile, ProfileId};
use consign_kernel::state::{Cause, State};

use super::reads::row_payload;
use super::views::{IntentViewPage, TransactionEntry, TransactionPage, Transition, TransitionPage};
use super::{OWNER, Site, unavailable};
use crate::key::IdempotencyKey;
use crate::problem::Problem;
use crate::rail::ManualRail;
use crate::state::AtpState;

/// Intents per page.
pub(super) const LIST_MAX: u32 = 200;
/// Transactions per listed intent.
const LISTED_MAX: u32 = 10;
/// The largest offset; beyond it, a client pages by `from`.
const OFFSET_MAX: u32 = 10_000;
/// Rows per read and reads per list; after them the list is cut short and returns where to continue.
const PAGE_ROWS: u32 = 500;
const PAGES_MAX: u32 = 50;
/// Reads for open rows, each of which needs its record too.
const URGENT_PAGES_MAX: u32 = 4;

impl Site {
    /// The latest intents, for operators, with their first transactions. `next` of a page is `before` of the next one.
    pub async fn intents(
        &self,
        limit: u32,
        offset: u32,
        before: Option<u64>,
    ) -> Result<IntentViewPage, Problem> {
        if offset > OFFSET_MAX {
            let reason = format!(
                "must be at most {OFFSET_MAX}; continue with from=, which each page returns as next"
            );
            return Err(Problem::field("offset", reason));
        }
        let wanted = (limit.clamp(1, LIST_MAX) + offset) as usize;
        let is_permission = |row: &Intent| row.profile == ProfileId::AtpPermission;
        let filter = filter(None, before.map(Seq));
        let (rows, next) = self.newest(filter, wanted, is_permission).await?;
        let mut intents = Vec::new();
        for row in rows.iter().skip(offset as usize) {
            if let Some(permission) = self.permission(&row.goal).await? {
                intents.push(self.intent_shown(&permission, LISTED_MAX).await?);
            }
        }
        Ok(IntentViewPage { intents, next })
    }

    /// The newest matching rows, and where to continue if there may be more.
    async fn newest(
        &self,
        mut filter: IntentFilter,
        wanted: usize,
        is_wanted: impl Fn(&Intent) -> bool,
    ) -> Result<(Vec<Intent>, Option<Seq>), Problem> {
        let mut rows = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.engine().intents(filter.clone()).await;
            let page = page.map_err(|error| unavailable(&error))?;
            rows.extend(page.intents.into_iter().filter(&is_wanted));
            if rows.len() > wanted {
                rows.truncate(wanted);
                let next = rows.last().map(|row| row.seq);
                return Ok((rows, next));
            }
            filter.before = page.next;
            if rows.len() == wanted || filter.before.is_none() {
                break;
            }
        }
        Ok((rows, filter.before))
    }

    /// Transactions for operators: without a state, open ones including refunds, oldest first, and then the latest ended ones;
    /// with a state, those in it. `next` of a page is `from` of the next one.
    pub async fn transactions_shown(
        &self,
        state: Option<&str>,
        limit: u32,
        from: Option<u64>,
    ) -> Result<TransactionPage, Problem> {
        let room = limit.clamp(1, LIST_MAX) as usize;
        let (transactions, next) = match state {
            Some(word) => self.in_state(word, room, from.map(Seq)).await?,
            // A list over several states has no single position to continue from.
            None => (self.most_urgent(room).await?, None),
        };
        Ok(TransactionPage { transactions, next })
    }

    async fn in_state(
        &self,
        word: &str,
        room: usize,
        from: Option<Seq>,
    ) -> Result<(Vec<TransactionEntry>, Option<Seq>), Problem> {
        let state =
            AtpState::parse(word).ok_or_else(|| Problem::field("state", "is not a state"))?;
        let Some(row_state) = row_state(state) else {
            return Ok((Vec::new(), None));
        };
        let (rows, next) = if state.is_terminal() {
            let filter = filter(Some(row_state), from);
            self.newest(filter, room, is_transaction).await?
        } else {
            self.open_rows(row_state, room, from).await?
        };
        let mut listed = Vec::new();
        for row in rows {
            listed.extend(self.transaction_entry(&row).await?);
        }
        Ok((listed, next))
    }

    /// Rows that may need an operator come first. A caller that reports effects acts by itself, so its rows are left out.
    async fn most_urgent(&self, room: usize) -> Result<Vec<TransactionEntry>, Problem> {
        let mut listed: Vec<TransactionEntry> = Vec::new();
        for state in [State::Dispatched, State::Delivered] {
            let mut after = Seq(0);
            for _ in 0..URGENT_PAGES_MAX {
                let page = self.open_after(state, after).await?;
                let Some(last) = page.last().filter(|_| listed.len() < room) else {
                    break;
                };
                after = last.seq;
                for row in &page {
                    let one = self.transaction_entry(row).await?;
                    listed.extend(one.filter(|one| one.transaction.rail.name != ManualRail::NAME));
                }
            }
        }
        for state in [State::Acked, State::Failed] {
            let more = room.saturating_sub(listed.len());
            let filter = filter(Some(state), None);
            let (rows, _) = self.newest(filter, more, is_transaction).await?;
            for row in rows.iter().take(more) {
                let one = self.transaction_entry(row).await?;
                let is_new = |one: &TransactionEntry| {
                    let id = &one.transaction.transaction_id;
                    listed
                        .iter()
                        .all(|other| other.transaction.transaction_id != *id)
                };
                let one = one.filter(is_new);
                listed.extend(one);
            }
        }
        listed.truncate(room);
        Ok(listed)
    }

    /// The rows that have been open longest, and where to continue if there may be more.
    async fn open_rows(
        &self,
        state: State,
        room: usize,
        from: Option<Seq>,
    ) -> Result<(Vec<Intent>, Option<Seq>), Problem> {
        let mut rows: Vec<Intent> = Vec::new();
        let mut after = from.unwrap_or(Seq(0));
        while rows.len() <= room {
            let page = self.open_after(state, after).await?;
            let Some(last) = page.last() else {
                return Ok((rows, None));
            };
            after = last.seq;
            rows.extend(page.into_iter().filter(is_transaction));
        }
        rows.truncate(room);
        let next = rows.last().map(|row| row.seq);
        Ok((rows, next))
    }

    /// Transactions and refunds that are not final, in the order in which they were begun.
    pub(super) async fn open_after(
        &self,
        state: State,
        after: Seq,
    ) -> Result<Vec<Intent>, Problem> {
        let profile = ProfileId::AtpTransaction;
        let page = self
            .engine()
            .active_rows(profile, state, after, PAGE_ROWS)
            .await;
        page.map_err(|error| unavailable(&error))
    }

    /// A transaction with the details for operators.
    pub(super) async fn transaction_entry(
        &self,
        row: &Intent,
    ) -> Result<Option<TransactionEntry>, Problem> {
        let about = row_payload(row)?;
        let key = IdempotencyKey::stored(about.key);
        let found = self.transaction(&about.intent_id, &key).await?;
        let entry = found.map(|found| TransactionEntry::of(found, row.attempts));
        entry.transpose()
    }

    /// The log of transitions, oldest first, and where to continue.
    pub async fn audit(&self, after: u64) -> Result<TransitionPage, Problem> {
        let filter = EventFilter {
            face: Face::Transaction,
            owner: OWNER.to_owned(),
            after: FactSeq(after),
            limit: 500,
        };
        let page = self.engine().events(filter).await;
        let page = page.map_err(|error| unavailable(&error))?;
        let mut transitions = Vec::new();
        for event in &page.events {
            if self.is_transition(event).await? {
                transitions.push(transition(event));
            }
        }
        Ok(TransitionPage {
            transitions,
            next: page.seen,
            more: page.more,
        })
    }

    /// Whether the event is a transition of an intent as the protocol counts them. A refund's own row does not count, nor does
    /// the expiry of a permission that was used.
    async fn is_transition(&self, event: &Event) -> Result<bool, Problem> {
        let fact = &event.fact;
        if fact.from == Some(fact.to) || event.parent.is_some() {
            return Ok(false);
        }
        if (fact.to, fact.cause) != (State::DeadLetter, Cause::Expired) {
            return Ok(true);
        }
        let permission = self.permission(&event.goal).await?;
        Ok(permission.is_none_or(|permission| permission.value.executions == 0))
    }
}

/// False for the row of a refund.
pub(super) fn is_transaction(row: &Intent) -> bool {
    row.profile == ProfileId::AtpTransaction && row.ties.parent.is_none()
}

fn row_state(state: AtpState) -> Option<State> {
    match state {
        AtpState::Executing => Some(State::Dispatched),
        AtpState::Executed => Some(State::Delivered),
        AtpState::Settled => Some(State::Acked),
        AtpState::Compensated => Some(State::Failed),
        AtpState::Created | AtpState::Authorized | AtpState::Expired => None,
    }
}

fn transition(event: &Event) -> Transition {
    let fact = &event.fact;
    let profile = event_profile(fact.to);
    let state = |state| AtpState::of_row(profile, state, fact.cause);
    // A transaction begins in the state of its permission.
    let begun = (profile.id == ProfileId::AtpTransaction).then_some(AtpState::Authorized);
    Transition {
        seq: fact.seq,
        at: fact.time_of_day(),
        intent_id: event.goal.clone(),
        row: event.id,
        from: fact.from.map_or(begun, state),
        to: state(fact.to),
        cause: fact.cause,
    }
}

/// The two profiles of this face share no state that a row can enter.
fn event_profile(entered: State) -> &'static Profile {
    let permission = ProfileId::AtpPermission.profile();
    if permission.word(entered, Cause::None).is_some() {
        return permission;
    }
    ProfileId::AtpTransaction.profile()
}

fn filter(state: Option<State>, before: Option<Seq>) -> IntentFilter {
    IntentFilter {
        face: Face::Transaction,
        owner: Some(OWNER.to_owned()),
        namespace: None,
        goal: None,
        state,
        before,
        limit: PAGE_ROWS,
    }
}
