//! Checks of the ledger after each step: facts match rows, and nothing disappears or changes without a rule.

use std::collections::{BTreeMap, BTreeSet};

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::limits;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{State, Verb};
use consign_store::Dump;

use crate::requests::LEASE_MIN_US;

/// The description of a broken promise.
pub(crate) type BrokenPromise = String;

/// Everything seen in the ledger so far.
#[derive(Debug, Default)]
pub(crate) struct LedgerChecks {
    rows: BTreeMap<IntentId, Intent>,
    gone: BTreeSet<IntentId>,
    lives: BTreeMap<Seq, IntentHistory>,
    last_fact: u64,
    last_at: Micros,
    /// The holders of an intent, in order.
    given: BTreeMap<IntentId, Vec<(Token, Micros)>>,
    /// Every admitted intent, by its payload.
    admitted: BTreeMap<String, Vec<IntentId>>,
    identities: BTreeMap<IntentId, (Seq, String)>,
    settlements: BTreeMap<FactSeq, Fact>,
}

/// The history of one intent, from its facts.
#[derive(Debug, Default)]
struct IntentHistory {
    state: Option<State>,
    /// The lease runs at least until then.
    held_until: Micros,
    told: BTreeMap<Verb, u64>,
}

impl LedgerChecks {
    pub(crate) fn look(&mut self, dump: &Dump, now: Micros) -> Result<(), BrokenPromise> {
        let outcome = self.last_fact;
        let news = dump.facts.iter().skip_while(|fact| fact.seq.0 <= outcome);
        for fact in news {
            self.hear(fact, now)?;
        }
        let present: BTreeSet<IntentId> = dump.intents.iter().map(|row| row.id).collect();
        self.say_goodbye(&present, now)?;
        for row in &dump.intents {
            self.see(row, now)?;
        }
        Ok(())
    }

    fn hear(&mut self, fact: &Fact, now: Micros) -> Result<(), BrokenPromise> {
        if fact.seq.0 != self.last_fact + 1 {
            return Err(format!(
                "fact {} follows fact {}",
                fact.seq.0, self.last_fact
            ));
        }
        if fact.at < self.last_at {
            return Err(format!("fact {} is older than the one before", fact.seq.0));
        }
        if fact.at > now {
            return Err(format!("fact {} is from the future", fact.seq.0));
        }
        self.last_fact = fact.seq.0;
        self.last_at = fact.at;
        let life = self.lives.entry(fact.intent).or_default();
        if fact.from != life.state {
            return Err(format!(
                "{fact:?} leaves a state that is not {:?}",
                life.state
            ));
        }
        let profile = ProfileId::Intent.profile();
        if let Some(from) = fact.from {
            if !profile.allows(from, fact.verb, fact.to) {
                return Err(format!("{fact:?} is no step of the profile"));
            }
            let by_operator = matches!(fact.verb, Verb::Cancel | Verb::Requeue);
            if profile.is_terminal(from) && !by_operator {
                return Err(format!("{fact:?} changes what was final"));
            }
            let taken = matches!(fact.verb, Verb::Expire | Verb::Claim);
            if taken && from == State::Dispatched && fact.at < life.held_until {
                return Err(format!(
                    "{fact:?} takes a lease that runs until {}",
                    life.held_until.0
                ));
            }
        } else if fact.verb != Verb::Admit {
            return Err(format!("{fact:?} comes before the admission"));
        }
        if matches!(fact.verb, Verb::Claim | Verb::Extend) {
            life.held_until = fact.at.plus(LEASE_MIN_US);
        }
        if profile.is_terminal(fact.to) {
            self.settlements.insert(fact.seq, fact.clone());
        }
        *life.told.entry(fact.verb).or_default() += 1;
        life.state = Some(fact.to);
        Ok(())
    }

    /// Only expired rows may disappear, and they never reappear.
    fn say_goodbye(
        &mut self,
        present: &BTreeSet<IntentId>,
        now: Micros,
    ) -> Result<(), BrokenPromise> {
        if let Some(id) = self.gone.intersection(present).next() {
            return Err(format!("{id} was removed and is there again"));
        }
        let missing: Vec<IntentId> = self
            .rows
            .keys()
            .filter(|id| !present.contains(id))
            .copied()
            .collect();
        for id in missing {
            let Some(row) = self.rows.remove(&id) else {
                continue;
            };
            let retained = |at: Micros| at.plus(limits::RETENTION_US) > now;
            if row.expires_at > now && row.settled_at.is_none_or(retained) {
                return Err(format!("{id} was {} and is gone", row.state));
            }
            self.gone.insert(id);
        }
        Ok(())
    }

    fn see(&mut self, row: &Intent, now: Micros) -> Result<(), BrokenPromise> {
        let id = row.id;
        let life = self.lives.entry(row.seq).or_default();
        if life.state != Some(row.state) {
            return Err(format!(
                "{id} is {}, but its facts say {:?}",
                row.state, life.state
            ));
        }
        if let Some(until) = row.lease_until {
            life.held_until = until;
            if row.shelf != Shelf::Leased && until > now {
                return Err(format!("{id} is offered to others, its lease still runs"));
            }
        }
        if row.attempts > row.attempts_max {
            return Err(format!("{id} was tried {} times", row.attempts));
        }
        if let (Some(token), Some(at)) = (row.token, row.claimed_at) {
            self.give(id, token, at);
        }
        if !self.rows.contains_key(&id) {
            let admitted = self.admitted.entry(row.payload.clone()).or_default();
            admitted.push(id);
            if row.payload.contains("once") && admitted.len() > 1 {
                return Err(format!("{} was admitted as {admitted:?}", row.payload));
            }
            self.identities.insert(id, (row.seq, row.payload.clone()));
        }
        self.rows.insert(id, row.clone());
        Ok(())
    }

    /// Records the holder of an intent; a claim's response may show it before the ledger is read.
    pub(crate) fn give(&mut self, id: IntentId, token: Token, at: Micros) {
        let given = self.given.entry(id).or_default();
        if !given.iter().any(|(known, _)| *known == token) {
            given.push((token, at));
        }
    }

    /// Whether the intent was granted again after `at`.
    pub(crate) fn was_given_after(&self, id: IntentId, at: Micros) -> bool {
        let given = self.given.get(&id).into_iter().flatten();
        given.into_iter().any(|(_, later)| *later > at)
    }

    pub(crate) fn knows(&self, id: IntentId) -> bool {
        self.rows.contains_key(&id) || self.gone.contains(&id)
    }

    /// How often this verb is in the facts of the intent. For removed intents the result is the largest number.
    pub(crate) fn told(&self, id: IntentId, verb: Verb) -> u64 {
        let Some(row) = self.rows.get(&id) else {
            return if self.gone.contains(&id) { u64::MAX } else { 0 };
        };
        let life = self.lives.get(&row.seq);
        life.and_then(|life| life.told.get(&verb).copied())
            .unwrap_or(0)
    }

    /// Every intent that was ever admitted with this payload.
    pub(crate) fn admitted(&self, payload: &str) -> &[IntentId] {
        self.admitted.get(payload).map_or(&[], Vec::as_slice)
    }

    /// Sequence number and payload of an intent that exists or existed.
    pub(crate) fn identity(&self, id: IntentId) -> Option<(Seq, &str)> {
        let (seq, payload) = self.identities.get(&id)?;
        Some((*seq, payload))
    }

    pub(crate) fn is_gone(&self, id: IntentId) -> bool {
        self.gone.contains(&id)
    }

    /// The fact of this number, if it settled an intent.
    pub(crate) fn settlement(&self, seq: FactSeq) -> Option<&Fact> {
        self.settlements.get(&seq)
    }

    /// The fact that settled the intent, if it is settled now.
    pub(crate) fn settled_by(&self, id: IntentId) -> Option<FactSeq> {
        let row = self.rows.get(&id)?;
        let settled = row.profile.profile().is_terminal(row.state);
        row.last_fact.filter(|_| settled)
    }

    /// The intents that an operator could change.
    pub(crate) fn ids(&self) -> Vec<IntentId> {
        self.rows.keys().copied().collect()
    }
}
