//! `client_message_id`: the key under which a message is accepted once.
//!
//! Invariant: 1 to 128 bytes of printable ASCII without spaces. White space around a text that a caller sent is removed
//! before it is compared, hashed or stored.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::CLIENT_MESSAGE_ID_BYTES_MAX;
use crate::ulid::MeshUlid;

/// The id of a message, chosen by its sender.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ClientMessageId(String);

/// The text is not a `client_message_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("client_message_id must be 1 to 128 printable ASCII characters without spaces")]
pub struct InvalidClientMessageId;

impl ClientMessageId {
    pub fn parse(text: &str) -> Result<Self, InvalidClientMessageId> {
        let text = text.trim();
        let is_valid = (1..=CLIENT_MESSAGE_ID_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidClientMessageId)
        }
    }

    /// The id of a request: the header `Idempotency-Key`, else the member `client_message_id` of the body, else a new ULID.
    ///
    /// An invalid header is refused, also if the body has a valid id: the caller meant the header to be used.
    pub fn choose(
        header: Option<&str>,
        body: Option<&str>,
        mint: impl FnOnce() -> MeshUlid,
    ) -> Result<Self, InvalidClientMessageId> {
        match header.or(body) {
            Some(text) => Self::parse(text),
            None => Ok(Self(mint().to_string())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for ClientMessageId {
    type Error = InvalidClientMessageId;

    fn try_from(text: String) -> Result<Self, InvalidClientMessageId> {
        Self::parse(&text)
    }
}

impl From<ClientMessageId> for String {
    fn from(id: ClientMessageId) -> Self {
        id.0
    }
}
