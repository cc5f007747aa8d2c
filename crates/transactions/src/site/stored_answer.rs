//! Answers that are stored with the change that they report, to be repeated byte for byte for the same idempotency key.
//!
//! The bytes are part of the commit, so this module renders them and not `http`, which sends them unchanged. Answers to
//! execute and compensate are not stored: they follow from the transaction's record.

use consign_kernel::ids::Micros;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::document::AtpDocument;
use crate::instant;
use crate::intent::SignedIntent;
use crate::state::AtpState;

/// The stored status of every answer; an error is never stored.
const STATUS: u16 = 200;

/// A stored answer, which is repeated for the same key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredAnswer {
    pub(super) fingerprint: String,
    status: u16,
    pub(super) body: String,
}

impl StoredAnswer {
    /// The answer to the request that authorizes `intent`.
    pub(super) fn to_consent(request: &AtpDocument, intent: &SignedIntent, now: Micros) -> Self {
        let body = json!({
            "ok": true,
            "intent_id": intent.intent_id,
            "state": AtpState::Authorized.word(),
            "nonce": intent.nonce,
            "authorized_at": instant::print(now),
            "expires_at": instant::print(intent.expires_at),
        });
        Self {
            fingerprint: request.fingerprint(),
            status: STATUS,
            body: body.to_string(),
        }
    }
}
