//! localstripe as a process: a rail with its own records, which ignores idempotency keys and would refund twice.
#![cfg(feature = "planted")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use consign_testkit::process::Http;
use serde_json::{Value, json};
use tempfile::TempDir;

const LAUNCHER: &str = include_str!("../../../transactions/tests/rails/localstripe.py");
pub(crate) const SECRET: &str = "sk_test_12345";

pub(crate) struct LocalStripe {
    authority: String,
    child: Child,
    _state: TempDir,
}

impl Drop for LocalStripe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LocalStripe {
    pub(crate) fn start() -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let python = target.with_file_name("xtask/venv/bin/python");
        assert!(
            python.exists(),
            "{} is missing; install it with: cargo xtask test --only tools",
            python.display()
        );
        let state = tempfile::tempdir().expect("a folder can be made");
        let mut child = Command::new(python)
            .args(["-u", "-c", LAUNCHER])
            .arg(state.path().join("state.pickle"))
            .args(["--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it has a pipe")).lines();
        // It chooses a port and prints it when it listens.
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("http://[::]:")?;
            Some(port.split_whitespace().next()?.to_owned())
        });
        let port = port.expect("it listens");
        // Drains the pipe, so that localstripe never blocks on its output.
        std::thread::spawn(move || lines.count());
        Self {
            authority: format!("127.0.0.1:{port}"),
            child,
            _state: state,
        }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.authority)
    }

    fn http(&self) -> Http {
        Http::new(&self.authority).header("Authorization", &format!("Bearer {SECRET}"))
    }

    fn get(&self, path: &str) -> Value {
        let reply = self.http().get(path).expect("localstripe answers");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) {
        let reply = self.http().post(path, body).expect("localstripe answers");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// The number of charges in the records of localstripe.
    pub(crate) fn charges(&self) -> usize {
        let charges = self.get("/v1/charges?limit=100");
        let charges = charges["data"].as_array().expect("a list").iter();
        charges
            .filter(|charge| charge["status"] == "succeeded" && charge["captured"] == true)
            .count()
    }

    pub(crate) fn refunds(&self) -> usize {
        let refunds = self.get("/v1/refunds?limit=100");
        refunds["data"].as_array().expect("a list").len()
    }

    /// Sends a callback for every event to one server, signed with this secret.
    pub(crate) fn tell(&self, url: &str, secret: &str) {
        let webhook = json!({"url": url, "secret": secret});
        self.post("/_config/webhooks/shop", &webhook);
    }
}
