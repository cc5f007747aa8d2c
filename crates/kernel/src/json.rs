//! JSON as it was sent: one scanner, and the four things the kernel asks of a text.
//!
//! [`compact`] stores, [`Object`] and [`Raw`] read, [`fingerprint`] compares, [`canonical`] signs.
//! Invariant: none of them loses or rewrites a number token, a duplicate member or the member
//! order unless its job is exactly that, and none of them recurses, so no text can exhaust the
//! stack. There is no tree of values here and no serialiser; serde does that where it is enough.

mod canonical;
mod compact;
mod fingerprint;
mod measure;
mod number;
mod object;
#[cfg(test)]
mod properties;
mod raw;
mod scan;
mod text;

use std::fmt;

pub use canonical::{CanonicalError, canonical, canonical_value};
pub use compact::compact;
pub use fingerprint::fingerprint;
pub use measure::utf8_len;
pub use number::write_ecmascript;
pub use object::Object;
pub use raw::Raw;

/// How deep a text may nest where the caller has no limit of its own.
pub const DEPTH_MAX: usize = 128;

/// What a JSON value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl fmt::Display for JsonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// Why a text could not be read. Positions are byte offsets; the text itself is never repeated,
/// because it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    #[error("no JSON value was sent")]
    Empty,
    #[error("not valid UTF-8 at byte {at}")]
    NotUtf8 { at: usize },
    #[error("starts with a byte order mark, which JSON does not allow")]
    ByteOrderMark,
    #[error("not valid JSON at byte {at}")]
    Syntax { at: usize },
    #[error("the JSON value ends too early")]
    Truncated,
    #[error("nested deeper than {max} levels")]
    TooDeep { max: usize },
    #[error("something follows the JSON value at byte {at}")]
    Trailing { at: usize },
    #[error("half of a surrogate pair at byte {at}, which is not text")]
    LoneSurrogate { at: usize },
    #[error("expected {wanted}, found {found}")]
    Unexpected { wanted: JsonKind, found: JsonKind },
}
