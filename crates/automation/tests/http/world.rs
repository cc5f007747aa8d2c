//! A folder with plugins and a configuration, the service that runs them, and a plain HTTP client.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_automation::config::{Environment, SealCheck};
use consign_automation::http::listeners::{AutomationListeners, ConnectionShares, Serving};
use consign_automation::http::loader::Loader;
use consign_automation::plugin::confine::GuardedPaths;
use consign_automation::plugin::run::Launcher;
use consign_automation::program::{self, Program};
use consign_automation::runtime::{Options, Runtime};
use consign_engine::{
    Engine, EngineClock, Options as EngineOptions, SealKey, SharedStore, Timekeeper,
};
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::{self, Ledger};
use consign_testkit::plants;
use consign_web::listener_policy::ListenerPolicy;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

const SHARES: ConnectionShares = ConnectionShares {
    api: 1_000,
    webhooks: 1_000,
};

/// Far more than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const ALL: &str = "token-of-an-operator";
pub(crate) const SECRET: &str = "secret-of-the-webhooks";

pub(crate) struct World {
    folder: TempDir,
    pub(crate) engine: Engine,
    pub(crate) runtime: Runtime,
    pub(crate) api: SocketAddr,
    pub(crate) hooks: SocketAddr,
    pub(crate) draining: watch::Sender<bool>,
    ledger: Ledger,
}

impl World {
    /// Runs these plugins, each with its script, under a configuration to which tokens and addresses are added.
    pub(crate) async fn start(plugins: &[(&str, &str)], config: &str) -> Self {
        Self::start_behind(ListenerPolicy::default(), plugins, config).await
    }

    /// Starts with this policy of the server's listeners.
    pub(crate) async fn start_behind(
        policy: ListenerPolicy,
        plugins: &[(&str, &str)],
        config: &str,
    ) -> Self {
        plants::from_environment();
        let clock = Arc::new(EngineClock::start(None));
        let ledger = Ledger::new(crate::backend(), clock.clone());
        let engine = engine(&ledger.store, clock);
        let folder = tempfile::tempdir().unwrap();
        for (name, body) in plugins {
            script(&folder, name, body);
        }
        let here = fs::canonicalize(folder.path()).unwrap();
        fs::write(here.join("config.yaml"), written(config)).unwrap();
        let path = here.join("config.yaml");
        let runtime = Runtime::start(options(engine.clone(), load(&path).unwrap()));
        let runtime = runtime.await.unwrap();
        let (api, hooks, draining) = serve(runtime.clone(), path, policy).await;
        Self {
            folder,
            engine,
            runtime,
            api,
            hooks,
            draining,
            ledger,
        }
    }

    /// The API of another server on the same ledger, with the same configuration, which runs no jobs, and its stop signal. On
    /// PostgreSQL it is another node; a file belongs to one process.
    pub(crate) async fn reading_node(&self) -> (SocketAddr, watch::Sender<bool>) {
        let engine = match self.ledger.other_node(Arc::new(EngineClock::start(None))) {
            Some(store) => engine(&store, Arc::new(EngineClock::start(None))),
            None => self.engine.clone(),
        };
        let path = self.path("config.yaml");
        let runtime = Runtime::idle(options(engine, load(&path).unwrap()));
        let (api, _, draining) = serve(runtime, path, ListenerPolicy::default()).await;
        (api, draining)
    }

    /// Stops the service and starts it again on the same ledger.
    pub(crate) async fn restart(&mut self) {
        self.draining.send_replace(true);
        self.runtime.stop(PATIENCE).await;
        let path = self.path("config.yaml");
        let runtime = Runtime::start(options(self.engine.clone(), load(&path).unwrap()));
        self.runtime = runtime.await.unwrap();
        let served = serve(self.runtime.clone(), path, ListenerPolicy::default());
        (self.api, self.hooks, self.draining) = served.await;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    /// Replaces the configuration.
    pub(crate) fn adopt_text(&self, text: &str) {
        let path = self.path("config.yaml");
        fs::write(&path, text).unwrap();
        self.runtime.adopt(load(&path).unwrap());
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.as_bearer(ALL, "GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.as_bearer(ALL, "POST", path, body).await
    }

    pub(crate) async fn as_bearer(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> Answer {
        let bearer = format!("authorization: Bearer {token}");
        send(self.api, method, path, &[&bearer], body.as_bytes()).await
    }

    /// Starts a job, and returns its id.
    pub(crate) async fn begin(&self, path: &str, body: &str) -> String {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json["job_id"].as_str().unwrap().to_owned()
    }

    /// Polls a job until it is in one of these states.
    pub(crate) async fn until(&self, id: &str, states: &[&str]) -> Value {
        let began = Instant::now();
        loop {
            let answer = self.get(&format!("/job/{id}")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            if states.contains(&answer.json["status"].as_str().unwrap()) {
                return answer.json;
            }
            assert!(began.elapsed() < PATIENCE, "still {answer:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn ended(&self, id: &str) -> Value {
        let ends = ["succeeded", "failed", "timed_out", "dead"];
        self.until(id, &ends).await
    }
}

fn engine(store: &SharedStore, clock: Arc<EngineClock>) -> Engine {
    let engine = Engine::new(EngineOptions {
        store: Arc::clone(store),
        clock: clock.clone(),
        wall: clock,
        entropy: [7; 32],
        seal: SealKey::new([7; 32]),
        signer: Signer::from_seed(&[7; 32]),
        main_key: "ck_main".to_owned(),
        cleanup_interval: Duration::from_hours(1),
    });
    tokio::spawn(Timekeeper::new(engine.clone()).run(std::future::pending(), || {}));
    engine
}

fn options(engine: Engine, program: Arc<Program>) -> Options {
    Options {
        engine,
        program,
        node: "here".to_owned(),
        guarded: GuardedPaths::default(),
        bus: None,
        mesh: None,
        launcher: Launcher {
            program: "/nowhere".into(),
            arguments: Vec::new(),
        },
    }
}

/// Returns the addresses of the API and of the webhooks, and their stop signal.
async fn serve(
    runtime: Runtime,
    config: PathBuf,
    policy: ListenerPolicy,
) -> (SocketAddr, SocketAddr, watch::Sender<bool>) {
    let bound = AutomationListeners::bind(&runtime.program(), SHARES, false).await;
    let listeners = bound.unwrap();
    let (api, hooks) = (listeners.api().unwrap(), listeners.webhooks().unwrap());
    let (draining, seen) = watch::channel(false);
    let serving = Serving {
        draining: seen,
        binary_path: Some("/usr/bin/consign".into()),
        loader: loader(config),
        throttles: false,
        request_id_seed: 1,
        policy,
    };
    tokio::spawn(listeners.run(runtime, serving));
    (api, hooks, draining)
}

/// A plugin in bash with poll, handle and work. `$here` is the folder of the world, `$request` the request.
fn script(folder: &TempDir, name: &str, body: &str) {
    let here = fs::canonicalize(folder.path()).unwrap();
    let place = here.join("plugins").join(name);
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = format!(
        "manifest_spec: ductile.plugin\nmanifest_version: 1\nname: {name}\nversion: 1.2.3\nprotocol: 2\nentrypoint: run\n\
         description: It is called {name}.\ncommands:\n  poll: {{type: read}}\n  handle: {{type: write}}\n  \
         work: {{type: write, description: Works., input_schema: {{n: number}}}}\n\
         fact_outputs: [{{when: {{command: work}}, from: state_updates, fact_type: seen}}]\n"
    );
    fs::write(place.join("manifest.yaml"), manifest).unwrap();
    let head = "#!/usr/bin/env bash";
    let script = format!(
        "{head}\nhere='{}'\nrequest=$(cat)\n{body}\n",
        here.display()
    );
    fs::write(place.join("run"), script).unwrap();
    fs::set_permissions(place.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The configuration with a token for each scope.
fn written(config: &str) -> String {
    let tokens = [
        ("plugin-reader", "plugin:ro"),
        ("plugin-writer", "plugin:rw"),
        ("job-reader", "jobs:ro"),
        ("job-writer", "jobs:rw"),
        ("listener", "events:ro"),
        ("system-reader", "system:ro"),
    ];
    let mut scoped = String::new();
    for (token, scope) in tokens {
        writeln!(scoped, "      - {{token: {token}, scopes: ['{scope}']}}").unwrap();
    }
    format!(
        "plugin_roots: [plugins]
tokens: [{{name: hook, key: {SECRET}}}]
api:
  enabled: true
  listen: 127.0.0.1:0
  max_concurrent_sync: 2
  max_sync_timeout: 20s
  allowed_origins: ['https://app.example']
  auth:
    tokens:
      - {{token: {ALL}, scopes: ['*']}}
      - {{token: nobody, scopes: []}}
{scoped}{config}"
    )
}

pub(crate) fn loader(path: PathBuf) -> Loader {
    Loader::new(move || load(&path))
}

fn load(path: &Path) -> Result<Arc<Program>, String> {
    let environment = Environment {
        variables: std::env::vars().collect(),
        home: None,
        system_dir: path.with_file_name("etc"),
        processors: 4,
    };
    let loaded = program::load(path, &environment, SealCheck::AsConfigured);
    let program = loaded.program;
    let problems = || format!("{:#?}", loaded.problems);
    program.map(Arc::new).ok_or_else(problems)
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// Null if the body is not JSON.
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// Every refusal is an object with a text.
    pub(crate) fn is_refused(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.json["error"].is_string(), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
    }
}

pub(crate) async fn send(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    write!(text, "content-length: {}\r\n\r\n", body.len()).unwrap();
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    raw(addr, &bytes).await
}

/// Sends these bytes, and reads the response until the server closes the connection.
pub(crate) async fn raw(addr: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // A server that has read enough may close the connection before everything is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
    parse(&answer)
}

pub(crate) fn parse(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        json: serde_json::from_str(body).unwrap_or_default(),
        body: body.to_owned(),
    }
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http");
    ledger::assert_all_listed(folder);
}
