//! The connection of a command to the daemon of a mesh, over its socket file.
//!
//! Invariant: nothing is sent to a process of another user. A refusal of the daemon keeps its words, so that scripts can
//! branch on them; a daemon that does not run is an error of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_client::{Client, Events, HeaderMap, Method, Options, Response, Socket};
use consign_mesh::id::MeshSlug;
use consign_mesh::ipc::{HealthAnswer, path};
use consign_web::unix::short_path;
use serde_json::Value;

use crate::failure::{Exit, Failure};

/// Answers of the daemon are short, but a request for a topic may wait for the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon by its directory. Nothing is connected before the first request.
pub(crate) struct DaemonLink {
    client: Client,
    mesh: MeshSlug,
    directory: PathBuf,
}

impl DaemonLink {
    pub(crate) fn new(mesh: &MeshSlug, directory: &Path) -> anyhow::Result<Self> {
        Self::with_timeout(mesh, directory, ANSWER_TIMEOUT)
    }

    pub(crate) fn with_timeout(
        mesh: &MeshSlug,
        directory: &Path,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let file = directory.join("sock");
        let (socket, folder) = match short_path(&file) {
            Ok(found) => found,
            // There is no directory, so connecting reports that no daemon runs.
            Err(_) => (file, None),
        };
        let socket = Socket::new(socket, move |peer| {
            // The path may go through this descriptor.
            let _folder = &folder;
            let own = rustix::process::geteuid().as_raw();
            if peer.uid == own || peer.uid == 0 {
                return Ok(());
            }
            Err(format!("it belongs to another user (uid {})", peer.uid))
        });
        let client = Client::new(Options {
            server: "http://localhost".to_owned(),
            timeout,
            socket: Some(socket),
            ..Options::default()
        })?;
        Ok(Self {
            client,
            mesh: mesh.clone(),
            directory: directory.to_owned(),
        })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.json(Method::GET, path, String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.post_text(path, body.to_string()).await
    }

    /// Sends a JSON text as it is.
    pub(crate) async fn post_text(&self, path: &str, body: String) -> anyhow::Result<Value> {
        self.json(Method::POST, path, body).await
    }

    /// A body that is not JSON.
    pub(crate) async fn text(&self, path: &str) -> anyhow::Result<String> {
        let response = self.answer(Method::GET, path, String::new()).await?;
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    }

    pub(crate) async fn health(&self) -> anyhow::Result<HealthAnswer> {
        let answer = self.get(path::HEALTH).await?;
        Ok(serde_json::from_value(answer)?)
    }

    /// The stream of events, after one of them if its number is given.
    pub(crate) async fn events(&self, last_event_id: Option<&str>) -> anyhow::Result<Events> {
        let opened = self.client.events_at(path::EVENTS, last_event_id).await;
        opened.map_err(|error| self.failed(error))
    }

    /// The answer with any status.
    pub(crate) async fn respond(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response> {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.respond_to(method, path, body).await
    }

    async fn respond_to(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Response> {
        let headers = HeaderMap::new();
        let answered = self
            .client
            .request(method, path, headers, body.into())
            .await;
        answered.map_err(|error| self.failed(error))
    }

    async fn json(&self, method: Method, path: &str, body: String) -> anyhow::Result<Value> {
        let response = self.answer(method, path, body).await?;
        if response.body.is_empty() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        Ok(serde_json::from_slice(&response.body)?)
    }

    async fn answer(&self, method: Method, path: &str, body: String) -> anyhow::Result<Response> {
        let response = self.respond_to(method, path, body).await?;
        if response.status.as_u16() >= 400 {
            return Err(refusal(&response).into());
        }
        Ok(response)
    }

    fn failed(&self, error: consign_client::Error) -> anyhow::Error {
        if matches!(error, consign_client::Error::Unreachable { .. }) {
            return self.not_running().into();
        }
        if !error.is_unreachable() {
            return error.into();
        }
        let why = if let consign_client::Error::Peer { why, .. } = &error {
            format!(": {why}")
        } else {
            "; see its log with: consign daemon logs".to_owned()
        };
        let message = format!("the daemon of {} gave no answer{why}", self.mesh);
        Failure::new(Exit::Unreachable, message).into()
    }

    fn not_running(&self) -> Failure {
        let message = format!(
            "no daemon of the mesh {} is running in {}",
            self.mesh,
            self.directory.display()
        );
        let hint = format!("start it with: consign daemon up --mesh {}", self.mesh);
        Failure::new(Exit::Unreachable, message).hint(hint)
    }
}

/// The words of a refusal: `error`, and what explains it.
fn refusal(response: &Response) -> Failure {
    let status = response.status.as_u16();
    let body: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    let mut message = match body["error"].as_str() {
        Some(error) => error.to_owned(),
        None => format!("the daemon answered with status {status}"),
    };
    for key in ["conflict", "capability", "reason", "detail", "message"] {
        if let Some(word) = body[key].as_str() {
            message.push_str(": ");
            message.push_str(word);
        }
    }
    let exit = match status {
        404 => Exit::Nothing,
        400..=499 => Exit::Refused,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{message} (status {status})")).context(body)
}

#[cfg(test)]
mod tests {
    use consign_client::{Bytes, StatusCode};

    use super::*;

    #[test]
    fn a_refusal_keeps_the_words_of_the_daemon() {
        let check = |status: u16, body: &'static str, expected: &str| {
            let response = Response {
                status: StatusCode::from_u16(status).unwrap(),
                headers: HeaderMap::new(),
                body: Bytes::from_static(body.as_bytes()),
            };
            assert_eq!(refusal(&response).to_string(), expected);
        };
        check(
            409,
            r#"{"error":"idempotency_key_reused","conflict":"outbox_dead_fingerprint_match","reason":"not_found"}"#,
            "idempotency_key_reused: outbox_dead_fingerprint_match: not_found (status 409)",
        );
        check(
            404,
            r#"{"error":"destination_not_found"}"#,
            "destination_not_found (status 404)",
        );
        check(
            503,
            r#"{"error":"broker_unreachable","message":"repeat the request later"}"#,
            "broker_unreachable: repeat the request later (status 503)",
        );
        check(500, "", "the daemon answered with status 500 (status 500)");
    }

    #[tokio::test]
    async fn a_daemon_that_does_not_run_is_an_error_with_a_next_step() {
        let directory = tempfile::tempdir().unwrap();
        let mesh = MeshSlug::parse("team").unwrap();
        let link = DaemonLink::new(&mesh, &directory.path().join("none")).unwrap();
        let error = link.health().await.unwrap_err().to_string();
        assert!(
            error.starts_with("no daemon of the mesh team is running in "),
            "{error}"
        );
    }
}
