//! Intent frames and result frames: the messages that agents sign.
//!
//! Invariant: a frame keeps the whole value that was sent, unknown fields included, because
//! results sign them and relays pass them on. Fields that the server acts on are checked here and
//! nowhere else. Signatures, ids and times are checked by others.

mod result;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use std::fmt;

pub use result::{ResultFields, ResultFrame, ResultFrameError};

use crate::text::{BeamObject, BeamValue};

/// The protocol version that frames carry.
const VERSION: &str = "1";

/// Why a value is no intent frame. The text is part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("Invalid intent frame body")]
    NotAnObject,
    #[error("from, to and intent are required")]
    AddressMissing,
    #[error("payload must be an object")]
    PayloadNotAnObject,
    #[error("nonce is required")]
    NonceMissing,
    #[error("timestamp is required")]
    TimestampMissing,
    #[error("signature must be a string when provided")]
    SignatureNotAString,
    #[error("signature is required")]
    SignatureEmpty,
}

/// A request of one agent to another.
///
/// Invariant: the field `payload` is an object.
#[derive(Clone, PartialEq)]
pub struct IntentFrame {
    fields: BeamObject,
    from: String,
    to: String,
    intent: String,
    nonce: String,
    timestamp: String,
    signature: Option<String>,
}

/// The fields of a new intent frame.
#[derive(Clone)]
pub struct IntentFields {
    pub from: String,
    pub to: String,
    pub intent: String,
    pub payload: BeamObject,
    pub nonce: String,
    pub timestamp: String,
}

impl IntentFrame {
    /// Checks the shape of a value that was sent, in the order that the protocol prescribes.
    ///
    /// `params` is read if `payload` is absent or null; the frame then has both fields.
    /// A field with half of a surrogate pair counts as missing: it cannot be stored or compared.
    pub fn parse(value: BeamValue) -> Result<Self, FrameError> {
        let BeamValue::Object(mut fields) = value else {
            return Err(FrameError::NotAnObject);
        };
        let text = |name: &str| {
            let text = fields.get(name).and_then(BeamValue::as_str)?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let (Some(from), Some(to), Some(intent)) = (text("from"), text("to"), text("intent"))
        else {
            return Err(FrameError::AddressMissing);
        };
        let present = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let payload = present("payload").or_else(|| present("params"));
        let payload = payload
            .and_then(BeamValue::as_object)
            .ok_or(FrameError::PayloadNotAnObject)?
            .clone();
        let nonce = text("nonce").ok_or(FrameError::NonceMissing)?;
        let timestamp = text("timestamp").ok_or(FrameError::TimestampMissing)?;
        let signature = match fields.get("signature").map(BeamValue::as_str) {
            None => None,
            Some(Some("")) => return Err(FrameError::SignatureEmpty),
            Some(Some(signature)) => Some(signature.to_owned()),
            Some(None) => return Err(FrameError::SignatureNotAString),
        };
        fields.insert("payload", payload);
        Ok(Self {
            fields,
            from,
            to,
            intent,
            nonce,
            timestamp,
            signature,
        })
    }

    /// An unsigned frame with these fields.
    pub fn new(given: IntentFields) -> Self {
        let mut fields = BeamObject::new();
        fields.insert("v", VERSION);
        fields.insert("intent", &*given.intent);
        fields.insert("from", &*given.from);
        fields.insert("to", &*given.to);
        fields.insert("payload", given.payload);
        fields.insert("nonce", &*given.nonce);
        fields.insert("timestamp", &*given.timestamp);
        Self {
            fields,
            from: given.from,
            to: given.to,
            intent: given.intent,
            nonce: given.nonce,
            timestamp: given.timestamp,
            signature: None,
        }
    }

    /// The frame without unknown fields and with the current version, as the HTTP route relays it.
    #[must_use]
    pub fn without_unknown_fields(&self) -> Self {
        let mut frame = Self::new(IntentFields {
            from: self.from.clone(),
            to: self.to.clone(),
            intent: self.intent.clone(),
            payload: self.payload().clone(),
            nonce: self.nonce.clone(),
            timestamp: self.timestamp.clone(),
        });
        if let Some(signature) = &self.signature {
            frame.set_signature(signature.clone());
        }
        frame
    }

    pub fn set_signature(&mut self, signature: String) {
        self.fields.insert("signature", &*signature);
        self.signature = Some(signature);
    }

    pub fn from(&self) -> &str {
        &self.from
    }

    pub fn to(&self) -> &str {
        &self.to
    }

    pub fn intent(&self) -> &str {
        &self.intent
    }

    pub fn payload(&self) -> &BeamObject {
        let payload = self.fields.get("payload");
        payload
            .and_then(BeamValue::as_object)
            .expect("checked when the frame was made")
    }

    /// The payload as a value.
    pub fn payload_value(&self) -> Cow<'_, BeamValue> {
        match self.fields.get("payload") {
            Some(payload) => Cow::Borrowed(payload),
            None => Cow::Owned(BeamValue::Object(self.payload().clone())),
        }
    }

    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// As sent; see [`crate::timestamp::parse`].
    pub fn timestamp(&self) -> &str {
        &self.timestamp
    }

    pub fn signature(&self) -> Option<&str> {
        self.signature.as_deref()
    }

    /// All fields, unknown ones included, for the relay.
    pub fn fields(&self) -> &BeamObject {
        &self.fields
    }

    pub fn to_value(&self) -> BeamValue {
        BeamValue::Object(self.fields.clone())
    }
}

/// Shows no payload and no signature.
impl fmt::Debug for IntentFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntentFrame")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("intent", &self.intent)
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IntentFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntentFields")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("intent", &self.intent)
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}
