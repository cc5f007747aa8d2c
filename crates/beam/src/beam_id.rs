//! Beam-IDs: `agent@org.beam.directory`, or `agent@beam.directory` for an agent without an organisation.
//!
//! Invariant: a [`BeamId`] matches the grammar, and each of its labels has at most [`LABEL_CHARS_MAX`] characters. Input is never
//! corrected: a caller that accepts upper case or surrounding space changes the text first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The longest agent name and the longest organisation.
pub const LABEL_CHARS_MAX: usize = 64;

/// The organisation of every agent that has none.
pub const PERSONAL_ORG: &str = "personal";

/// The longest result of [`slug`].
pub const SLUG_CHARS_MAX: usize = 32;

const DOMAIN: &str = "beam.directory";

/// The name of an agent that has neither a usable display name nor an e-mail address.
const DEFAULT_NAME: &str = "agent";

/// The address of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BeamId(String);

/// The text does not match the grammar of Beam-IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Invalid beamId format")]
pub struct InvalidBeamId;

impl BeamId {
    pub fn parse(text: &str) -> Result<Self, InvalidBeamId> {
        let (agent, host) = text.split_once('@').ok_or(InvalidBeamId)?;
        let org_is_valid = host == DOMAIN || org_label(host).is_some_and(is_label);
        if is_label(agent) && org_is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidBeamId)
        }
    }

    /// The id of an agent of an organisation; [`PERSONAL_ORG`] gives the form without one.
    pub fn new(agent: &str, org: &str) -> Result<Self, InvalidBeamId> {
        if org == PERSONAL_ORG {
            Self::parse(&format!("{agent}@{DOMAIN}"))
        } else {
            Self::parse(&format!("{agent}@{org}.{DOMAIN}"))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the `@`.
    pub fn agent(&self) -> &str {
        self.halves().0
    }

    /// The organisation, [`PERSONAL_ORG`] if the id has none.
    pub fn org(&self) -> &str {
        org_label(self.halves().1).unwrap_or(PERSONAL_ORG)
    }

    /// Whether the id has no organisation.
    pub fn is_personal(&self) -> bool {
        self.halves().1 == DOMAIN
    }

    fn halves(&self) -> (&str, &str) {
        self.0.split_once('@').expect("a Beam-ID contains an @")
    }
}

impl FromStr for BeamId {
    type Err = InvalidBeamId;

    fn from_str(text: &str) -> Result<Self, InvalidBeamId> {
        Self::parse(text)
    }
}

impl TryFrom<String> for BeamId {
    type Error = InvalidBeamId;

    fn try_from(text: String) -> Result<Self, InvalidBeamId> {
        Self::parse(&text)
    }
}

impl From<BeamId> for String {
    fn from(id: BeamId) -> Self {
        id.0
    }
}

impl AsRef<str> for BeamId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BeamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The label for a name that a person chose: lower case, every run of other characters as one `-`, none of them at the ends.
/// Empty if no character is usable.
pub fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.to_lowercase().chars() {
        let c = if is_label_char(c) { c } else { '-' };
        let is_redundant = c == '-' && (slug.is_empty() || slug.ends_with('-'));
        if !is_redundant {
            slug.push(c);
        }
    }
    // Every character is ASCII, so this is a boundary.
    slug.truncate(SLUG_CHARS_MAX);
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

/// The agent name for a registration without a Beam-ID: from the display name, else from the e-mail address.
pub fn agent_name(display_name: &str, email: Option<&str>) -> String {
    let local_part = email.and_then(|email| email.split('@').next());
    [Some(display_name), local_part]
        .into_iter()
        .flatten()
        .map(slug)
        .find(|slug| !slug.is_empty())
        .unwrap_or_else(|| DEFAULT_NAME.to_owned())
}

/// The organisation that an e-mail address suggests: the first label of its domain.
pub fn org_of_email(email: &str) -> Option<String> {
    let (_, domain) = email.split_once('@')?;
    let org = slug(domain.split('.').next()?);
    (!org.is_empty()).then_some(org)
}

/// The ids to try for a new agent, in order: `agent`, `agent-2`, `agent-3` and so on, until the label is too long.
pub fn candidates(
    agent: &str,
    org: &str,
) -> Result<impl Iterator<Item = BeamId> + use<>, InvalidBeamId> {
    let first = BeamId::new(agent, org)?;
    let (agent, org) = (agent.to_owned(), org.to_owned());
    let numbered =
        (2_u32..).map_while(move |number| BeamId::new(&format!("{agent}-{number}"), &org).ok());
    Ok(std::iter::once(first).chain(numbered))
}

/// What precedes the domain in `org.beam.directory`.
fn org_label(host: &str) -> Option<&str> {
    host.strip_suffix(DOMAIN)?.strip_suffix('.')
}

fn is_label(text: &str) -> bool {
    (1..=LABEL_CHARS_MAX).contains(&text.len()) && text.chars().all(is_label_char)
}

const fn is_label_char(c: char) -> bool {
    matches!(c, 'a'..='z' | '0'..='9' | '_' | '-')
}
