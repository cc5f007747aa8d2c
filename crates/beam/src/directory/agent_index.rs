//! What lists and counts need of each agent, in memory, because anyone may register agents and ask for lists.
//!
//! Invariant: a change that this node has answered is in the next list; a change of another node is in it after
//! [`REREAD_AFTER`], or later if a read of all agents takes long. The texts of agents take at most [`WORDS_BYTES_MAX`] of memory;
//! those of further agents are read from the ledger when a filter needs them. Work that grows with the number of agents runs
//! on threads for blocking work, for [`LISTS_MAX`] lists at a time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use consign_engine::Error;
use consign_kernel::record::{Kind, Record};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::records::{Agent, PAGE};
use crate::service::Beam;
use crate::trust::{self, TrustFacts, VerificationTier};

/// Lists that are made at the same time; others wait.
const LISTS_MAX: usize = 2;
/// Texts of agents in memory.
const WORDS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// On a ledger with several nodes, all agents are read again after this time.
const REREAD_AFTER: Duration = Duration::from_secs(2);
/// The share of time for that: a read that took a second is followed by ten without one.
const PAUSE_PER_READ: u32 = 10;
/// How long an agent is read again if it is unknown whether its change was stored.
const UNCERTAIN: Duration = Duration::from_secs(10);
/// Beyond this number of changed agents, all are read again.
const CHANGED_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct AgentIndex {
    briefs: Arc<RwLock<AgentBriefs>>,
    changed: Mutex<ChangedAgents>,
    /// Held while the ledger is read into the index, so that a later read is also applied later.
    reading: tokio::sync::Mutex<IndexReads>,
    lists: Semaphore,
}

impl Default for AgentIndex {
    fn default() -> Self {
        Self {
            briefs: Arc::default(),
            changed: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            lists: Semaphore::new(LISTS_MAX),
        }
    }
}

/// The agents in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct AgentBriefs {
    agents: BTreeMap<Arc<str>, AgentBrief>,
    words_bytes: usize,
}

/// The parts of an agent by which lists are filtered and ordered.
#[derive(Debug)]
pub(crate) struct AgentBrief {
    /// Of the stored record, which is decoded only if it has changed.
    hash: u64,
    flagged: bool,
    verified: bool,
    pub(super) tier: VerificationTier,
    pub(super) public: bool,
    created_at: i64,
    pub(crate) last_seen: i64,
    /// Absent if the memory for texts is used up.
    pub(super) words: Option<AgentWords>,
}

#[derive(Debug)]
pub(super) struct AgentWords {
    /// Name and description in lower case.
    pub(super) texts: [Box<str>; 2],
    pub(super) capabilities: Vec<Box<str>>,
    /// The capabilities are in lower case already.
    pub(super) is_lower_case: bool,
}

/// Agents that this node has changed since they were read.
#[derive(Debug, Default)]
struct ChangedAgents {
    agents: HashMap<String, ChangeMark>,
    marks: u64,
    /// Too many have changed.
    all: bool,
}

#[derive(Clone, Copy, Debug)]
struct ChangeMark {
    number: u64,
    /// The agent is read again by each list until this time.
    until: Instant,
}

#[derive(Debug, Default)]
struct IndexReads {
    /// When the next read of all agents is due. `None`: there was none.
    next: Option<Instant>,
}

/// A change of an agent that is being stored. When it is dropped, the next list reads the agent again.
#[derive(Debug)]
pub(super) struct AgentChange<'a> {
    index: &'a AgentIndex,
    beam_id: &'a str,
    is_known: bool,
}

impl AgentChange<'_> {
    /// The ledger has stored or refused the change.
    pub(super) fn end(mut self) {
        self.is_known = true;
    }
}

impl Drop for AgentChange<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let until = if self.is_known { now } else { now + UNCERTAIN };
        self.index.changed().mark(self.beam_id, until);
    }
}

impl AgentIndex {
    pub(super) fn change<'a>(&'a self, beam_id: &'a str) -> AgentChange<'a> {
        AgentChange {
            index: self,
            beam_id,
            is_known: false,
        }
    }

    pub(super) async fn list_slot(&self) -> Result<SemaphorePermit<'_>, Error> {
        let slot = self.lists.acquire().await;
        slot.map_err(|_| Error::Internal("the slots of lists are closed".to_owned()))
    }

    fn changed(&self) -> std::sync::MutexGuard<'_, ChangedAgents> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs code over all agents on a thread for blocking work.
    pub(crate) async fn visit<R: Send + 'static>(
        &self,
        visit: impl FnOnce(&AgentBriefs) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let briefs = Arc::clone(&self.briefs);
        blocking(move || visit(&briefs.read().unwrap_or_else(PoisonError::into_inner))).await
    }

    async fn apply(
        &self,
        apply: impl FnOnce(&mut AgentBriefs) + Send + 'static,
    ) -> Result<(), Error> {
        let briefs = Arc::clone(&self.briefs);
        blocking(move || apply(&mut briefs.write().unwrap_or_else(PoisonError::into_inner))).await
    }
}

/// Runs code on a thread for blocking work.
pub(super) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Internal(format!("a list of agents failed: {error}")))
}

impl ChangedAgents {
    fn mark(&mut self, beam_id: &str, until: Instant) {
        self.marks += 1;
        if self.agents.len() >= CHANGED_MAX {
            self.agents.clear();
            self.all = true;
        }
        let number = self.marks;
        let mark = self
            .agents
            .entry(beam_id.to_owned())
            .or_insert(ChangeMark { number, until });
        mark.number = number;
        mark.until = mark.until.max(until);
    }

    /// The agents that must be read. They stay until [`ChangedAgents::read`], since a request can end at any moment.
    fn to_read(&self) -> HashMap<String, ChangeMark> {
        self.agents.clone()
    }

    /// These were read, from this time on.
    fn read(&mut self, marks: &HashMap<String, ChangeMark>, began: Instant) {
        self.agents.retain(|beam_id, mark| {
            let is_read = marks
                .get(beam_id)
                .is_some_and(|read| read.number == mark.number);
            !is_read || mark.until > began
        });
    }
}

impl AgentBriefs {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &AgentBrief)> {
        self.agents.iter()
    }

    /// Takes over a page of records: all agents after this name, until the last one of the page.
    fn replace_page(&mut self, after: &str, page: &[Record], is_last: bool) {
        let kept: HashSet<&str> = page.iter().map(|record| record.key.name.as_str()).collect();
        let end = match page.last() {
            Some(last) if !is_last => Bound::Included(last.key.name.as_str()),
            _ => Bound::Unbounded,
        };
        let range = (Bound::Excluded(after), end);
        let gone = self.agents.range::<str, _>(range);
        let gone: Vec<Arc<str>> = gone
            .map(|(id, _)| Arc::clone(id))
            .filter(|id| !kept.contains(&**id))
            .collect();
        for id in gone {
            self.remove(&id);
        }
        for record in page {
            self.replace(record);
        }
    }

    fn replace(&mut self, record: &Record) {
        let id = record.key.name.as_str();
        let hash = hash_of(&record.value);
        if self.agents.get(id).is_some_and(|brief| brief.hash == hash) {
            return;
        }
        self.remove(id);
        let Ok(agent) = serde_json::from_str::<Agent>(&record.value) else {
            tracing::warn!(beam_id = id, "the record of an agent cannot be read");
            return;
        };
        let mut brief = AgentBrief::of(&agent);
        brief.hash = hash;
        let bytes = brief.words_bytes();
        if self.words_bytes + bytes > WORDS_BYTES_MAX {
            brief.words = None;
        } else {
            self.words_bytes += bytes;
        }
        self.agents.insert(id.into(), brief);
    }

    fn remove(&mut self, id: &str) {
        if let Some(brief) = self.agents.remove(id) {
            self.words_bytes -= brief.words_bytes();
        }
    }
}

impl AgentBrief {
    pub(super) fn of(agent: &Agent) -> Self {
        Self {
            hash: 0,
            flagged: agent.flagged,
            verified: agent.verified,
            tier: agent.tier(),
            public: agent.is_public(),
            created_at: agent.created_at,
            last_seen: agent.last_seen,
            words: Some(AgentWords {
                texts: [
                    Some(agent.display_name.as_str()),
                    agent.description.as_deref(),
                ]
                .map(|text| text.unwrap_or_default().to_lowercase().into()),
                capabilities: agent
                    .capabilities
                    .iter()
                    .map(|capability| capability.as_str().into())
                    .collect(),
                is_lower_case: (agent.capabilities.iter())
                    .all(|capability| capability.to_lowercase() == *capability),
            }),
        }
    }

    fn words_bytes(&self) -> usize {
        let Some(words) = &self.words else { return 0 };
        let texts = words.texts.iter().map(|text| text.len());
        let capabilities = words.capabilities.iter();
        let capabilities = capabilities.map(|text| text.len() + size_of::<Box<str>>());
        texts.chain(capabilities).sum()
    }

    pub(crate) fn is_verified(&self) -> bool {
        self.verified || self.tier != VerificationTier::Basic
    }

    pub(super) fn trust_score(&self, now_ms: i64) -> f64 {
        trust::trust_score(&TrustFacts {
            flagged: self.flagged,
            verified: self.verified,
            tier: self.tier,
            unseen_ms: now_ms.saturating_sub(self.last_seen),
            age_ms: now_ms.saturating_sub(self.created_at),
        })
    }
}

fn hash_of(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Beam {
    /// Brings the index up to date. Concurrent lists share one read.
    pub(crate) async fn refresh_agent_index(&self) -> Result<(), Error> {
        let index = &self.inner.agent_index;
        let mut reads = index.reading.lock().await;
        let is_due = match reads.next {
            None => true,
            Some(next) => index.changed().all || self.inner.node.shared && Instant::now() >= next,
        };
        if is_due {
            let began = Instant::now();
            // Cleared first: what changes during the read is marked again.
            index.changed().all = false;
            reads.next = None;
            self.read_all_agents().await?;
            let pause = began.elapsed() * PAUSE_PER_READ;
            reads.next = Some(Instant::now() + pause.max(REREAD_AFTER));
        }
        let began = Instant::now();
        let marks = index.changed().to_read();
        let mut ids: Vec<String> = marks.keys().cloned().collect();
        ids.sort_unstable();
        for ids in ids.chunks(PAGE as usize) {
            let keys = ids.iter().map(|id| Agent::key(id)).collect();
            let records = self.engine().records_by_key(keys).await?;
            let ids = ids.to_vec();
            let apply = move |briefs: &mut AgentBriefs| {
                let found: HashSet<&str> = records.iter().map(|r| r.key.name.as_str()).collect();
                for id in ids.iter().filter(|id| !found.contains(id.as_str())) {
                    briefs.remove(id);
                }
                for record in &records {
                    briefs.replace(record);
                }
            };
            index.apply(apply).await?;
        }
        index.changed().read(&marks, began);
        Ok(())
    }

    async fn read_all_agents(&self) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let page = self
                .engine()
                .records(Kind::BeamAgent, "", &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            let next = page.last().map(|last| last.key.name.clone());
            self.inner
                .agent_index
                .apply(move |briefs| briefs.replace_page(&after, &page, is_last))
                .await?;
            match next {
                Some(next) if !is_last => after = next,
                _ => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, change: impl FnOnce(&mut Agent)) -> Record {
        let mut agent = Agent {
            beam_id: id.to_owned(),
            verification_tier: "basic".to_owned(),
            ..Agent::default()
        };
        change(&mut agent);
        Record {
            key: Agent::key(id),
            version: 1,
            value: serde_json::to_string(&agent).unwrap(),
            expires_at: None,
        }
    }

    fn ids(briefs: &AgentBriefs) -> Vec<&str> {
        briefs.iter().map(|(id, _)| &**id).collect()
    }

    #[test]
    fn a_page_replaces_the_agents_of_its_range_only() {
        let mut briefs = AgentBriefs::default();
        let page =
            |ids: &[&str]| -> Vec<Record> { ids.iter().map(|id| record(id, |_| {})).collect() };
        briefs.replace_page("", &page(&["a", "b", "c", "d", "e"]), true);
        briefs.replace_page("a", &page(&["c", "d"]), false);
        assert_eq!(ids(&briefs), ["a", "c", "d", "e"]);
        briefs.replace_page("c", &page(&["d"]), true);
        assert_eq!(ids(&briefs), ["a", "c", "d"]);
        briefs.replace_page("", &[], true);
        assert!(ids(&briefs).is_empty() && briefs.words_bytes == 0);
    }

    #[test]
    fn texts_beyond_the_limit_are_not_kept() {
        let mut briefs = AgentBriefs::default();
        let large = "x".repeat(WORDS_BYTES_MAX / 2);
        for id in ["a", "b", "c"] {
            briefs.replace(&record(id, |agent| agent.description = Some(large.clone())));
        }
        let kept = |briefs: &AgentBriefs| -> Vec<bool> {
            briefs
                .iter()
                .map(|(_, brief)| brief.words.is_some())
                .collect()
        };
        assert_eq!(kept(&briefs), [true, true, false]);
        briefs.remove("a");
        briefs.replace(&record("c", |agent| agent.display_name = "new".to_owned()));
        assert_eq!(kept(&briefs), [true, true]);
        assert_eq!(briefs.words_bytes, large.len() + "new".len());
    }

    #[test]
    fn a_change_during_a_read_is_read_again() {
        let mut changed = ChangedAgents::default();
        let began = Instant::now();
        changed.mark("a", began);
        changed.mark("b", began);
        changed.mark("uncertain", began + UNCERTAIN);
        let marks = changed.to_read();
        changed.mark("b", began);
        changed.read(&marks, began);
        let mut left: Vec<_> = changed.agents.keys().map(String::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["b", "uncertain"]);
        changed.read(&changed.to_read(), began + UNCERTAIN);
        assert!(changed.agents.is_empty());
    }

    #[test]
    fn very_many_changes_read_all_agents_again() {
        let mut changed = ChangedAgents::default();
        for number in 0..=CHANGED_MAX {
            changed.mark(&number.to_string(), Instant::now());
        }
        assert!(changed.all && changed.agents.len() == 1);
    }
}
