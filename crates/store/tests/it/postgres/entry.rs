//! Connecting: passwords, certificates, several hosts. Readers and writers connect separately, and both must succeed.
//!
//! If a server refuses at first, the readers report it when the store is opened. If a server refuses later and closes the
//! connections, the writers report it.

mod pooler;
mod tls;

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use consign_kernel::command::{Admit, Answer, Claim, Command, NewIntent, OnRefusal, Request};
use consign_kernel::ids::IntentId;
use consign_kernel::limits;
use consign_store::Error;
use consign_store::conformance::{ManualClock, World, claim_by, guarded, item};
use consign_store::postgres::{DatabaseAddress, Postgres};
use consign_testkit::postgres::{Cluster, FAST};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::nodes::until;
use super::options_at;

const PASSWORD: &str = "open-sesame";

/// A server with its own authentication rules, and a database `ledger` of the user `app`.
pub(super) struct Server {
    cluster: Cluster,
    folder: TempDir,
}

impl Server {
    pub(super) fn start(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::place(folder.path()).unwrap();
        cluster.init().unwrap();
        cluster.include_settings().unwrap();
        let server = Self { cluster, folder };
        server.write_rules(rules);
        server.configure("");
        server.cluster.start(FAST).unwrap();
        server.sql(&format!("CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'"));
        server.sql("CREATE DATABASE ledger OWNER app");
        server
    }

    /// The tests' own user is always admitted.
    fn write_rules(&self, rules: &str) {
        let file = self.folder.path().join("rules");
        let ours = "local all all trust\nhost all postgres 127.0.0.1/32 trust";
        fs::write(file, format!("{ours}\n{rules}\n")).unwrap();
    }

    pub(super) fn configure(&self, settings: &str) {
        let rules = self.folder.path().join("rules");
        let settings = format!("hba_file = '{}'\n{settings}\n", rules.display());
        self.cluster.configure(&settings).unwrap();
    }

    fn change_rules(&self, rules: &str) {
        self.write_rules(rules);
        self.reload();
    }

    /// Returns when new connections use the changed settings.
    pub(super) fn reload(&self) {
        let loaded = || self.sql("SELECT pg_conf_load_time()");
        let before = loaded();
        self.cluster.reload().unwrap();
        while loaded() == before {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Closes all connections of the store.
    fn dismiss(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
             WHERE application_name = 'consign'",
        );
    }

    pub(super) fn sql(&self, text: &str) -> String {
        let told = self.cluster.sql("postgres", text).unwrap();
        told.trim().to_owned()
    }

    pub(super) fn intents(&self) -> String {
        let count = "SELECT count(*) FROM consign.intents";
        let told = self.cluster.sql("ledger", count).unwrap();
        told.trim().to_owned()
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/ledger", self.cluster.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The rest of it is in a folder that is deleted.
        let _ = self.cluster.stop("immediate");
    }
}

pub(super) async fn open(url: &str, password: Option<&str>) -> Result<World, Error> {
    let clock = Arc::new(ManualClock::default());
    let address = DatabaseAddress::parse(url, password).unwrap();
    let store = Postgres::open(options_at(address, &clock, 1)).await?;
    Ok(World::new(Arc::new(store), clock, ()))
}

async fn refused(url: &str, password: Option<&str>) -> String {
    open(url, password).await.unwrap_err().to_string()
}

/// One write and one read.
pub(super) async fn works(world: &World) {
    let id = world.publish(item()).await;
    assert!(world.get(id).await.is_some());
}

/// The error of a writer that cannot reconnect.
async fn told(world: &World) -> String {
    let request = Request {
        gate: None,
        steps: vec![Command::Observe(IntentId([0; 16]))],
        on_refusal: OnRefusal::Continue,
        seed: [1; 32],
    };
    world.store.execute(request).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_password_opens_by_scram_and_a_wrong_one_is_refused_and_not_repeated() {
    let server = Server::start("host ledger app 127.0.0.1/32 scram-sha-256");
    let world = open(&server.url(), Some(PASSWORD)).await.unwrap();
    works(&world).await;
    server.sql("ALTER ROLE app PASSWORD 'changed'");
    server.dismiss();
    for why in [
        told(&world).await,
        refused(&server.url(), Some(PASSWORD)).await,
    ] {
        assert!(why.contains("password authentication failed"), "{why}");
        assert!(!why.contains(PASSWORD), "{why}");
    }
    server.sql(&format!("ALTER ROLE app PASSWORD '{PASSWORD}'"));
    works(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_password_is_told_with_what_to_do() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let world = open(&server.url(), None).await.unwrap();
    works(&world).await;
    for method in ["scram-sha-256", "password"] {
        server.change_rules(&format!("host ledger app 127.0.0.1/32 {method}"));
        server.dismiss();
        for why in [told(&world).await, refused(&server.url(), None).await] {
            assert!(why.contains("set CONSIGN_STORE_PASSWORD"), "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_kinds_of_passwords_open_too() {
    let server = Server::start("host ledger app 127.0.0.1/32 password");
    let world = open(&server.url(), Some(PASSWORD)).await.unwrap();
    works(&world).await;
    server.change_rules("host ledger app 127.0.0.1/32 md5");
    server.sql(&format!(
        "SET password_encryption = 'md5'; ALTER ROLE app PASSWORD '{PASSWORD}'"
    ));
    server.dismiss();
    works(&world).await;
    let url = server.url().replace("app@", "app:wrong@");
    let why = refused(&url, None).await;
    assert!(why.contains("password authentication failed"), "{why}");
}

fn hosts(ports: &[u16]) -> String {
    let each = ports.iter().map(|port| format!("127.0.0.1:{port}"));
    let hosts: Vec<_> = each.collect();
    format!("postgres://app@{}/ledger", hosts.join(","))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_hosts_the_one_that_takes_writes_is_found() {
    let rules = "host ledger app 127.0.0.1/32 trust";
    let (reads, writes) = (Server::start(rules), Server::start(rules));
    reads.configure("default_transaction_read_only = on");
    reads.reload();
    // The listener is dropped, so its port refuses connections.
    let dead = |listener: TcpListener| listener.local_addr().unwrap().port();
    let dead = dead(TcpListener::bind("127.0.0.1:0").unwrap());
    let (reads_at, writes_at) = (reads.cluster.port, writes.cluster.port);
    let world = open(&hosts(&[dead, reads_at, writes_at]), None)
        .await
        .unwrap();
    works(&world).await;
    assert_eq!(writes.intents(), "1");

    // The writer continues on a host that accepts writes, and returns an error if there is none.
    writes.configure("default_transaction_read_only = on");
    writes.reload();
    writes.dismiss();
    let why = told(&world).await;
    assert!(why.contains("takes no writes"), "{why}");
    writes.configure("");
    writes.reload();
    works(&world).await;
    assert_eq!(writes.intents(), "2");
}

/// Like a primary whose machine is suspended: the kernel accepts the connection, and the server sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_hosts_one_that_is_silent_costs_a_moment_and_only_once() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_at = silent.local_addr().unwrap().port();
    let url = hosts(&[silent_at, server.cluster.port]);
    let began = Instant::now();
    let world = open(&url, None).await.unwrap();
    works(&world).await;
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    for _ in 0..3 {
        server.dismiss();
        let began = Instant::now();
        works(&world).await;
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_refusals_the_one_that_says_why_is_told() {
    let rules = "host ledger app 127.0.0.1/32 trust";
    let (writes, reads) = (Server::start(rules), Server::start(rules));
    reads.configure("default_transaction_read_only = on");
    reads.reload();
    let url = hosts(&[writes.cluster.port, reads.cluster.port]);
    let world = open(&url, Some("wrong")).await.unwrap();
    works(&world).await;
    writes.change_rules("host ledger app 127.0.0.1/32 scram-sha-256");
    writes.dismiss();
    for why in [told(&world).await, refused(&url, Some("wrong")).await] {
        assert!(why.contains("password authentication failed"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_this_machine_is_entered() {
    let server = Server::start("");
    let folder = server.folder.path().to_str().unwrap().replace('/', "%2F");
    let url = format!("postgres://app@{folder}:{}/ledger", server.cluster.port);
    let world = open(&url, None).await.unwrap();
    works(&world).await;
    let over_network = "SELECT count(client_addr) FROM pg_stat_activity WHERE usename = 'app'";
    assert_eq!(server.sql(over_network), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_was_dismissed_while_idle_comes_back_at_once() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let world = open(&server.url(), None).await.unwrap();
    for _ in 0..3 {
        works(&world).await;
        server.dismiss();
        let asked = Instant::now();
        world.publish(item()).await;
        // Detecting a dead connection by its silence alone takes twelve seconds.
        assert!(asked.elapsed() < Duration::from_secs(10));
    }
    world.is_sound().await;
}

/// The kernel lists the active timer of each connection; an idle connection must have the keepalive timer.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_readers_and_writers_are_kept_alive() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let world = open(&server.url(), None).await.unwrap();
    works(&world).await;
    let port = format!(":{:04X}", server.cluster.port);
    let timers = || {
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let fields = table.lines().map(|line| line.split_whitespace().collect());
        let open = fields.filter(|of: &Vec<&str>| of[2].ends_with(&port) && of[3] == "01");
        open.map(|of| of[5][..2].to_owned()).collect::<Vec<_>>()
    };
    // A writer, a reader, and the listener for notifications; there may be others for a moment.
    until(async || timers().len() >= 3 && timers().iter().all(|timer| timer == "02")).await;
}

/// Claims of many large payloads, together with many long keys.
async fn carries_megabytes(world: &World) {
    let payload = format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2));
    let large = |item: NewIntent| NewIntent {
        payload: payload.clone(),
        ..item
    };
    for _ in 0..8 {
        world.admit(vec![large(item()); 100]).await.unwrap();
    }
    let mut asking = JoinSet::new();
    for asker in 0..8 {
        let claim = Claim {
            max: 100,
            ..claim_by("alice")
        };
        let key = |index| format!("{asker}-{index}-{}", "k".repeat(200));
        let items = (0..100).map(|index| large(guarded("bob", &key(index), 1)));
        let admit = Admit {
            items: items.collect(),
            cap: None,
        };
        let (world, steps) = (
            world.clone(),
            vec![Command::Claim(claim), Command::Admit(admit)],
        );
        asking.spawn(async move { world.steps(steps).await });
    }
    let (mut claimed, mut admitted) = (0, 0);
    for answer in asking.join_all().await.into_iter().flatten() {
        match answer {
            Ok(Answer::Claimed(intents)) => claimed += intents.len(),
            Ok(Answer::Admitted(items)) => admitted += items.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((claimed, admitted), (800, 800));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_many_megabytes_pass() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let world = open(&server.url(), None).await.unwrap();
    carries_megabytes(&world).await;
    world.is_sound().await;
}
