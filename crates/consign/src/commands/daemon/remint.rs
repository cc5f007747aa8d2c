//! `consign daemon remint --invite LINK --name NAME`: new keys, and with them a new member.
//!
//! Invariant: the old keys are replaced only after the broker admitted the new member. The daemon takes the new key from
//! `config.json` at its next start, and records the machine again.

use consign_mesh::daemon::host_check::HOST_FILE;
use consign_mesh::invite::InvitePayload;
use serde_json::json;

use super::files::stopped;
use super::{DaemonSelector, lines};
use crate::commands::mesh::join::{JoinKey, join};
use crate::data_dir::remove_note;
use crate::failure::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct RemintArgs {
    /// The link or the token of an invite: a new member needs one
    #[arg(long, value_name = "LINK_OR_TOKEN")]
    invite: String,

    /// The name that other members see
    #[arg(long, value_name = "NAME")]
    name: String,
}

impl RemintArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let (home, slug) = target.place()?;
        let daemon = stopped(&home, &slug)?;
        let old = home.membership(&slug)?;
        let payload = InvitePayload::parse(&self.invite)
            .map_err(|error| Failure::usage(error.to_string()))?;
        if payload.mesh_id != old.mesh_id {
            let message = format!("the invite is not one of the mesh {slug}");
            return Err(Failure::usage(message).into());
        }
        let joined = join(&self.invite, &self.name, JoinKey::New).await?;
        remove_note(&daemon.directory().join(HOST_FILE))?;
        let answer = json!({
            "mesh": slug,
            "old_pubkey": old.pubkey,
            "pubkey": joined.pubkey,
            "member_id": joined.member_id,
        });
        target.print(&answer, lines)
    }
}
