//! Checks of the outbox and of the broker's messages after each commit.
//!
//! An id that the outbox has accepted stands for one message, which is never lost and never changed. The broker has one
//! message of an id. What the outbox calls delivered is durable at the broker, and so is what a recipient gets.

use std::collections::{BTreeMap, BTreeSet};

use consign_engine::Error;
use consign_kernel::ids::Seq;
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;
use consign_mesh::daemon::simulation::AddedMessage;
use consign_mesh::id::BrokerMessageId;
use consign_store::Dump;
use consign_testkit::mesh_members::pushed_body;
use serde_json::Value;

use crate::ledger_checks::BrokenPromise;

/// Everything seen of the messages so far.
#[derive(Debug, Default)]
pub(crate) struct MessageChecks {
    /// The bodies that were sent to the outbox, by id.
    sent: BTreeMap<String, BTreeSet<String>>,
    /// The body that the outbox has accepted, by id, as its clients know it.
    accepted: BTreeMap<String, String>,
    outbox: BTreeMap<String, OutboxMessage>,
    /// The broker's messages, by the id of their sender.
    stored: BTreeMap<String, BrokerMessage>,
    received: BTreeSet<String>,
    /// Deliveries that have not come to their end.
    open_deliveries: usize,
    outbox_facts: FactWalks,
    broker_facts: FactWalks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OutboxMessage {
    body: String,
    is_done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BrokerMessage {
    message_id: String,
    body: String,
}

impl MessageChecks {
    pub(crate) fn sends(&mut self, id: &str, body: &str) {
        let bodies = self.sent.entry(id.to_owned()).or_default();
        bodies.insert(body.to_owned());
    }

    /// An id that was sent before, with a body that was sent under it.
    pub(crate) fn sent(&self, index: usize) -> Option<(String, String)> {
        let (id, bodies) = self.sent.iter().nth(index)?;
        Some((id.clone(), bodies.first()?.clone()))
    }

    pub(crate) fn ids(&self) -> usize {
        self.sent.len()
    }

    /// The outbox has answered.
    pub(crate) fn added(
        &mut self,
        id: &str,
        body: &str,
        added: &Result<AddedMessage, Error>,
    ) -> Result<(), BrokenPromise> {
        let known = self.accepted.get(id).map(String::as_str);
        let is_right = match (added, known) {
            (Ok(AddedMessage::New), known) => known.is_none(),
            (Ok(AddedMessage::Same), known) => known.is_none_or(|known| known == body),
            (Ok(AddedMessage::Different), known) => known.is_none_or(|known| known != body),
            (Err(_), _) => true,
        };
        if !is_right {
            return Err(format!(
                "{id}: {body} was {added:?}, and the id stands for {known:?}"
            ));
        }
        if matches!(added, Ok(AddedMessage::New | AddedMessage::Same)) {
            self.accepted.insert(id.to_owned(), body.to_owned());
        }
        Ok(())
    }

    pub(crate) fn look_at_outbox(&mut self, dump: &Dump) -> Result<(), BrokenPromise> {
        self.outbox_facts.look(dump)?;
        let mut rows = BTreeMap::new();
        for row in rows_of(dump, ProfileId::MeshOutbox) {
            let (id, body) = content(row)?;
            if !self.sent.get(&id).is_some_and(|sent| sent.contains(&body)) {
                return Err(format!("the outbox has {id}: {body}, which was never sent"));
            }
            if row.state == State::DeadLetter {
                return Err(format!("{id} will never be sent: {:?}", row.last_error));
            }
            let is_done = row.state == State::Acked;
            if is_done {
                self.check_done(&id, &body, row)?;
            }
            if rows
                .insert(id.clone(), OutboxMessage { body, is_done })
                .is_some()
            {
                return Err(format!("the outbox has two rows of {id}"));
            }
        }
        for (id, before) in &self.outbox {
            let now = rows.get(id);
            let stays =
                now.is_some_and(|now| now.body == before.body && (now.is_done || !before.is_done));
            if !stays {
                return Err(format!("{id} was {before:?} in the outbox, and is {now:?}"));
            }
        }
        for (id, body) in &self.accepted {
            let row = rows.get(id);
            if row.is_none_or(|row| row.body != *body) {
                return Err(format!(
                    "{id}: {body} was accepted, and the outbox has {row:?}"
                ));
            }
        }
        self.outbox = rows;
        Ok(())
    }

    /// The broker has what its acknowledgement says.
    fn check_done(&self, id: &str, body: &str, row: &Intent) -> Result<(), BrokenPromise> {
        let result = row.result.as_ref().map_or("", |result| &result.body);
        let result: Value = serde_json::from_str(result).unwrap_or_default();
        let stored = self.stored.get(id);
        let is_stored = stored.is_some_and(|stored| {
            stored.body == body && result["broker_message_id"] == stored.message_id
        });
        if is_stored {
            return Ok(());
        }
        Err(format!(
            "{id}: {body} is done as {result}, and the broker has {stored:?}"
        ))
    }

    pub(crate) fn look_at_broker(&mut self, dump: &Dump) -> Result<(), BrokenPromise> {
        self.broker_facts.look(dump)?;
        let mut rows = BTreeMap::new();
        for row in rows_of(dump, ProfileId::MeshMessage) {
            let (id, body) = content(row)?;
            let message_id = BrokerMessageId::from_bytes(row.id.0).to_string();
            let stored = BrokerMessage { message_id, body };
            if let Some(other) = rows.insert(id.clone(), stored) {
                return Err(format!(
                    "the broker has two messages of {id}, one is {other:?}"
                ));
            }
        }
        for (id, before) in &self.stored {
            let now = rows.get(id);
            if now != Some(before) {
                return Err(format!(
                    "the broker had {before:?} of {id}, and has {now:?}"
                ));
            }
        }
        self.stored = rows;
        let open = [State::Queued, State::Dispatched];
        let deliveries = rows_of(dump, ProfileId::MeshDelivery);
        self.open_deliveries = deliveries.filter(|row| open.contains(&row.state)).count();
        Ok(())
    }

    /// What is pushed to a recipient is durable.
    pub(crate) fn check_pushed(&self, push: &Value) -> Result<(), BrokenPromise> {
        let stored = self.stored.get(sender_id(push));
        let is_stored = stored.is_some_and(|stored| {
            push["messageId"] == stored.message_id
                && pushed_body(push).as_ref() == Some(&stored.body)
        });
        if is_stored {
            return Ok(());
        }
        Err(format!("{push} was pushed, and the broker has {stored:?}"))
    }

    /// A recipient has stored a message. Returns the id of its sender.
    pub(crate) fn received(&mut self, push: &Value) -> String {
        let id = sender_id(push).to_owned();
        self.received.insert(id.clone());
        id
    }

    /// The broker's ids and bodies of an accepted message must be what its sender was answered.
    pub(crate) fn check_accepted(
        &self,
        accepted: &BTreeMap<String, (String, String)>,
    ) -> Result<(), BrokenPromise> {
        for (id, (message_id, body)) in accepted {
            let stored = self.stored.get(id);
            if stored.is_none_or(|stored| stored.message_id != *message_id || stored.body != *body)
            {
                return Err(format!(
                    "{id}: {body} was accepted as {message_id}, and is {stored:?}"
                ));
            }
        }
        Ok(())
    }

    /// An id of a message that the outbox knows to be delivered, with its body.
    pub(crate) fn done(&self, index: usize) -> Option<(String, String)> {
        let mut done = self.outbox.iter().filter(|(_, message)| message.is_done);
        let (id, message) = done.nth(index)?;
        Some((id.clone(), message.body.clone()))
    }

    pub(crate) fn done_count(&self) -> usize {
        self.outbox
            .values()
            .filter(|message| message.is_done)
            .count()
    }

    /// What has not come to its end.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let waiting = self.outbox.iter().find(|(_, message)| !message.is_done);
        if let Some((id, _)) = waiting {
            return Some(format!("{id} waits in the outbox"));
        }
        if self.open_deliveries > 0 {
            return Some(format!("{} deliveries wait", self.open_deliveries));
        }
        let lost = self.stored.keys().find(|id| !self.received.contains(*id));
        lost.map(|id| format!("{id} was never received"))
    }
}

fn sender_id(push: &Value) -> &str {
    push["client_message_id"].as_str().unwrap_or_default()
}

fn rows_of(dump: &Dump, profile: ProfileId) -> impl Iterator<Item = &Intent> {
    let rows = dump.intents.iter();
    rows.filter(move |row| row.profile == profile)
}

/// The sender's id and the body; outbox and broker use the same names.
fn content(row: &Intent) -> Result<(String, String), BrokenPromise> {
    let payload: Value = serde_json::from_str(&row.payload).unwrap_or_default();
    let id = payload["client_message_id"].as_str().map(str::to_owned);
    id.zip(pushed_body(&payload))
        .ok_or_else(|| format!("{} cannot be read: {}", row.id, row.payload))
}

/// The facts of a ledger so far: every row walks along the steps of its profile.
#[derive(Debug, Default)]
struct FactWalks {
    last: u64,
    states: BTreeMap<Seq, State>,
}

impl FactWalks {
    fn look(&mut self, dump: &Dump) -> Result<(), BrokenPromise> {
        let profiles: BTreeMap<Seq, ProfileId> = dump
            .intents
            .iter()
            .map(|row| (row.seq, row.profile))
            .collect();
        let seen = self.last;
        for fact in dump.facts.iter().skip_while(|fact| fact.seq.0 <= seen) {
            if fact.seq.0 != self.last + 1 {
                return Err(format!("{fact:?} follows fact {}", self.last));
            }
            self.last = fact.seq.0;
            let profile = profiles.get(&fact.intent).map(|id| id.profile());
            let is_legal = match (fact.from, profile) {
                (Some(from), Some(profile)) => profile.allows(from, fact.verb, fact.to),
                (None, Some(profile)) => profile.start.contains(&fact.to),
                (_, None) => false,
            };
            let before = self.states.insert(fact.intent, fact.to);
            if !is_legal || before != fact.from {
                return Err(format!("{fact:?} is no step of a row that was {before:?}"));
            }
        }
        Ok(())
    }
}
