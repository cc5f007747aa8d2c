//! Two directories that know each other, and peers that answer whatever a test wants.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use consign_beam::directory::records::{BeamPeer, named};
use consign_beam::lifecycle;
use consign_beam::outbound::{AddressGuard, AllowedTargets};
use consign_beam::settings::BeamSettings;
use consign_engine::Error;
use consign_kernel::intent::Intent;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::record::Kind;
use consign_web::secret_text::SecretText;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{Answer, Identity, World};

pub(crate) const SECRET: &str = "a-federation-secret-of-the-tests";
pub(crate) const SECRET_HEADER: (&str, &str) = ("x-beam-federation-secret", SECRET);

/// Ports of other servers are not known before this one starts, so all are allowed.
fn every_local_port() -> AllowedTargets {
    static ALL: OnceLock<AllowedTargets> = OnceLock::new();
    let all = || {
        let ports = (1..=u16::MAX).map(|port| format!("127.0.0.1:{port}"));
        AllowedTargets::parse(&ports.collect::<Vec<_>>().join(",")).unwrap()
    };
    ALL.get_or_init(all).clone()
}

/// The settings of a directory in a federation.
pub(crate) fn federated(settings: &mut BeamSettings) {
    settings.guard = AddressGuard::new(every_local_port());
    settings.federation_secret = Some(SecretText::new(SECRET.to_owned()));
}

impl World {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stores a peer directly.
    pub(crate) async fn add_peer(&self, url: &str, trust_level: f64) {
        let peer = BeamPeer {
            id: 1,
            directory_url: url.to_owned(),
            trust_level,
            status: "active".to_owned(),
            ..BeamPeer::default()
        };
        let put = consign_engine::new_put(BeamPeer::key(url), &peer);
        self.engine.put(put).await.unwrap();
    }

    /// Changes the status of a stored peer directly.
    pub(crate) async fn set_peer_status(&self, url: &str, status: &str) {
        self.engine
            .update(
                BeamPeer::key(url),
                |peer: &mut BeamPeer| -> Result<(), Error> {
                    status.clone_into(&mut peer.status);
                    Ok(())
                },
            )
            .await
            .unwrap();
    }

    /// Changes directly how many agents a stored peer has.
    pub(crate) async fn set_peer_agents(&self, url: &str, agents: u64) {
        let count = |peer: &mut BeamPeer| -> Result<(), Error> {
            peer.agents = agents;
            Ok(())
        };
        self.engine.update(BeamPeer::key(url), count).await.unwrap();
    }

    /// Changes the directory of a known agent directly.
    pub(crate) async fn repoint(&self, beam_id: &str, url: &str) {
        let key = named(Kind::BeamRemoteAgent, beam_id);
        self.engine
            .update(key, |known: &mut Value| -> Result<(), Error> {
                known["directory_url"] = json!(url);
                Ok(())
            })
            .await
            .unwrap();
    }

    /// A request with the shared secret.
    pub(crate) async fn as_directory(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let body = body.map(Value::to_string);
        self.request(method, path, &[SECRET_HEADER], body).await
    }

    /// An intent that the directory `source` relays.
    pub(crate) async fn relayed(&self, source: &str, hops: &str, frame: &Value) -> Answer {
        let headers = [
            SECRET_HEADER,
            ("x-beam-source-directory", source),
            ("x-beam-hop-count", hops),
        ];
        let body = Some(frame.to_string());
        self.request("POST", "/federation/relay", &headers, body)
            .await
    }

    /// The stored intent with this nonce.
    pub(crate) async fn intent(&self, nonce: &str) -> Option<Intent> {
        let key = OnceKey {
            scope: Scope::BeamNonce,
            owner: String::new(),
            key: nonce.to_owned(),
        };
        let used = self.engine.first_use(key).await.unwrap()?;
        self.engine.observe(used.intent.unwrap()).await.unwrap()
    }

    /// The states of an intent with their details. Measured times are replaced by zero.
    pub(crate) async fn timed_trace(&self, nonce: &str) -> Vec<(&'static str, Value)> {
        let intent = self.intent(nonce).await.unwrap();
        let facts = self.engine.timeline(intent.seq).await.unwrap();
        let each = facts.into_iter().map(|fact| {
            let mut details: Value = serde_json::from_str(&fact.detail.unwrap()).unwrap();
            if details["latencyMs"].is_number() {
                details["latencyMs"] = json!(0);
            }
            (lifecycle::state_word(fact.to), details)
        });
        each.collect()
    }
}

/// Two directories that know each other; Alice is in the first one, and Bob, who accepts her messages, in the second.
pub(crate) struct Pair {
    pub(crate) near: World,
    pub(crate) far: World,
    pub(crate) alice: Identity,
    pub(crate) bob: Identity,
}

impl Pair {
    pub(crate) async fn new() -> Self {
        let pair = Self::strangers().await;
        pair.near.add_peer(&pair.far.url(), 0.5).await;
        pair.far.add_peer(&pair.near.url(), 0.5).await;
        pair
    }

    /// Two directories that do not know each other yet.
    pub(crate) async fn strangers() -> Self {
        let near = World::with(federated).await;
        let far = World::with(federated).await;
        let (alice, bob) = (Identity::alice(), Identity::bob());
        near.add_agent(&alice).await;
        far.add_agent(&bob).await;
        far.allow(&bob.beam_id, "conversation.message", &alice.beam_id)
            .await;
        Self {
            near,
            far,
            alice,
            bob,
        }
    }
}

/// What a stub does with a request.
pub(crate) enum Reply {
    Json(Value),
    /// The same after this time.
    Late(Duration, Value),
    /// Status, further header lines, body.
    Status(u16, String, String),
    /// These bytes, and then the connection is closed.
    Raw(Vec<u8>),
    /// These bytes again and again, slowly.
    Drip(Vec<u8>),
}

/// A request as a stub saw it: its first line with the headers, and its body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
}

type Handler = dyn Fn(&Asked) -> Reply + Send + Sync;

/// A directory that answers what a test tells it to.
pub(crate) struct Stub {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    pub(crate) async fn start(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Handler> = Arc::new(handler);
        let log = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                tokio::spawn(serve(stream, handler, log));
            }
        });
        Self { url, asked, task }
    }

    /// A peer that describes this agent when it is asked, and relays with `reply`.
    pub(crate) async fn with_agent(
        agent: Value,
        reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |asked| {
            if asked.head.starts_with("GET /federation/agents/") {
                Reply::Json(json!({"agent": agent, "scope": "local"}))
            } else {
                reply(asked)
            }
        })
        .await
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, handler: Arc<Handler>, log: Arc<Mutex<Vec<Asked>>>) {
    let mut bytes = Vec::new();
    let asked = loop {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(length @ 1..) => bytes.extend_from_slice(&chunk[..length]),
            _ => return,
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length = lengths
            .next()
            .map_or(0, |(_, length)| length.parse().unwrap());
        if body.len() >= length {
            let (head, body) = (head.to_owned(), body.to_owned());
            break Asked { head, body };
        }
    };
    let reply = handler(&asked);
    log.lock().unwrap().push(asked);
    let whole = |status: u16, further: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status} X\r\n{further}content-length: {length}\r\n\r\n{body}")
    };
    let bytes = match reply {
        Reply::Json(body) => whole(200, "", &body.to_string()).into_bytes(),
        Reply::Late(after, body) => {
            tokio::time::sleep(after).await;
            whole(200, "", &body.to_string()).into_bytes()
        }
        Reply::Status(status, further, body) => whole(status, &further, &body).into_bytes(),
        Reply::Raw(bytes) => bytes,
        Reply::Drip(bytes) => loop {
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        },
    };
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}

/// An agent as directories describe it.
pub(crate) fn described(identity: &Identity) -> Value {
    json!({
        "beam_id": identity.beam_id,
        "display_name": "An agent",
        "capabilities": ["test"],
        "public_key": identity.public_key(),
        "trust_score": 0.8,
        "verified": true,
    })
}
