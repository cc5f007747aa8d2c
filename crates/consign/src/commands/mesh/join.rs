//! `consign mesh join LINK --name NAME`: makes this user a member, and records the mesh in `config.json`.
//!
//! Invariant: the file is written only after the broker admitted the member, in one step, and other meshes in it are kept. A
//! user who joins again keeps the key, so no use of the invite is spent.

use std::time::Duration;

use anyhow::Context as _;
use consign_client::{Client, HeaderMap, Method, Options, Response};
use consign_mesh::http::JoinAnswer;
use consign_mesh::id::{DisplayName, MeshSlug};
use consign_mesh::invite::InvitePayload;
use consign_mesh::joined::JoinedMesh;
use consign_mesh::keys::MeshPrivateKey;
use jiff::{Timestamp, Unit};
use serde_json::{Map, json};
use zeroize::Zeroizing;

use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::mesh_member::broker_address::BrokerAddress;
use crate::mesh_member::home::{self, MemberHome};
use crate::serve::ledger::random_bytes;
use crate::{input, out, render};

const INVITE_VERSION: u32 = 1;
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The link or the token of the invite; `-` reads it from standard input, `@FILE` from a file
    #[arg(value_name = "LINK_OR_TOKEN")]
    invite: String,

    /// The name that other members see
    #[arg(long, value_name = "NAME")]
    name: String,

    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let joined = join(&self.invite, &self.name, JoinKey::Kept).await?;
        if self.output.json {
            out::json(&json!({
                "mesh_id": joined.mesh_id,
                "member_id": joined.member_id,
                "slug": joined.slug,
                "pubkey": joined.pubkey,
            }))?;
        } else {
            let (slug, name) = (render::safe(&joined.slug), render::safe(&self.name));
            out::data(&format!(
                "joined {slug} as {name}; start the daemon with: consign daemon up --mesh {slug}"
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Which key joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinKey {
    /// The one of an earlier membership, if there is one.
    Kept,
    /// Always a new one, so that it becomes a new member.
    New,
}

/// Joins with an invite and records the mesh.
pub(crate) async fn join(invite: &str, name: &str, key: JoinKey) -> anyhow::Result<JoinedMesh> {
    let text = input::text("the invite", invite)?;
    let payload = InvitePayload::parse(&text).map_err(|error| Failure::usage(error.to_string()))?;
    let name =
        DisplayName::parse(name).map_err(|error| Failure::usage(format!("--name: {error}")))?;
    let slug = MeshSlug::parse(&payload.mesh_slug)
        .map_err(|error| Failure::usage(format!("the invite: {error}")))?;
    let home = MemberHome::from_environment()?;
    let kept = key_for(&home, &payload, &slug)?;
    let key = match key {
        JoinKey::Kept => kept,
        JoinKey::New => new_key()?,
    };
    let member_id = request(&payload, &key, &name).await?;
    let joined = record(payload, slug.as_str(), &member_id, &key)?;
    store(&home, joined.clone(), &name)?;
    Ok(joined)
}

/// Joins with an invite under a new key, and records nothing: who holds the answer ends the membership.
pub(crate) async fn join_unrecorded(
    payload: InvitePayload,
    name: &DisplayName,
) -> anyhow::Result<JoinedMesh> {
    let key = new_key()?;
    let member_id = request(&payload, &key, name).await?;
    let slug = payload.mesh_slug.clone();
    record(payload, &slug, &member_id, &key)
}

/// The key of an earlier membership in this mesh, or a new one. Directories of daemons are named by slug, so two meshes of one
/// slug cannot both be joined.
fn key_for(
    home: &MemberHome,
    payload: &InvitePayload,
    slug: &MeshSlug,
) -> anyhow::Result<MeshPrivateKey> {
    let joined = home.joined()?;
    match joined.get(slug.as_str()) {
        Some(mesh) if mesh.mesh_id != payload.mesh_id => {
            let message = format!(
                "another mesh with the slug {slug} is joined: {}",
                mesh.mesh_id
            );
            let hint = "use another CLAUDEMESH_CONFIG_DIR and CLAUDEMESH_DAEMON_DIR for it";
            Err(Failure::usage(message).hint(hint).into())
        }
        Some(mesh) => mesh
            .key()
            .with_context(|| format!("the key of {slug} in {}", home.config_file().display())),
        None => new_key(),
    }
}

fn new_key() -> anyhow::Result<MeshPrivateKey> {
    let seed = Zeroizing::new(random_bytes()?);
    Ok(MeshPrivateKey::from_seed(&seed))
}

/// Asks the broker to admit the key. Returns the id of the member.
async fn request(
    payload: &InvitePayload,
    key: &MeshPrivateKey,
    name: &DisplayName,
) -> anyhow::Result<String> {
    let named = home::broker_override();
    let broker = BrokerAddress::parse(named.as_deref().unwrap_or(&payload.broker_url))?;
    let client = Client::new(Options {
        server: broker.base_url(),
        timeout: JOIN_TIMEOUT,
        ..Options::default()
    })?;
    let body = serde_json::to_vec(&json!({
        "invite_token": payload.token(),
        "invite_payload": payload,
        "peer_pubkey": key.public_key(),
        "display_name": name.as_str(),
    }))?;
    let path = broker.path("join");
    let headers = HeaderMap::new();
    let answered = client
        .request(Method::POST, &path, headers, body.into())
        .await;
    let response = answered.map_err(|error| {
        let message = format!("the broker of the invite cannot be asked: {error}");
        Failure::new(Exit::Unreachable, message)
    })?;
    admitted(&response).map_err(Into::into)
}

/// The id of the new member, or the broker's word for the refusal.
fn admitted(response: &Response) -> Result<String, Failure> {
    let status = response.status.as_u16();
    let unreadable = || {
        let message = format!("the broker answered with status {status} and no readable body");
        Failure::new(
            if status < 500 {
                Exit::Refused
            } else {
                Exit::Failed
            },
            message,
        )
    };
    let answer: JoinAnswer = serde_json::from_slice(&response.body).map_err(|_| unreadable())?;
    match (answer.ok, answer.member_id, answer.error) {
        (true, Some(member), _) => Ok(member),
        (_, _, Some(error)) => {
            let message = format!("the broker refused the invite: {error}");
            Err(Failure::new(Exit::Refused, message).context(json!({"code": error})))
        }
        (_, _, None) => Err(unreadable()),
    }
}

fn record(
    payload: InvitePayload,
    slug: &str,
    member_id: &str,
    key: &MeshPrivateKey,
) -> anyhow::Result<JoinedMesh> {
    let mut rest = Map::new();
    rest.insert("rootKey".to_owned(), payload.mesh_root_key.into());
    rest.insert("inviteVersion".to_owned(), INVITE_VERSION.into());
    Ok(JoinedMesh {
        mesh_id: payload.mesh_id,
        member_id: member_id.to_owned(),
        slug: slug.to_owned(),
        name: slug.to_owned(),
        pubkey: key.public_key().to_string(),
        secret_key: key.reveal(),
        broker_url: payload.broker_url,
        joined_at: Timestamp::now().round(Unit::Millisecond)?.to_string(),
        rest,
    })
}

/// Adds the mesh to the file, and the name of the user if it has none.
fn store(home: &MemberHome, mesh: JoinedMesh, name: &DisplayName) -> anyhow::Result<()> {
    home.change_joined(|joined| {
        joined.put(mesh);
        let names = joined.rest.entry("displayName".to_owned());
        names.or_insert_with(|| name.as_str().into());
    })
}

#[cfg(test)]
mod tests {
    use consign_client::{Bytes, StatusCode};

    use super::*;

    fn answer(status: u16, body: &'static str) -> Result<String, String> {
        let response = Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
        };
        admitted(&response).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_refusal_names_the_brokers_code() {
        assert_eq!(
            answer(200, r#"{"ok":true,"memberId":"m-1"}"#),
            Ok("m-1".to_owned())
        );
        assert_eq!(
            answer(400, r#"{"ok":false,"error":"invite_exhausted"}"#),
            Err("the broker refused the invite: invite_exhausted".to_owned())
        );
        assert!(answer(502, "<html>").is_err());
        assert!(answer(200, r#"{"ok":true}"#).is_err());
    }
}
