//! Access control: which senders may send an intent to an agent.
//!
//! Invariant: what no entry allows is denied. An entry is about one agent and one type of intent; only its sender may be a
//! pattern.

use consign_kernel::plant::{self, Plant};

use crate::beam_id::BeamId;
use crate::catalog::{Catalog, CatalogIntent};

#[cfg(test)]
mod tests;

/// The sender pattern that matches everyone.
const ANYONE: &str = "*";

/// The end of every Beam-ID.
const ID_END: &str = ".directory";

/// The organisation whose agents get entries from the catalog.
pub const DEMO_ORG: &str = "demo";

/// Agents of [`DEMO_ORG`] that get entries although the catalog does not name them.
const DEMO_AGENTS: [&str; 2] = ["agent-a", "agent-b"];

/// Allows a sender to send a type of intent to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AclEntry {
    target: String,
    intent: String,
    allowed_from: String,
}

/// A part of an entry is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} is required")]
pub struct InvalidAclEntry {
    /// The name of the member, as in a request.
    pub field: &'static str,
}

impl AclEntry {
    /// Trims the parts and refuses blank ones. A sender that is neither an id nor a pattern is kept, and matches no sender.
    pub fn new(target: &str, intent: &str, allowed_from: &str) -> Result<Self, InvalidAclEntry> {
        let part = |text: &str, field: &'static str| match text.trim() {
            "" => Err(InvalidAclEntry { field }),
            text => Ok(text.to_owned()),
        };
        Ok(Self {
            target: part(target, "targetBeamId")?,
            intent: part(intent, "intentType")?,
            allowed_from: part(allowed_from, "allowedFrom")?,
        })
    }

    pub fn target(&self) -> &str {
        &self.target
    }

    pub fn intent(&self) -> &str {
        &self.intent
    }

    pub fn allowed_from(&self) -> &str {
        &self.allowed_from
    }

    pub fn allows(&self, target: &str, intent: &str, sender: &str) -> bool {
        self.target == target && self.intent == intent && matches_sender(&self.allowed_from, sender)
    }
}

/// Whether any entry allows it.
pub fn is_allowed<'a>(
    entries: impl IntoIterator<Item = &'a AclEntry>,
    target: &str,
    intent: &str,
    sender: &str,
) -> bool {
    entries
        .into_iter()
        .any(|entry| entry.allows(target, intent, sender))
}

/// Whether the pattern of an entry matches a sender: `*`, the id itself, `*@REST` for ids that end in `@REST`, `*.REST` for ids
/// that end in `.REST`.
pub fn matches_sender(allowed_from: &str, sender: &str) -> bool {
    if allowed_from == ANYONE || allowed_from == sender {
        return true;
    }
    match allowed_from.strip_prefix('*') {
        Some(rest) if plant::on(Plant::SuffixOnly) => {
            sender.ends_with(rest.trim_start_matches(['@', '.']))
        }
        Some(rest) if rest.starts_with(['@', '.']) => sender.ends_with(rest),
        _ => false,
    }
}

/// Whether a text can match any sender: a Beam-ID, `*`, `*@REST` or `*.REST`.
pub fn is_sender_or_pattern(text: &str) -> bool {
    match text.strip_prefix(ANYONE) {
        None => BeamId::parse(text).is_ok(),
        Some("") => true,
        Some(rest) => rest.starts_with(['@', '.']) && rest.ends_with(ID_END),
    }
}

/// The entries that the catalog gives to an agent: none, unless it belongs to [`DEMO_ORG`] and the catalog names it. An intent
/// for every agent is for the agents that the catalog names, and for two more.
pub fn demo_entries(catalog: &Catalog, target: &BeamId) -> Vec<AclEntry> {
    let agent = target.agent();
    let names_agent = |names: &[String]| names.iter().any(|name| name == agent);
    let is_known = DEMO_AGENTS.contains(&agent)
        || (catalog.intents().iter())
            .any(|intent| names_agent(&intent.from) || names_agent(&intent.to));
    if target.org() != DEMO_ORG || !is_known {
        return Vec::new();
    }
    let received = (catalog.intents().iter())
        .filter(|intent| intent.is_to_every_agent() || names_agent(&intent.to));
    let entries = received.flat_map(|intent| {
        let senders = demo_senders(intent).into_iter();
        senders.map(|allowed_from| AclEntry {
            target: target.to_string(),
            intent: intent.id.clone(),
            allowed_from,
        })
    });
    entries.collect()
}

fn demo_senders(intent: &CatalogIntent) -> Vec<String> {
    if intent.is_from_every_agent() {
        return vec![ANYONE.to_owned()];
    }
    let ids = (intent.from.iter()).filter_map(|name| BeamId::new(name, DEMO_ORG).ok());
    ids.map(String::from).collect()
}
