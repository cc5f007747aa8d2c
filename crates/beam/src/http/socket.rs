//! The WebSocket of agents, and of readers of the intent feed.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use consign_kernel::error::Code;
use consign_web::websocket::{
    Options, SocketMessage, SocketMessages, SocketSender, SocketUpgrade, UpgradeRefusal,
};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::BeamFace;
use super::access::{self, BeamAccess, IntentReader};
use super::problem_response::{BeamProblemResponse, word};
use super::query::QueryText;
use crate::directory::records::Agent;
use crate::frame::{IntentFrame, ResultFrame};
use crate::problem::BeamProblem;
use crate::relay::{Ingress, RelayError};
use crate::service::Beam;
use crate::sockets::{ConnectedAgent, POLICY_VIOLATION, TRY_AGAIN_LATER};
use crate::text::{self, BeamValue};

/// Intents of one socket that wait for their results.
const IN_FLIGHT_MAX: usize = 256;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new().route("/ws", get(connect))
}

async fn connect(
    State(face): State<BeamFace>,
    upgrade: Result<SocketUpgrade, UpgradeRefusal>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    let query = QueryText::of(&parts);
    let (beam_id, feed) = (query.get("beamId"), query.get("feed"));
    if beam_id.is_none() && feed.is_none() {
        return Err(BeamProblemResponse::new(Code::NotFound, "Not found"));
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(refusal) => return Ok(refusal.into_response()),
    };
    let mut access = BeamAccess::of(&face, &parts);
    if let Some(key) = query.text("apiKey") {
        access.set_key(key);
    }
    let beam = face.beam.clone();
    if feed == Some("intents") && beam_id.is_none() {
        let reader = access.intent_reader(&face).await?;
        return Ok(upgrade.accept(Options::new(), move |sender, messages| {
            follow_feed(beam, reader, sender, messages)
        }));
    }
    let beam_id = beam_id.unwrap_or_default().trim().to_owned();
    if beam_id.is_empty() {
        return Ok(refuse(upgrade, "Missing beamId query parameter".to_owned()));
    }
    let Some(agent) = beam.agent(&beam_id).await.map_err(BeamProblem::from)? else {
        if access.local {
            return Ok(refuse(
                upgrade,
                format!("Agent {beam_id} is not registered"),
            ));
        }
        return Err(closed());
    };
    let by_api_key = access.is_agent(&agent);
    if !by_api_key && !access.local {
        return Err(closed());
    }
    let stranger = face.is_stranger(&access).await?;
    let stranger = access::client(&face, &parts).filter(|_| stranger);
    Ok(upgrade.accept(Options::new(), move |sender, messages| {
        serve_agent(beam, agent, by_api_key, stranger, sender, messages)
    }))
}

/// From other machines, an agent must present its API key.
fn closed() -> BeamProblemResponse {
    let problem = BeamProblem::new(
        Code::Unauthorized,
        "Connect with the agent's API key: apiKey in the query, x-api-key, or Authorization: Bearer",
    );
    BeamProblemResponse::wrong_credential(problem)
}

/// Accepts the socket and closes it with a reason, as clients expect.
fn refuse(upgrade: SocketUpgrade, reason: String) -> Response {
    upgrade.accept(
        Options::new(),
        async move |sender: SocketSender, _messages: SocketMessages| {
            sender.close(POLICY_VIOLATION, &reason);
            sender.closed().await;
        },
    )
}

async fn follow_feed(
    beam: Beam,
    reader: IntentReader,
    sender: SocketSender,
    mut messages: SocketMessages,
) {
    let only = match reader {
        IntentReader::All => None,
        IntentReader::Only(agent) => Some(ConnectedAgent::of(&agent, true)),
    };
    let position = match beam.feed_position().await {
        Ok(position) => position,
        Err(error) => {
            tracing::warn!(%error, "the feed of intents cannot be read");
            return sender.close_now(TRY_AGAIN_LATER, "The ledger is unavailable");
        }
    };
    if sender
        .try_send(json!({"type": "feed_connected"}).to_string())
        .is_err()
    {
        return;
    }
    let number = beam.inner.sockets.add_feed(sender.clone(), only);
    beam.follow_feed_from(position);
    while messages.next().await.is_some() {}
    beam.inner.sockets.remove_feed(number);
}

/// Serves the socket of an agent whose right to it was checked, until it is closed. What arrives counts for the address of a
/// stranger.
pub async fn serve_agent(
    beam: Beam,
    agent: Agent,
    by_api_key: bool,
    stranger: Option<IpAddr>,
    sender: SocketSender,
    mut messages: SocketMessages,
) {
    let connected = ConnectedAgent::of(&agent, by_api_key);
    // An idle connection keeps only what identifies it.
    drop(agent);
    let agent = connected;
    let auth = match agent.api_key_hash {
        Some(_) => "api_key",
        None => "identity",
    };
    let hello = json!({"type": "connected", "beamId": agent.beam_id, "auth": auth});
    let connected = beam.connect_agent(&agent, sender.clone(), hello.to_string());
    let Some(presence) = connected.await else {
        return;
    };
    let socket = AgentConnection {
        beam: beam.clone(),
        agent: agent.clone(),
        stranger,
        sender,
        in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
    };
    while let Some(message) = messages.next().await {
        if let SocketMessage::Text(text) = message {
            socket.handle(text.as_bytes()).await;
        }
    }
    beam.disconnect_agent(&agent.beam_id, presence).await;
}

/// A connected agent.
#[derive(Clone)]
struct AgentConnection {
    beam: Beam,
    agent: ConnectedAgent,
    stranger: Option<IpAddr>,
    sender: SocketSender,
    in_flight: Arc<Semaphore>,
}

impl AgentConnection {
    async fn handle(&self, message: &[u8]) {
        let Ok(value) = text::parse(message) else {
            return self.report("Invalid message format: must be valid JSON", &[]);
        };
        let kind = value.get("type").and_then(BeamValue::as_str);
        let frame = value.get("frame").cloned().unwrap_or(BeamValue::Null);
        if matches!(kind, Some("intent" | "result")) && !self.has_allowance(message.len()) {
            let error = RelayError::RateLimited("the address of this connection".to_owned());
            return self.report_relay(&error, nonce_of(&frame).as_deref());
        }
        match kind {
            Some("intent") => self.send_intent(frame),
            Some("result") => {
                // A frame that is no result cannot belong to an intent.
                if let Ok(result) = ResultFrame::parse(frame) {
                    self.beam.on_result(&self.agent, result).await;
                }
            }
            Some(kind) => self.report(&format!("Unknown message type: {kind}"), &[]),
            None => self.report("Invalid message: missing type field", &[]),
        }
    }

    /// Whether the client may send so many bytes that may be stored.
    fn has_allowance(&self, bytes: usize) -> bool {
        let allowance = &self.beam.inner.stranger_bytes;
        self.stranger
            .is_none_or(|client| allowance.take_of(client, bytes).is_ok())
    }

    /// Relays in a task of its own, so that results are read meanwhile.
    fn send_intent(&self, frame: BeamValue) {
        let nonce = nonce_of(&frame);
        let frame = match IntentFrame::parse(frame) {
            Ok(frame) => frame,
            Err(error) => {
                let error = RelayError::Shape(error.to_string());
                return self.report_relay(&error, nonce.as_deref());
            }
        };
        let Ok(permit) = Arc::clone(&self.in_flight).try_acquire_owned() else {
            let error = RelayError::RateLimited(self.agent.beam_id.clone());
            return self.report_relay(&error, nonce.as_deref());
        };
        let socket = self.clone();
        tokio::spawn(async move {
            let ingress = Ingress::Socket {
                beam_id: socket.agent.beam_id.clone(),
                api_key_hash: socket.agent.api_key_hash.clone(),
            };
            let name = format!("socket of {}", socket.agent.beam_id);
            match socket.beam.relay_of(frame, ingress, Some(&name)).await {
                Ok(result) => socket.send(format!(r#"{{"type":"result","frame":{result}}}"#)),
                Err(error) => socket.report_relay(&error, nonce.as_deref()),
            }
            drop(permit);
        });
    }

    fn report_relay(&self, error: &RelayError, nonce: Option<&str>) {
        let code = socket_word(error);
        let mut further = vec![("errorCode", json!(code))];
        if let Some(nonce) = nonce {
            further.push(("nonce", json!(nonce)));
        }
        if matches!(error, RelayError::RateLimited(_)) {
            let status = StatusCode::TOO_MANY_REQUESTS.as_u16();
            further.push(("status", json!(status)));
        }
        self.report(&error.to_string(), &further);
    }

    fn report(&self, message: &str, further: &[(&str, Value)]) {
        let mut error = json!({"type": "error", "message": message});
        for (name, value) in further {
            error[*name] = value.clone();
        }
        self.send(error.to_string());
    }

    fn send(&self, text: String) {
        if self.sender.try_send(text).is_err() {
            self.sender.close_now(TRY_AGAIN_LATER, "Slow reader");
        }
    }
}

fn nonce_of(frame: &BeamValue) -> Option<String> {
    let nonce = frame.get("nonce").and_then(BeamValue::as_str);
    nonce.map(str::to_owned)
}

/// The code in an error frame: over a socket, a frame that is complete and refused is a bad request.
fn socket_word(error: &RelayError) -> String {
    if matches!(error, RelayError::BadRequest(_)) {
        "BAD_REQUEST".to_owned()
    } else {
        word(error.code())
    }
}
