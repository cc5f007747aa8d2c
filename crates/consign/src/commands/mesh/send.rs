//! `consign mesh send TO MESSAGE`: through the daemon of the mesh if one runs, otherwise by a connection of its own.
//!
//! Invariant: the daemon is used only after it answered `GET /v1/version` for this mesh; the pid file is never asked. Without a
//! daemon nothing is stored: a message that the broker did not accept is an error.

use std::time::Duration;

use consign_mesh::daemon::cold_path::{ColdPath, ColdPathError};
use consign_mesh::destination::Recipient;
use consign_mesh::id::MeshSlug;
use consign_mesh::ipc::{IpcSend, VersionAnswer, path};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::commands::OutputArgs;
use crate::commands::daemon::{MessageArgs, lines};
use crate::failure::{Exit, Failure};
use crate::mesh_member::daemon_link::DaemonLink;
use crate::mesh_member::home::{MemberHome, broker_override};
use crate::out;

/// A daemon on this machine accepts a connection at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);
/// The part of the interface that is needed.
const FEATURE: &str = "send";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A key, the beginning of a key, a name, #topic, @group, queue:NAME or *
    #[arg(value_name = "TO")]
    to: String,

    #[command(flatten)]
    message: MessageArgs,

    /// The mesh, by its slug; without it the only one that is joined
    #[arg(long, value_name = "SLUG")]
    mesh: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let home = MemberHome::from_environment()?;
        let slug = home.slug(self.mesh.as_deref())?;
        let mut body = self.message.body()?;
        body.insert("to".to_owned(), self.to.into());
        let body = Value::Object(body);
        let (mut answer, via) = match usable_daemon(&home, &slug).await? {
            Some(daemon) => (daemon.post(path::SEND, &body).await?, "daemon"),
            None => (send_cold(&home, &slug, &body).await?, "broker"),
        };
        answer["via"] = via.into();
        if self.output.json {
            out::json(&answer)?;
        } else {
            out::data(&lines(&answer))?;
        }
        Ok(Exit::Done)
    }
}

/// The daemon of the mesh, if it answers in time and serves what is needed.
async fn usable_daemon(home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<Option<DaemonLink>> {
    let directory = home.daemon_directory(slug);
    let connected = timeout(CONNECT_TIMEOUT, UnixStream::connect(directory.join("sock"))).await;
    if !matches!(connected, Ok(Ok(_))) {
        return Ok(None);
    }
    let asked = DaemonLink::with_timeout(slug, &directory, VERSION_TIMEOUT)?;
    let Ok(version) = asked.get(path::VERSION).await else {
        return Ok(None);
    };
    let version: Option<VersionAnswer> = serde_json::from_value(version).ok();
    if version.is_some_and(|version| version.is_usable(slug.as_str(), FEATURE)) {
        return DaemonLink::new(slug, &directory).map(Some);
    }
    out::note("the daemon is of another version; sending without it");
    Ok(None)
}

async fn send_cold(home: &MemberHome, slug: &MeshSlug, body: &Value) -> anyhow::Result<Value> {
    let request = IpcSend::parse_send(body.to_string().as_bytes(), None, slug)
        .map_err(|refusal| Failure::usage(refusal.error))?;
    let keys = home.daemon_directory(slug).join("topic_keys.json");
    if matches!(request.to, Recipient::Topic(_)) && keys.exists() {
        // Their posts would be readable for the broker.
        let message = "topics with a key are posted to by the daemon alone";
        return Err(Failure::failed(message)
            .hint(format!("start it with: consign daemon up --mesh {slug}"))
            .into());
    }
    let mesh = home.membership(slug)?;
    let named = broker_override();
    let cold = ColdPath {
        mesh: &mesh,
        broker_url: named.as_deref().unwrap_or(&mesh.broker_url),
        display_name: home.display_name()?,
    };
    let ack = cold
        .send(&request)
        .await
        .map_err(|error| cold_failure(&error))?;
    Ok(json!({
        "client_message_id": ack.client_message_id,
        "broker_message_id": ack.broker_message_id,
        "history_id": ack.history_id,
        "duplicate": ack.duplicate,
        "status": "accepted",
    }))
}

/// The exit code of a failure without a daemon.
pub(crate) fn cold_failure(error: &ColdPathError) -> Failure {
    let exit = match error {
        ColdPathError::Unreachable(_) => Exit::Unreachable,
        ColdPathError::Destination(_) => Exit::Nothing,
        ColdPathError::Refused { code: 404, .. } => Exit::Nothing,
        ColdPathError::Refused { .. } | ColdPathError::Request(_) => Exit::Refused,
        ColdPathError::Key(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
