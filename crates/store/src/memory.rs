//! The model: the simplest possible store, which the other backends are compared with.
//!
//! Every search reads every row, so that no optimisation can hide a mistake. For tests only; nothing survives the process.

mod check;
#[cfg(feature = "simulation")]
pub mod simulated;
mod tx;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::command::{Reply, Request};
use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::Lanes;
use consign_kernel::once::{self, DedupeAnswer};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use crate::group::CommitListeners;
use crate::ledger::{Batch, Counter, Position, UNDER_WAY, instants};
use crate::search::{HELD, PageInMaking, SearchPath};
use crate::{
    BoxFuture, Clock, CommitListener, Count, Dump, EndingCount, Error, EventPage, IntentColumns,
    IntentFilter, IntentPage, JobCount, LeaseCount, LostMessagePage, MessageCount, MessageFilter,
    MessagesOf, NamePage, News, Outline, OutlinePage, Query, Rows, Search, SearchPage, SeqPage,
    Stats, Store,
};

pub struct Memory {
    clock: Arc<dyn Clock>,
    data: Mutex<ModelData>,
    listeners: CommitListeners,
}

#[derive(Clone, Default)]
struct ModelData {
    intents: BTreeMap<Seq, Intent>,
    ids: HashMap<IntentId, Seq>,
    lanes: BTreeMap<Seq, Lanes>,
    facts: BTreeMap<FactSeq, Fact>,
    once: BTreeMap<once::OnceKey, once::FirstUse>,
    records: BTreeMap<record::Key, Record>,
    counts: BTreeMap<Counter, i64>,
    position: Position,
    stats: Stats,
}

impl Memory {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            data: Mutex::default(),
            listeners: CommitListeners::default(),
        }
    }

    fn data(&self) -> MutexGuard<'_, ModelData> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelData {
    /// Runs `work` in one transaction; also returns whether it wrote anything.
    fn run(
        &mut self,
        instants: (Micros, Micros),
        work: impl FnOnce(&mut dyn FnMut(&Request) -> Result<Reply, Error>) -> Result<(), Error>,
    ) -> Result<(News, bool), Error> {
        let mut position = self.position;
        let mut requests = 0;
        let mut batch = Batch::new(self, instants, &mut position);
        work(&mut |request| {
            requests += 1;
            batch.run(request)
        })?;
        let wrote = batch.wrote;
        let news = batch.finish()?;
        self.position = position;
        self.stats.requests += requests;
        self.stats.commits += u64::from(wrote);
        Ok((news, wrote))
    }

    /// Newest first.
    fn page(&self, filter: &IntentFilter) -> IntentPage {
        let wanted = |intent: &&Intent| {
            filter.wants(intent)
                && filter.before.is_none_or(|before| intent.seq < before)
                && filter
                    .owner
                    .as_ref()
                    .is_none_or(|owner| intent.owner == *owner)
        };
        let limit = filter.limit as usize;
        let intents: Vec<Intent> = self
            .intents
            .values()
            .rev()
            .filter(wanted)
            .take(limit)
            .cloned()
            .collect();
        let next = intents
            .last()
            .map(|intent| intent.seq)
            .filter(|_| intents.len() == limit);
        IntentPage { intents, next }
    }

    fn search(&self, search: &Search) -> SearchPage {
        let mut page = PageInMaking::new(search);
        let (settled_at, seq) = page.position();
        let is_after = |intent: &&Intent| {
            let at = i64::try_from(intent.seq.0).unwrap_or(i64::MAX);
            match (page.path(), intent.settled_at) {
                (SearchPath::Dead(_), Some(settled)) => (settled.0, at) < (settled_at, seq),
                _ => at < seq,
            }
        };
        let mut rows: Vec<&Intent> = self.intents.values().filter(is_after).collect();
        rows.retain(|intent| match page.path() {
            SearchPath::Nothing => false,
            SearchPath::Ids(ids) => ids.contains(&intent.id),
            SearchPath::Dead(profiles) => {
                intent.state == State::DeadLetter && profiles.contains(&intent.profile)
            }
            SearchPath::Held => HELD.contains(&intent.shelf),
            SearchPath::Owner(owner) => intent.owner == *owner,
            SearchPath::All => true,
        });
        let by_death = matches!(page.path(), SearchPath::Dead(_));
        rows.sort_by_key(|intent| Reverse((intent.settled_at.filter(|_| by_death), intent.seq)));
        let mut rows = rows.into_iter();
        while page.next_chunk().is_some() {
            let Some(intent) = rows.next() else {
                return page.finish(true);
            };
            page.examine(Outline::from(intent), Some(&intent.payload));
        }
        page.finish(rows.len() == 0)
    }

    /// Records that ended before `now` are left out.
    fn answer(&self, query: &Query, now: Micros) -> Rows {
        match query {
            Query::Intent(id) => {
                let seq = self.ids.get(id);
                let found = seq.and_then(|seq| self.intents.get(seq));
                Rows::Intents(found.cloned().into_iter().collect())
            }
            Query::IntentsById(ids) => {
                Rows::Intents(self.first(u32::MAX, |intent| ids.contains(&intent.id)))
            }
            Query::Intents { filter, view } => {
                let page = self.page(filter);
                match view {
                    IntentColumns::Full => Rows::IntentPage(page),
                    IntentColumns::Outline => Rows::OutlinePage(OutlinePage {
                        outlines: page.intents.iter().map(Outline::from).collect(),
                        next: page.next,
                    }),
                }
            }
            Query::Search(wanted) => Rows::SearchPage(self.search(wanted)),
            Query::Children { parent, limit } => {
                Rows::Intents(self.first(*limit, |intent| intent.ties.parent == Some(*parent)))
            }
            Query::ChildJobs { parent, limit } => {
                let jobs = self.jobs().filter(|job| job.ties.parent == Some(*parent));
                outlines(jobs, *limit)
            }
            Query::JobByPayload {
                text,
                after,
                scan_max,
            } => {
                let mut jobs: Vec<&Intent> = self.jobs().filter(|job| job.id > *after).collect();
                jobs.sort_by_key(|job| job.id);
                let jobs = jobs.into_iter().take(*scan_max as usize);
                outlines(jobs.filter(|job| job.payload.contains(text)), 1)
            }
            Query::OpenJobs {
                capability,
                goal,
                limit,
            } => {
                let wanted = |job: &&Intent| {
                    job.capability.as_ref() == Some(capability)
                        && goal.as_ref().is_none_or(|goal| job.goal == *goal)
                };
                let mut jobs: Vec<&Intent> = self.open_jobs().filter(wanted).collect();
                jobs.sort_by_key(|job| (&job.goal, job.seq));
                outlines(jobs.into_iter(), *limit)
            }
            Query::JobsByState { state, limit } => {
                let wanted = |job: &&Intent| state.is_none_or(|state| job.state == state);
                outlines(self.open_jobs().filter(wanted), *limit)
            }
            Query::JobCounts { now } => Rows::JobCounts(self.job_counts(*now)),
            Query::ActiveRows {
                profile,
                state,
                after,
                limit,
            } => Rows::Intents(self.first(*limit, |intent| {
                intent.profile == *profile
                    && intent.state == *state
                    && intent.seq > *after
                    && UNDER_WAY.contains(&intent.shelf)
            })),
            Query::Messages(filter) => Rows::Intents(self.messages(filter)),
            Query::MessageCounts {
                face,
                tally,
                from,
                limit,
            } => {
                let first = Counter::Messages {
                    face: *face,
                    tally: *tally,
                    name: from.clone(),
                };
                let counts = self.counts.range(first..).map_while(|(counter, count)| {
                    let (kind, of, name, _) = counter.key();
                    let is_wanted = (kind, of) == (tally.kind(), face.code());
                    is_wanted.then(|| MessageCount {
                        name: name.to_owned(),
                        count: count.unsigned_abs(),
                    })
                });
                Rows::MessageCounts(counts.take(*limit as usize).collect())
            }
            Query::FirstUse(key) => {
                let found = self.once.get(key).filter(|row| row.until > now);
                Rows::FirstUses(found.cloned().into_iter().collect())
            }
            Query::LostMessages { after, limit } => {
                Rows::LostMessages(self.lost_messages(after, *limit))
            }
            Query::MeshEnding { until } => {
                let messages = self.intents.values().filter(|intent| {
                    intent.profile == ProfileId::MeshMessage && intent.wake_at <= *until
                });
                let keys = self
                    .once
                    .values()
                    .filter(|row| row.key.scope == once::Scope::MeshMessage && row.until <= *until);
                Rows::Ending(EndingCount {
                    messages: messages.count() as u64,
                    keys: keys.count() as u64,
                })
            }
            Query::Dead { face, limit } => {
                let mut dead = self.first(u32::MAX, |intent| {
                    intent.state == State::DeadLetter && intent.profile.profile().face == *face
                });
                dead.sort_by_key(|intent| Reverse((intent.settled_at, intent.seq)));
                dead.truncate(*limit as usize);
                Rows::Intents(dead)
            }
            Query::Facts { intent, limit } => {
                let own = self.facts_back(*intent).take(*limit as usize);
                let mut facts: Vec<Fact> = own.cloned().collect();
                facts.reverse();
                Rows::Facts(facts)
            }
            Query::LastFactTo {
                intent,
                states,
                before,
                scan_max,
            } => {
                let earlier = |fact: &&Fact| before.is_none_or(|before| fact.seq < before);
                let own = self.facts_back(*intent).filter(earlier);
                let mut own = own.take(*scan_max as usize);
                let found = own.find(|fact| states.contains(&fact.to));
                Rows::Facts(found.cloned().into_iter().collect())
            }
            Query::Events(filter) => {
                let owner = Some(filter.owner.as_str());
                Rows::Events(self.events(Some(filter.face), owner, filter.after, filter.limit))
            }
            Query::AllEvents { face, after, limit } => {
                Rows::Events(self.events(*face, None, *after, *limit))
            }
            Query::LastFact | Query::HighestFact => Rows::FactSeq(FactSeq(self.position.fact)),
            Query::Record(key) => {
                let found = self.records.get(key).filter(|record| is_live(record, now));
                Rows::Records(found.cloned().into_iter().collect())
            }
            Query::RecordsByKey(keys) => {
                let found = keys.iter().filter_map(|key| self.records.get(key));
                let found = found.filter(|record| is_live(record, now));
                Rows::Records(found.cloned().collect())
            }
            Query::Records {
                kind,
                owner,
                page,
                limit,
            } => {
                let own = |record: &&Record| {
                    record.key.kind == *kind && record.key.owner == *owner && is_live(record, now)
                };
                let mut own: Vec<&Record> = self.records.values().filter(own).collect();
                own.sort_by(|one, other| one.key.name.cmp(&other.key.name));
                match page {
                    NamePage::After(after) => own.retain(|record| record.key.name > *after),
                    NamePage::Before(before) => {
                        own.retain(|record| before.is_empty() || record.key.name < *before);
                        own.reverse();
                    }
                }
                Rows::Records(own.into_iter().take(*limit as usize).cloned().collect())
            }
            Query::Counts { face } => Rows::Counts(self.counts(*face)),
            Query::LeaseCounts => {
                let leased = self.intents.values();
                let leased = leased.filter(|intent| intent.shelf == Shelf::Leased);
                let leases = leased.count() as u64;
                let held = (leases > 0).then_some(LeaseCount { node: None, leases });
                Rows::LeaseCounts(held.into_iter().collect())
            }
            Query::OldestClaimable { face, scan_max } => {
                let mut since = Vec::new();
                for shelf in [Shelf::Ready, Shelf::Lapsed] {
                    let mut on_shelf = self.first(u32::MAX, |intent| intent.shelf == shelf);
                    on_shelf.sort_by_key(|intent| intent.wake_at);
                    on_shelf.truncate(*scan_max as usize);
                    since.extend(on_shelf);
                }
                since.retain(|intent| intent.profile.profile().face == *face);
                Rows::Due(since.iter().map(|intent| intent.run_at).min())
            }
            Query::NextDue => {
                let timed =
                    |intent: &&Intent| matches!(intent.shelf, Shelf::Delayed | Shelf::Leased);
                let timed = self.intents.values().filter(timed);
                Rows::Due(timed.map(|intent| intent.wake_at).min())
            }
        }
    }

    fn has_lost_message(&self, row: &once::FirstUse) -> bool {
        let exists = row.intent.is_some_and(|id| self.ids.contains_key(&id));
        !exists && DedupeAnswer::parse(&row.answer).is_some_and(|answer| answer.history_available)
    }

    fn lost_messages(&self, (mesh, key): &(String, String), limit: u32) -> LostMessagePage {
        let after = |row: &&once::FirstUse| {
            row.key.scope == once::Scope::MeshMessage
                && (&row.key.owner, &row.key.key) > (mesh, key)
        };
        let seen: Vec<&once::FirstUse> = self
            .once
            .values()
            .filter(after)
            .take(limit as usize)
            .collect();
        let lost = seen.iter().filter(|row| self.has_lost_message(row));
        LostMessagePage {
            checked: seen.len() as u64,
            lost: lost.map(|row| row.key.clone()).collect(),
            next: (seen.last().filter(|_| seen.len() == limit as usize))
                .map(|row| (row.key.owner.clone(), row.key.key.clone())),
        }
    }

    fn first(&self, limit: u32, wanted: impl Fn(&Intent) -> bool) -> Vec<Intent> {
        let found = self.intents.values().filter(|intent| wanted(intent));
        found.take(limit as usize).cloned().collect()
    }

    fn messages(&self, filter: &MessageFilter) -> Vec<Intent> {
        let wanted = |intent: &Intent| {
            intent.profile == filter.profile
                && match &filter.of {
                    MessagesOf::All => true,
                    MessagesOf::Sender(sender) => intent.ties.sender.as_ref() == Some(sender),
                    MessagesOf::Recipient(recipient) => intent.owner == *recipient,
                    MessagesOf::AwaitingAck(recipient) => {
                        intent.owner == *recipient
                            && intent.profile == ProfileId::BeamBus
                            && intent.state == State::Delivered
                    }
                }
        };
        match filter.page {
            SeqPage::After(after) => {
                self.first(filter.limit, |intent| intent.seq > after && wanted(intent))
            }
            SeqPage::Before(before) => {
                let mut found =
                    self.first(u32::MAX, |intent| intent.seq < before && wanted(intent));
                found.reverse();
                found.truncate(filter.limit as usize);
                found
            }
        }
    }

    fn jobs(&self) -> impl Iterator<Item = &Intent> {
        let all = self.intents.values();
        all.filter(|intent| intent.profile == ProfileId::Automation)
    }

    fn open_jobs(&self) -> impl Iterator<Item = &Intent> {
        self.jobs()
            .filter(|job| matches!(job.state, State::Queued | State::Dispatched))
    }

    fn job_counts(&self, now: Micros) -> Vec<JobCount> {
        let mut work: BTreeMap<Option<String>, JobCount> = BTreeMap::new();
        for job in self.open_jobs() {
            let capability = job.capability.clone();
            let count = work.entry(capability.clone()).or_insert(JobCount {
                capability,
                queued: 0,
                delayed: 0,
                running: 0,
            });
            let is_queued = job.state == State::Queued;
            count.queued += u64::from(is_queued);
            count.delayed += u64::from(is_queued && job.run_at > now);
            count.running += u64::from(!is_queued);
        }
        work.into_values().collect()
    }

    /// The facts of an intent, newest first; none after the intent is removed.
    fn facts_back(&self, intent: Seq) -> impl Iterator<Item = &Fact> {
        let exists = self.intents.contains_key(&intent);
        let all = self.facts.values().rev();
        all.filter(move |fact| exists && fact.intent == intent)
    }

    fn events(
        &self,
        face: Option<Face>,
        owner: Option<&str>,
        after: FactSeq,
        limit: u32,
    ) -> EventPage {
        let first = FactSeq(after.0.saturating_add(1));
        let own: Vec<&Fact> = self
            .facts
            .range(first..)
            .map(|(_, fact)| fact)
            .filter(|fact| owner.is_none_or(|owner| fact.owner == owner))
            .take(limit as usize)
            .collect();
        let seen = own.last().map_or(after, |fact| fact.seq);
        let more = own.len() == limit as usize;
        let events = own
            .into_iter()
            .filter_map(|fact| {
                let intent = self.intents.get(&fact.intent)?;
                face.is_none_or(|face| fact.face == face).then(|| Event {
                    fact: fact.clone(),
                    id: intent.id,
                    namespace: intent.namespace.clone(),
                    goal: intent.goal.clone(),
                    parent: intent.ties.parent,
                })
            })
            .collect();
        EventPage { events, seen, more }
    }

    fn counts(&self, face: Face) -> Vec<Count> {
        let count = |(counter, count): (&Counter, &i64)| match counter {
            Counter::State {
                face: of,
                namespace,
                state,
            } if *of == face && *count > 0 => Some(Count {
                namespace: namespace.clone(),
                state: *state,
                count: count.unsigned_abs(),
            }),
            Counter::State { .. }
            | Counter::Unsettled { .. }
            | Counter::Unconsented { .. }
            | Counter::Messages { .. } => None,
        };
        self.counts.iter().filter_map(count).collect()
    }
}

fn outlines<'a>(jobs: impl Iterator<Item = &'a Intent>, limit: u32) -> Rows {
    Rows::Outlines(jobs.take(limit as usize).map(Outline::from).collect())
}

fn is_live(record: &Record, now: Micros) -> bool {
    record.expires_at.is_none_or(|until| until > now)
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for Memory {
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let mut reply = Ok(Vec::new());
            let (news, _) = self.data().run(instants(&*self.clock), |run| {
                reply = run(&request)?;
                Ok(())
            })?;
            self.listeners.notify(&news);
            Ok(reply)
        })
    }

    fn listen(&self, listener: CommitListener) {
        self.listeners.add(listener);
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        ready(self.data().answer(&query, self.clock.now()))
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        ready(check::check(&self.data()))
    }

    fn dump(&self) -> BoxFuture<'_, Dump> {
        let data = self.data();
        let counts = data.counts.iter().filter(|(_, count)| **count != 0);
        ready(Dump {
            intents: data.intents.values().cloned().collect(),
            lanes: data
                .lanes
                .iter()
                .map(|(seq, lanes)| (*seq, lanes.probes().collect()))
                .collect(),
            facts: data.facts.values().cloned().collect(),
            once: data.once.values().cloned().collect(),
            records: data.records.values().cloned().collect(),
            counts: counts
                .map(|(counter, count)| (format!("{counter:?}"), *count))
                .collect(),
        })
    }

    fn stats(&self) -> Stats {
        let data = self.data();
        Stats {
            last_fact: FactSeq(data.position.fact),
            ..data.stats
        }
    }
}

// The model never fails; the alias keeps signatures in `tx` short.
type ModelResult<T> = Result<T, Error>;
