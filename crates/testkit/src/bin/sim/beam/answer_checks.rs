//! Checks of the replies that senders, recipients and operators got, against each other and the ledger.

use std::collections::{BTreeMap, BTreeSet};

use consign_beam::bus::{BusMessage, SentMessage};
use consign_beam::problem::BeamProblem;
use consign_beam::relay::RelayError;
use consign_kernel::error::Code;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::state::State;

use super::recipients::SimRecipient;
use super::requests::{BeamAction, BeamReply, NonceUse, SimAgents};
use super::row_checks::RowChecks;
use crate::ledger_checks::BrokenPromise;

#[derive(Debug, Default)]
pub(crate) struct AnswerChecks {
    /// How each nonce was used, on the directory and on the bus.
    intents: BTreeMap<String, BTreeSet<(usize, &'static str)>>,
    messages: BTreeMap<String, BTreeSet<NonceUse>>,
    /// The first result that a sender got.
    results: BTreeMap<String, String>,
    message_ids: BTreeMap<String, IntentId>,
    created: BTreeSet<String>,
    /// The responses that recipients sent about a message.
    responses: BTreeMap<IntentId, BTreeSet<String>>,
    acked: BTreeSet<IntentId>,
}

impl AnswerChecks {
    pub(crate) fn sent(&mut self, action: &BeamAction) {
        match action {
            BeamAction::Send { nonce, used, .. } => {
                let uses = self.intents.entry(nonce.clone()).or_default();
                uses.insert((used.recipient, used.intent));
            }
            BeamAction::BusSend { nonce, used } => {
                self.messages
                    .entry(nonce.clone())
                    .or_default()
                    .insert(*used);
                // The bus sends it to the directory with the same nonce.
                let uses = self.intents.entry(nonce.clone()).or_default();
                uses.insert((used.recipient, used.intent));
            }
            BeamAction::Ack { id, response, .. } => {
                let responses = self.responses.entry(*id).or_default();
                responses.insert(response.clone());
            }
            BeamAction::BusRequeue(_) => {}
        }
    }

    /// `is_calm`: the disk had no fault since the request was sent.
    pub(crate) fn concluded(
        &mut self,
        action: &BeamAction,
        reply: &BeamReply,
        is_calm: bool,
        rows: &RowChecks,
        agents: &SimAgents,
    ) -> Result<(), BrokenPromise> {
        if let Some(problem) = trouble(reply) {
            // Only the disk excuses an error, whatever the clocks do.
            if is_calm || problem.code != Code::StoreUnavailable {
                return Err(format!("{action:?} got {reply:?} from a healthy disk"));
            }
        }
        match (action, reply) {
            (BeamAction::Send { nonce, used, .. }, BeamReply::Relayed(Ok(result))) => {
                self.relayed(nonce, *used, result, rows, agents)
            }
            (BeamAction::Send { nonce, .. }, BeamReply::Relayed(Err(error))) => {
                self.relay_refused(nonce, error)
            }
            (BeamAction::BusSend { nonce, used }, BeamReply::Sent(Ok(sent))) => {
                let message = match sent {
                    SentMessage::New { message, .. } => {
                        if !self.created.insert(nonce.clone()) {
                            return Err(format!("message {nonce} was new twice"));
                        }
                        message
                    }
                    SentMessage::Known(message) => message,
                };
                self.stored(nonce, *used, message, rows, agents)
            }
            (BeamAction::BusSend { nonce, .. }, BeamReply::Sent(Err(problem))) => {
                self.message_refused(nonce, problem)
            }
            (BeamAction::Ack { id, .. }, BeamReply::Acked(Ok(acked))) => {
                let row = rows.message(*id);
                let is_stored = row.is_some_and(|row| row.state == State::Acked);
                if acked.state == State::Acked && !is_stored {
                    return Err(format!("{id} was acknowledged and is {row:?}"));
                }
                if acked.state == State::Acked {
                    self.acked.insert(*id);
                }
                Ok(())
            }
            (
                BeamAction::Ack { .. } | BeamAction::BusRequeue(_),
                BeamReply::Acked(Err(_)) | BeamReply::Requeued(_),
            ) => Ok(()),
            (action, reply) => Err(format!("{action:?} got {reply:?}")),
        }
    }

    fn relayed(
        &mut self,
        nonce: &str,
        used: NonceUse,
        result: &str,
        rows: &RowChecks,
        agents: &SimAgents,
    ) -> Result<(), BrokenPromise> {
        let first = self.results.entry(nonce.to_owned());
        let first = first.or_insert_with(|| result.to_owned());
        if first != result {
            return Err(format!(
                "{nonce} was answered with {first} and with {result}"
            ));
        }
        let Some(row) = rows.intents.get(nonce) else {
            return Err(format!("{nonce} was answered and is lost"));
        };
        let stored = row.result.as_ref().map(|stored| stored.body.as_str());
        let has_ended = matches!(row.state, State::Acked | State::Failed);
        if !has_ended || stored != Some(result) {
            let state = row.state;
            return Err(format!(
                "{nonce} was answered with {result} and is {state} with {stored:?}"
            ));
        }
        let to = &agents.recipients[used.recipient].beam_id;
        if row.owner != *to || row.goal != used.intent {
            return Err(format!("{nonce} got the result of another intent: {row:?}"));
        }
        Ok(())
    }

    fn relay_refused(&self, nonce: &str, error: &RelayError) -> Result<(), BrokenPromise> {
        let is_refused = matches!(
            error,
            RelayError::Shape(_)
                | RelayError::BadRequest(_)
                | RelayError::Forbidden(_)
                | RelayError::RateLimited(_)
        );
        let uses = self.intents.get(nonce).map_or(0, BTreeSet::len);
        if is_refused && uses < 2 {
            return Err(format!("{nonce} was refused: {error}"));
        }
        Ok(())
    }

    fn stored(
        &mut self,
        nonce: &str,
        used: NonceUse,
        message: &BusMessage,
        rows: &RowChecks,
        agents: &SimAgents,
    ) -> Result<(), BrokenPromise> {
        let id = *self
            .message_ids
            .entry(nonce.to_owned())
            .or_insert(message.id);
        if id != message.id {
            return Err(format!("message {nonce} is {id} and {}", message.id));
        }
        let row = rows.messages.get(nonce).filter(|row| row.id == id);
        let Some(stored) = row.and_then(BusMessage::of) else {
            return Err(format!("message {nonce} was answered as {id} and is lost"));
        };
        let expected = consign_testkit::beam_agents::payload(&used.message.to_string());
        let is_same = stored.recipient == agents.recipients[used.recipient].beam_id
            && stored.intent == used.intent
            && stored.content.payload == expected;
        if !is_same {
            return Err(format!("message {nonce} was taken for another: {stored:?}"));
        }
        Ok(())
    }

    fn message_refused(&self, nonce: &str, problem: &BeamProblem) -> Result<(), BrokenPromise> {
        let uses = self.messages.get(nonce).map_or(0, BTreeSet::len);
        if problem.code == Code::NonceReuseConflict && uses < 2 {
            return Err(format!("message {nonce} was refused: {problem}"));
        }
        Ok(())
    }

    /// The ledger holds what it reported, and its results come from the recipients.
    pub(crate) fn look(
        &self,
        rows: &RowChecks,
        recipients: &[SimRecipient; 2],
        agents: &SimAgents,
    ) -> Result<(), BrokenPromise> {
        for (nonce, row) in &rows.intents {
            let Some(result) = &row.result else { continue };
            let owner = agents.recipients.iter().zip(recipients);
            let mut owner = owner.filter(|(agent, _)| agent.beam_id == row.owner);
            let sent = owner.next().and_then(|(_, known)| known.sent.get(nonce));
            if sent.is_none_or(|sent| !sent.contains(&result.body)) {
                return Err(format!(
                    "{nonce} has the result {}, never sent",
                    result.body
                ));
            }
        }
        for row in rows.messages.values() {
            self.acknowledged(row)?;
        }
        Ok(())
    }

    fn acknowledged(&self, row: &Intent) -> Result<(), BrokenPromise> {
        let id = row.id;
        if self.acked.contains(&id) && row.state != State::Acked {
            return Err(format!("{id} was acknowledged and is {}", row.state));
        }
        let Some(response) = &row.result else {
            return Ok(());
        };
        let sent = self.responses.get(&id);
        if sent.is_none_or(|sent| !sent.contains(&response.body)) {
            return Err(format!(
                "{id} has the response {}, never sent",
                response.body
            ));
        }
        Ok(())
    }
}

/// The server blames its ledger or itself.
fn trouble(reply: &BeamReply) -> Option<&BeamProblem> {
    let problem = match reply {
        BeamReply::Relayed(Err(RelayError::Ledger(problem)))
        | BeamReply::Sent(Err(problem))
        | BeamReply::Acked(Err(problem))
        | BeamReply::Requeued(Err(problem)) => problem,
        BeamReply::Relayed(_)
        | BeamReply::Sent(Ok(_))
        | BeamReply::Acked(Ok(_))
        | BeamReply::Requeued(Ok(_)) => return None,
    };
    let is_trouble = matches!(
        problem.code,
        Code::StoreUnavailable | Code::InternalError | Code::RelayError
    );
    is_trouble.then_some(problem)
}
