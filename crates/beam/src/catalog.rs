//! The catalog of intents: the types that the directory relays, and the payload of each.
//!
//! Invariant: an intent type that the catalog does not list is refused. The ids in a catalog are unique and not blank. Reading a
//! file is left to the caller.

use std::sync::LazyLock;

use consign_kernel::plant::{self, Plant};
use serde::Deserialize;

pub mod schema;

#[cfg(test)]
mod tests;

use schema::{PayloadError, PayloadNode, PayloadSchema};

/// The catalog of a directory for which no other is configured.
pub static BUILT_IN: LazyLock<Catalog> = LazyLock::new(|| {
    Catalog::parse(include_str!("catalog/catalog.json")).expect("the built-in catalog is valid")
});

/// In a list of agent names: every agent.
const EVERY_AGENT: &str = "*";

/// A type of intent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CatalogIntent {
    pub id: String,
    #[serde(default)]
    pub description: String,
    /// The names of the agents that send it; none listed means every agent.
    #[serde(default)]
    pub from: Vec<String>,
    /// The names of the agents that receive it; none listed means every agent.
    #[serde(default)]
    pub to: Vec<String>,
    /// Files of earlier versions call it `params`.
    #[serde(default, alias = "params")]
    pub payload: PayloadSchema,
}

impl CatalogIntent {
    pub fn is_from_every_agent(&self) -> bool {
        names_every_agent(&self.from)
    }

    pub fn is_to_every_agent(&self) -> bool {
        names_every_agent(&self.to)
    }
}

/// The intents that a directory accepts, and the document that describes them.
#[derive(Debug, Clone)]
pub struct Catalog {
    intents: Vec<CatalogIntent>,
    document: String,
}

/// Why a text is no catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("the catalog is not valid: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("intent {number} of the catalog has a blank id")]
    BlankId { number: usize },
    #[error("the catalog lists the intent `{id}` twice")]
    DuplicateId { id: String },
}

/// Why an intent is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogRefusal {
    #[error("Unknown intent type: {intent}")]
    UnknownIntent { intent: String },
    #[error("Invalid payload for intent {intent} {error}")]
    InvalidPayload { intent: String, error: PayloadError },
}

impl Catalog {
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        #[derive(Deserialize)]
        struct Document {
            intents: Vec<CatalogIntent>,
        }

        let Document { intents } = serde_json::from_str(text)?;
        for (index, intent) in intents.iter().enumerate() {
            let id = &intent.id;
            if id.trim().is_empty() {
                return Err(CatalogError::BlankId { number: index + 1 });
            }
            if intents[..index].iter().any(|earlier| earlier.id == *id) {
                return Err(CatalogError::DuplicateId { id: id.clone() });
            }
        }
        Ok(Self {
            intents,
            document: text.trim().to_owned(),
        })
    }

    /// The JSON text that the catalog was parsed from, with everything that only documents it.
    pub fn document(&self) -> &str {
        &self.document
    }

    /// The intents, in the order of the document.
    pub fn intents(&self) -> &[CatalogIntent] {
        &self.intents
    }

    pub fn get(&self, intent: &str) -> Option<&CatalogIntent> {
        self.intents.iter().find(|listed| listed.id == intent)
    }

    /// Whether the intent is listed and its payload has the listed fields.
    pub fn check<N: PayloadNode>(&self, intent: &str, payload: &N) -> Result<(), CatalogRefusal> {
        let Some(listed) = self.get(intent) else {
            if plant::on(Plant::UnknownIntentAccepted) {
                return Ok(());
            }
            return Err(CatalogRefusal::UnknownIntent {
                intent: intent.to_owned(),
            });
        };
        listed
            .payload
            .check(payload)
            .map_err(|error| CatalogRefusal::InvalidPayload {
                intent: intent.to_owned(),
                error,
            })
    }
}

fn names_every_agent(names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name == EVERY_AGENT)
}
