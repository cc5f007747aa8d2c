//! `consign agent register NAME`

use std::path::PathBuf;

use consign_beam::beam_id::{BeamId, PERSONAL_ORG, slug};
use consign_client::{Client, StatusCode};
use serde_json::{Value, json};

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamIdentity, BeamLinkArgs};
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key pair of the agent is written to the file of its identity, which the other commands use. An agent that is
registered again keeps what is not given, and gets a new API key; the earlier one is no longer valid.

Example:
  consign agent register Alice --org acme --capability quote
  consign agent register alice@acme.beam.directory --key alice.json")]
pub(crate) struct Args {
    /// Name of the agent, or its Beam-ID
    name: String,

    /// Organisation of the agent; without one its Beam-ID ends in @beam.directory
    #[arg(long)]
    org: Option<String>,

    /// What the agent can do; may be repeated
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,

    /// Text about the agent
    #[arg(long)]
    description: Option<String>,

    /// List the agent publicly
    #[arg(long)]
    public: bool,

    /// HTTPS address that receives the agent's intents
    #[arg(long, value_name = "URL")]
    http_endpoint: Option<String>,

    /// File of the identity; created if it does not exist [default: NAME.beam.json]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Show what would be registered, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let beam_id = beam_id(&self.name, self.org.as_deref())?;
        let path = self
            .key
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("{}.beam.json", beam_id.agent())));
        let stored = BeamIdentity::read(&path)?;
        if let Some(stored) = stored.as_ref().filter(|stored| stored.beam_id != beam_id) {
            let message = format!("{} belongs to {}", path.display(), stored.beam_id);
            let hint = "name another file with --key";
            return Err(Failure::usage(message).hint(hint).into());
        }
        let is_new = stored.is_none();
        let identity = match stored {
            Some(stored) => stored,
            None => BeamIdentity::new(beam_id, &path)?,
        };
        if self.dry_run {
            return self.show(&identity, is_new, None);
        }
        let client = self.link.client()?;
        if is_new {
            // Before the registration, so that the key of a registered agent is never lost.
            identity.create()?;
        }
        let known = if is_new {
            None
        } else {
            known_agent(&client, &identity).await?
        };
        let registration = self.registration(&identity, known.as_ref());
        let registered = client.beam_register(&registration).await;
        if let (Err(error), true) = (&registered, is_new)
            && error.status().is_some()
        {
            // The server has not registered this key.
            std::fs::remove_file(&path)?;
        }
        let registered = registered?;
        self.show(&identity, is_new, registered["apiKey"].as_str())
    }

    /// The protocol requires name and capabilities in every registration, so those of a known agent are repeated.
    fn registration(&self, identity: &BeamIdentity, known: Option<&Value>) -> Value {
        let known = |name: &str| known.map(|known| known[name].clone());
        let display_name = if self.name.contains('@') {
            known("display_name").unwrap_or_else(|| json!(identity.beam_id.agent()))
        } else {
            json!(self.name)
        };
        let capabilities = if self.capabilities.is_empty() {
            known("capabilities").unwrap_or_else(|| json!([]))
        } else {
            json!(self.capabilities)
        };
        let mut body = json!({
            "beamId": identity.beam_id.as_str(),
            "displayName": display_name,
            "capabilities": capabilities,
            "publicKey": identity.public_key(),
        });
        if self.public {
            body["visibility"] = json!("public");
        }
        for (name, value) in [
            ("description", &self.description),
            ("httpEndpoint", &self.http_endpoint),
        ] {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        body
    }

    fn show(
        &self,
        identity: &BeamIdentity,
        is_new: bool,
        api_key: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let path = identity.path.display().to_string();
        if self.output.json {
            out::json(&json!({
                "registered": !self.dry_run,
                "beam_id": identity.beam_id.as_str(),
                "public_key": identity.public_key(),
                "api_key": api_key,
                "identity_file": path,
                "identity_created": is_new && !self.dry_run,
            }))?;
            return Ok(Exit::Done);
        }
        out::data(&render::fields(&[
            ("beam id", Some(identity.beam_id.to_string())),
            ("api key", api_key.map(render::safe)),
            ("identity", Some(path)),
        ]))?;
        if self.dry_run {
            out::note("nothing was registered and no file was created");
        } else {
            out::note(
                "the API key is shown only now; keep it and the identity in files of mode 600",
            );
            if !is_new {
                out::note("an earlier API key of the agent is no longer valid");
            }
        }
        Ok(Exit::Done)
    }
}

/// The agent as the directory describes it, if it is registered.
async fn known_agent(client: &Client, identity: &BeamIdentity) -> anyhow::Result<Option<Value>> {
    match client.beam_agent(identity.beam_id.as_str()).await {
        Ok(agent) => Ok(Some(agent)),
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The Beam-ID that a name stands for.
fn beam_id(name: &str, org: Option<&str>) -> anyhow::Result<BeamId> {
    let unfit = || {
        Failure::usage(format!("{name:?} gives no Beam-ID")).hint(
            "use a name with letters or digits, or a Beam-ID such as alice@acme.beam.directory",
        )
    };
    if name.contains('@') {
        let beam_id = BeamId::parse(name).map_err(|_| unfit())?;
        if org.is_some_and(|org| org != beam_id.org()) {
            let message = format!("{beam_id} does not belong to the organisation of --org");
            return Err(Failure::usage(message).into());
        }
        return Ok(beam_id);
    }
    let beam_id = BeamId::new(&slug(name), org.unwrap_or(PERSONAL_ORG));
    Ok(beam_id.map_err(|_| unfit())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_an_organisation_give_a_beam_id() {
        for (name, org, expected) in [
            ("Alice", Some("acme"), "alice@acme.beam.directory"),
            ("Alice Smith", None, "alice-smith@beam.directory"),
            ("bob@acme.beam.directory", None, "bob@acme.beam.directory"),
            (
                "bob@acme.beam.directory",
                Some("acme"),
                "bob@acme.beam.directory",
            ),
        ] {
            assert_eq!(beam_id(name, org).unwrap().as_str(), expected);
        }
        for (name, org) in [
            ("!!!", None),
            ("bob@example.com", None),
            ("bob@acme.beam.directory", Some("other")),
            ("bob", Some("Not An Org")),
        ] {
            assert!(beam_id(name, org).is_err(), "{name} {org:?}");
        }
    }
}
