//! The beginning of a connection: the signed hello, and the negotiation of features before anything else is sent.
//!
//! Invariant: a connection is used only if the broker has every feature that the settings require. The close frame of a failed
//! negotiation says which one was missing, as compact JSON.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};

use super::DaemonEnd;
use super::shared::{DaemonShared, wall_ms};
use super::transport::BrokerSocket;
use crate::close::{DaemonExit, MeshCloseCode};
use crate::features::{FeatureNeeds, Negotiated, NegotiationFailure, negotiate};
use crate::frame::{
    BrokerFrame, ClientFrame, ErrorFrame, FeatureRequest, FeatureResponse, HelloAck, HelloFrame,
    PushFrame,
};
use crate::ipc::MeshEventKind;
use crate::limits::{HELLO_TIMEOUT_MS, NEGOTIATION_TIMEOUT_MS};
use crate::max_age::{MaxAge, MaxAgeWarning, max_age};
use crate::signed_text::MeshSignedText;

const NEGOTIATION_REQUEST: &str = "negotiation";
/// Messages that are kept until the negotiation is over.
const EARLY_MAX: usize = 256;
const REFUSAL_CHARACTERS_MAX: usize = 500;
/// How long the broker has to answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What was agreed for a connection.
#[derive(Debug, Clone)]
pub(super) struct BrokerTerms {
    pub(super) features: Vec<String>,
    pub(super) parameters: Map<String, Value>,
    pub(super) max_age: Option<MaxAge>,
    pub(super) inline_bytes: Option<u64>,
    pub(super) broker_version: Option<String>,
    /// The name that peers see.
    pub(super) display_name: String,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum LineEnd {
    /// It is tried again.
    Lost(String),
    /// The broker refused the hello. It is tried again, but somebody should look at it.
    Refused(String),
    /// The daemon ends.
    Ended(DaemonEnd),
}

impl LineEnd {
    pub(super) fn lost(why: impl std::fmt::Display) -> Self {
        Self::Lost(why.to_string())
    }

    /// What a close frame of the broker means.
    pub(super) fn of_close(frame: Option<&CloseFrame>) -> Self {
        let Some(frame) = frame else {
            return Self::Lost("closed without a code".to_owned());
        };
        let code = u16::from(frame.code);
        let text = format!("closed with {code} {}", frame.reason);
        match MeshCloseCode::from_code(code).and_then(MeshCloseCode::exit) {
            Some(exit) => Self::Ended(DaemonEnd::new(exit, format!("the broker {text}"))),
            None => Self::Lost(text),
        }
    }
}

/// Introduces the daemon and negotiates. Messages that arrive before the answer are returned, too.
pub(super) async fn shake_hands(
    shared: &DaemonShared,
    socket: &mut BrokerSocket,
) -> Result<(BrokerTerms, Vec<PushFrame>), LineEnd> {
    let hello = ClientFrame::from(hello(shared)).to_text(None);
    socket
        .send(Message::text(hello))
        .await
        .map_err(LineEnd::lost)?;
    let mut early = Vec::new();
    let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
    let ack = timeout(limit, hello_ack(shared, socket, &mut early)).await;
    let ack = ack.map_err(|_| LineEnd::lost("no answer to the hello"))??;
    shared.keep_current_key().await;
    let needs = shared.config().needs();
    let request = FeatureRequest {
        require: needs.require.clone(),
        optional: needs.optional.clone(),
    };
    let request = ClientFrame::from(request).to_text(Some(NEGOTIATION_REQUEST));
    socket
        .send(Message::text(request))
        .await
        .map_err(LineEnd::lost)?;
    let limit = Duration::from_millis(NEGOTIATION_TIMEOUT_MS);
    let response = match timeout(limit, feature_response(socket, &mut early)).await {
        Ok(response) => Some(response?),
        Err(_) => None,
    };
    let agreed = match &response {
        Some(response) => negotiate(&needs, response),
        None => Err(NegotiationFailure::no_answer(&needs)),
    };
    match agreed {
        Ok(negotiated) => {
            let terms = terms(shared, &needs, &negotiated, response.as_ref(), ack)?;
            Ok((terms, early))
        }
        Err(failure) => Err(refuse(shared, socket, &failure, response.as_ref()).await),
    }
}

fn hello(shared: &DaemonShared) -> HelloFrame {
    let keys = shared.keys();
    let identity = &keys.identity;
    let timestamp = wall_ms().unsigned_abs();
    let pubkey = identity.key.public_key().to_string();
    let text = MeshSignedText::hello(&shared.mesh_id, &identity.member_id, &pubkey, timestamp);
    HelloFrame {
        mesh_id: shared.mesh_id.clone(),
        member_id: identity.member_id.clone(),
        display_name: identity.display_name.clone(),
        session_id: Some(shared.session_id.clone()),
        pid: Some(i64::from(std::process::id())),
        hostname: Some(shared.hostname.clone()),
        host_fingerprint: shared.host_fingerprint.clone(),
        peer_type: Some("connector".to_owned()),
        channel: Some("claudemesh-daemon".to_owned()),
        timestamp,
        signature: text.sign(&identity.key),
        pubkey,
        ..HelloFrame::default()
    }
}

async fn hello_ack(
    shared: &DaemonShared,
    socket: &mut BrokerSocket,
    early: &mut Vec<PushFrame>,
) -> Result<HelloAck, LineEnd> {
    let mut refusal = None;
    loop {
        match next_frame(socket).await {
            Ok(BrokerFrame::HelloAck(ack)) => return Ok(*ack),
            Ok(BrokerFrame::Push(push)) => keep_early(early, *push),
            Ok(BrokerFrame::Error(error)) => {
                if matches!(&*error.code, "revoked" | "unauthorized")
                    && shared.adopt_next_key().await
                {
                    return Err(LineEnd::lost("the broker knows the next key"));
                }
                if error.code == "revoked" {
                    let message = format!("the broker refuses this member: {}", error.message);
                    return Err(LineEnd::Ended(DaemonEnd::new(DaemonExit::Revoked, message)));
                }
                refusal = Some(refusal_text(&error));
            }
            Ok(_) => {}
            Err(LineEnd::Lost(why)) => {
                return Err(match refusal {
                    Some(refusal) => LineEnd::Refused(refusal),
                    None => LineEnd::Lost(why),
                });
            }
            Err(end) => return Err(end),
        }
    }
}

/// The broker is not ours, so its text has a bound.
fn refusal_text(error: &ErrorFrame) -> String {
    let text = format!(
        "the broker refuses the hello: {}: {}",
        error.code, error.message
    );
    text.chars().take(REFUSAL_CHARACTERS_MAX).collect()
}

/// Keeps a message that came before the negotiation. Beyond the limit it is ignored: it is not acknowledged, so the broker
/// sends it again.
fn keep_early(early: &mut Vec<PushFrame>, push: PushFrame) {
    if early.len() < EARLY_MAX {
        early.push(push);
    }
}

async fn feature_response(
    socket: &mut BrokerSocket,
    early: &mut Vec<PushFrame>,
) -> Result<FeatureResponse, LineEnd> {
    loop {
        let frame = next_frame(socket).await?;
        if let BrokerFrame::FeatureResponse(response) = frame {
            return Ok(*response);
        }
        if let BrokerFrame::Push(push) = frame {
            keep_early(early, *push);
        }
    }
}

/// The next frame of the protocol; what is malformed is ignored.
async fn next_frame(socket: &mut BrokerSocket) -> Result<BrokerFrame, LineEnd> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => match BrokerFrame::parse(&text) {
                Ok(framed) => return Ok(framed.frame),
                Err(error) => {
                    tracing::warn!(%error, "a frame of the broker was ignored");
                }
            },
            Some(Ok(Message::Close(frame))) => return Err(LineEnd::of_close(frame.as_ref())),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(LineEnd::lost(error)),
            None => return Err(LineEnd::lost("the connection ended")),
        }
    }
}

fn terms(
    shared: &DaemonShared,
    needs: &FeatureNeeds,
    negotiated: &Negotiated,
    response: Option<&FeatureResponse>,
    ack: HelloAck,
) -> Result<BrokerTerms, LineEnd> {
    let log = &shared.log;
    for warning in &negotiated.warnings {
        let fields = json!({
            "feature": warning.feature,
            "param": warning.param,
            "reason": warning.reason,
        });
        log.warn("feature_optional_param_invalid", &fields);
    }
    let age = negotiated
        .dedupe_window
        .map(|window| max_age(window, &shared.config().max_age()));
    let age = age.transpose().map_err(|above| {
        let fields = json!({"hours": above.hours, "hours_max": above.hours_max});
        log.error("outbox_max_age_above_dedupe_window", &fields);
        LineEnd::Ended(DaemonEnd::new(DaemonExit::BadConfig, above.to_string()))
    })?;
    match age.and_then(|age| age.warning) {
        Some(MaxAgeWarning::Clamped) => {
            log.warn("outbox_max_age_clamped", &Value::Null);
        }
        Some(MaxAgeWarning::NearWindow) => {
            log.warn("outbox_max_age_near_dedupe_window", &Value::Null);
        }
        None => {}
    }
    let parameters: Map<String, Value> = response
        .iter()
        .flat_map(|response| &response.supported)
        .filter(|(feature, _)| negotiated.features.contains(feature))
        .map(|(feature, offer)| (feature.clone(), Value::Object(offer.params.clone())))
        .collect();
    log.debug(
        "feature_negotiation_response",
        &json!({"payload": response}),
    );
    let fields = json!({"features": negotiated.features, "required": needs.require});
    log.info("feature_negotiation_succeeded", &fields);
    Ok(BrokerTerms {
        features: negotiated.features.clone(),
        parameters,
        max_age: age,
        inline_bytes: negotiated.inline_bytes,
        broker_version: ack.broker_version,
        display_name: ack.member_display_name,
    })
}

/// Reports a failed negotiation everywhere it must be seen, and closes with its code.
async fn refuse(
    shared: &DaemonShared,
    socket: &mut BrokerSocket,
    failure: &NegotiationFailure,
    response: Option<&FeatureResponse>,
) -> LineEnd {
    let reason = failure.reason();
    let fields = json!({
        "code": failure.code.code(),
        "kind": reason.kind,
        "feature": reason.feature,
        "detail": reason.detail,
        "payload": response,
    });
    shared.log.warn("feature_negotiation_failed", &fields);
    let event = json!({
        "code": failure.code.code(),
        "kind": reason.kind,
        "feature": reason.feature,
        "detail": reason.detail,
    });
    shared
        .events
        .publish(MeshEventKind::FeatureNegotiationFailed, event);
    let frame = CloseFrame {
        code: failure.code.code().into(),
        reason: reason.to_text().into(),
    };
    close(socket, frame).await;
    let exit = failure.code.exit().unwrap_or(DaemonExit::General);
    let message = format!("{}: {} ({})", reason.kind, reason.feature, reason.detail);
    LineEnd::Ended(DaemonEnd::new(exit, message))
}

/// Sends a close frame and waits shortly for the broker's.
pub(super) async fn close(socket: &mut BrokerSocket, frame: CloseFrame) {
    let closing = async {
        if socket.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
        Ok::<(), tungstenite::Error>(())
    };
    // The broker may be gone.
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_says_before_the_negotiation_has_a_bound() {
        let mut early = Vec::new();
        for _ in 0..2 * EARLY_MAX {
            keep_early(&mut early, PushFrame::system("m", "b", "t", "event", None));
        }
        assert_eq!(early.len(), EARLY_MAX);
        let refusal = refusal_text(&ErrorFrame {
            code: "bad_signature".to_owned(),
            message: "\u{e4}".repeat(10_000),
            id: None,
        });
        assert!(refusal.contains("bad_signature"));
        assert_eq!(refusal.chars().count(), REFUSAL_CHARACTERS_MAX);
    }
}
