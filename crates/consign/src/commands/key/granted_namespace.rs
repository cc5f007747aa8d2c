//! The namespace of a grant: of messages to an agent, which may be given as a Beam-ID, or of a queue of a mesh; and the two arguments that name a grant.

use std::str::FromStr;

use consign_beam::beam_id::BeamId;
use consign_beam::bus::{agent_of_namespace, worker_namespace};
use consign_mesh::broker::queue_of_namespace;
use serde::Serialize;

/// A namespace of messages to an agent, or of items of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GrantedNamespace(String);

impl GrantedNamespace {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GrantedNamespace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("mesh.") {
            queue_of_namespace(text).map_err(|error| error.to_string())?;
            return Ok(Self(text.to_owned()));
        }
        let agent = if text.contains('@') {
            BeamId::parse(text).map_err(|error| error.to_string())?
        } else {
            agent_of_namespace(text).map_err(|error| error.to_string())?
        };
        let namespace = worker_namespace(&agent).map_err(|error| error.to_string())?;
        Ok(Self(namespace))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct GrantArgs {
    /// The id of the key, as in the list of keys; `main` for the main key
    #[arg(value_name = "KEYID")]
    pub(crate) key_id: String,

    /// beam.AGENT.ORG, beam.AGENT, the Beam-ID of the agent, or mesh.SLUG.QUEUE
    #[arg(value_name = "NAMESPACE")]
    pub(crate) namespace: GrantedNamespace,
}

/// What a command did with a grant.
#[derive(Serialize)]
pub(crate) struct GrantReport<'a> {
    pub(crate) key_id: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) granted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_given_by_itself_or_by_the_agent() {
        for text in ["beam.bob.acme", "bob@acme.beam.directory"] {
            let parsed: GrantedNamespace = text.parse().unwrap();
            assert_eq!(parsed.as_str(), "beam.bob.acme");
        }
        let personal: GrantedNamespace = "bob@beam.directory".parse().unwrap();
        assert_eq!(personal.as_str(), "beam.bob");
        let queue: GrantedNamespace = "mesh.acme.builds".parse().unwrap();
        assert_eq!(queue.as_str(), "mesh.acme.builds");
        for text in ["default", "mesh.q", "beam.", "Bob@acme.beam.directory", ""] {
            assert!(text.parse::<GrantedNamespace>().is_err(), "{text}");
        }
    }
}
