//! A server with a directory and a bus on a listener of its own, and requests to it.
#![allow(
    dead_code,
    reason = "each module uses some of the helpers, and all are compiled together"
)]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use consign_beam::api_key;
use consign_beam::directory::records::{
    AclList, AclRule, Agent, AgentKey, BeamPresence, Delegation, DelegationList, next_number,
};
use consign_beam::http::BeamMount;
use consign_beam::service::{Beam, BeamNode};
use consign_beam::settings::BeamSettings;
use consign_beam::timestamp;
use consign_engine::{
    Clock, Engine, EngineClock, Error, NodeIdentity, Options as EngineOptions, SealKey,
    SharedStore, Timekeeper,
};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::{Backend, Ledger, Obstacles};
use consign_testkit::plants;
use consign_web::credentials::SecretDigest;
use consign_web::layers;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::secret_text::SecretText;
use consign_web::server::{Options as ServerOptions, Server};
use consign_web::shell;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

pub(crate) use crate::identity::Identity;
pub(crate) use crate::test_socket::TestSocket;

/// The main API key and the admin token.
pub(crate) const MAIN: &str = "ck_main";
pub(crate) const ADMIN: &str = "an-admin-token-of-the-tests";
/// The node of a second server on the same ledger.
const SECOND_NODE: i64 = 2;

pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) beam: Beam,
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<EngineClock>,
    /// What the ledger refuses to this server.
    pub(crate) obstacles: Arc<Obstacles>,
    ledger: Arc<Ledger>,
    drain: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.drain.send_replace(true);
        self.server.abort();
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text))
    }

    /// Status and code of an error, whose body has nothing else.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        let members = body.as_object().unwrap();
        assert_eq!(members.len(), 2, "{body}");
        assert!(body["error"].is_string(), "{body}");
        (self.status, body["errorCode"].as_str().unwrap().to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(given, _)| given.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// With changed settings.
    pub(crate) async fn with(change: impl FnOnce(&mut BeamSettings)) -> Self {
        Self::with_policy(ListenerPolicy::default(), change).await
    }

    /// With changed settings, on a listener with this policy.
    pub(crate) async fn with_policy(
        policy: ListenerPolicy,
        change: impl FnOnce(&mut BeamSettings),
    ) -> Self {
        let clock = Arc::new(EngineClock::start(None));
        let ledger = Arc::new(Ledger::new(crate::backend(), clock.clone()));
        let store = Arc::clone(&ledger.store);
        Self::start(ledger, store, clock, policy, (1, "start-1"), change).await
    }

    /// Another start of the same node on the same ledger, after this one was dropped or stopped.
    pub(crate) async fn restarted(
        ledger: Arc<Ledger>,
        start: &str,
        change: impl FnOnce(&mut BeamSettings),
    ) -> Self {
        let clock = Arc::new(EngineClock::start(None));
        let store = Arc::clone(&ledger.store);
        let policy = ListenerPolicy::default();
        Self::start(ledger, store, clock, policy, (1, start), change).await
    }

    /// A second server on the same ledger; `None` if the ledger belongs to one process.
    pub(crate) async fn second(&self, change: impl FnOnce(&mut BeamSettings)) -> Option<Self> {
        Self::try_beside(self.ledger(), change).await
    }

    /// The same, for a server in another runtime.
    pub(crate) async fn beside(
        ledger: Arc<Ledger>,
        change: impl FnOnce(&mut BeamSettings),
    ) -> Self {
        let second = Self::try_beside(ledger, change).await;
        second.expect("several nodes share this ledger")
    }

    async fn try_beside(
        ledger: Arc<Ledger>,
        change: impl FnOnce(&mut BeamSettings),
    ) -> Option<Self> {
        let clock = Arc::new(EngineClock::start(None));
        let store = ledger.other_node(clock.clone())?;
        let (policy, node) = (ListenerPolicy::default(), (SECOND_NODE, "start-1"));
        Some(Self::start(ledger, store, clock, policy, node, change).await)
    }

    pub(crate) fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    async fn start(
        ledger: Arc<Ledger>,
        store: SharedStore,
        clock: Arc<EngineClock>,
        policy: ListenerPolicy,
        (node, start): (i64, &str),
        change: impl FnOnce(&mut BeamSettings),
    ) -> Self {
        plants::from_environment();
        let now: Arc<dyn Clock> = clock.clone();
        let obstacles = Arc::new(Obstacles::default());
        let store = obstacles.before(&store);
        let engine = Engine::new(EngineOptions {
            store,
            clock: now,
            wall: clock.clone(),
            entropy: [u8::try_from(node).unwrap(); 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[7; 32]),
            main_key: MAIN.to_owned(),
            cleanup_interval: Duration::from_hours(1),
        });
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(ServerOptions::new(listen)).unwrap();
        let address = server.local_addr();
        let secret = SecretText::new("a-session-secret-of-the-tests".to_owned());
        let mut settings = BeamSettings::new(format!("http://{address}"), secret);
        change(&mut settings);
        let beam_node = BeamNode {
            id: node,
            name: format!("node-{node}"),
            start: start.to_owned(),
            shared: crate::backend() == Backend::Postgres,
        };
        let mut heartbeat = consign_engine::Heartbeat::new(
            engine.clone(),
            NodeIdentity {
                id: node,
                name: format!("node-{node}"),
                address: format!("http://{address}"),
                version: "test".to_owned(),
                alone: false,
            },
        );
        heartbeat.beat().await.unwrap();
        let beating = heartbeat.run(std::future::pending());
        let beam = Beam::new(engine.clone(), settings, beam_node).unwrap();
        beam.recover().await.unwrap();
        let (drain, draining) = watch::channel(false);
        let intent = consign_intent::Options {
            operators: OperatorCredentials {
                admin_secret: Some(SecretDigest::new(ADMIN.to_owned())),
                ..OperatorCredentials::default()
            },
            trust_proxy: policy.trust_proxy,
            enforce_https: policy.enforce_https,
            require_signatures: false,
            maintenance: policy.maintenance,
            draining: draining.clone(),
            release_reserve: None,
            queues: vec![Arc::new(beam.clone())],
        };
        let mount = Arc::new(BeamMount::new(beam.clone(), policy));
        let shell = consign_intent::shell(engine.clone(), intent, vec![mount]);
        let service = layers::around(
            shell.router(),
            layers::Options {
                trust_proxy: policy.trust_proxy,
                request_id_seed: 7,
                on_panic: shell::on_panic,
                on_too_many_failures: Some(shell.on_too_many_failures()),
            },
        );
        let mut ends = draining.clone();
        let server = tokio::spawn(async move {
            let ended = async move { ends.wait_for(|ends| *ends).await.map(|_| ()) };
            let _ = server.run(service, ended).await;
        });
        let mut ends = draining.clone();
        let until = async move {
            let _ = ends.wait_for(|ends| *ends).await;
        };
        let follow = clock.clone();
        let timekeeper = Timekeeper::new(engine.clone()).run(until, move || follow.follow());
        let tasks = vec![
            tokio::spawn(async move {
                timekeeper.await;
            }),
            tokio::spawn(async move {
                beating.await;
            }),
            tokio::spawn(beam.clone().watch_presence()),
            tokio::spawn(beam.clone().watch_nodes_forever()),
            tokio::spawn(beam.clone().sweep_unwaited_forever()),
            tokio::spawn(beam.clone().run_bus(draining)),
        ];
        Self {
            address,
            beam,
            engine,
            clock,
            obstacles,
            ledger,
            drain,
            server,
            tasks,
        }
    }

    /// Begins a shutdown.
    pub(crate) fn drain(&self) {
        self.drain.send_replace(true);
    }

    /// Closes the listener and all sockets, as a shutdown does.
    pub(crate) async fn stop(mut self) -> Arc<Ledger> {
        self.drain.send_replace(true);
        let server = &mut self.server;
        let _ = tokio::time::timeout(Duration::from_secs(9), server).await;
        Arc::clone(&self.ledger)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[], Some(body.to_string()))
            .await
    }

    /// A request that came through a proxy, so it has no privilege of this machine.
    pub(crate) async fn request_elsewhere(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let mut headers = headers.to_vec();
        headers.push(("x-forwarded-for", "203.0.113.7"));
        self.request(method, path, &headers, body).await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
            self.address
        );
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let body = body.unwrap_or_default();
        if !body.is_empty() {
            let length = body.len();
            let _ = write!(
                head,
                "content-type: application/json\r\ncontent-length: {length}\r\n"
            );
        }
        self.exchange(stream, head, body).await
    }

    /// A request whose headers and body are given as they are sent.
    pub(crate) async fn raw(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}",
            self.address
        );
        self.exchange(stream, head, body.to_owned()).await
    }

    async fn exchange(&self, mut stream: TcpStream, mut head: String, body: String) -> Answer {
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(body.as_bytes()).await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        let text = String::from_utf8(bytes).unwrap();
        let (head, text) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head: head.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Stores an agent directly, and returns its API key.
    pub(crate) async fn add_agent(&self, identity: &Identity) -> String {
        let key = api_key::issue(&identity.beam_id, &[9; 24]);
        let key = key.reveal().to_owned();
        let now = self.clock.now().0 / 1_000;
        let agent = Agent {
            beam_id: identity.beam_id.clone(),
            display_name: identity.beam_id.clone(),
            capabilities: vec!["test".to_owned()],
            verification_tier: "basic".to_owned(),
            visibility: "unlisted".to_owned(),
            created_at: now,
            last_seen: now,
            api_key_hash: Some(api_key::digest(&key)),
            keys: vec![AgentKey {
                id: next_number(&self.engine, "keys").await.unwrap(),
                public_key: identity.public_key(),
                created_at: now,
                revoked_at: None,
            }],
            ..Agent::default()
        };
        let record = Agent::key(&identity.beam_id);
        let put = consign_engine::new_put(record, &agent);
        self.engine.put(put).await.unwrap();
        key
    }

    /// Changes a stored agent directly.
    pub(crate) async fn change_agent(&self, beam_id: &str, change: impl Fn(&mut Agent)) {
        let record = Agent::key(beam_id);
        self.engine
            .update(record, |agent: &mut Agent| -> Result<(), Error> {
                change(agent);
                Ok(())
            })
            .await
            .unwrap();
    }

    /// Stores an access rule directly.
    pub(crate) async fn allow(&self, target: &str, intent: &str, from: &str) {
        let id = next_number(&self.engine, "acl").await.unwrap();
        let rule = AclRule {
            id,
            intent_type: intent.to_owned(),
            allowed_from: from.to_owned(),
            created_at: 0,
        };
        let number = consign_engine::new_put(AclList::number_key(id), &target);
        self.engine.put(number).await.unwrap();
        self.engine
            .update(
                AclList::key(target),
                |list: &mut AclList| -> Result<(), Error> {
                    list.rules.push(rule.clone());
                    Ok(())
                },
            )
            .await
            .unwrap();
    }

    /// Stores a delegation directly.
    pub(crate) async fn delegate(&self, grantor: &str, grantee: &str, scope: &str) {
        let granted = Delegation {
            id: 1,
            grantee: grantee.to_owned(),
            scope: scope.to_owned(),
            expires_at: i64::MAX,
            created_at: 0,
            signature: String::new(),
            revoked_at: None,
        };
        let list = DelegationList {
            granted: vec![granted],
        };
        let put = consign_engine::new_put(DelegationList::key(grantor), &list);
        self.engine.put(put).await.unwrap();
    }

    /// The states and details of an intent's facts.
    pub(crate) async fn trace(&self, nonce: &str) -> Vec<(&'static str, Value)> {
        let key = OnceKey {
            scope: Scope::BeamNonce,
            owner: String::new(),
            key: nonce.to_owned(),
        };
        let used = self.engine.first_use(key).await.unwrap().unwrap();
        let row = self
            .engine
            .observe(used.intent.unwrap())
            .await
            .unwrap()
            .unwrap();
        let facts = self.engine.timeline(row.seq).await.unwrap();
        let stage = |fact: consign_kernel::fact::Fact| {
            let details = fact.detail.unwrap_or_default();
            let details = serde_json::from_str(&details).unwrap_or(Value::Null);
            (consign_beam::lifecycle::state_word(fact.to), details)
        };
        facts.into_iter().map(stage).collect()
    }

    /// Waits until an intent has this status, and returns its entry.
    pub(crate) async fn until_status(&self, nonce: &str, status: &str) -> Value {
        for _ in 0..500 {
            let recent = self.get("/intents/recent").await.json();
            let intents = recent["intents"].as_array().unwrap();
            if let Some(entry) = intents.iter().find(|entry| entry["nonce"] == nonce)
                && entry["status"] == status
            {
                return entry.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{nonce} never became {status}");
    }

    /// Records that an agent is connected to a node that has a heartbeat and serves nobody.
    pub(crate) async fn pretend_connected(&self, beam_id: &str) {
        const NODE: i64 = 99;
        let mut heartbeat = consign_engine::Heartbeat::new(
            self.engine.clone(),
            NodeIdentity {
                id: NODE,
                name: "node-99".to_owned(),
                address: "http://127.0.0.1:1".to_owned(),
                version: "test".to_owned(),
                alone: false,
            },
        );
        heartbeat.beat().await.unwrap();
        let presence = BeamPresence {
            node: NODE,
            connection: 1,
        };
        let put = consign_engine::new_put(BeamPresence::key(beam_id), &presence);
        self.engine.put(put).await.unwrap();
    }

    /// Records that an agent is connected nowhere.
    pub(crate) async fn forget_connected(&self, beam_id: &str) {
        let none = |presence: &mut BeamPresence| -> Result<(), Error> {
            *presence = BeamPresence::default();
            Ok(())
        };
        let key = BeamPresence::key(beam_id);
        self.engine.update(key, none).await.unwrap();
    }

    /// Two agents of which the second accepts messages of the first.
    pub(crate) async fn alice_and_bob(&self) -> (Identity, Identity) {
        let (alice, bob) = (Identity::alice(), Identity::bob());
        self.add_agent(&alice).await;
        self.add_agent(&bob).await;
        self.allow(&bob.beam_id, "conversation.message", &alice.beam_id)
            .await;
        (alice, bob)
    }

    pub(crate) async fn connect(&self, beam_id: &str) -> TestSocket {
        let mut socket = self
            .open(&format!("/ws?beamId={beam_id}"), &[])
            .await
            .unwrap();
        let hello = socket.next_json().await.unwrap();
        assert_eq!(hello["type"], "connected", "{hello}");
        socket
    }

    /// Opens a WebSocket; the error is the status of the refusal.
    pub(crate) async fn open(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<TestSocket, u16> {
        let url = format!("ws://{}{path}", self.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((stream, _)) => Ok(TestSocket::new(stream)),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The current time as frames write it.
    pub(crate) fn now_text(&self) -> String {
        timestamp::format(consign_kernel::ids::Micros(self.clock.now().0))
    }
}
