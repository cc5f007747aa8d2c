//! `meta` of a message: a JSON object whose canonical form is part of the request fingerprint.
//!
//! Invariant: absent, `null` and `{}` are the same, an empty text. What readers of JSON disagree about is refused: repeated
//! keys, integers beyond 2^53-1, numbers beyond doubles, halves of surrogate pairs.

#[cfg(test)]
mod tests;

use consign_kernel::json::{self, JsonKind, Raw};

use crate::limits::FRAME_DEPTH_MAX;

/// The canonical bytes of `meta`, empty if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CanonicalMeta(String);

/// `meta` has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("meta must be an object or null")]
    NotAnObject,
    #[error("meta_not_canonical: {0}")]
    NotCanonical(#[from] json::CanonicalError),
}

impl CanonicalMeta {
    /// Reads the text of the member as it was sent.
    pub fn parse(text: Option<&str>) -> Result<Self, MetaError> {
        let Some(text) = text else {
            return Ok(Self::default());
        };
        let raw =
            Raw::parse(text.as_bytes(), FRAME_DEPTH_MAX).map_err(json::CanonicalError::from)?;
        match raw.kind() {
            JsonKind::Null => return Ok(Self::default()),
            JsonKind::Object => {}
            JsonKind::Bool | JsonKind::Number | JsonKind::String | JsonKind::Array => {
                return Err(MetaError::NotAnObject);
            }
        }
        let canonical = json::canonical(text.as_bytes())?;
        let canonical = String::from_utf8(canonical).expect("canonical JSON is UTF-8");
        if canonical == "{}" {
            return Ok(Self::default());
        }
        Ok(Self(canonical))
    }

    /// The canonical text; empty without `meta`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical text; `None` without `meta`.
    pub fn to_member(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&self.0)
    }
}
