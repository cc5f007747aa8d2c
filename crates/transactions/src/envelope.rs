//! The envelope of a request: the operation, the site, the time and the idempotency key that its signer meant.
//!
//! Invariant: a signature is valid only for the request that these members describe. Without them, any signature of an agent
//! about an intent would be valid for every operation, at every site that knows the intent, under every key.
//! The bare `{intent_id, nonce}` of the protocol's vectors stays valid for authorize alone, because its nonce can be used
//! once.

#[cfg(test)]
mod tests;

use consign_kernel::ids::{Micros, SECOND_US};
use serde_json::Value;

use crate::document::{AgentSigner, AtpDocument};
use crate::fields::DocumentFields;
use crate::instant;
use crate::problem::Problem;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOperation {
    Authorize,
    Execute,
    Compensate,
    Cancel,
}

impl RequestOperation {
    pub const ALL: [Self; 4] = [
        Self::Authorize,
        Self::Execute,
        Self::Compensate,
        Self::Cancel,
    ];

    /// The `type` member of its requests.
    pub const fn document_type(self) -> &'static str {
        match self {
            Self::Authorize => "atp.authorize.v1",
            Self::Execute => "atp.execute.v1",
            Self::Compensate => "atp.compensate.v1",
            Self::Cancel => "atp.cancel.v1",
        }
    }

    pub(crate) fn of_document_type(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|operation| operation.document_type() == text)
    }
}

/// The envelope of a request that matches the operation and the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnvelope {
    issued_at: Option<Micros>,
}

impl RequestEnvelope {
    /// Every member that is present must match, signed or not; a signed request must have all of them.
    /// [`crate::key::IdempotencyKey`] checks that the idempotency key equals the header's.
    pub fn read(
        body: &AtpDocument,
        operation: RequestOperation,
        site: &str,
    ) -> Result<Self, Problem> {
        let fields = DocumentFields::of(body);
        let wanted = operation.document_type();
        let named = fields.read("type", &format!("{wanted:?} here"), |value| {
            value.as_str().filter(|named| named == wanted)
        })?;
        let meant_for = fields.text("site", 1..=usize::MAX)?;
        if meant_for.as_deref().is_some_and(|named| named != site) {
            return Err(Problem::SiteMismatch);
        }
        let issued_at = match fields.get("issued_at") {
            Some(_) => Some(fields.instant("issued_at")?),
            None => None,
        };
        let is_bare = operation == RequestOperation::Authorize && named.is_none();
        if body.is_signed() && !is_bare {
            let missing = |name: &str| {
                let reason = format!(
                    "is required in a signed request, which names its type ({wanted}), site, issued_at and idempotency_key"
                );
                fields.refuse(name, reason)
            };
            named.ok_or_else(|| missing("type"))?;
            meant_for.ok_or_else(|| missing("site"))?;
            issued_at.ok_or_else(|| missing("issued_at"))?;
            fields
                .get("idempotency_key")
                .ok_or_else(|| missing("idempotency_key"))?;
        }
        Ok(Self { issued_at })
    }

    /// Checks the time by the wall clock. A request that repeats a stored answer is not checked.
    pub fn check_fresh(self, wall: Micros, window_s: u32) -> Result<(), Problem> {
        let window_us = u64::from(window_s) * SECOND_US.unsigned_abs();
        match self.issued_at {
            Some(at) if wall.0.abs_diff(at.0) > window_us => {
                Err(Problem::TimestampOutOfWindow { window_s })
            }
            _ => Ok(()),
        }
    }
}

/// The values that a signed request is bound to.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    pub operation: RequestOperation,
    pub site: &'a str,
    /// The key of the header.
    pub idempotency_key: &'a str,
    pub issued_at: Micros,
}

impl RequestContext<'_> {
    /// The request as it is sent: `members`, the envelope, and the signature over both.
    pub fn sign(&self, signer: &AgentSigner, members: &Value) -> Result<String, Problem> {
        let mut body = members.clone();
        body["type"] = self.operation.document_type().into();
        body["site"] = self.site.into();
        body["issued_at"] = instant::print(self.issued_at).into();
        body["idempotency_key"] = self.idempotency_key.into();
        signer.sign(&body)
    }
}
