//! Schemas that several operations use.

use consign_kernel::state::State;
use consign_web::openapi::schema::{
    Schema, SchemaField, anything, boolean, either, integer, list, number, object, optional,
    required, text,
};

use crate::beam_id::LABEL_CHARS_MAX;
use crate::directory::records::{PUBLIC, UNLISTED};
use crate::lifecycle::state_word;
use crate::trust::VerificationTier;

pub(super) fn beam_id() -> Schema {
    let label = format!("[a-z0-9_-]{{1,{LABEL_CHARS_MAX}}}");
    text()
        .about("The Beam-ID of an agent, such as `desk@acme.beam.directory`.")
        .rule(
            "pattern",
            format!("^{label}@({label}\\.)?beam\\.directory$"),
        )
}

pub(super) fn instant() -> Schema {
    text().rule("format", "date-time")
}

pub(super) fn milliseconds() -> Schema {
    integer().limit("milliseconds since 1970")
}

pub(super) fn seconds() -> Schema {
    number().limit("Unix time in seconds")
}

pub(super) fn count() -> Schema {
    integer().rule("minimum", 0)
}

pub(super) fn state() -> Schema {
    text().one_of(State::ALL.iter().map(|state| state_word(*state)))
}

pub(super) fn tier() -> Schema {
    text().one_of(VerificationTier::ALL.iter().map(|tier| tier.word()))
}

pub(super) fn visibility() -> Schema {
    text().one_of([PUBLIC, UNLISTED])
}

pub(super) fn public_key() -> Schema {
    text().about("An Ed25519 public key: SPKI in DER as base64.")
}

pub(super) fn signature(about: &'static str) -> Schema {
    text().about(about).limit("Ed25519, base64")
}

/// A number that is clamped, not refused. No keyword of JSON Schema expresses that, so it is described in words.
pub(super) fn clamped(default: u32, max: u32) -> Schema {
    integer().limit(format!("default {default}, clamped to 1 to {max}"))
}

fn null() -> Schema {
    anything().rule("type", "null")
}

/// The record of an agent.
pub(super) fn agent() -> Schema {
    object(agent_fields()).named("BeamAgent")
}

/// The record with whether the agent is connected.
pub(super) fn connected_agent() -> Schema {
    let mut fields = agent_fields();
    fields.push(required("connected", connected()));
    object(fields).named("BeamConnectedAgent")
}

pub(super) fn connected() -> Schema {
    boolean().about("Whether the agent has a WebSocket to this server.")
}

pub(super) fn agent_fields() -> Vec<SchemaField> {
    vec![
        required("beam_id", beam_id()),
        required("org", text().nullable()),
        required("personal", boolean()),
        required("display_name", text()),
        required("capabilities", list(text())),
        required("public_key", public_key().nullable()),
        required("email", text().nullable()),
        required("email_verified", boolean()),
        required("description", text().nullable()),
        required("logo_url", text().nullable()),
        required("website", text().nullable()),
        required("trust_score", number().within(0, 1)),
        required("verified", boolean()),
        required("verification_tier", tier()),
        required("created_at", instant()),
        required("last_seen", instant()),
        required("flagged", boolean()),
        required("visibility", visibility()),
        required("shield_config", anything()),
        required("http_endpoint", text().nullable()),
        required("dh_public_key", text().nullable()),
        required("plan", text()),
        required("did", text().nullable()),
        required("verificationTier", tier()),
    ]
}

/// A key of an agent.
pub(super) fn key() -> Schema {
    object(vec![
        required("id", integer()),
        required("beamId", beam_id()),
        required("publicKey", public_key()),
        required("createdAt", milliseconds()),
        required("revokedAt", milliseconds().nullable()),
        required("status", text().one_of(["active", "revoked"])),
    ])
    .named("BeamKey")
}

/// All keys of an agent.
pub(super) fn key_state() -> Schema {
    object(vec![
        required("active", either(vec![key(), null()])),
        required("revoked", list(key())),
        required("keys", list(key()).about("The newest first.")),
        required("total", count()),
    ])
    .named("BeamKeyState")
}

/// An intent in lists and in the feed.
pub(super) fn intent_entry() -> Schema {
    object(vec![
        required("nonce", text()),
        required("from", beam_id()),
        required("to", beam_id()),
        required("intentType", text()),
        required("timestamp", text()),
        required("completedAt", instant().nullable()),
        required("roundTripLatencyMs", number().nullable()),
        required("status", state()),
        required("errorCode", text().nullable()),
    ])
    .named("BeamIntentEntry")
}

/// A signed request of one agent to another, without what the server fills in.
pub(super) fn intent_frame() -> Schema {
    object(vec![
        optional("v", text().always("1")),
        required("from", beam_id()),
        required("to", beam_id()),
        required("intent", text().about("A type of the catalog.")),
        optional(
            "payload",
            object(Vec::new())
                .about("As the catalog prescribes. Without it, `params` is read; without both, it is `{}`."),
        ),
        optional(
            "nonce",
            text().about("The same nonce returns the same result."),
        ),
        optional("timestamp", instant()),
        optional(
            "signature",
            signature("Of the sender's key over the frame without its signature."),
        ),
    ])
    .named("BeamIntentFrame")
}

/// The response of an agent, or of the relay for it.
pub(super) fn result_frame() -> Schema {
    object(vec![
        required("success", boolean()),
        required("nonce", text().about("The nonce of the intent.")),
        optional("v", text()),
        optional("timestamp", text()),
        optional("payload", anything().about("As the recipient sent it.")),
        optional("error", text()),
        optional("errorCode", text()),
        optional("latency", number().about("Milliseconds.")),
        optional("signature", signature("Of the recipient's key.")),
    ])
    .named("BeamResultFrame")
}
