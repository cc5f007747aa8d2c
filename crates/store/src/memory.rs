//! The model: the simplest possible store, which the other backends are compared with.
//!
//! Every search reads every row, so that no optimisation can hide a mistake. For tests only; nothing survives the process.

mod check;
#[cfg(feature = "simulation")]
pub mod simulated;
mod tx;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::command::{Reply, Request};
use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::Lanes;
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use crate::group::CommitListeners;
use crate::ledger::{Batch, Counter, Position, UNDER_WAY, instants};
use crate::{
    BoxFuture, Clock, CommitListener, Count, Dump, Error, EventFilter, EventPage, IntentFilter,
    IntentPage, JobCount, LeaseCount, News, Outline, OutlinePage, Stats, Store,
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
    once: BTreeMap<once::Key, once::Row>,
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

    fn open_jobs(&self) -> impl Iterator<Item = &Intent> {
        self.intents.values().filter(|intent| {
            intent.profile == ProfileId::Automation
                && matches!(intent.state, State::Queued | State::Dispatched)
        })
    }
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

    fn intent(&self, id: IntentId) -> BoxFuture<'_, Option<Intent>> {
        let data = self.data();
        ready(
            data.ids
                .get(&id)
                .and_then(|seq| data.intents.get(seq))
                .cloned(),
        )
    }

    fn intents(&self, filter: IntentFilter) -> BoxFuture<'_, IntentPage> {
        ready(self.data().page(&filter))
    }

    fn outlines(&self, filter: IntentFilter) -> BoxFuture<'_, OutlinePage> {
        let page = self.data().page(&filter);
        ready(OutlinePage {
            outlines: page.intents.iter().map(Outline::from).collect(),
            next: page.next,
        })
    }

    fn open_jobs(
        &self,
        capability: String,
        goal: Option<String>,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Outline>> {
        let data = self.data();
        let wanted = |job: &&Intent| {
            job.capability.as_ref() == Some(&capability)
                && goal.as_ref().is_none_or(|goal| job.goal == *goal)
        };
        let mut jobs: Vec<&Intent> = data.open_jobs().filter(wanted).collect();
        jobs.sort_by_key(|job| (&job.goal, job.seq));
        let jobs = jobs.into_iter().take(limit as usize);
        ready(jobs.map(Outline::from).collect())
    }

    fn jobs_by_state(&self, state: Option<State>, limit: u32) -> BoxFuture<'_, Vec<Outline>> {
        let data = self.data();
        let wanted = |job: &&Intent| state.is_none_or(|state| job.state == state);
        let jobs = data.open_jobs().filter(wanted).take(limit as usize);
        ready(jobs.map(Outline::from).collect())
    }

    fn job_counts(&self, now: Micros) -> BoxFuture<'_, Vec<JobCount>> {
        let data = self.data();
        let mut work: BTreeMap<Option<String>, JobCount> = BTreeMap::new();
        for job in data.open_jobs() {
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
        ready(work.into_values().collect())
    }

    fn children(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Intent>> {
        let data = self.data();
        let own = data.intents.values();
        ready(
            own.filter(|intent| intent.ties.parent == Some(parent))
                .take(limit as usize)
                .cloned()
                .collect(),
        )
    }

    fn child_jobs(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Outline>> {
        let data = self.data();
        let wanted = |intent: &&Intent| {
            intent.profile == ProfileId::Automation && intent.ties.parent == Some(parent)
        };
        let jobs = data.intents.values().filter(wanted).take(limit as usize);
        ready(jobs.map(Outline::from).collect())
    }

    fn find_job_by_payload(
        &self,
        text: String,
        after: IntentId,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Outline>> {
        let data = self.data();
        let is_next =
            |intent: &&Intent| intent.profile == ProfileId::Automation && intent.id > after;
        let mut jobs: Vec<&Intent> = data.intents.values().filter(is_next).collect();
        jobs.sort_by_key(|job| job.id);
        let mut jobs = jobs.into_iter().take(scan_max as usize);
        let found = jobs.find(|job| job.payload.contains(&text));
        ready(found.map(Outline::from))
    }

    fn active_rows(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Intent>> {
        let data = self.data();
        let wanted = |intent: &&Intent| {
            intent.profile == profile
                && intent.state == state
                && intent.seq > after
                && UNDER_WAY.contains(&intent.shelf)
        };
        let found = data.intents.values().filter(wanted);
        ready(found.take(limit as usize).cloned().collect())
    }

    fn dead(&self, face: Face, limit: u32) -> BoxFuture<'_, Vec<Intent>> {
        let data = self.data();
        let mut dead: Vec<Intent> = data
            .intents
            .values()
            .filter(|intent| {
                intent.state == State::DeadLetter && intent.profile.profile().face == face
            })
            .cloned()
            .collect();
        dead.sort_by_key(|intent| std::cmp::Reverse((intent.settled_at, intent.seq)));
        dead.truncate(limit as usize);
        ready(dead)
    }

    fn facts(&self, intent: Seq, limit: u32) -> BoxFuture<'_, Vec<Fact>> {
        let data = self.data();
        let own = data.facts.values().rev();
        let mut facts: Vec<Fact> = own
            .filter(|fact| fact.intent == intent && data.intents.contains_key(&intent))
            .take(limit as usize)
            .cloned()
            .collect();
        facts.reverse();
        ready(facts)
    }

    fn last_fact_to(
        &self,
        intent: Seq,
        states: &'static [State],
        before: Option<FactSeq>,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Fact>> {
        let data = self.data();
        let own =
            data.facts.values().rev().filter(|fact| {
                fact.intent == intent && before.is_none_or(|before| fact.seq < before)
            });
        ready(
            own.take(scan_max as usize)
                .find(|fact| states.contains(&fact.to))
                .filter(|_| data.intents.contains_key(&intent))
                .cloned(),
        )
    }

    fn events(&self, filter: EventFilter) -> BoxFuture<'_, EventPage> {
        let data = self.data();
        let after = FactSeq(filter.after.0.saturating_add(1));
        let own: Vec<&Fact> = data
            .facts
            .range(after..)
            .map(|(_, fact)| fact)
            .filter(|fact| fact.owner == filter.owner)
            .take(filter.limit as usize)
            .collect();
        let seen = own.last().map_or(filter.after, |fact| fact.seq);
        let more = own.len() == filter.limit as usize;
        let events = own
            .into_iter()
            .filter_map(|fact| {
                let intent = data.intents.get(&fact.intent)?;
                (fact.face == filter.face).then(|| Event {
                    fact: fact.clone(),
                    id: intent.id,
                    namespace: intent.namespace.clone(),
                    goal: intent.goal.clone(),
                    parent: intent.ties.parent,
                })
            })
            .collect();
        ready(EventPage { events, seen, more })
    }

    fn record(&self, key: record::Key) -> BoxFuture<'_, Option<Record>> {
        let now = self.clock.now();
        let record = self.data().records.get(&key).cloned();
        ready(record.filter(|record| record.expires_at.is_none_or(|until| until > now)))
    }

    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>> {
        let now = self.clock.now();
        let data = self.data();
        let live = |record: &&Record| {
            record.key.kind == kind
                && record.key.owner == owner
                && record.key.name > after
                && record.expires_at.is_none_or(|until| until > now)
        };
        ready(
            data.records
                .values()
                .filter(live)
                .take(limit as usize)
                .cloned()
                .collect(),
        )
    }

    fn last_records(
        &self,
        kind: record::Kind,
        owner: String,
        before: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>> {
        let now = self.clock.now();
        let data = self.data();
        let live = |record: &&Record| {
            record.key.kind == kind
                && record.key.owner == owner
                && (before.is_empty() || record.key.name < before)
                && record.expires_at.is_none_or(|until| until > now)
        };
        let mut last: Vec<Record> = data.records.values().filter(live).cloned().collect();
        last.sort_by(|one, other| other.key.name.cmp(&one.key.name));
        last.truncate(limit as usize);
        ready(last)
    }

    fn counts(&self, face: Face) -> BoxFuture<'_, Vec<Count>> {
        let data = self.data();
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
            Counter::State { .. } | Counter::Unsettled { .. } | Counter::Unconsented { .. } => None,
        };
        ready(data.counts.iter().filter_map(count).collect())
    }

    fn lease_counts(&self) -> BoxFuture<'_, Vec<LeaseCount>> {
        let data = self.data();
        let leased = data.intents.values();
        let leases = leased
            .filter(|intent| intent.shelf == Shelf::Leased)
            .count() as u64;
        let held = (leases > 0).then_some(LeaseCount { node: None, leases });
        ready(held.into_iter().collect())
    }

    fn next_due(&self) -> BoxFuture<'_, Option<Micros>> {
        let data = self.data();
        let timed = |intent: &&Intent| matches!(intent.shelf, Shelf::Delayed | Shelf::Leased);
        ready(
            data.intents
                .values()
                .filter(timed)
                .map(|intent| intent.wake_at)
                .min(),
        )
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
