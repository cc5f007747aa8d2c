//! Messages as work for workers of another protocol: each agent has a queue under a reserved namespace.
//!
//! `agent@org.beam.directory` has the namespace `beam.agent.org`, and `agent@beam.directory` has `beam.agent`. Labels contain
//! no dot, so each namespace belongs to one agent. A namespace has at most [`NAMESPACE_CHARS_MAX`] characters, so an agent
//! with longer names has none.

use consign_engine::{Error, ExposedItem, ExposedQueue, ExposedQueues, InvalidQueueName};
use consign_kernel::intent::Intent;
use consign_kernel::limits::NAMESPACE_CHARS_MAX;
use consign_kernel::profile::{Face, ProfileId};

use super::NAMESPACE;
use super::message::MessageContent;
use crate::beam_id::BeamId;
use crate::service::Beam;
use crate::text::BeamValue;

const PREFIX: &str = "beam.";
const DOMAIN: &str = "beam.directory";

/// The namespace of the messages to an agent.
pub fn worker_namespace(agent: &BeamId) -> Result<String, InvalidQueueName> {
    let namespace = if agent.is_personal() {
        format!("{PREFIX}{}", agent.agent())
    } else {
        format!("{PREFIX}{}.{}", agent.agent(), agent.org())
    };
    if namespace.len() > NAMESPACE_CHARS_MAX {
        let text = format!(
            "{agent} has no namespace, because {namespace} is longer than {NAMESPACE_CHARS_MAX} characters"
        );
        return Err(InvalidQueueName(text));
    }
    Ok(namespace)
}

/// The agent whose messages are under a namespace.
pub fn agent_of_namespace(namespace: &str) -> Result<BeamId, InvalidQueueName> {
    let invalid = || {
        let text = format!(
            "{namespace} names no agent: AGENT@ORG.{DOMAIN} has {PREFIX}AGENT.ORG, AGENT@{DOMAIN} has {PREFIX}AGENT, in lower case"
        );
        InvalidQueueName(text)
    };
    let name = namespace.strip_prefix(PREFIX).ok_or_else(invalid)?;
    let beam_id = match name.split_once('.') {
        Some((agent, org)) => format!("{agent}@{org}.{DOMAIN}"),
        None => format!("{name}@{DOMAIN}"),
    };
    let agent = BeamId::parse(&beam_id).map_err(|_| invalid())?;
    // Not only the way there, also the way back: no second name for the same agent.
    match worker_namespace(&agent) {
        Ok(own) if own == namespace => Ok(agent),
        Ok(_) => Err(invalid()),
        Err(error) => Err(error),
    }
}

impl Beam {
    /// The namespace in which workers serve this recipient, if any key has a grant for it.
    pub(super) async fn served_namespace(&self, recipient: &str) -> Result<Option<String>, Error> {
        let Ok(agent) = BeamId::parse(recipient) else {
            return Ok(None);
        };
        let Ok(namespace) = worker_namespace(&agent) else {
            return Ok(None);
        };
        let is_served = self.engine().is_granted_to_any(&namespace).await?;
        Ok(is_served.then_some(namespace))
    }
}

impl ExposedQueues for Beam {
    fn prefix(&self) -> &'static str {
        PREFIX
    }

    fn find(&self, namespace: &str) -> Result<ExposedQueue, InvalidQueueName> {
        let agent = agent_of_namespace(namespace)?;
        Ok(ExposedQueue {
            face: Face::Beam,
            namespace: NAMESPACE.to_owned(),
            owner: agent.into(),
        })
    }

    fn owns(&self, profile: ProfileId) -> bool {
        profile == ProfileId::BeamBus
    }

    fn item(&self, row: &Intent) -> ExposedItem {
        let agent = BeamId::parse(&row.owner).ok();
        let namespace = agent.and_then(|agent| worker_namespace(&agent).ok());
        let content = MessageContent::parse(&row.payload);
        let payload = match &content {
            Some(content) => BeamValue::Object(content.payload.clone()).to_text(),
            // A damaged message is shown as it is stored, so that its worker can fail it.
            None => row.payload.clone(),
        };
        let nonce = content.as_ref().map(|content| content.nonce.clone());
        ExposedItem {
            namespace: namespace.unwrap_or_else(|| row.namespace.clone()),
            payload,
            source: vec![
                ("sender", row.ties.sender.clone()),
                ("recipient", Some(row.owner.clone())),
                ("nonce", nonce),
                ("trace_id", content.and_then(|content| content.trace_id)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace_of(beam_id: &str) -> Result<String, String> {
        let agent = BeamId::parse(beam_id).unwrap();
        worker_namespace(&agent).map_err(|error| error.to_string())
    }

    #[test]
    fn be_175_a_namespace_names_one_agent_and_leads_back_to_it() {
        for (beam_id, namespace) in [
            ("bob@acme.beam.directory", "beam.bob.acme"),
            ("bob@beam.directory", "beam.bob"),
            ("bob@personal.beam.directory", "beam.bob.personal"),
            ("b_o-b@a_c-me.beam.directory", "beam.b_o-b.a_c-me"),
            ("acme@bob.beam.directory", "beam.acme.bob"),
            ("7@_.beam.directory", "beam.7._"),
        ] {
            assert_eq!(namespace_of(beam_id).as_deref(), Ok(namespace));
            let agent = agent_of_namespace(namespace).unwrap();
            assert_eq!(agent.as_str(), beam_id);
        }
    }

    #[test]
    fn be_175_a_name_that_does_not_fit_has_no_namespace() {
        let fits = format!("{}@acme.beam.directory", "a".repeat(54));
        assert_eq!(namespace_of(&fits).unwrap().len(), NAMESPACE_CHARS_MAX);
        let long = format!("{}@acme.beam.directory", "a".repeat(55));
        let error = namespace_of(&long).unwrap_err();
        assert!(error.contains("longer than 64"), "{error}");
        let long = format!("beam.{}", "a".repeat(60));
        assert!(agent_of_namespace(&long).is_err());
    }

    #[test]
    fn be_175_other_names_have_no_agent() {
        for namespace in [
            "beam.",
            "beam",
            "default",
            "mesh.bob",
            "beam.Bob.acme",
            "beam.bob.acme.more",
            "beam..acme",
            "beam.bob.",
            "beam.bob@acme",
        ] {
            let error = agent_of_namespace(namespace).unwrap_err();
            assert!(error.0.contains("names no agent"), "{namespace}: {error}");
        }
    }
}
