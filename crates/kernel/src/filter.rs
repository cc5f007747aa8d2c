//! The filter language of operators, such as `state:dead goal:mail.* age>1h`.
//!
//! HTTP and the command line parse the same text with [`Filter::parse`], and the store asks [`Filter::matches`] for each row
//! that it examines. Invariant: a filter is a condition on one row alone, so the same row and instant give the same answer in
//! every store. It does no IO and knows no index; [`Filter::kinds`], [`Filter::ids`] and [`Filter::owner`] say what an index
//! may narrow.

mod instant;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::ids::{IntentId, Micros};
use crate::json::{DEPTH_MAX, JsonKind, Raw};
use crate::profile::{Face, ProfileId};
use crate::state::{Cause, State};

pub use parse::{FilterError, KEYS};

/// The conditions on a row; all of them must hold. Without any, every row matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    terms: Vec<FilterTerm>,
}

#[derive(Clone, Debug, PartialEq)]
struct FilterTerm {
    negated: bool,
    test: FilterTest,
}

#[derive(Clone, Debug, PartialEq)]
enum FilterTest {
    Id(Vec<IntentId>),
    Namespace(Vec<TextPattern>),
    Goal(Vec<TextPattern>),
    Owner(Vec<TextPattern>),
    Worker(Vec<TextPattern>),
    State(Vec<String>),
    Face(Vec<Face>),
    /// In lower case.
    Error(String),
    OlderThan(i64),
    YoungerThan(i64),
    CreatedAfter(Micros),
    CreatedBefore(Micros),
    Payload {
        path: Vec<String>,
        value: MemberValue,
    },
}

/// A text, or with a star at its end, how a text begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TextPattern {
    text: String,
    is_prefix: bool,
}

/// What a member of a payload is compared with.
#[derive(Clone, Debug, PartialEq)]
struct MemberValue {
    text: String,
    /// Only a string equals it.
    quoted: bool,
    integer: Option<i64>,
    number: Option<f64>,
}

/// What a filter sees of a row.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub id: IntentId,
    pub profile: ProfileId,
    pub state: State,
    pub cause: Cause,
    pub namespace: &'a str,
    pub goal: &'a str,
    pub owner: &'a str,
    /// Who holds it, or held it last.
    pub worker: Option<&'a str>,
    pub created_at: Micros,
    pub last_error: Option<&'a str>,
    /// Compact JSON; `None` if it was not read, see [`Filter::reads_payload`].
    pub payload: Option<&'a str>,
}

impl Filter {
    /// Matches every row.
    pub fn all() -> Self {
        Self {
            text: String::new(),
            terms: Vec::new(),
        }
    }

    /// Whether it has no condition.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the row meets all conditions; ages count until `now`.
    pub fn matches(&self, row: &Candidate<'_>, now: Micros) -> bool {
        self.terms
            .iter()
            .all(|term| term.test.holds(row, now) != term.negated)
    }

    /// Whether a condition needs the payload of a row.
    pub fn reads_payload(&self) -> bool {
        let payload = |term: &FilterTerm| matches!(term.test, FilterTest::Payload { .. });
        self.terms.iter().any(payload)
    }

    /// The only rows that can match, if it names them.
    pub fn ids(&self) -> Option<&[IntentId]> {
        self.required().find_map(|test| {
            let FilterTest::Id(ids) = test else {
                return None;
            };
            Some(ids.as_slice())
        })
    }

    /// The only owner whose rows can match, if it names one.
    pub fn owner(&self) -> Option<&str> {
        self.required().find_map(|test| {
            let FilterTest::Owner(patterns) = test else {
                return None;
            };
            match patterns.as_slice() {
                [one] if !one.is_prefix => Some(one.text.as_str()),
                _ => None,
            }
        })
    }

    /// The profiles and states that a matching row may have.
    pub fn kinds(&self) -> Vec<(ProfileId, State)> {
        let mut kinds = Vec::new();
        for id in ProfileId::ALL {
            for (state, _, word) in id.profile().words {
                let kind = (*id, *state);
                if !kinds.contains(&kind) && self.allows(id.profile().face, word) {
                    kinds.push(kind);
                }
            }
        }
        kinds
    }

    fn allows(&self, face: Face, word: &str) -> bool {
        self.terms.iter().all(|term| {
            if let FilterTest::Face(faces) = &term.test {
                faces.contains(&face) != term.negated
            } else if let FilterTest::State(words) = &term.test {
                words.iter().any(|wanted| wanted == word) != term.negated
            } else {
                true
            }
        })
    }

    fn required(&self) -> impl Iterator<Item = &FilterTest> {
        let terms = self.terms.iter().filter(|term| !term.negated);
        terms.map(|term| &term.test)
    }
}

/// The text from which it was parsed.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FilterTest {
    fn holds(&self, row: &Candidate<'_>, now: Micros) -> bool {
        let any = |patterns: &[TextPattern], text: &str| {
            patterns.iter().any(|pattern| pattern.fits(text))
        };
        match self {
            Self::Id(ids) => ids.contains(&row.id),
            Self::Namespace(patterns) => any(patterns, row.namespace),
            Self::Goal(patterns) => any(patterns, row.goal),
            Self::Owner(patterns) => any(patterns, row.owner),
            Self::Worker(patterns) => row.worker.is_some_and(|worker| any(patterns, worker)),
            Self::State(words) => {
                let word = row.profile.profile().word(row.state, row.cause);
                word.is_some_and(|word| words.iter().any(|wanted| wanted == word))
            }
            Self::Face(faces) => faces.contains(&row.profile.profile().face),
            Self::Error(wanted) => row
                .last_error
                .is_some_and(|error| error.to_lowercase().contains(wanted)),
            Self::OlderThan(us) => row.created_at < now.minus(*us),
            Self::YoungerThan(us) => row.created_at > now.minus(*us),
            Self::CreatedAfter(at) => row.created_at > *at,
            Self::CreatedBefore(at) => row.created_at < *at,
            Self::Payload { path, value } => row
                .payload
                .and_then(|payload| Raw::parse(payload.as_bytes(), DEPTH_MAX).ok())
                .and_then(|payload| member(payload, path))
                .is_some_and(|found| value.equals(&found)),
        }
    }
}

impl TextPattern {
    fn fits(&self, text: &str) -> bool {
        if self.is_prefix {
            text.starts_with(&self.text)
        } else {
            text == self.text
        }
    }
}

/// The value at a path of names; an array is entered by the position of the element, from zero.
fn member<'a>(value: Raw<'a>, path: &[String]) -> Option<Raw<'a>> {
    path.iter()
        .try_fold(value, |value, name| match value.kind() {
            JsonKind::Object => value.object().ok()?.get(name),
            JsonKind::Array => value.items()?.get(name.parse::<usize>().ok()?).copied(),
            JsonKind::Null | JsonKind::Bool | JsonKind::Number | JsonKind::String => None,
        })
}

impl MemberValue {
    fn new(text: String, quoted: bool) -> Self {
        let token = Raw::parse(text.as_bytes(), 1).ok();
        let token = token.filter(|token| token.text() == text);
        let (integer, number) =
            token.map_or((None, None), |token| (token.as_i64(), token.as_f64()));
        Self {
            text,
            quoted,
            integer,
            number,
        }
    }

    fn equals(&self, found: &Raw<'_>) -> bool {
        match found.kind() {
            JsonKind::String => found.as_str().is_some_and(|text| text == self.text),
            JsonKind::Null | JsonKind::Bool => !self.quoted && found.text() == self.text,
            JsonKind::Number if self.quoted => false,
            // Integers beyond 2^53 differ as integers, though not as doubles.
            JsonKind::Number => match (self.integer, found.as_i64()) {
                (Some(wanted), Some(found)) => wanted == found,
                _ => self.number.is_some() && self.number == found.as_f64(),
            },
            JsonKind::Array | JsonKind::Object => false,
        }
    }
}
