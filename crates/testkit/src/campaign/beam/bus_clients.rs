//! Clients of the message bus: one sends messages, and one acknowledges what was delivered.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::CampaignAgents;
use super::history::{BeamCall, BeamHistory};
use crate::beam_agents::INTENT_TYPES;
use crate::process::{Http, Reply};
use crate::seeded_random::SeededRandom;

/// More messages than this are not checked in time.
const MESSAGES_MAX: usize = 60;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct MessageSender {
    pub(super) agents: Arc<CampaignAgents>,
    pub(super) prefix: String,
    pub(super) http: Http,
    pub(super) history: BeamHistory,
    pub(super) random: SeededRandom,
}

impl MessageSender {
    /// Works until the server is gone. Some messages are repeated, also with other content.
    pub(super) fn work(mut self) -> io::Result<()> {
        let mut sent = 0;
        loop {
            let again = self.random.percent(25) || sent == MESSAGES_MAX;
            let (number, content) = if again && sent > 0 {
                (self.random.index(sent), u64::from(self.random.percent(20)))
            } else {
                sent += 1;
                (sent - 1, 0)
            };
            let nonce = format!("{}-{number}", self.prefix);
            let content = content.to_string();
            let reply = send(
                &self.agents,
                &nonce,
                &content,
                &mut self.http,
                &mut self.history,
            )?;
            match reply {
                None => return Ok(()),
                Some(reply) if reply.status < 500 => {}
                Some(_) => thread::sleep(PAUSE),
            }
        }
    }
}

/// Sends a message whose recipient follows from its nonce. `None` if there was no response.
pub(super) fn send(
    agents: &CampaignAgents,
    nonce: &str,
    content: &str,
    http: &mut Http,
    history: &mut BeamHistory,
) -> io::Result<Option<Reply>> {
    history.begin(BeamCall::SendMessage, nonce, content)?;
    let recipient = nonce.len() % agents.recipients.len();
    let body = json!({
        "from": agents.bus_sender.beam_id,
        "to": agents.recipients[recipient].beam_id,
        "intent": INTENT_TYPES[0],
        "payload": {"message": content},
        "nonce": nonce,
    });
    let Ok(reply) = http.post("/v1/beam/send", &body) else {
        return Ok(None);
    };
    history.end(&reply)?;
    Ok(Some(reply))
}

#[derive(Debug)]
pub(super) struct MessageAcknowledger {
    pub(super) agents: Arc<CampaignAgents>,
    pub(super) round: u64,
    pub(super) http: Http,
    pub(super) history: BeamHistory,
    pub(super) random: SeededRandom,
}

impl MessageAcknowledger {
    /// Works until the server is gone. Some acknowledgements are repeated with another response.
    pub(super) fn work(mut self) -> io::Result<()> {
        let mut number = 0;
        loop {
            let agent = self.random.index(self.agents.recipients.len());
            let agent = &self.agents.recipients[agent].beam_id;
            let path = format!("/v1/beam/poll?agent={agent}&limit=100");
            let Ok(polled) = self.http.get(&path) else {
                return Ok(());
            };
            let polled = polled.json();
            for message in polled["messages"].as_array().into_iter().flatten() {
                let id = message["id"].as_str().unwrap_or_default();
                // Some messages stay delivered, so that every restart finds some.
                if id.ends_with(['0', '1', '2', '3', '4', '5']) {
                    continue;
                }
                for _ in 0..=u64::from(self.random.percent(20)) {
                    number += 1;
                    let response = json!({"by": format!("r{}-{number}", self.round)});
                    if !self.acknowledge(id, &response)? {
                        return Ok(());
                    }
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn acknowledge(&mut self, id: &str, response: &Value) -> io::Result<bool> {
        self.history
            .begin(BeamCall::Acknowledge, id, &response.to_string())?;
        let body = json!({"message_id": id, "response": response});
        let Ok(reply) = self.http.post("/v1/beam/ack", &body) else {
            return Ok(false);
        };
        self.history.end(&reply)?;
        Ok(true)
    }
}
