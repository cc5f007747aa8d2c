//! Checks of the rows and facts of Beam after each commit.
//!
//! An intent or a message has one row per nonce and keeps its content. Its facts are a walk of legal steps. What has
//! ended with a result keeps it, and is not delivered again.

use std::collections::{BTreeMap, BTreeSet};

use consign_beam::bus::MessageContent;
use consign_beam::relay::StoredHead;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{State, Verb};
use consign_store::Dump;

use super::server::RESULT_TIMEOUT;
use crate::clocks::SLACK_US;
use crate::ledger_checks::BrokenPromise;

/// Everything seen in the ledger so far.
#[derive(Debug, Default)]
pub(crate) struct RowChecks {
    last_fact: u64,
    walks: BTreeMap<Seq, FactWalk>,
    /// The rows of the directory and of the bus, by nonce.
    pub(crate) intents: BTreeMap<String, Intent>,
    pub(crate) messages: BTreeMap<String, Intent>,
    /// Intents that had ended with a result when the recipients last received messages.
    answered: BTreeSet<String>,
}

/// The facts of one row so far.
#[derive(Debug, Default)]
struct FactWalk {
    state: Option<State>,
    completed: u32,
    /// The relay sends the intent, and its timeout begins, after this.
    dispatched_at: Option<Micros>,
    /// A fact of the last commits that must be explained by a result or by the time.
    failed_at: Option<Micros>,
    /// Attempts that ended with their process or their lease, and do not count.
    interrupted: u32,
    /// As the row was last seen, with its nonce.
    seen: Option<(String, Intent)>,
}

impl RowChecks {
    pub(crate) fn look(&mut self, dump: &Dump) -> Result<(), BrokenPromise> {
        let profiles: BTreeMap<Seq, ProfileId> = dump
            .intents
            .iter()
            .map(|row| (row.seq, row.profile))
            .collect();
        let seen = self.last_fact;
        for fact in dump.facts.iter().skip_while(|fact| fact.seq.0 <= seen) {
            let Some(profile) = profiles.get(&fact.intent) else {
                return Err(format!("{fact:?} belongs to no row"));
            };
            self.hear(fact, *profile)?;
        }
        for row in &dump.intents {
            self.see(row)?;
        }
        self.messages
            .iter()
            .try_for_each(|(nonce, message)| self.delivered_as_told(nonce, message))
    }

    fn hear(&mut self, fact: &Fact, profile: ProfileId) -> Result<(), BrokenPromise> {
        if fact.seq.0 != self.last_fact + 1 {
            return Err(format!("{fact:?} follows fact {}", self.last_fact));
        }
        self.last_fact = fact.seq.0;
        let walk = self.walks.entry(fact.intent).or_default();
        if fact.from != walk.state {
            return Err(format!(
                "{fact:?} leaves another state than {:?}",
                walk.state
            ));
        }
        let is_legal = match fact.from {
            Some(from) => profile.profile().allows(from, fact.verb, fact.to),
            None => fact.verb == Verb::Admit && fact.to == State::Received,
        };
        if !is_legal {
            return Err(format!("{fact:?} is no step of the profile"));
        }
        walk.state = Some(fact.to);
        if fact.to == State::Acked {
            walk.completed += 1;
        }
        if walk.completed > 1 {
            return Err(format!("{fact:?} acknowledges for the second time"));
        }
        if matches!(fact.verb, Verb::Recover | Verb::Expire) {
            walk.interrupted += 1;
        }
        match (fact.from, fact.to) {
            (Some(State::Delivered), State::Queued) if profile == ProfileId::BeamBus => {
                return Err(format!("{fact:?} takes back a delivered message"));
            }
            (Some(State::Delivered), State::Failed) => walk.failed_at = Some(fact.at),
            (_, State::Dispatched) => walk.dispatched_at = Some(fact.at),
            _ => {}
        }
        Ok(())
    }

    fn see(&mut self, row: &Intent) -> Result<(), BrokenPromise> {
        let walk = self.walks.entry(row.seq).or_default();
        let nonce = match &walk.seen {
            Some((_, seen)) if seen == row => return Ok(()),
            Some((nonce, _)) => nonce.clone(),
            None => nonce_of(row)
                .ok_or_else(|| format!("{} cannot be read: {}", row.id, row.payload))?,
        };
        if walk.state != Some(row.state) {
            let (id, state, told) = (row.id, row.state, walk.state);
            return Err(format!("{id} is {state}, but its facts say {told:?}"));
        }
        if row.attempts > row.attempts_max.saturating_add(walk.interrupted) {
            return Err(format!("{nonce} was attempted {} times", row.attempts));
        }
        walk.seen = Some((nonce.clone(), row.clone()));
        let is_intent = row.profile == ProfileId::BeamDirectory;
        if let (true, Some(failed), Some(dispatched)) =
            (is_intent, walk.failed_at.take(), walk.dispatched_at)
        {
            let timeout_us = i64::try_from(RESULT_TIMEOUT.as_micros()).unwrap_or(i64::MAX);
            // Engine time may differ from the timers as the check of its pace allows.
            let is_early = failed.0 < dispatched.0 + timeout_us * 99 / 100 - SLACK_US;
            if is_early && row.result.is_none() {
                return Err(format!(
                    "{nonce} failed without a result {} ms after its dispatch",
                    (failed.0 - dispatched.0) / 1_000
                ));
            }
        }
        let rows = if is_intent {
            &mut self.intents
        } else {
            &mut self.messages
        };
        if let Some(known) = rows.get(&nonce) {
            same_content(&nonce, known, row)?;
            if is_answered(known) && known.result != row.result {
                let (before, now) = (&known.result, &row.result);
                return Err(format!("{nonce} had the result {before:?} and has {now:?}"));
            }
        }
        rows.insert(nonce, row.clone());
        Ok(())
    }

    /// The bus reports a delivery only if the recipient has accepted the intent.
    fn delivered_as_told(&self, nonce: &str, message: &Intent) -> Result<(), BrokenPromise> {
        let is_told = matches!(message.state, State::Delivered | State::Acked);
        let intent = self.intents.get(nonce);
        if is_told && intent.is_none_or(|intent| intent.state != State::Acked) {
            let state = intent.map(|intent| intent.state);
            return Err(format!(
                "message {nonce} is {}, its intent is {state:?}",
                message.state
            ));
        }
        Ok(())
    }

    /// A recipient received an intent: it must be stored, and it must not have had a result.
    pub(crate) fn received(&self, nonce: &str) -> Result<(), BrokenPromise> {
        if !self.intents.contains_key(nonce) {
            return Err(format!(
                "{nonce} reached its recipient before it was stored"
            ));
        }
        if self.answered.contains(nonce) {
            return Err(format!("{nonce} had a result and was delivered again"));
        }
        Ok(())
    }

    /// All messages of the sockets were taken.
    pub(crate) fn all_received(&mut self) {
        let answered = self.intents.iter().filter(|(_, row)| is_answered(row));
        self.answered = answered.map(|(nonce, _)| nonce.clone()).collect();
    }

    pub(crate) fn message(&self, id: IntentId) -> Option<&Intent> {
        self.messages.values().find(|row| row.id == id)
    }

    /// Nonces and recipients of the intents that failed without a result.
    pub(crate) fn unanswered(&self) -> Vec<(String, String)> {
        let failed = self.intents.iter();
        let failed = failed.filter(|(_, row)| row.state == State::Failed && row.result.is_none());
        failed
            .map(|(nonce, row)| (nonce.clone(), row.owner.clone()))
            .collect()
    }

    /// An intent or a message that has not come to its end.
    pub(crate) fn unfinished(&self) -> Option<&Intent> {
        let intents = self.intents.values();
        let intents = intents.filter(|row| !matches!(row.state, State::Acked | State::Failed));
        let messages = self.messages.values().filter(|row| {
            !matches!(
                row.state,
                State::Delivered | State::Acked | State::Failed | State::DeadLetter
            )
        });
        intents.chain(messages).next()
    }
}

/// Whether its result is final. A message that failed may be requeued, which removes its response.
fn is_answered(row: &Intent) -> bool {
    match row.state {
        State::Acked => true,
        State::Failed => row.profile == ProfileId::BeamDirectory && row.result.is_some(),
        State::Received
        | State::Validated
        | State::Queued
        | State::Dispatched
        | State::Delivered
        | State::DeadLetter => false,
    }
}

fn same_content(nonce: &str, known: &Intent, row: &Intent) -> Result<(), BrokenPromise> {
    if known.id != row.id {
        return Err(format!("{nonce} has two rows, {} and {}", known.id, row.id));
    }
    let content = |row: &Intent| {
        let sender = row.ties.sender.clone();
        (
            row.owner.clone(),
            row.goal.clone(),
            sender,
            row.payload.clone(),
        )
    };
    if content(known) != content(row) {
        return Err(format!("{nonce} was {known:?} and is {row:?}"));
    }
    Ok(())
}

fn nonce_of(row: &Intent) -> Option<String> {
    if row.profile == ProfileId::BeamDirectory {
        return StoredHead::of(&row.payload).map(|head| head.nonce);
    }
    MessageContent::parse(&row.payload).map(|content| content.nonce)
}
