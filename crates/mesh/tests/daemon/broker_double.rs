//! A broker that does what a test tells it: a WebSocket server of the frames that daemons send and receive.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_mesh::features::{BrokerOffer, answer};
use consign_mesh::frame::{
    AckFrame, BrokerFrame, ClientFrame, ErrorFrame, FeatureResponse, HelloAck, MemberProfile,
    PeersList, PushFrame, SendFrame, TopicHistoryEntry, TopicHistoryResponse, TopicListResponse,
};
use consign_mesh::max_age::DedupeWindow;
use consign_mesh::role::ClonePolicy;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

type AckRule = Arc<dyn Fn(&SendFrame) -> Option<AckFrame> + Send + Sync>;

/// What the broker does; tests change it while it runs.
#[derive(Clone)]
pub(crate) struct Behaviour {
    pub(crate) window: DedupeWindow,
    /// Replaces the answer to the negotiation; `Null` sends none.
    pub(crate) negotiation: Option<Value>,
    /// The acknowledgement of a message; `None` sends none.
    pub(crate) ack: AckRule,
    pub(crate) topics: TopicListResponse,
    pub(crate) peers: PeersList,
    /// The posts of every topic, the latest first.
    pub(crate) history: Vec<TopicHistoryEntry>,
    /// The name of the member; without it the one in its hello.
    pub(crate) member_name: Option<String>,
    /// Requests for the list of peers are answered with this error.
    pub(crate) list_error: Option<&'static str>,
    /// Types of frames that get no answer.
    pub(crate) silent: Vec<&'static str>,
    /// A key that the broker does not know.
    pub(crate) unauthorized: Option<String>,
    /// Closes a connection right after its hello.
    pub(crate) close_hello: Option<(u16, String)>,
}

pub(crate) fn accepted(frame: &SendFrame) -> AckFrame {
    let id = frame.client_message_id.clone().unwrap_or_default();
    AckFrame {
        id: frame.id.clone(),
        message_id: format!("b-{id}"),
        queued: true,
        code: Some(201),
        broker_message_id: Some(format!("b-{id}")),
        client_message_id: Some(id.clone()),
        history_id: Some(format!("h-{id}")),
        duplicate: Some(false),
        ..AckFrame::default()
    }
}

pub(crate) fn refused(frame: &SendFrame, code: u16, error: &str) -> AckFrame {
    AckFrame {
        id: frame.id.clone(),
        code: Some(code),
        error: Some(error.to_owned()),
        client_message_id: frame.client_message_id.clone(),
        ..AckFrame::default()
    }
}

#[derive(Clone)]
enum Order {
    Text(String),
    Close(u16, String),
}

pub(crate) struct BrokerDouble {
    pub(crate) url: String,
    behaviour: watch::Sender<Behaviour>,
    received: Arc<Mutex<Vec<String>>>,
    closed: Arc<Mutex<Vec<(u16, String)>>>,
    orders: broadcast::Sender<Order>,
}

impl BrokerDouble {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/ws", listener.local_addr().unwrap());
        let behaviour = Behaviour {
            window: DedupeWindow::Days(365),
            negotiation: None,
            ack: Arc::new(|frame| Some(accepted(frame))),
            topics: TopicListResponse { topics: Vec::new() },
            peers: PeersList::default(),
            history: Vec::new(),
            member_name: None,
            list_error: None,
            silent: Vec::new(),
            unauthorized: None,
            close_hello: None,
        };
        let broker = Self {
            url,
            behaviour: watch::Sender::new(behaviour),
            received: Arc::default(),
            closed: Arc::default(),
            orders: broadcast::Sender::new(256),
        };
        let (behaviour, orders) = (broker.behaviour.clone(), broker.orders.clone());
        let (received, closed) = (Arc::clone(&broker.received), Arc::clone(&broker.closed));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = Connection {
                    behaviour: behaviour.subscribe(),
                    orders: orders.subscribe(),
                    received: Arc::clone(&received),
                    closed: Arc::clone(&closed),
                };
                tokio::spawn(connection.serve(stream));
            }
        });
        broker
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        self.behaviour.send_modify(change);
    }

    /// Everything that daemons have sent, in its order.
    pub(crate) fn received(&self) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect()
    }

    pub(crate) fn of_type(&self, kind: &str) -> Vec<Value> {
        let received = self.received().into_iter();
        received.filter(|frame| frame["type"] == kind).collect()
    }

    /// The texts of frames of a type, byte for byte.
    pub(crate) fn texts_of(&self, kind: &str) -> Vec<String> {
        let begin = format!(r#"{{"type":"{kind}""#);
        let received = self.received.lock().unwrap();
        let texts = received.iter().filter(|text| text.starts_with(&begin));
        texts.cloned().collect()
    }

    pub(crate) fn sent_ids(&self) -> Vec<String> {
        let sent = self.of_type("send").into_iter();
        sent.map(|frame| frame["client_message_id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Close frames of daemons.
    pub(crate) fn closes(&self) -> Vec<(u16, String)> {
        self.closed.lock().unwrap().clone()
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.received());
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn push(&self, push: PushFrame) {
        self.raw(BrokerFrame::from(push).to_text(None));
    }

    pub(crate) fn raw(&self, text: String) {
        let _ = self.orders.send(Order::Text(text));
    }

    pub(crate) fn close(&self, code: u16, reason: &str) {
        let _ = self.orders.send(Order::Close(code, reason.to_owned()));
    }
}

struct Connection {
    behaviour: watch::Receiver<Behaviour>,
    orders: broadcast::Receiver<Order>,
    received: Arc<Mutex<Vec<String>>>,
    closed: Arc<Mutex<Vec<(u16, String)>>>,
}

impl Connection {
    async fn serve(mut self, stream: TcpStream) {
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
            return;
        };
        loop {
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => {
                        self.received.lock().unwrap().push(text.to_string());
                        self.answer(&mut socket, &text).await;
                    }
                    Some(Ok(Message::Close(frame))) => {
                        let frame = frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
                        self.closed.lock().unwrap().extend(frame);
                    }
                    Some(Ok(_)) => {}
                    _ => return,
                },
                order = self.orders.recv() => match order {
                    Ok(Order::Text(text)) => say(&mut socket, text).await,
                    Ok(Order::Close(code, reason)) => close(&mut socket, code, &reason).await,
                    Err(_) => return,
                },
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most frames have no answer")]
    async fn answer(&self, socket: &mut WebSocketStream<TcpStream>, text: &str) {
        let behaviour = self.behaviour.borrow().clone();
        let is_silent = |kind: &&str| text.starts_with(&format!(r#"{{"type":"{kind}""#));
        if behaviour.silent.iter().any(is_silent) {
            return;
        }
        let framed = ClientFrame::parse(text).unwrap();
        let answer: BrokerFrame = match framed.frame {
            ClientFrame::Hello(hello) => {
                if behaviour.unauthorized.as_ref() == Some(&hello.pubkey) {
                    let error = ErrorFrame {
                        code: "unauthorized".to_owned(),
                        message: "unknown key".to_owned(),
                        id: None,
                    };
                    say(socket, BrokerFrame::from(error).to_text(None)).await;
                    return close(socket, 1008, "unauthorized").await;
                }
                if let Some((code, reason)) = &behaviour.close_hello {
                    return close(socket, *code, reason).await;
                }
                HelloAck {
                    presence_id: "p".to_owned(),
                    member_display_name: behaviour
                        .member_name
                        .or(hello.display_name)
                        .unwrap_or_default(),
                    member_profile: MemberProfile::default(),
                    mesh_policy: None,
                    restored: None,
                    last_summary: None,
                    last_seen_at: None,
                    restored_groups: None,
                    restored_stats: None,
                    services: None,
                    broker_version: Some("9.8.7".to_owned()),
                }
                .into()
            }
            ClientFrame::FeatureRequest(request) => match behaviour.negotiation {
                Some(Value::Null) => return,
                Some(value) => {
                    let response: FeatureResponse = serde_json::from_value(value).unwrap();
                    response.into()
                }
                None => {
                    let offer = BrokerOffer {
                        window: behaviour.window,
                        clone_policy: ClonePolicy::PreferNewest,
                        compares_fingerprints: true,
                    };
                    answer(&offer, &request).into()
                }
            },
            ClientFrame::Send(frame) => match (behaviour.ack)(&frame) {
                Some(ack) => ack.into(),
                None => return,
            },
            ClientFrame::TopicList(_) => behaviour.topics.into(),
            ClientFrame::ListPeers(_) => match behaviour.list_error {
                Some(code) => ErrorFrame {
                    code: code.to_owned(),
                    message: code.to_owned(),
                    id: framed.req_id.clone(),
                }
                .into(),
                None => behaviour.peers.into(),
            },
            ClientFrame::TopicHistory(asked) => {
                let posts = behaviour.history.into_iter();
                let before = asked.before_id.unwrap_or_else(|| "~".to_owned());
                let older = posts.filter(|post| post.id < before);
                let limit = asked.limit.unwrap_or(50) as usize;
                TopicHistoryResponse {
                    topic: asked.topic.to_string(),
                    messages: older.take(limit).collect(),
                }
                .into()
            }
            _ => return,
        };
        say(socket, answer.to_text(framed.req_id.as_deref())).await;
    }
}

async fn say(socket: &mut WebSocketStream<TcpStream>, text: String) {
    // The daemon may be gone.
    let _ = socket.send(Message::text(text)).await;
}

async fn close(socket: &mut WebSocketStream<TcpStream>, code: u16, reason: &str) {
    let frame = CloseFrame {
        code: code.into(),
        reason: reason.to_owned().into(),
    };
    let _ = socket.send(Message::Close(Some(frame))).await;
}
