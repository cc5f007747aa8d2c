//! The access rules of agents: who may send which intents to them.

use consign_engine::{Error, TRIES_MAX, UnitOfWork};
use consign_kernel::error::{Code, Refusal};

use super::records::{AclList, AclRule, Agent};
use crate::acl::AclEntry;
use crate::beam_id::BeamId;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// The rules of one agent.
pub(crate) const RULES_MAX: usize = 1_000;
pub(crate) const INTENT_CHARS_MAX: usize = 256;
pub(crate) const ALLOWED_FROM_CHARS_MAX: usize = 256;

impl Beam {
    /// Adds a rule, or returns the same rule if the agent has it.
    pub(crate) async fn add_rule(&self, entry: &AclEntry) -> Result<AclRule, BeamProblem> {
        let refused = |text: String| BeamProblem::new(Code::AclError, text);
        let target = entry.target();
        let is_long = entry.intent().chars().count() > INTENT_CHARS_MAX
            || entry.allowed_from().chars().count() > ALLOWED_FROM_CHARS_MAX;
        if is_long {
            let text = format!(
                "intentType must have at most {INTENT_CHARS_MAX} characters and allowedFrom at most {ALLOWED_FROM_CHARS_MAX}"
            );
            return Err(refused(text));
        }
        let mut number = None;
        for _ in 0..TRIES_MAX {
            let unknown = || refused(format!("Agent {target} is not registered"));
            BeamId::parse(target).map_err(|_| unknown())?;
            let agent = self.engine().load::<Agent>(Agent::key(target)).await?;
            let agent = agent.ok_or_else(unknown)?;
            let key = AclList::key(target);
            let mut list = self.engine().load_or_default::<AclList>(key).await?;
            let rules = &list.value.rules;
            if let Some(rule) = rules.iter().find(|rule| is_of(rule, entry)) {
                return Ok(rule.clone());
            }
            if rules.len() >= RULES_MAX {
                let text = format!("An agent has at most {RULES_MAX} access rules");
                return Err(refused(text));
            }
            let id = match number {
                Some(id) => id,
                None => self.next_number("acl").await?,
            };
            number = Some(id);
            let rule = AclRule {
                id,
                intent_type: entry.intent().to_owned(),
                allowed_from: entry.allowed_from().to_owned(),
                created_at: self.now_ms(),
            };
            list.value.rules.push(rule.clone());
            let mut unit = UnitOfWork::default();
            // An agent that is deleted meanwhile keeps no rules.
            unit.expect_unchanged(&agent);
            unit.replace(&list);
            unit.put(AclList::number_key(id), &target);
            match self.engine().commit(unit).await {
                Ok(_) => return Ok(rule),
                Err(Error::Refused(Refusal::VersionMismatch)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }

    /// The rules of an agent, by intent and sender.
    pub(crate) async fn rules_of(&self, target: &str) -> Result<Vec<AclRule>, BeamProblem> {
        let key = AclList::key(target);
        let list = self.engine().load_or_default::<AclList>(key).await?;
        let mut rules = list.value.rules;
        rules.sort_by(|a, b| {
            let parts = |rule: &AclRule| (rule.intent_type.clone(), rule.allowed_from.clone());
            parts(a).cmp(&parts(b))
        });
        Ok(rules)
    }

    /// The agent whose list has this rule.
    pub(crate) async fn target_of_rule(&self, id: u64) -> Result<Option<String>, BeamProblem> {
        let found = self.engine().load(AclList::number_key(id)).await?;
        Ok(found.map(|found| found.value))
    }

    /// Removes a rule of an agent. False if it has none with this number.
    pub(crate) async fn remove_rule(&self, target: &str, id: u64) -> Result<bool, BeamProblem> {
        self.engine()
            .update_with(AclList::key(target), |list, unit| {
                let list: &mut AclList = &mut list.value;
                let before = list.rules.len();
                list.rules.retain(|rule| rule.id != id);
                let is_removed = list.rules.len() < before;
                if is_removed {
                    unit.delete(AclList::number_key(id));
                }
                Ok(is_removed)
            })
            .await
    }
}

fn is_of(rule: &AclRule, entry: &AclEntry) -> bool {
    rule.intent_type == entry.intent() && rule.allowed_from == entry.allowed_from()
}
