//! A sender of signed intents. It repeats some of its nonces, also for another intent.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use consign_kernel::ids::Micros;
use serde_json::Value;

use super::CampaignAgents;
use super::history::{BeamCall, BeamHistory};
use crate::beam_agents::INTENT_TYPES;
use crate::history::now_us;
use crate::process::{Http, Reply};
use crate::seeded_random::SeededRandom;

/// The pause after a response without a result.
const PAUSE: Duration = Duration::from_millis(5);
/// More nonces than this are not checked in time.
const NONCES_MAX: usize = 40;

#[derive(Debug)]
pub(super) struct IntentSender {
    pub(super) agents: Arc<CampaignAgents>,
    pub(super) prefix: String,
    pub(super) http: Http,
    pub(super) history: BeamHistory,
    pub(super) random: SeededRandom,
}

impl IntentSender {
    /// Works until the server is gone.
    pub(super) fn work(mut self) -> io::Result<()> {
        let mut used: Vec<(String, IntentUse)> = Vec::new();
        loop {
            let again = self.random.percent(25) || used.len() == NONCES_MAX;
            let (nonce, intent) = if again && !used.is_empty() {
                let (nonce, intent) = used[self.random.index(used.len())].clone();
                if self.random.percent(10) {
                    (nonce, self.any_use())
                } else {
                    (nonce, intent)
                }
            } else {
                let nonce = format!("{}-{}", self.prefix, used.len());
                let intent = self.any_use();
                used.push((nonce.clone(), intent));
                (nonce, intent)
            };
            let sent = send(
                &self.agents,
                &nonce,
                intent,
                &mut self.http,
                &mut self.history,
            )?;
            match sent {
                None => return Ok(()),
                Some(reply) if reply.status == 200 => {}
                Some(_) => thread::sleep(PAUSE),
            }
        }
    }

    fn any_use(&mut self) -> IntentUse {
        IntentUse {
            recipient: self.random.index(self.agents.recipients.len()),
            kind: self.random.index(INTENT_TYPES.len()),
        }
    }
}

/// Two intents with one nonce are the same if they agree in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IntentUse {
    pub(super) recipient: usize,
    pub(super) kind: usize,
}

impl IntentUse {
    pub(super) fn to_text(self) -> String {
        format!("{} {}", self.recipient, self.kind)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (recipient, kind) = text.split_once(' ')?;
        Some(Self {
            recipient: recipient.parse().ok()?,
            kind: kind.parse().ok()?,
        })
    }
}

/// Sends an intent. `None` if there was no response.
pub(super) fn send(
    agents: &CampaignAgents,
    nonce: &str,
    intent: IntentUse,
    http: &mut Http,
    history: &mut BeamHistory,
) -> io::Result<Option<Reply>> {
    history.begin(BeamCall::SendIntent, nonce, &intent.to_text())?;
    let to = &agents.recipients[intent.recipient].beam_id;
    let kind = INTENT_TYPES[intent.kind];
    let at = Micros(now_us());
    let frame = agents.sender.intent(to, kind, nonce, "hello", at);
    let frame: Value = serde_json::from_str(&frame.to_value().to_text())?;
    let Ok(reply) = http.post("/intents/send", &frame) else {
        return Ok(None);
    };
    history.end(&reply)?;
    Ok(Some(reply))
}
