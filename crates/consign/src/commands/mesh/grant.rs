//! `consign mesh grant MEMBER RIGHT...` and `consign mesh grants`: what this member lets others do.
//!
//! The broker applies it. The daemon has no request for it, so the commands ask the broker themselves, as a session of the
//! member.

use consign_mesh::daemon::cold_path::{ColdPath, ColdPathError};
use consign_mesh::destination::Recipient;
use consign_mesh::role::{PeerGrant, PeerGrants};
use serde_json::{Value, json};

use super::send::cold_failure;
use crate::commands::OutputArgs;
use crate::commands::daemon::lines;
use crate::failure::{Exit, Failure};
use crate::mesh_member::home::{MemberHome, broker_override};
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct MemberGrantArgs {
    /// The member that may do it: a key, the beginning of a key or a name
    #[arg(value_name = "MEMBER")]
    member: String,

    #[command(flatten)]
    rights: RightArgs,

    #[command(flatten)]
    own: OwnArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MemberGrantsArgs {
    #[command(flatten)]
    own: OwnArgs,
}

/// Which rights a member gets.
#[derive(Debug, clap::Args)]
pub(super) struct RightArgs {
    /// What the member may do, and nothing else: read, dm, broadcast, state-read
    #[arg(value_name = "RIGHT", value_parser = right, required_unless_present_any = ["block", "default"])]
    rights: Vec<PeerGrant>,

    /// No direct messages and no posts of the member
    #[arg(long, conflicts_with_all = ["rights", "default"])]
    block: bool,

    /// The member may do what members may by default
    #[arg(long, conflicts_with = "rights")]
    default: bool,
}

/// The membership of the user of this command.
#[derive(Debug, clap::Args)]
struct OwnArgs {
    /// The mesh, by its slug; without it the only one that is joined
    #[arg(long, value_name = "SLUG")]
    mesh: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

impl RightArgs {
    /// `None` is the default.
    pub(super) fn list(&self) -> Option<Vec<PeerGrant>> {
        (!self.default).then(|| self.rights.clone())
    }
}

impl MemberGrantArgs {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let unknown = || Failure::usage("MEMBER is a key, the beginning of a key or a name");
        let member = Recipient::parse(&self.member).ok_or_else(unknown)?;
        let is_member = matches!(
            member,
            Recipient::Key(_) | Recipient::KeyPrefix(_) | Recipient::Name(_)
        );
        if !is_member {
            return Err(unknown().into());
        }
        let rights = self.rights.list();
        self.own
            .ask(async |cold| cold.set_grants(member, rights).await)
            .await
    }
}

impl MemberGrantsArgs {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        self.own.ask(async |cold| cold.grants().await).await
    }
}

impl OwnArgs {
    async fn ask(
        &self,
        request: impl AsyncFnOnce(ColdPath<'_>) -> Result<PeerGrants, ColdPathError>,
    ) -> anyhow::Result<Exit> {
        let home = MemberHome::from_environment()?;
        let slug = home.slug(self.mesh.as_deref())?;
        let mesh = home.membership(&slug)?;
        let named = broker_override();
        let cold = ColdPath {
            mesh: &mesh,
            broker_url: named.as_deref().unwrap_or(&mesh.broker_url),
            display_name: home.display_name()?,
        };
        let grants = request(cold).await.map_err(|error| cold_failure(&error))?;
        if self.output.json {
            out::json(&json!({"grants": grants}))?;
        } else if grants.0.is_empty() {
            out::note("every member may do what members may by default");
        } else {
            let shown = grants.0.iter().map(|(member, rights)| {
                let rights: Vec<&str> = rights.iter().map(|right| right.as_str()).collect();
                let rights = if rights.is_empty() {
                    "nothing".to_owned()
                } else {
                    rights.join(" ")
                };
                (member.to_string(), Value::from(rights))
            });
            out::data(&lines(&Value::Object(shown.collect())))?;
        }
        Ok(Exit::Done)
    }
}

fn right(text: &str) -> Result<PeerGrant, String> {
    PeerGrant::parse(text).ok_or_else(|| {
        let all: Vec<&str> = PeerGrant::ALL.iter().map(|right| right.as_str()).collect();
        format!("expected one of {}", all.join(", "))
    })
}
