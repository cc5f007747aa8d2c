//! The real binary as a process: how it starts, refuses, serves, stops and survives.

mod bench;
mod cli;
mod clock;
mod cut_off;
mod disk;
mod import;
mod openapi;
mod sockets;
mod start;
mod stop;
mod store;
mod switches;
mod tls;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use consign_testkit::process::{self, Http, Options, Reply, Server};
use serde_json::{Value, json};

/// Longer than anything here takes, shorter than a person's patience.
const PATIENCE: Duration = Duration::from_secs(10);

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_consign"))
}

/// A folder for one test, and the data directory of a server in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn options(&self) -> Options {
        Options::new(binary(), self.data())
    }

    fn start(&self) -> Server {
        start(&self.options())
    }

    /// Runs a command against the data directory of this place.
    fn consign(&self, args: &[&str]) -> Output {
        self.consign_with(args, &[])
    }

    fn consign_with(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = process::cleaned(&binary());
        command
            .args(args)
            .env("CONSIGN_DATA", self.data())
            .envs(env.iter().copied())
            .stdin(std::process::Stdio::null());
        process::run(command, PATIENCE).expect("the command ends in time")
    }
}

fn start(options: &Options) -> Server {
    Server::start(options).expect("the server starts")
}

/// Starts a server that must refuse to; gives its exit code and what it said.
fn refusal(options: &Options) -> (i32, String) {
    let output = process::serve_until_exit(options, PATIENCE).expect("the server ends by itself");
    (code(&output), text(&output.stderr))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command printed with `--json`.
fn printed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

fn main_client(server: &Server) -> Http {
    server.main_client().expect("the server made its main key")
}

fn publish(http: &mut Http, goal: &str) -> Reply {
    let body = json!({"goal": goal, "payload": {"n": 1}});
    http.post("/intent", &body).expect("the server answers")
}

/// Publishes and gives the id.
fn published(http: &mut Http, goal: &str) -> String {
    let reply = publish(http, goal);
    assert_eq!(reply.status, 201, "{}", reply.text());
    word(&reply.json()["id"])
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn get(http: &mut Http, path: &str) -> Reply {
    http.get(path).expect("the server answers")
}

fn status_of(http: &mut Http, id: &str) -> String {
    word(&get(http, &format!("/status/{id}")).json()["status"])
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path).expect("the file is there");
    metadata.permissions().mode() & 0o7777
}

/// Every answer carries these, whatever it says.
fn assert_five_headers(reply: &Reply) {
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("x-intent-version", "2.1"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name} in {reply:?}");
    }
}
