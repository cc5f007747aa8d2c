//! Agents of Beam that exist for one measurement: they are registered over HTTP, and sign their intents in advance.

use anyhow::Context;
use consign_beam::beam_id::BeamId;
use consign_beam::frame::{IntentFields, IntentFrame};
use consign_beam::keys::BeamPrivateKey;
use consign_beam::signed_text::BeamSignedText;
use consign_beam::text::BeamObject;
use consign_beam::timestamp;
use consign_client::{Bytes, Client, HeaderMap, Method, Options};
use consign_kernel::ids::Micros;
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ask::ask;

const ORG: &str = "bench";
/// Its payload is any text.
const INTENT: &str = "conversation.message";
/// Agents that are registered at the same time.
const REGISTERED_AT_ONCE: usize = 32;

/// An agent that is or will be registered.
pub(super) struct RelayAgent {
    beam_id: String,
    key: BeamPrivateKey,
}

/// Tells the agents of one run from those of others in the same ledger.
pub(super) struct AgentFactory {
    run: String,
}

impl AgentFactory {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            run: HEXLOWER.encode(&random::<8>()?),
        })
    }

    pub(super) fn agents(&self, kind: &str, count: usize) -> anyhow::Result<Vec<RelayAgent>> {
        let agent = |index| {
            let name = format!("{kind}-{}-{index}", self.run);
            Ok(RelayAgent {
                beam_id: BeamId::new(&name, ORG)?.as_str().to_owned(),
                key: BeamPrivateKey::from_seed(&random()?),
            })
        };
        (0..count).map(agent).collect()
    }
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("no source of random numbers")?;
    Ok(bytes)
}

impl RelayAgent {
    pub(super) fn beam_id(&self) -> &str {
        &self.beam_id
    }

    /// Signed intents to another agent, with payloads of about this size.
    pub(super) fn frames(&self, to: &Self, count: usize, payload_bytes: usize) -> Vec<String> {
        let message = "x".repeat(payload_bytes.saturating_sub(r#"{"message":""}"#.len()));
        let frame = |index| {
            let mut payload = BeamObject::new();
            payload.insert("message", message.as_str());
            let mut frame = IntentFrame::new(IntentFields {
                intent: INTENT.to_owned(),
                from: self.beam_id.clone(),
                to: to.beam_id.clone(),
                payload,
                nonce: format!("{}-{index}", self.beam_id),
                timestamp: timestamp::format(Micros(Timestamp::now().as_microsecond())),
            });
            let signature = BeamSignedText::intent(&frame).sign(&self.key);
            frame.set_signature(signature);
            frame.to_value().to_text()
        };
        (0..count).map(frame).collect()
    }

    fn registration(&self) -> Value {
        json!({
            "beamId": self.beam_id,
            "displayName": "Bench",
            "capabilities": [INTENT],
            "publicKey": self.key.public_key().to_string(),
        })
    }
}

pub(super) async fn register(server: &str, agents: &[RelayAgent]) -> anyhow::Result<()> {
    let registrations: Vec<Value> = agents.iter().map(RelayAgent::registration).collect();
    post_all(server, "/agents/register", registrations).await
}

/// Lets any agent send intents to these.
pub(super) async fn accept_all(server: &str, agents: &[RelayAgent]) -> anyhow::Result<()> {
    let rule = |agent: &RelayAgent| json!({"targetBeamId": agent.beam_id, "intentType": INTENT, "allowedFrom": "*"});
    post_all(server, "/acl", agents.iter().map(rule).collect()).await
}

async fn post_all(server: &str, path: &'static str, bodies: Vec<Value>) -> anyhow::Result<()> {
    for chunk in bodies.chunks(REGISTERED_AT_ONCE) {
        let mut posting = tokio::task::JoinSet::new();
        for body in chunk {
            let client = Client::new(Options {
                server: server.to_owned(),
                ..Options::default()
            })?;
            let body = Bytes::from(body.to_string());
            posting.spawn(
                async move { ask(&client, Method::POST, path, HeaderMap::new(), body).await },
            );
        }
        while let Some(posted) = posting.join_next().await {
            posted??;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use consign_beam::signed_text::verify_intent;
    use consign_beam::text;

    use super::*;

    #[test]
    fn frames_are_signed_by_their_sender_and_no_two_are_the_same() {
        let agents = AgentFactory::new().unwrap().agents("sender", 2).unwrap();
        let [from, to] = &agents[..] else {
            panic!("two were asked for");
        };
        let frames = from.frames(to, 2, 200);
        let mut nonces = Vec::new();
        for frame in &frames {
            let frame = IntentFrame::parse(text::parse(frame.as_bytes()).unwrap()).unwrap();
            assert!(verify_intent(&frame, &from.key.public_key()));
            assert_eq!((frame.from(), frame.to()), (from.beam_id(), to.beam_id()));
            nonces.push(frame.nonce().to_owned());
        }
        assert_ne!(nonces[0], nonces[1]);
    }
}
