//! Identifiers of the mesh: opaque ids that a broker assigned, and names that people chose.
//!
//! Invariant: no identifier contains a control character, white space at its ends, or a `|`, which separates the fields of
//! signed texts. Input is never corrected, except that keys and UUIDs are printed in lower case.

#[cfg(test)]
mod tests;

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::limits::{
    DISPLAY_NAME_CHARS_MAX, GROUP_NAME_CHARS_MAX, OPAQUE_ID_BYTES_MAX, QUEUE_NAME_CHARS_MAX,
    SLUG_CHARS_MAX, TOPIC_NAME_CHARS_MAX,
};

/// The text is not an identifier of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind}: {rule}")]
pub struct InvalidId {
    pub kind: &'static str,
    pub rule: &'static str,
}

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $valid:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(String);

        impl $name {
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let is_valid: fn(&str) -> bool = $valid;
                if is_valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { kind: $kind, rule: $rule })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )*};
}

identifiers! {
    /// The id of a mesh, which the broker assigned.
    MeshId, "mesh id", "1 to 128 printable ASCII characters without space and |", is_opaque;
    /// The id of a member. It stays the same when the member's key is rotated.
    MemberId, "member id", "1 to 128 printable ASCII characters without space and |", is_opaque;
    /// The id of a topic, which the broker assigned.
    TopicId, "topic id", "1 to 128 printable ASCII characters without space and |", is_opaque;
    /// The id of one run of a client; a connection with the same id replaces the earlier one.
    MeshSessionId, "session id", "1 to 128 printable ASCII characters without space and |", is_opaque;
    /// The short name of a mesh in paths and commands.
    MeshSlug, "mesh slug", "1 to 64 of a-z, 0-9 and -, not - at the ends", is_slug;
    /// The name of a topic, unique in its mesh.
    TopicName, "topic", "1 to 64 letters, digits, '-', '_', '.', '/' or ':'", |text| is_name(text, TOPIC_NAME_CHARS_MAX);
    /// The name of a group without its `@`. Levels are separated by `/`: a member of `a/b` also belongs to `a`.
    GroupName, "group", "1 to 64 letters, digits, '-', '_', '.' or ':', with '/' between levels", is_group;
    /// The id of a named queue.
    QueueName, "queue", "1 to 128 letters, digits, '-', '_', '.', '/' or ':'", |text| is_name(text, QUEUE_NAME_CHARS_MAX);
    /// A topic in a request: its id or its name.
    TopicRef, "topic", "1 to 256 bytes without control characters", |text| is_short(text, 256);
    /// The name of a shared value.
    StateKey, "state key", "1 to 256 bytes without control characters", |text| is_short(text, 256);
    /// What a peer says that it is doing, or what a topic is for.
    SummaryText, "text", "at most 1000 bytes", |text| text.len() <= 1_000;
    /// The name that a member shows to others.
    DisplayName, "display name", "1 to 64 characters without control characters and space at the ends", is_display_name;
}

fn is_opaque(text: &str) -> bool {
    (1..=OPAQUE_ID_BYTES_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'|')
}

fn is_short(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn is_slug(text: &str) -> bool {
    let of_slug = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=SLUG_CHARS_MAX).contains(&text.len())
        && text.bytes().all(of_slug)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_name(text: &str, chars_max: usize) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    !text.is_empty() && text.chars().count() <= chars_max && text.chars().all(of_name)
}

fn is_group(text: &str) -> bool {
    is_name(text, GROUP_NAME_CHARS_MAX) && text.split('/').all(|level| !level.is_empty())
}

fn is_display_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().count() <= DISPLAY_NAME_CHARS_MAX
        && text.trim() == text
        && !text.chars().any(char::is_control)
}

impl GroupName {
    /// The group that every member belongs to.
    pub const ALL: &'static str = "all";

    /// Whether a member of this group receives what is sent to `addressed`: the same group, or one above it.
    pub fn is_within(&self, addressed: &Self) -> bool {
        let rest = self.0.strip_prefix(&addressed.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The id that the broker gives to an accepted message, and the id of its history row: 128 bits, printed as a UUID.
///
/// Ids made later are greater, as texts too, because the first bits are the time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BrokerMessageId([u8; 16]);

impl BrokerMessageId {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads a hyphenated UUID in either case.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let invalid = InvalidId {
            kind: "message id",
            rule: "a hyphenated UUID",
        };
        let bytes = text.as_bytes();
        let hyphens = [8, 13, 18, 23];
        if bytes.len() != 36 || hyphens.iter().any(|at| bytes[*at] != b'-') {
            return Err(invalid);
        }
        let digits: Vec<u8> = bytes
            .iter()
            .enumerate()
            .filter(|(at, _)| !hyphens.contains(at))
            .map(|(_, byte)| byte.to_ascii_lowercase())
            .collect();
        let mut id = [0; 16];
        match HEXLOWER.decode_mut(&digits, &mut id) {
            Ok(16) => Ok(Self(id)),
            _ => Err(invalid),
        }
    }
}

impl fmt::Display for BrokerMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = HEXLOWER.encode(&self.0);
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        f.pad(&parts.join("-"))
    }
}

impl fmt::Debug for BrokerMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrokerMessageId({self})")
    }
}

impl TryFrom<String> for BrokerMessageId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::parse(&text)
    }
}

impl From<BrokerMessageId> for String {
    fn from(id: BrokerMessageId) -> Self {
        id.to_string()
    }
}
