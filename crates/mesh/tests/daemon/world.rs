//! A daemon in this process, with a folder of its own, and the programs that talk to it.

use std::path::PathBuf;
use std::time::Duration;

use consign_mesh::daemon::{DaemonEnd, DaemonOptions, run};
use consign_mesh::id::MeshSlug;
use consign_mesh::keys::MeshPrivateKey;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::local_http::{self, EventReader, Extra, LocalAnswer};

pub(crate) const SLUG: &str = "home";
pub(crate) const MESH_ID: &str = "mesh-1";
const LIMIT: Duration = Duration::from_secs(20);

/// Nothing listens there.
pub(crate) const NO_BROKER: &str = "ws://127.0.0.1:9/ws";

pub(crate) fn key(seed: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[seed; 32])
}

/// The home of a user that has joined one mesh.
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) key: MeshPrivateKey,
}

impl Home {
    pub(crate) fn new(seed: u8, broker_url: &str) -> Self {
        consign_testkit::plants::from_environment();
        let home = Self {
            folder: tempfile::tempdir().unwrap(),
            key: key(seed),
        };
        let joined = json!({"version": 1, "meshes": [{
            "meshId": MESH_ID, "memberId": format!("m-{seed}"), "slug": SLUG, "name": format!("member-{seed}"),
            "pubkey": home.key.public_key().to_string(), "secretKey": *home.key.reveal(),
            "brokerUrl": broker_url, "joinedAt": "2026-01-01T00:00:00Z", "rootKey": "unused",
        }], "displayName": "kept"});
        std::fs::create_dir_all(home.claudemesh()).unwrap();
        std::fs::write(home.claudemesh().join("config.json"), joined.to_string()).unwrap();
        home
    }

    pub(crate) fn claudemesh(&self) -> PathBuf {
        self.folder.path().join(".claudemesh")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.claudemesh().join("daemon").join(SLUG)
    }

    /// Writes `config.toml`.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::create_dir_all(self.folder()).unwrap();
        std::fs::write(self.folder().join("config.toml"), text).unwrap();
    }

    pub(crate) fn options(&self) -> DaemonOptions {
        DaemonOptions::new(MeshSlug::parse(SLUG).unwrap(), self.claudemesh())
    }

    /// Starts the daemon and waits until it serves.
    pub(crate) async fn up(&self) -> Daemon {
        self.up_with(self.options()).await
    }

    pub(crate) async fn up_with(&self, options: DaemonOptions) -> Daemon {
        let mut daemon = self.start(options);
        let ready = async {
            while !daemon.is_ready().await {
                assert!(
                    !daemon.task.is_finished(),
                    "the daemon ended: {:?}",
                    (&mut daemon.task).await
                );
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, ready).await.unwrap();
        daemon
    }

    /// Starts the daemon, which may end at once.
    pub(crate) fn start(&self, options: DaemonOptions) -> Daemon {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(options, async move {
            // A daemon whose sender was forgotten runs until its test ends.
            let _ = stopped.await;
        }));
        Daemon {
            folder: self.folder(),
            stop: Some(stop),
            task,
        }
    }

    /// The log of the daemon.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder().join("daemon.log")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn logged(&self, msg: &str) -> Vec<Value> {
        let lines = self.log().into_iter();
        lines.filter(|line| line["msg"] == msg).collect()
    }

    /// The table of the outbox as another program reads it.
    pub(crate) fn outbox(&self, sql: &str) -> Vec<Vec<String>> {
        let connection = rusqlite::Connection::open(self.folder().join("outbox.db")).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            (0..columns)
                .map(|at| row.get_ref(at).map(text))
                .collect::<Result<Vec<_>, _>>()
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Changes the outbox of a daemon that is not running.
    pub(crate) fn edit_outbox(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.folder().join("outbox.db")).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

fn text(value: rusqlite::types::ValueRef<'_>) -> String {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => data_encoding::HEXLOWER.encode(bytes),
    }
}

pub(crate) struct Daemon {
    pub(crate) folder: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<DaemonEnd>,
}

impl Daemon {
    async fn is_ready(&self) -> bool {
        let sock = self.folder.join("sock");
        sock.exists()
            && tokio::net::UnixStream::connect(&sock).await.is_ok()
            && self.get("/v1/health").await.status == 200
    }

    pub(crate) fn sock(&self) -> PathBuf {
        self.folder.join("sock")
    }

    pub(crate) async fn get(&self, target: &str) -> LocalAnswer {
        local_http::unix(&self.sock(), "GET", target, Extra::default()).await
    }

    pub(crate) async fn post(&self, target: &str, body: &Value) -> LocalAnswer {
        self.post_text(target, body.to_string().as_bytes()).await
    }

    pub(crate) async fn post_text(&self, target: &str, body: &[u8]) -> LocalAnswer {
        let extra = Extra { headers: &[], body };
        local_http::unix(&self.sock(), "POST", target, extra).await
    }

    pub(crate) async fn send(&self, id: &str, to: &str, message: &str) -> LocalAnswer {
        let body = json!({"to": to, "message": message, "client_message_id": id});
        self.post("/v1/send", &body).await
    }

    pub(crate) async fn health(&self) -> Value {
        self.get("/v1/health").await.json()
    }

    pub(crate) async fn events(&self) -> EventReader {
        EventReader::open(&self.sock()).await
    }

    pub(crate) fn port(&self) -> u16 {
        let text = std::fs::read_to_string(self.folder.join("http.port")).unwrap();
        text.trim().parse().unwrap()
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.folder.join("local_token")).unwrap()
    }

    pub(crate) async fn tcp(&self, method: &str, target: &str, extra: Extra<'_>) -> LocalAnswer {
        local_http::tcp(self.port(), method, target, extra).await
    }

    /// Waits until the answer of health is as wanted.
    pub(crate) async fn until_health(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LIMIT;
        loop {
            let health = self.health().await;
            if is_wanted(&health) {
                return health;
            }
            assert!(Instant::now() < deadline, "{health}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_connected(&self) {
        self.until_health(|health| health["connected"] == true)
            .await;
    }

    /// The row of a message, as `GET /v1/outbox` shows it.
    pub(crate) async fn row(&self, id: &str) -> Value {
        let items = self.get("/v1/outbox?limit=500").await.json();
        let items = items["items"].as_array().unwrap().iter();
        let mut found = items.filter(|item| item["client_message_id"] == id);
        found.next().cloned().unwrap_or(Value::Null)
    }

    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        let deadline = Instant::now() + LIMIT;
        loop {
            let row = self.row(id).await;
            if row["status"] == status {
                return row;
            }
            assert!(Instant::now() < deadline, "{row}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends it as a signal does.
    pub(crate) async fn down(mut self) -> DaemonEnd {
        drop(self.stop.take());
        timeout(LIMIT, self.task).await.unwrap().unwrap()
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> DaemonEnd {
        timeout(LIMIT, self.task).await.unwrap().unwrap()
    }
}
