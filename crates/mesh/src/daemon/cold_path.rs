//! Sending without a daemon: a connection of its own, as a session of the member, for one request.
//!
//! Invariant: the session has a key of its own, so it never takes the place of the daemon of the same member. Nothing is
//! stored and nothing is repeated: what the broker did not acknowledge may or may not have arrived.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::random;
use super::transport::{self, BrokerSocket};
use crate::body::CarriedBody;
use crate::destination::{Destination, KnownPeer, Recipient, ResolveError};
use crate::fingerprint::{BodyHash, ENVELOPE_VERSION};
use crate::frame::{
    AckFrame, BrokerFrame, ClientFrame, HelloFrame, ListGrants, ListPeers, PeerEntry, RawJson,
    SendFrame, SetGrants, TopicCreate, TopicCreated, fits,
};
use crate::id::TopicName;
use crate::ipc::{IpcRefusal, IpcSend};
use crate::joined::JoinedMesh;
use crate::keys::{MeshKeyError, MeshPrivateKey, MeshPublicKey};
use crate::role::{PeerGrant, PeerGrants};
use crate::signed_text::MeshSignedText;
use crate::ulid::MeshUlid;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const CLEAR_BODY: u8 = 1;
const REQUEST: &str = "1";

/// A member, and the broker that it asks.
#[derive(Debug)]
pub struct ColdPath<'a> {
    pub mesh: &'a JoinedMesh,
    pub broker_url: &'a str,
    pub display_name: Option<String>,
}

/// Why nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub enum ColdPathError {
    #[error("the key in config.json: {0}")]
    Key(#[from] MeshKeyError),
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    #[error("the broker refused: {error}")]
    Refused { code: u16, error: String },
    #[error("{0}")]
    Destination(#[from] ResolveError),
    #[error("{}", .0.error)]
    Request(IpcRefusal),
}

struct ColdSession {
    socket: BrokerSocket,
    key: MeshPrivateKey,
}

impl ColdPath<'_> {
    /// Sends a message once. Returns the acknowledgement of the broker.
    pub async fn send(&self, request: &IpcSend) -> Result<AckFrame, ColdPathError> {
        let mut session = self.connect().await?;
        let peers = if request.to.needs_peers() {
            session.peers(&request.to).await?
        } else {
            Vec::new()
        };
        let destination = request.to.clone().resolve(&peers)?;
        let frame = session.frame(request, &destination)?;
        let text = ClientFrame::from(frame).to_text(None);
        if !fits(&text) {
            return Err(ColdPathError::Request(IpcRefusal::payload_too_large()));
        }
        session.write(text).await?;
        let ack = session
            .answer(|frame| {
                if let BrokerFrame::Ack(ack) = frame {
                    Some(*ack)
                } else {
                    None
                }
            })
            .await?;
        session.close().await;
        match &ack.error {
            None if ack.queued => Ok(ack),
            error => Err(ColdPathError::Refused {
                code: ack.code.unwrap_or(500),
                error: error.clone().unwrap_or_else(|| "unknown".to_owned()),
            }),
        }
    }

    /// Creates a topic, or finds the one that exists.
    pub async fn create_topic(&self, name: TopicName) -> Result<TopicCreated, ColdPathError> {
        let mut session = self.connect().await?;
        let create = ClientFrame::from(TopicCreate {
            name,
            description: None,
            visibility: None,
        });
        session.write(create.to_text(Some(REQUEST))).await?;
        let created = session
            .answer(|frame| {
                if let BrokerFrame::TopicCreated(created) = frame {
                    Some(*created)
                } else {
                    None
                }
            })
            .await?;
        session.close().await;
        Ok(created)
    }

    /// What this member lets others do, where it is not the default.
    pub async fn grants(&self) -> Result<PeerGrants, ColdPathError> {
        let session = self.connect().await?;
        session.ask_grants(ClientFrame::from(ListGrants {})).await
    }

    /// Replaces what this member lets another one do; without a list, that is the default. Returns all of its lists.
    pub async fn set_grants(
        &self,
        member: Recipient,
        grants: Option<Vec<PeerGrant>>,
    ) -> Result<PeerGrants, ColdPathError> {
        let mut session = self.connect().await?;
        let peers = if member.needs_peers() {
            session.peers(&member).await?
        } else {
            Vec::new()
        };
        let Destination::Member(member) = member.resolve(&peers)? else {
            return Err(ResolveError::NotFound.into());
        };
        let set = ClientFrame::from(SetGrants { member, grants });
        session.ask_grants(set).await
    }

    async fn connect(&self) -> Result<ColdSession, ColdPathError> {
        let member = self.mesh.key()?;
        let key = MeshPrivateKey::from_seed(&random::bytes());
        let connecting = timeout(CONNECT_TIMEOUT, transport::connect(self.broker_url)).await;
        let socket = match connecting {
            Ok(connected) => connected.map_err(unreachable)?,
            Err(_) => return Err(ColdPathError::Unreachable("no answer".to_owned())),
        };
        let mut session = ColdSession { socket, key };
        let hello = self.hello(&member, session.key.public_key());
        session
            .write(ClientFrame::from(hello).to_text(None))
            .await?;
        session
            .answer(|frame| matches!(frame, BrokerFrame::HelloAck(_)).then_some(()))
            .await?;
        Ok(session)
    }

    fn hello(&self, member: &MeshPrivateKey, session: MeshPublicKey) -> HelloFrame {
        let timestamp = Timestamp::now().as_millisecond().unsigned_abs();
        let pubkey = member.public_key().to_string();
        let (mesh_id, member_id) = (&self.mesh.mesh_id, &self.mesh.member_id);
        let text = MeshSignedText::hello(mesh_id, member_id, &pubkey, timestamp);
        HelloFrame {
            mesh_id: mesh_id.clone(),
            member_id: member_id.clone(),
            session_pubkey: Some(session.to_string()),
            display_name: self.display_name.clone(),
            session_id: Some(random::uuid()),
            pid: Some(i64::from(std::process::id())),
            peer_type: Some("connector".to_owned()),
            channel: Some("claudemesh-cli".to_owned()),
            timestamp,
            signature: text.sign(member),
            pubkey,
            ..HelloFrame::default()
        }
    }
}

impl ColdSession {
    fn frame(
        &self,
        request: &IpcSend,
        destination: &Destination,
    ) -> Result<SendFrame, ColdPathError> {
        let fingerprint = request
            .fingerprint(destination)
            .map_err(ColdPathError::Request)?;
        let now_ms = Timestamp::now().as_millisecond().unsigned_abs();
        let id = request
            .id(|| MeshUlid::new(now_ms, u128::from_le_bytes(random::bytes())))
            .map_err(ColdPathError::Request)?;
        let body = request.message.as_bytes();
        let (carried, version) = match destination {
            Destination::Member(key) => {
                let sealed = CarriedBody::direct(body, &self.key, *key, &random::bytes());
                (sealed.ok_or(ResolveError::NotFound)?, None)
            }
            Destination::Topic(_) => (CarriedBody::clear(body), Some(CLEAR_BODY)),
            Destination::Group(_) | Destination::Everyone | Destination::Queue(_) => {
                (CarriedBody::clear(body), None)
            }
        };
        Ok(SendFrame {
            id: Some(id.to_string()),
            target_spec: destination.target().to_string(),
            priority: Some(request.priority.as_str().to_owned()),
            nonce: carried.nonce,
            ciphertext: carried.ciphertext,
            mentions: (!request.mentions.is_empty()).then(|| request.mentions.clone()),
            reply_to_id: request.reply_to_id.clone(),
            body_version: version,
            client_message_id: Some(id.to_string()),
            request_fingerprint: Some(fingerprint.to_string()),
            envelope_version: Some(ENVELOPE_VERSION),
            destination_kind: Some(destination.kind().as_str().to_owned()),
            destination_ref: Some(destination.reference()),
            hashed_reply_to_id: request.reply_to_id.clone(),
            meta: request.meta.to_member().and_then(RawJson::parse),
            body_sha256: Some(BodyHash::of(body).to_string()),
        })
    }

    /// The peers, and the members that the recipient may be, also those that are offline.
    async fn peers(&mut self, to: &Recipient) -> Result<Vec<KnownPeer>, ColdPathError> {
        let ask = ListPeers {
            members: true,
            member: Some(to.to_string()),
        };
        let ask = ClientFrame::from(ask).to_text(Some(REQUEST));
        self.write(ask).await?;
        let list = self
            .answer(|frame| {
                if let BrokerFrame::PeersList(list) = frame {
                    Some(*list)
                } else {
                    None
                }
            })
            .await?;
        let members = list.members.unwrap_or_default().into_iter();
        let members = members.filter_map(|entry| {
            Some(KnownPeer {
                member: MeshPublicKey::parse(&entry.pubkey).ok()?,
                name: Some(entry.display_name),
                sessions: Vec::new(),
            })
        });
        Ok(list.peers.iter().filter_map(known).chain(members).collect())
    }

    /// The request is the last one of the session.
    async fn ask_grants(mut self, request: ClientFrame) -> Result<PeerGrants, ColdPathError> {
        self.write(request.to_text(Some(REQUEST))).await?;
        let list = self
            .answer(|frame| {
                if let BrokerFrame::GrantsList(list) = frame {
                    Some(list.grants)
                } else {
                    None
                }
            })
            .await?;
        self.close().await;
        Ok(list)
    }

    async fn write(&mut self, text: String) -> Result<(), ColdPathError> {
        let sent = self.socket.send(Message::text(text)).await;
        sent.map_err(unreachable)
    }

    /// Waits for one kind of frame. An `error` counts only if the answer does not follow: the broker sends one before a failing
    /// acknowledgement.
    async fn answer<T>(
        &mut self,
        wanted: impl Fn(BrokerFrame) -> Option<T>,
    ) -> Result<T, ColdPathError> {
        let mut refusal = None;
        let found = timeout(ANSWER_TIMEOUT, async {
            while let Some(Ok(message)) = self.socket.next().await {
                let Message::Text(text) = message else {
                    continue;
                };
                let Ok(framed) = BrokerFrame::parse(&text) else {
                    continue;
                };
                if let BrokerFrame::Error(error) = &framed.frame {
                    refusal = Some(error.code.clone());
                    if error.id.as_deref() == Some(REQUEST) {
                        return None;
                    }
                }
                if let Some(answer) = wanted(framed.frame) {
                    return Some(answer);
                }
            }
            None
        });
        match (found.await, refusal) {
            (Ok(Some(answer)), _) => Ok(answer),
            (_, Some(error)) => Err(ColdPathError::Refused { code: 400, error }),
            (Ok(None), None) => Err(unreachable("the connection ended")),
            (Err(_), None) => Err(unreachable("no answer")),
        }
    }

    async fn close(mut self) {
        // The answer is there already.
        let _ = timeout(CONNECT_TIMEOUT, self.socket.close(None)).await;
    }
}

fn known(entry: &PeerEntry) -> Option<KnownPeer> {
    let key = MeshPublicKey::parse(&entry.pubkey).ok()?;
    let member = entry.member_pubkey.as_deref();
    let member = member.and_then(|key| MeshPublicKey::parse(key).ok());
    Some(KnownPeer {
        member: member.unwrap_or(key),
        name: Some(entry.display_name.clone()),
        sessions: Vec::new(),
    })
}

fn unreachable(error: impl std::fmt::Display) -> ColdPathError {
    ColdPathError::Unreachable(error.to_string())
}
