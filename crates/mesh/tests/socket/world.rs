//! A server with a broker on a listener of its own, and the members of its mesh.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{
    Clock, Engine, EngineClock, Heartbeat, NodeIdentity, Operator, Options as EngineOptions,
    SealKey, SharedStore, Timekeeper,
};
use consign_kernel::receipt::Signer;
use consign_mesh::broker::{
    Broker, BrokerError, BrokerNode, BrokerSettings, DedupeRetention, Joined, NewInvite, NewMember,
    NewMesh,
};
use consign_mesh::http::MeshMount;
use consign_mesh::id::{DisplayName, MeshSlug};
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::role::{ClonePolicy, MemberRole};
use consign_testkit::ledger::{Backend, Ledger};
use consign_testkit::plants;
use consign_web::credentials::SecretDigest;
use consign_web::layers;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::server::{Options as ServerOptions, Server};
use consign_web::shell;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::client::Client;

pub(crate) const MESH: &str = "acme";
const SECOND_NODE: i64 = 2;
const METRICS: &str = "metrics-token-of-the-tests";

/// One node.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) broker: Broker,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) mesh_id: String,
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

/// A member of the mesh.
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) mesh_id: String,
    pub(crate) name: String,
    pub(crate) key: MeshPrivateKey,
}

impl Member {
    pub(crate) fn pubkey(&self) -> String {
        self.key.public_key().to_string()
    }
}

pub(crate) fn operator() -> Operator {
    Operator::vouched()
}

pub(crate) fn new_mesh(slug: &str) -> NewMesh {
    NewMesh {
        slug: MeshSlug::parse(slug).unwrap(),
        name: DisplayName::parse(slug).unwrap(),
        clone_policy: ClonePolicy::PreferNewest,
        dedupe: DedupeRetention::default(),
        message_days: 30,
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| (), |_| ()).await
    }

    pub(crate) async fn with_policy(policy: ClonePolicy) -> Self {
        Self::with(|_| (), |mesh| mesh.clone_policy = policy).await
    }

    /// With changed settings, and a changed mesh.
    pub(crate) async fn with(
        change: impl FnOnce(&mut BrokerSettings),
        change_mesh: impl FnOnce(&mut NewMesh),
    ) -> Self {
        let clock = Arc::new(EngineClock::start(None));
        let ledger = Arc::new(Ledger::new(crate::backend(), clock.clone()));
        let store = Arc::clone(&ledger.store);
        let mut world = Self::start(ledger, store, clock, (1, "start-1"), change).await;
        let mut mesh = new_mesh(MESH);
        change_mesh(&mut mesh);
        let mesh = world.broker.create_mesh(operator(), mesh).await.unwrap();
        world.mesh_id = mesh.id;
        world
    }

    /// A second node on the same ledger; `None` if the ledger belongs to one process.
    pub(crate) async fn second(&self) -> Option<Self> {
        self.second_with(|_| ()).await
    }

    pub(crate) async fn second_with(
        &self,
        change: impl FnOnce(&mut BrokerSettings),
    ) -> Option<Self> {
        let clock = Arc::new(EngineClock::start(None));
        let store = self.ledger.other_node(clock.clone())?;
        let ledger = Arc::clone(&self.ledger);
        let mut world = Self::start(ledger, store, clock, (SECOND_NODE, "start-1"), change).await;
        world.mesh_id.clone_from(&self.mesh_id);
        Some(world)
    }

    /// Another start of this node on the same ledger, after this one ended as if it was killed.
    pub(crate) async fn restarted(self) -> Self {
        self.restarted_with(|_| ()).await
    }

    pub(crate) async fn restarted_with(self, change: impl FnOnce(&mut BrokerSettings)) -> Self {
        self.server.abort();
        for task in &self.tasks {
            task.abort();
        }
        let clock = Arc::new(EngineClock::start(None));
        let ledger = Arc::clone(&self.ledger);
        let store = Arc::clone(&ledger.store);
        let node = (1, "start-2");
        let mut world = Self::start(ledger, store, clock, node, change).await;
        world.mesh_id.clone_from(&self.mesh_id);
        world
    }

    async fn start(
        ledger: Arc<Ledger>,
        store: SharedStore,
        clock: Arc<EngineClock>,
        (node, start): (i64, &str),
        change: impl FnOnce(&mut BrokerSettings),
    ) -> Self {
        plants::from_environment();
        let now: Arc<dyn Clock> = clock.clone();
        let engine = Engine::new(EngineOptions {
            store,
            clock: now,
            wall: clock.clone(),
            entropy: [u8::try_from(node).unwrap(); 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[7; 32]),
            main_key: "ck_main".to_owned(),
            cleanup_interval: Duration::from_hours(1),
        });
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(ServerOptions::new(listen)).unwrap();
        let address = server.local_addr();
        let mut settings = BrokerSettings::new(format!("ws://{address}/ws"));
        settings.node = BrokerNode {
            id: node,
            name: format!("node-{node}"),
            start: start.to_owned(),
            shared: crate::backend() == Backend::Postgres,
        };
        // Tests ask again and again until something holds.
        settings.requests_per_minute = u32::MAX;
        settings.request_burst = u32::MAX;
        change(&mut settings);
        let mut heartbeat = Heartbeat::new(
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
        let beats = heartbeat.run(std::future::pending());
        let broker = Broker::new(engine.clone(), settings);
        broker.recover().await.unwrap();
        let (drain, draining) = watch::channel(false);
        let operators = OperatorCredentials {
            metrics_token: Some(SecretDigest::new(METRICS.to_owned())),
            ..OperatorCredentials::default()
        };
        let intent = consign_intent::Options {
            operators: operators.clone(),
            trust_proxy: false,
            enforce_https: false,
            require_signatures: false,
            maintenance: false,
            draining: draining.clone(),
            release_reserve: None,
            queues: Vec::new(),
        };
        let policy = ListenerPolicy::default();
        let mount = Arc::new(MeshMount::new(broker.clone(), operators, policy));
        let shell = consign_intent::shell(engine.clone(), intent, vec![mount]);
        let service = layers::around(
            shell.router(),
            layers::Options {
                trust_proxy: false,
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
        let mut ends = draining;
        let until = async move {
            let _ = ends.wait_for(|ends| *ends).await;
        };
        let follow = clock.clone();
        let timekeeper = Timekeeper::new(engine).run(until, move || follow.follow());
        let tasks = vec![
            tokio::spawn(async move {
                timekeeper.await;
            }),
            tokio::spawn(broker.clone().watch_presence()),
            tokio::spawn(async move {
                beats.await;
            }),
        ];
        Self {
            address,
            broker,
            ledger,
            mesh_id: String::new(),
            drain,
            server,
            tasks,
        }
    }

    /// A new member, whose key follows from the number.
    pub(crate) async fn member(&self, name: &str, seed: u8) -> Member {
        self.member_with(MemberRole::Member, name, seed).await
    }

    pub(crate) async fn admin(&self, name: &str, seed: u8) -> Member {
        self.member_with(MemberRole::Admin, name, seed).await
    }

    async fn member_with(&self, role: MemberRole, name: &str, seed: u8) -> Member {
        let joined = self.join_as(role, name, seed).await.unwrap();
        Member {
            id: joined.member_id,
            mesh_id: self.mesh_id.clone(),
            name: name.to_owned(),
            key: MeshPrivateKey::from_seed(&[seed; 32]),
        }
    }

    pub(crate) async fn try_join(&self, name: &str, seed: u8) -> Result<Joined, BrokerError> {
        self.join_as(MemberRole::Member, name, seed).await
    }

    async fn join_as(&self, role: MemberRole, name: &str, seed: u8) -> Result<Joined, BrokerError> {
        let invite = NewInvite {
            role,
            uses_max: 1,
            valid_for_s: 600 + u64::from(seed),
        };
        let payload = self.broker.invite(operator(), MESH, invite).await.unwrap();
        let key = MeshPrivateKey::from_seed(&[seed; 32]);
        let request = NewMember {
            token: payload.token(),
            payload,
            pubkey: key.public_key(),
            display_name: DisplayName::parse(name).unwrap(),
        };
        self.broker.join(&request).await
    }

    /// The value of a metric of the broker; 0 if it has none.
    pub(crate) async fn metric(&self, name: &str) -> i64 {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {METRICS}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let samples = answer.lines().filter_map(|line| line.rsplit_once(' '));
        let mut samples = samples.filter(|(sample, _)| *sample == name);
        samples
            .next()
            .map_or(0, |(_, value)| value.parse().unwrap())
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address, "/ws").await
    }

    /// A member's own connection that negotiated, as a daemon's.
    pub(crate) async fn daemon(&self, member: &Member) -> Client {
        let mut client = self.plain(member).await;
        client.negotiate().await;
        client
    }

    /// A member's own connection that never negotiates.
    pub(crate) async fn plain(&self, member: &Member) -> Client {
        let mut client = self.connect().await;
        let hello = crate::client::hello(member, None);
        client.say_hello(&hello).await;
        client
    }

    /// A session of a member, as upstream's SDK connects it.
    pub(crate) async fn session(&self, member: &Member, seed: u8) -> Client {
        let mut client = self.connect().await;
        let hello = crate::client::hello(member, Some(&session_key(seed)));
        client.say_hello(&hello).await;
        client
    }
}

pub(crate) fn session_key(seed: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[seed; 32])
}
