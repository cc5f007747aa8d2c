//! The check of a payload against the fields that the catalog lists for an intent.
//!
//! Invariant: the error does not depend on the order of members in the payload. Missing members are reported before members of
//! the wrong type, both in the order of the catalog, and only the first error is reported. Members that the catalog does not
//! list are allowed.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use crate::text::BeamValue;

/// A JSON value whose members can be looked up. The check needs no more, so it works on a value that keeps the order and the
/// spelling of what was signed.
pub trait PayloadNode {
    fn kind(&self) -> PayloadKind<'_>;

    /// The member of an object with this name, the last one if there are several. `None` if this is no object.
    fn member(&self, name: &str) -> Option<&Self>;
}

/// What a JSON value is. Numbers are compared as JavaScript does, in double precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PayloadKind<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(&'a str),
    Array,
    Object,
}

impl PayloadNode for BeamValue {
    fn kind(&self) -> PayloadKind<'_> {
        match self {
            Self::Null => PayloadKind::Null,
            Self::Bool(value) => PayloadKind::Bool(*value),
            Self::Number(number) => PayloadKind::Number(*number),
            // A text with half a surrogate pair is no value of an enumeration.
            Self::String(text) => PayloadKind::Text(text.as_str().unwrap_or_default()),
            Self::Array(_) => PayloadKind::Array,
            Self::Object(_) => PayloadKind::Object,
        }
    }

    fn member(&self, name: &str) -> Option<&Self> {
        self.get(name)
    }
}

impl PayloadNode for Value {
    fn kind(&self) -> PayloadKind<'_> {
        match self {
            Self::Null => PayloadKind::Null,
            Self::Bool(value) => PayloadKind::Bool(*value),
            Self::Number(number) => PayloadKind::Number(number.as_f64().unwrap_or(f64::NAN)),
            Self::String(text) => PayloadKind::Text(text),
            Self::Array(_) => PayloadKind::Array,
            Self::Object(_) => PayloadKind::Object,
        }
    }

    fn member(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }
}

/// The type that a field must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
}

impl FieldType {
    pub const fn word(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
        }
    }

    fn accepts(self, kind: PayloadKind<'_>) -> bool {
        match (self, kind) {
            (Self::String, PayloadKind::Text(_))
            | (Self::Number, PayloadKind::Number(_))
            | (Self::Boolean, PayloadKind::Bool(_))
            | (Self::Object, PayloadKind::Object)
            | (Self::Array, PayloadKind::Array) => true,
            // 2.0 is an integer: JSON has one kind of number.
            (Self::Integer, PayloadKind::Number(number)) => {
                number.is_finite() && number.fract() == 0.0
            }
            _ => false,
        }
    }
}

/// A value that an enumeration lists.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a text, number, boolean or null")]
pub enum EnumValue {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
}

impl EnumValue {
    fn is(&self, kind: PayloadKind<'_>) -> bool {
        kind == match self {
            Self::Null => PayloadKind::Null,
            Self::Bool(value) => PayloadKind::Bool(*value),
            Self::Number(number) => PayloadKind::Number(*number),
            Self::Text(text) => PayloadKind::Text(text),
        }
    }
}

/// What the catalog says about one field. Other members of the rule, such as `default` and `maxLength`, are documentation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PayloadField {
    #[serde(rename = "type")]
    pub kind: Option<FieldType>,
    #[serde(rename = "enum")]
    pub allowed: Option<Vec<EnumValue>>,
    #[serde(default)]
    pub required: bool,
}

/// The fields of a payload, in the order of the catalog.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PayloadSchema {
    fields: Vec<(String, PayloadField)>,
}

/// The first thing wrong with a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {at}: {reason}")]
pub struct PayloadError {
    /// The JSON pointer of the value, `/` for the payload itself.
    pub at: String,
    pub reason: PayloadReason,
}

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadReason {
    #[error("must have required property '{0}'")]
    Missing(String),
    #[error("must be {}", .0.word())]
    Type(FieldType),
    #[error("must be equal to one of the allowed values")]
    NotAllowed,
}

impl PayloadSchema {
    pub fn fields(&self) -> impl Iterator<Item = (&str, &PayloadField)> {
        self.fields
            .iter()
            .map(|(name, field)| (name.as_str(), field))
    }

    pub fn check<N: PayloadNode>(&self, payload: &N) -> Result<(), PayloadError> {
        let refused = |at: String, reason| Err(PayloadError { at, reason });
        if payload.kind() != PayloadKind::Object {
            return refused("/".to_owned(), PayloadReason::Type(FieldType::Object));
        }
        for (name, field) in self.fields() {
            if field.required && payload.member(name).is_none() {
                return refused("/".to_owned(), PayloadReason::Missing(name.to_owned()));
            }
        }
        for (name, field) in self.fields() {
            let Some(member) = payload.member(name) else {
                continue;
            };
            if let Err(reason) = field.check(member.kind()) {
                return refused(pointer(name), reason);
            }
        }
        Ok(())
    }
}

impl PayloadField {
    fn check(&self, kind: PayloadKind<'_>) -> Result<(), PayloadReason> {
        if let Some(wanted) = self.kind.filter(|wanted| !wanted.accepts(kind)) {
            return Err(PayloadReason::Type(wanted));
        }
        match &self.allowed {
            Some(allowed) if !allowed.iter().any(|value| value.is(kind)) => {
                Err(PayloadReason::NotAllowed)
            }
            _ => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for PayloadSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = PayloadSchema;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a rule per field")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PayloadSchema, A::Error> {
                let mut fields: Vec<(String, PayloadField)> = Vec::new();
                while let Some((name, field)) = map.next_entry::<String, PayloadField>()? {
                    if fields.iter().any(|(earlier, _)| *earlier == name) {
                        return Err(A::Error::custom(format!("the field `{name}` occurs twice")));
                    }
                    fields.push((name, field));
                }
                Ok(PayloadSchema { fields })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// The JSON pointer of a member of the payload.
fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}
