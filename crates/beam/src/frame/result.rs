//! Result frames: the response of an agent, or of the relay in its stead.

use std::fmt;

use super::VERSION;
use crate::text::{BeamObject, BeamValue};

/// Why a value is no result frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResultFrameError {
    #[error("Invalid result frame body")]
    NotAnObject,
    #[error("nonce is required")]
    NonceMissing,
    #[error("success must be a boolean")]
    SuccessMissing,
}

/// The result of an intent.
#[derive(Clone, PartialEq)]
pub struct ResultFrame {
    fields: BeamObject,
    success: bool,
    nonce: String,
}

/// The fields of a new result frame.
#[derive(Clone, Default)]
pub struct ResultFields<'a> {
    pub success: bool,
    pub nonce: &'a str,
    pub timestamp: &'a str,
    pub payload: Option<BeamObject>,
    pub error: Option<&'a str>,
    pub error_code: Option<&'a str>,
    pub latency_ms: Option<i64>,
}

impl ResultFrame {
    /// Checks the fields that the relay acts on. All others may be absent or of any type.
    pub fn parse(value: BeamValue) -> Result<Self, ResultFrameError> {
        let BeamValue::Object(fields) = value else {
            return Err(ResultFrameError::NotAnObject);
        };
        let nonce = fields.get("nonce").and_then(BeamValue::as_str);
        let nonce = nonce
            .filter(|nonce| !nonce.is_empty())
            .ok_or(ResultFrameError::NonceMissing)?
            .to_owned();
        let success = fields.get("success").and_then(BeamValue::as_bool);
        Ok(Self {
            success: success.ok_or(ResultFrameError::SuccessMissing)?,
            nonce,
            fields,
        })
    }

    /// An unsigned frame with these fields; absent ones are omitted.
    pub fn new(given: ResultFields<'_>) -> Self {
        let mut fields = BeamObject::new();
        fields.insert("v", VERSION);
        fields.insert("success", given.success);
        fields.insert("nonce", given.nonce);
        fields.insert("timestamp", given.timestamp);
        let optional = [
            ("payload", given.payload.map(BeamValue::from)),
            ("error", given.error.map(BeamValue::from)),
            ("errorCode", given.error_code.map(BeamValue::from)),
            ("latency", given.latency_ms.map(BeamValue::from)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                fields.insert(name, value);
            }
        }
        Self {
            fields,
            success: given.success,
            nonce: given.nonce.to_owned(),
        }
    }

    pub fn set_signature(&mut self, signature: &str) {
        self.fields.insert("signature", signature);
    }

    pub fn success(&self) -> bool {
        self.success
    }

    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    pub fn timestamp(&self) -> Option<&str> {
        self.text("timestamp")
    }

    pub fn payload(&self) -> Option<&BeamValue> {
        self.fields.get("payload")
    }

    pub fn error(&self) -> Option<&str> {
        self.text("error")
    }

    pub fn error_code(&self) -> Option<&str> {
        self.text("errorCode")
    }

    /// As sent, in milliseconds; `None` if it is no finite number.
    pub fn latency(&self) -> Option<f64> {
        let latency = self.fields.get("latency").and_then(BeamValue::as_f64);
        latency.filter(|latency| latency.is_finite())
    }

    pub fn signature(&self) -> Option<&str> {
        self.text("signature")
    }

    /// All fields, unknown ones included. They are relayed and stored as they are.
    pub fn fields(&self) -> &BeamObject {
        &self.fields
    }

    pub fn to_value(&self) -> BeamValue {
        BeamValue::Object(self.fields.clone())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(BeamValue::as_str)
    }
}

/// Shows no payload and no signature.
impl fmt::Debug for ResultFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultFrame")
            .field("success", &self.success)
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ResultFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultFields")
            .field("success", &self.success)
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}
