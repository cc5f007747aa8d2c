//! Lists of agents: search, browse, the public list, and counts.
//!
//! Lists are in the order of trust, highest first, then of ids. They are selected by the [index](super::agent_index); only the
//! agents of the page are read from the ledger.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use consign_engine::{Error, Operator, Versioned};
use consign_kernel::profile::Face;

use super::agent_index::{AgentBrief, AgentBriefs, AgentWords, blocking};
use super::records::{Agent, PAGE};
use crate::acl::DEMO_ORG;
use crate::beam_id::{BeamId, PERSONAL_ORG};
use crate::problem::BeamProblem;
use crate::relay::NAMESPACE;
use crate::service::Beam;
use crate::trust::VerificationTier;

/// The longest page.
pub(crate) const PAGE_AGENTS_MAX: u32 = 500;

/// Which agents a list shows. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentFilter {
    pub(crate) org: Option<String>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) trust_min: Option<f64>,
    pub(crate) tier: Option<VerificationTier>,
    /// Text that one of the describing fields contains, in lower case.
    pub(crate) text: Option<String>,
    pub(crate) verified_only: bool,
    pub(crate) public_only: bool,
}

/// A page of agents, and how many there are on all pages.
#[derive(Debug, Default)]
pub(crate) struct AgentList {
    pub(crate) agents: Vec<Agent>,
    pub(crate) total: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirectoryStats {
    pub(crate) total_agents: u64,
    pub(crate) verified_agents: u64,
    pub(crate) intents_processed: u64,
    pub(crate) avg_response_time_ms: Option<i64>,
}

impl AgentFilter {
    /// `None` if the answer depends on texts that the brief does not have.
    fn accepts(&self, id: &str, brief: &AgentBrief, now_ms: i64) -> Option<bool> {
        let accepts_facts = self.accepts_org(id)
            && (self.trust_min).is_none_or(|least| brief.trust_score(now_ms) >= least)
            && self.tier.is_none_or(|tier| brief.tier == tier)
            && (!self.verified_only || brief.is_verified())
            && (!self.public_only || brief.public);
        let needs_words = self.text.is_some() || !self.capabilities.is_empty();
        if !accepts_facts || !needs_words {
            return Some(accepts_facts);
        }
        let words = brief.words.as_ref()?;
        let has = |wanted: &String| words.capabilities.iter().any(|own| **own == **wanted);
        let accepts_text = (self.text.as_deref()).is_none_or(|text| describes(id, words, text));
        Some(accepts_text && self.capabilities.iter().all(has))
    }

    fn accepts_org(&self, id: &str) -> bool {
        let Some(wanted) = &self.org else {
            return true;
        };
        BeamId::parse(id).is_ok_and(|id| {
            let is_personal = wanted == PERSONAL_ORG;
            id.org() == wanted && id.is_personal() == is_personal
        })
    }
}

/// Whether one of the describing fields contains the text.
fn describes(id: &str, words: &AgentWords, text: &str) -> bool {
    let parsed = BeamId::parse(id);
    let org = parsed.as_ref().map_or("", |id| id.org());
    let [display_name, description] = &words.texts;
    let fields = [id, org, display_name, description];
    fields.iter().any(|field| field.contains(text))
        || words.capabilities.iter().any(|capability| {
            if words.is_lower_case {
                capability.contains(text)
            } else {
                capability.to_lowercase().contains(text)
            }
        })
}

/// The agents that a filter accepts, and those whose texts must be read first.
#[derive(Debug, Default)]
struct AgentSelection {
    accepted: Vec<ListPlace>,
    unknown: Vec<Arc<str>>,
}

/// The order of lists: the highest trust first, then by id.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListPlace(Reverse<u8>, Arc<str>);

impl ListPlace {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a score is between 0 and 1"
    )]
    fn of(id: &Arc<str>, brief: &AgentBrief, now_ms: i64) -> Self {
        let hundredths = (brief.trust_score(now_ms) * 100.0).round() as u8;
        Self(Reverse(hundredths), Arc::clone(id))
    }
}

impl AgentSelection {
    fn of(briefs: &AgentBriefs, filter: &AgentFilter, now_ms: i64) -> Self {
        let mut selection = Self::default();
        for (id, brief) in briefs.iter() {
            match filter.accepts(id, brief, now_ms) {
                Some(true) => selection.accepted.push(ListPlace::of(id, brief, now_ms)),
                Some(false) => {}
                None => selection.unknown.push(Arc::clone(id)),
            }
        }
        selection.accepted.sort_unstable();
        selection
    }
}

impl Beam {
    /// The agents of a page that begins after `skipped` ones.
    pub(crate) async fn list_agents(
        &self,
        filter: &AgentFilter,
        skipped: u64,
        limit: u32,
    ) -> Result<AgentList, BeamProblem> {
        let _slot = self.inner.agent_index.list_slot().await?;
        let accepted = self.select_agents(filter).await?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let limit = limit.min(PAGE_AGENTS_MAX) as usize;
        let page = accepted.iter().skip(skipped).take(limit);
        let ids: Vec<Arc<str>> = page.map(|place| Arc::clone(&place.1)).collect();
        Ok(AgentList {
            agents: self.agents_by_id(&ids).await?,
            total: accepted.len() as u64,
        })
    }

    /// All agents that a filter accepts, in the order of lists.
    async fn select_agents(&self, filter: &AgentFilter) -> Result<Vec<ListPlace>, BeamProblem> {
        self.refresh_agent_index().await?;
        let now_ms = self.now_ms();
        let wanted = filter.clone();
        let index = &self.inner.agent_index;
        let selection = index.visit(move |briefs| AgentSelection::of(briefs, &wanted, now_ms));
        let AgentSelection {
            mut accepted,
            unknown,
        } = selection.await?;
        for ids in unknown.chunks(PAGE as usize) {
            let agents = self.agents_by_id(ids).await?;
            let wanted = filter.clone();
            let read = move || {
                let mut accepted = Vec::new();
                for agent in agents {
                    let id: Arc<str> = agent.beam_id.as_str().into();
                    let brief = AgentBrief::of(&agent);
                    if wanted.accepts(&id, &brief, now_ms) == Some(true) {
                        accepted.push(ListPlace::of(&id, &brief, now_ms));
                    }
                }
                accepted
            };
            accepted.extend(blocking(read).await?);
        }
        if !unknown.is_empty() {
            accepted.sort_unstable();
        }
        Ok(accepted)
    }

    /// The agents with these ids, in this order. One that was deleted meanwhile is left out.
    async fn agents_by_id(&self, ids: &[Arc<str>]) -> Result<Vec<Agent>, BeamProblem> {
        let keys = ids.iter().map(|id| Agent::key(id)).collect();
        let records = self.engine().records_by_key(keys).await?;
        let ids = ids.to_vec();
        let agents = blocking(move || {
            let agents = records.into_iter().map(|record| {
                let agent = Versioned::<Agent>::read(record)?.value;
                Ok((agent.beam_id.clone(), agent))
            });
            let mut agents = agents.collect::<Result<HashMap<_, _>, Error>>()?;
            let agents = ids.iter().filter_map(|id| agents.remove(&**id));
            Ok::<_, Error>(agents.collect())
        });
        Ok(agents.await??)
    }

    pub(crate) async fn directory_stats(&self) -> Result<DirectoryStats, BeamProblem> {
        let agents = self.agent_counts().await?;
        let mut stats = DirectoryStats {
            total_agents: agents.total,
            verified_agents: agents.verified,
            ..DirectoryStats::default()
        };
        // The number of intents is public in this protocol.
        let counts = self
            .engine()
            .counts(Operator::vouched(), Face::Beam)
            .await?;
        let of_directory = counts.iter().filter(|count| count.namespace == NAMESPACE);
        stats.intents_processed = of_directory.map(|count| count.count).sum();
        stats.avg_response_time_ms = self.answer_stats(None).await?.avg_response_time_ms;
        Ok(stats)
    }

    /// Adds the rules that the catalog gives to the agents of the demo organisation. The catalog may have changed since they
    /// were registered, so this runs at each start.
    pub async fn seed_demo_rules(&self) -> Result<(), BeamProblem> {
        let filter = AgentFilter {
            org: Some(DEMO_ORG.to_owned()),
            ..AgentFilter::default()
        };
        let agents = self.select_agents(&filter).await?;
        let ids = agents
            .iter()
            .filter_map(|place| BeamId::parse(&place.1).ok());
        for id in ids {
            self.seed_demo_rules_of(&id).await;
        }
        Ok(())
    }
}
