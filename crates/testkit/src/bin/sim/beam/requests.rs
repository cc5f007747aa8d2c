//! What senders, recipients and operators request from Beam, and what they get.

use consign_beam::bus::{AckedMessage, Acknowledgement, NewMessage, RequeuedMessage, SentMessage};
use consign_beam::problem::BeamProblem;
use consign_beam::relay::{Ingress, RelayError};
use consign_beam::service::Beam;
use consign_kernel::ids::{IntentId, Micros};
use consign_testkit::beam_agents::{TestAgent, payload};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Who may use a nonce for what: all uses with the same numbers are the same intent or message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NonceUse {
    pub(crate) recipient: usize,
    pub(crate) intent: &'static str,
    /// Part of the identity of a message, and not of an intent.
    pub(crate) message: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum BeamAction {
    Send {
        nonce: String,
        used: NonceUse,
        by_socket: bool,
    },
    BusSend {
        nonce: String,
        used: NonceUse,
    },
    Ack {
        id: IntentId,
        is_failure: bool,
        response: String,
    },
    BusRequeue(IntentId),
}

/// What the server returned.
#[derive(Debug)]
pub(crate) enum BeamReply {
    Relayed(Result<String, RelayError>),
    Sent(Result<SentMessage, BeamProblem>),
    Acked(Result<AckedMessage, BeamProblem>),
    Requeued(Result<RequeuedMessage, BeamProblem>),
}

#[derive(Debug)]
pub(crate) struct BeamRequest {
    pub(crate) number: u64,
    pub(crate) action: BeamAction,
    pub(crate) since: Instant,
    pub(crate) task: JoinHandle<BeamReply>,
}

/// The agents of a simulation.
#[derive(Debug)]
pub(crate) struct SimAgents {
    pub(crate) sender: TestAgent,
    pub(crate) bus_sender: TestAgent,
    pub(crate) recipients: [TestAgent; 2],
}

impl SimAgents {
    pub(crate) fn new() -> Self {
        Self {
            sender: TestAgent::new("alice", 1),
            bus_sender: TestAgent::new("carol", 2),
            recipients: [TestAgent::new("bob", 3), TestAgent::new("dave", 4)],
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &TestAgent> {
        [&self.sender, &self.bus_sender]
            .into_iter()
            .chain(&self.recipients)
    }
}

impl BeamRequest {
    pub(crate) fn send(
        number: u64,
        action: BeamAction,
        beam: &Beam,
        agents: &SimAgents,
        wall: Micros,
    ) -> Self {
        let reply = carry_out(beam.clone(), &action, agents, wall);
        Self {
            number,
            since: Instant::now(),
            task: reply,
            action,
        }
    }
}

fn carry_out(
    beam: Beam,
    action: &BeamAction,
    agents: &SimAgents,
    wall: Micros,
) -> JoinHandle<BeamReply> {
    match action.clone() {
        BeamAction::Send {
            nonce,
            used,
            by_socket,
        } => {
            let sender = &agents.sender;
            let to = &agents.recipients[used.recipient].beam_id;
            let message = used.message.to_string();
            let frame = sender.intent(to, used.intent, &nonce, &message, wall);
            let ingress = if by_socket {
                Ingress::Socket {
                    beam_id: sender.beam_id.clone(),
                    api_key_hash: None,
                }
            } else {
                Ingress::Http
            };
            tokio::spawn(async move { BeamReply::Relayed(beam.relay(frame, ingress).await) })
        }
        BeamAction::BusSend { nonce, used } => {
            let new = NewMessage {
                sender: agents.bus_sender.beam_id.clone(),
                recipient: agents.recipients[used.recipient].beam_id.clone(),
                intent: used.intent.to_owned(),
                payload: payload(&used.message.to_string()),
                priority: 0,
                trace_id: None,
                nonce: Some(nonce),
            };
            tokio::spawn(async move { BeamReply::Sent(beam.send_message(new).await) })
        }
        BeamAction::Ack {
            id,
            is_failure,
            response,
        } => {
            let ack = Acknowledgement {
                message_id: id.to_string(),
                is_failure,
                response: Some(response),
            };
            tokio::spawn(async move { BeamReply::Acked(beam.acknowledge(ack).await) })
        }
        BeamAction::BusRequeue(id) => {
            let id = id.to_string();
            tokio::spawn(async move { BeamReply::Requeued(beam.requeue_message(&id).await) })
        }
    }
}
