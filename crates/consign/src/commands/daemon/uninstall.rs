//! `consign daemon uninstall`: leaves the mesh at the broker, and removes what the daemon stored.
//!
//! Invariant: nothing is removed before the broker confirmed that the member left, unless the user does without it.

use std::time::Duration;

use anyhow::Context as _;
use consign_client::{Client, HeaderMap, HeaderName, HeaderValue, Method, Options};
use consign_mesh::daemon::identity::{DaemonIdentity, IdentityOptions};
use consign_mesh::daemon::log::DaemonLog;
use consign_mesh::environment::IdentityMode;
use consign_mesh::id::MeshSlug;
use consign_mesh::joined::JoinedMesh;
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::signed_text::MeshSignedText;
use jiff::Timestamp;
use serde_json::json;

use super::down::stop;
use super::files::stopped;
use super::{DaemonSelector, lines};
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::lock;
use crate::mesh_member::broker_address::BrokerAddress;
use crate::mesh_member::home::{MemberHome, broker_override};

const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(super) struct UninstallArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Remove the files also if the broker cannot be asked; the membership stays there
    #[arg(long)]
    force: bool,
}

impl UninstallArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let (home, slug) = target.place()?;
        let joined = home.membership(&slug)?;
        confirm(
            &format!("Leave the mesh {slug} for good, and remove its keys and messages?"),
            self.yes,
        )?;
        let directory = home.daemon_directory(&slug);
        if lock::holder(&directory.join("pid")).is_some() {
            stop(&slug, &directory).await?;
        }
        let daemon = stopped(&home, &slug)?;
        let left = match leave(&home, &slug, &joined).await {
            Ok(()) => true,
            Err(_) if self.force => false,
            Err(error) => return Err(error),
        };
        daemon.wipe()?;
        home.change_joined(|joined| joined.meshes.retain(|mesh| mesh.slug != slug.as_str()))?;
        target.print(
            &json!({"uninstalled": true, "left": left, "mesh": slug}),
            lines,
        )
    }
}

/// Tells the broker, with the key that the daemon used last.
async fn leave(home: &MemberHome, slug: &MeshSlug, joined: &JoinedMesh) -> anyhow::Result<()> {
    let identity = DaemonIdentity::open(
        &IdentityOptions {
            directory: &home.daemon_directory(slug),
            joined,
            mode: IdentityMode::Persistent,
            name: None,
            rename: false,
        },
        &DaemonLog::disabled(slug.as_str()),
    )?;
    end_membership(joined, &identity.key).await
}

/// Ends a membership for good.
pub(super) async fn end_membership(
    joined: &JoinedMesh,
    key: &MeshPrivateKey,
) -> anyhow::Result<()> {
    let named = broker_override();
    let broker = BrokerAddress::parse(named.as_deref().unwrap_or(&joined.broker_url))?;
    let client = Client::new(Options {
        server: broker.base_url(),
        timeout: LEAVE_TIMEOUT,
        ..Options::default()
    })?;
    let pubkey = key.public_key().to_string();
    let path = broker.path(&format!("v1/me/members/{pubkey}/leave"));
    let now_ms = Timestamp::now().as_millisecond().unsigned_abs();
    let text = MeshSignedText::http(&joined.mesh_id, &pubkey, "POST", &path, now_ms);
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-mesh-id", joined.mesh_id.clone()),
        ("x-mesh-member", pubkey),
        ("x-mesh-timestamp", now_ms.to_string()),
        ("x-mesh-signature", text.sign(key)),
    ] {
        let value = HeaderValue::try_from(value).context("a header of the request")?;
        headers.insert(HeaderName::from_static(name), value);
    }
    let answered = client
        .request(Method::POST, &path, headers, Vec::new().into())
        .await;
    let hint = "remove the files alone with --force; the membership stays at the broker then";
    let response = answered.map_err(|error| {
        let message = format!("the broker cannot be asked: {error}");
        Failure::new(Exit::Unreachable, message).hint(hint)
    })?;
    if response.status.is_success() {
        return Ok(());
    }
    let message = format!(
        "the broker refused to end the membership (status {})",
        response.status
    );
    Err(Failure::new(Exit::Refused, message).hint(hint).into())
}
