//! Lists of agents: search, browse, the public list, and counts.
//!
//! Invariant: memory depends on the length of a page, not on the number of agents. Lists are in the order of trust, highest
//! first, then of ids; the score has few values, so a first pass counts the agents per score, and a second one collects those
//! of the page.

use consign_engine::{Operator, Versioned};
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

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
    fn accepts(&self, agent: &Agent, now_ms: i64) -> bool {
        self.accepts_org(agent)
            && (self.capabilities.iter()).all(|wanted| agent.capabilities.contains(wanted))
            && (self.trust_min).is_none_or(|least| agent.trust_score(now_ms) >= least)
            && self.tier.is_none_or(|tier| agent.tier() == tier)
            && (!self.verified_only || agent.is_verified())
            && (!self.public_only || agent.is_public())
            && (self.text.as_deref()).is_none_or(|text| describes(agent, text))
    }

    fn accepts_org(&self, agent: &Agent) -> bool {
        let Some(wanted) = &self.org else {
            return true;
        };
        BeamId::parse(&agent.beam_id).is_ok_and(|id| {
            let is_personal = wanted == PERSONAL_ORG;
            id.org() == wanted && id.is_personal() == is_personal
        })
    }
}

/// Whether one of the describing fields contains the text.
fn describes(agent: &Agent, text: &str) -> bool {
    let id = BeamId::parse(&agent.beam_id);
    let org = id.as_ref().map_or("", |id| id.org());
    let fields = [
        agent.beam_id.as_str(),
        &agent.display_name,
        org,
        agent.description.as_deref().unwrap_or_default(),
    ];
    let capabilities = agent.capabilities.iter().map(String::as_str);
    let mut fields = fields.into_iter().chain(capabilities);
    fields.any(|field| field.to_lowercase().contains(text))
}

/// The scores that an agent can have, in hundredths.
const SCORES: usize = 101;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a score is between 0 and 1"
)]
fn hundredths(score: f64) -> usize {
    ((score * 100.0).round() as usize).min(SCORES - 1)
}

impl Beam {
    /// The agents of a page that begins after `skipped` ones.
    pub(crate) async fn list_agents(
        &self,
        filter: &AgentFilter,
        skipped: u64,
        limit: u32,
    ) -> Result<AgentList, BeamProblem> {
        let now_ms = self.now_ms();
        let mut per_score = [0_u64; SCORES];
        self.each_agent(|agent| {
            if filter.accepts(&agent, now_ms) {
                per_score[hundredths(agent.trust_score(now_ms))] += 1;
            }
        })
        .await?;
        let total = per_score.iter().sum();
        // The place of the next agent with a score; the first one has the highest score.
        let mut places = [0_u64; SCORES];
        let mut place = 0;
        for score in (0..SCORES).rev() {
            places[score] = place;
            place += per_score[score];
        }
        let page = skipped..skipped.saturating_add(u64::from(limit.min(PAGE_AGENTS_MAX)));
        let mut found: Vec<(u64, Agent)> = Vec::new();
        if page.start < total {
            self.each_agent(|agent| {
                if filter.accepts(&agent, now_ms) {
                    let place = &mut places[hundredths(agent.trust_score(now_ms))];
                    if page.contains(place) {
                        found.push((*place, agent));
                    }
                    *place += 1;
                }
            })
            .await?;
        }
        found.sort_by_key(|(place, _)| *place);
        // Agents that were added between the passes can take the same place as others.
        found.truncate(limit as usize);
        let agents = found.into_iter().map(|(_, agent)| agent).collect();
        Ok(AgentList { agents, total })
    }

    pub(crate) async fn directory_stats(&self) -> Result<DirectoryStats, BeamProblem> {
        let mut stats = DirectoryStats::default();
        self.each_agent(|agent| {
            stats.total_agents += 1;
            stats.verified_agents += u64::from(agent.is_verified());
        })
        .await?;
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

    pub(crate) async fn agent_count(&self) -> Result<u64, BeamProblem> {
        let mut count = 0;
        self.each_agent(|_| count += 1).await?;
        Ok(count)
    }

    /// Adds the rules that the catalog gives to the agents of the demo organisation. The catalog may have changed since they
    /// were registered, so this runs at each start.
    pub async fn seed_demo_rules(&self) -> Result<(), BeamProblem> {
        let mut ids = Vec::new();
        self.each_agent(|agent| {
            let id = BeamId::parse(&agent.beam_id).ok();
            ids.extend(id.filter(|id| id.org() == DEMO_ORG));
        })
        .await?;
        for id in ids {
            self.seed_demo_rules_of(&id).await;
        }
        Ok(())
    }

    /// Calls `visit` for each agent, in the order of ids.
    async fn each_agent(&self, mut visit: impl FnMut(Agent) + Send) -> Result<(), BeamProblem> {
        let mut after = String::new();
        loop {
            let page = self
                .engine()
                .records(Kind::BeamAgent, "", &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                visit(Versioned::<Agent>::read(record)?.value);
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
