//! Mock servers of Stripe as separate processes, installed by `cargo xtask test --only tools`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use consign_client::{Bytes, Client, HeaderMap, HeaderValue, Method, Options};
use serde_json::Value;
use tempfile::TempDir;

use crate::tool::tool;

const LAUNCHER: &str = include_str!("localstripe.py");

const STATEFUL_MOCK: &str = "\
    const app = require('stripe-stateful-mock').createExpressApp();\
    const server = app.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port));";

/// The API key that the mock servers accept.
pub(crate) const SECRET: &str = "sk_test_12345";

/// A running process, killed when the test is over.
pub(crate) struct StandIn {
    pub(crate) base: String,
    child: Child,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// localstripe, which stores its state in a file and ignores idempotency keys.
pub(crate) struct LocalStripe {
    process: StandIn,
    state: TempDir,
}

impl LocalStripe {
    pub(crate) fn start() -> Self {
        let state = tempfile::tempdir().unwrap();
        let process = Self::launch(state.path());
        Self { process, state }
    }

    /// It chooses a port and prints it when it listens.
    fn launch(state: &Path) -> StandIn {
        let python = tool("venv/bin/python");
        let mut command = Command::new(python);
        command.args(["-u", "-c", LAUNCHER]);
        command.arg(state.join("state.pickle"));
        command.args(["--port", "0"]);
        StandIn::spawn(command, |line| {
            let (_, port) = line.split_once("http://[::]:")?;
            Some(port.split_whitespace().next()?.to_owned())
        })
    }

    /// Kills the process without cleanup, and restarts it with its stored state.
    pub(crate) fn kill_and_restart(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        self.process = Self::launch(self.state.path());
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
    }

    pub(crate) fn base(&self) -> &str {
        &self.process.base
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.process.ask(Method::GET, path, "").await
    }

    pub(crate) async fn post(&self, path: &str, form: &str) -> Value {
        self.process.ask(Method::POST, path, form).await
    }

    /// The number of paid charges according to the rail itself.
    pub(crate) async fn charges(&self) -> usize {
        let charges = self.get("/v1/charges?limit=100").await;
        let charges = charges["data"].as_array().unwrap().iter();
        charges
            .filter(|charge| charge["status"] == "succeeded" && charge["captured"] == true)
            .count()
    }

    pub(crate) async fn refunds(&self) -> usize {
        let refunds = self.get("/v1/refunds?limit=100").await;
        refunds["data"].as_array().unwrap().len()
    }
}

impl StandIn {
    /// stripe-stateful-mock, which supports only charges, keeps its state in memory, and honours idempotency
    /// keys.
    pub(crate) fn stateful_mock() -> Self {
        let folder = tool("node");
        let mut command = Command::new("node");
        command.args(["-e", STATEFUL_MOCK]).current_dir(folder);
        Self::spawn(command, |line| {
            line.strip_prefix("port ").map(str::to_owned)
        })
    }

    fn spawn(mut command: Command, port: impl Fn(&str) -> Option<String>) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| port(&line.unwrap()));
        let port = port.expect("the mock server ended before it listened");
        // Its output must be read, so that it does not block on a full pipe.
        std::thread::spawn(move || lines.count());
        Self {
            base: format!("http://127.0.0.1:{port}"),
            child,
        }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, form: &str) -> Value {
        let client = Client::new(Options {
            server: self.base.clone(),
            timeout: Duration::from_secs(30),
            ..Options::default()
        });
        let bearer = HeaderValue::from_str(&format!("Bearer {SECRET}")).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("authorization", bearer);
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert("content-type", form_type);
        let body = Bytes::from(form.to_owned());
        let answer = client.unwrap().request(method, path, headers, body).await;
        let answer = answer.unwrap();
        if answer.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&answer.body).unwrap()
    }
}
