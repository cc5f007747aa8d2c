//! A client of the broker that speaks the frames of the protocol as JSON.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_mesh::destination::DestinationKind;
use consign_mesh::fingerprint::{BodyHash, FingerprintInput};
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::meta::CanonicalMeta;
use consign_mesh::priority::MeshPriority;
use consign_mesh::signed_text::MeshSignedText;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::world::Member;

/// No test waits longer for a frame.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Frames that arrived before the one that was waited for.
    earlier: VecDeque<Value>,
    requests: u32,
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// A signed hello of a member, or of one of its sessions.
pub(crate) fn hello(member: &Member, session: Option<&MeshPrivateKey>) -> Value {
    let (timestamp, pubkey) = (now_ms(), member.pubkey());
    let text = MeshSignedText::hello(&member.mesh_id, &member.id, &pubkey, timestamp);
    let run = session.map_or("daemon".to_owned(), |key| key.public_key().to_string());
    let mut hello = json!({
        "type": "hello",
        "meshId": member.mesh_id,
        "memberId": member.id,
        "pubkey": pubkey,
        "displayName": member.name,
        "sessionId": format!("{run}-{}", member.id),
        "pid": 1,
        "timestamp": timestamp,
        "signature": text.sign(&member.key),
    });
    if let Some(session) = session {
        hello["sessionPubkey"] = json!(session.public_key());
    }
    hello
}

/// A direct message or a post in clear, without an id.
pub(crate) fn message(target: &str, body: &str) -> Value {
    json!({
        "type": "send",
        "id": "r-1",
        "targetSpec": target,
        "priority": "next",
        "nonce": "",
        "ciphertext": BASE64_STANDARD.encode(body),
    })
}

/// The same with an id, and all parts of the fingerprint.
pub(crate) fn keyed(
    id: &str,
    target: &str,
    kind: DestinationKind,
    reference: &str,
    body: &str,
) -> Value {
    let meta = CanonicalMeta::parse(None).unwrap();
    let body_hash = BodyHash::of(body.as_bytes());
    let input = FingerprintInput {
        envelope_version: 1,
        destination_kind: kind,
        destination_ref: reference,
        reply_to_id: None,
        priority: MeshPriority::Next,
        meta: &meta,
        body_hash,
    };
    let mut frame = message(target, body);
    frame["client_message_id"] = json!(id);
    frame["envelope_version"] = json!(1);
    frame["destination_kind"] = json!(kind.as_str());
    frame["destination_ref"] = json!(reference);
    frame["body_sha256"] = json!(body_hash.to_string());
    frame["request_fingerprint"] = json!(input.fingerprint().unwrap().to_string());
    frame
}

/// The text of a push in clear.
pub(crate) fn body(push: &Value) -> String {
    let bytes = BASE64_STANDARD.decode(push["ciphertext"].as_str().unwrap());
    String::from_utf8(bytes.unwrap()).unwrap()
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, path: &str) -> Self {
        Self::try_connect(address, path).await.unwrap()
    }

    pub(crate) async fn try_connect(
        address: SocketAddr,
        path: &str,
    ) -> Result<Self, tokio_tungstenite::tungstenite::Error> {
        let url = format!("ws://{address}{path}");
        let (stream, _) = tokio_tungstenite::connect_async(url).await?;
        Ok(Self {
            stream,
            earlier: VecDeque::new(),
            requests: 0,
        })
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.send_message(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        self.stream.send(message).await.unwrap();
    }

    /// The next frame from the broker, `None` when the socket is closed.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        match self.earlier.pop_front() {
            Some(frame) => Some(frame),
            None => self.receive().await.ok(),
        }
    }

    async fn receive(&mut self) -> Result<Value, (u16, String)> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.stream.next());
            match next.await.expect("a frame arrives in time") {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(Some(frame)))) => {
                    return Err((frame.code.into(), frame.reason.to_string()));
                }
                Some(Ok(Message::Close(None)) | Err(_)) | None => return Err((0, String::new())),
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next frame of a type. Frames of other types stay for later.
    pub(crate) async fn next_of(&mut self, kind: &str) -> Value {
        self.next_where(|frame| frame["type"] == kind).await
    }

    /// The next message of a member.
    pub(crate) async fn push(&mut self) -> Value {
        self.next_where(|frame| frame["type"] == "push" && frame["subtype"].is_null())
            .await
    }

    /// The next message of a member with this text. Others are read and forgotten.
    pub(crate) async fn push_of(&mut self, text: &str) -> Value {
        loop {
            let push = self.push().await;
            if body(&push) == text {
                return push;
            }
        }
    }

    /// The next report of the broker about this event.
    pub(crate) async fn event(&mut self, event: &str) -> Value {
        self.next_where(|frame| frame["event"] == event).await
    }

    pub(crate) async fn next_where(&mut self, wants: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.earlier.iter().position(&wants) {
            return self.earlier.remove(at).unwrap();
        }
        loop {
            let frame = self.receive().await;
            let frame = frame.unwrap_or_else(|closed| panic!("closed with {closed:?}"));
            if wants(&frame) {
                return frame;
            }
            self.earlier.push_back(frame);
        }
    }

    /// What arrived and was not asked for, of this type.
    pub(crate) fn unread(&self, kind: &str) -> Vec<&Value> {
        let frames = self.earlier.iter();
        frames.filter(|frame| frame["type"] == kind).collect()
    }

    /// The code and the reason of the closing frame.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match self.receive().await {
                Ok(frame) => self.earlier.push_back(frame),
                Err(closed) => return closed,
            }
        }
    }

    /// Sends a request and returns its answer, which repeats its id.
    pub(crate) async fn request(&mut self, mut frame: Value) -> Value {
        self.requests += 1;
        let id = format!("q-{}", self.requests);
        frame["_reqId"] = json!(id);
        self.send(&frame).await;
        self.next_where(|answer| answer["_reqId"] == id.as_str())
            .await
    }

    /// Returns when everything that was sent before has had its effect.
    pub(crate) async fn settle(&mut self) {
        self.request(json!({"type": "list_peers"})).await;
    }

    pub(crate) async fn say_hello(&mut self, hello: &Value) -> Value {
        self.send(hello).await;
        let ack = self.next().await.expect("the hello is answered");
        assert_eq!(ack["type"], "hello_ack", "{ack}");
        ack
    }

    pub(crate) async fn negotiate(&mut self) -> Value {
        let request = json!({
            "type": "feature_negotiation_request",
            "require": ["client_message_id_dedupe", "concurrent_connection_policy"],
            "optional": ["max_payload"],
        });
        self.request(request).await
    }

    /// Sends a message and returns its `ack`.
    pub(crate) async fn deliver(&mut self, frame: &Value) -> Value {
        self.send(frame).await;
        let id = frame["id"].clone();
        self.next_where(|ack| ack["type"] == "ack" && ack["id"] == id)
            .await
    }

    /// Waits until a message that this client sent is delivered.
    pub(crate) async fn is_delivered(&mut self, ack: &Value) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let status = json!({"type": "message_status", "messageId": ack["messageId"]});
        while self.request(status.clone()).await["delivered"] != true {
            assert!(
                tokio::time::Instant::now() < deadline,
                "it is not delivered"
            );
        }
    }

    /// Acknowledges a push.
    pub(crate) async fn acknowledge(&mut self, push: &Value) {
        let ack = json!({"type": "client_ack", "brokerMessageId": push["messageId"]});
        self.send(&ack).await;
    }

    /// The next push, acknowledged.
    pub(crate) async fn take(&mut self) -> Value {
        let push = self.push().await;
        self.acknowledge(&push).await;
        push
    }

    pub(crate) fn drop_line(self) {
        drop(self);
    }
}
