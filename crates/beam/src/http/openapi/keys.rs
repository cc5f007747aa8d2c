//! The keys of agents.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{boolean, list, object, optional, required, text};
use consign_web::openapi::{Endpoint, Operation};

use super::DIRECTORY;
use super::operation::{AGENT, ANYONE, BeamOperation as _, get, post};
use super::schemas::{agent, beam_id, count, instant, key, key_state, public_key, signature};

const ROTATION: &str = r#"{"new_public_key":"MCowBQYDK2VwAyEAebVWLo/mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ=","timestamp":"2026-01-31T12:00:00.000Z","signature":"gUbsf0KqbZ1kUv6rI0E7m1Dq1rTqk2pWcRnYcMBN9VYk0mVn6bW8qXlq7r7pX1lTz0qk8yS4m9d2v3mJ4kT5Ag=="}"#;

pub(super) fn all() -> Vec<Endpoint> {
    let open = |id, summary| Operation::new(DIRECTORY, ANYONE, id, summary);
    let keys = object(vec![
        required("beamId", beam_id()),
        required("keyState", key_state()),
    ]);
    let revoked = object(vec![
        required("total", count()),
        required("keys", list(key()).about("The last revoked first.")),
    ]);
    vec![
        get(
            "/agents/{beam_id}/keys",
            open("beamAgentKeys", "List the keys of an agent").shows(
                "The keys.",
                keys.named("BeamAgentKeys"),
                "",
            ),
        ),
        post("/agents/{beam_id}/keys/rotate", rotate()),
        post("/agents/{beam_id}/keys/revoke", revoke()),
        get(
            "/keys/revoked",
            open("beamRevokedKeys", "List revoked keys of all agents").shows(
                "The keys that were revoked last.",
                revoked.named("BeamRevokedKeys"),
                "",
            ),
        ),
    ]
}

fn rotate() -> Operation {
    let body = object(vec![
        required(
            "new_public_key",
            public_key().about("May be called `publicKey` or `public_key`."),
        ),
        optional(
            "rotation_proof",
            signature(
                "Of the current key over the text of the new key. Counts from the same machine only, or with `BEAM_OPEN`.",
            ),
        ),
        optional(
            "signature",
            signature("Of the current key, with `timestamp`."),
        ),
        optional("timestamp", instant()),
    ]);
    let rotated = object(vec![
        required("rotated", boolean().always(true)),
        required("previousKey", public_key().nullable()),
        required("beamId", beam_id()),
        required("agent", agent()),
        required("keyState", key_state()),
    ]);
    Operation::new(DIRECTORY, AGENT, "beamRotateKey", "Replace the key of an agent")
        .about("The API key, `rotation_proof`, or `signature` and `timestamp` prove the request. The previous key is revoked.")
        .takes_object(body.named("BeamKeyRotation"), ROTATION)
        .shows("The agent with its new key.", rotated.named("BeamRotatedKey"), "")
        .refuses(&[
            Code::InvalidRotation,
            Code::InvalidPublicKeyFormat,
            Code::NoopRotation,
            Code::InvalidRotationProof,
            Code::KeyAlreadyRevoked,
        ])
}

fn revoke() -> Operation {
    let body = object(vec![
        required(
            "public_key",
            public_key().about("May be called `publicKey`."),
        ),
        optional(
            "signature",
            signature("Of the current key, with `timestamp`."),
        ),
        optional("timestamp", instant()),
    ]);
    let revoked = object(vec![
        required("revoked", boolean().always(true)),
        required("revokedKey", text()),
        required("beamId", beam_id()),
        required("agent", agent()),
        required("keyState", key_state()),
    ]);
    Operation::new(
        DIRECTORY,
        AGENT,
        "beamRevokeKey",
        "Revoke a key that is not the current one",
    )
    .about("The API key, or `signature` and `timestamp`, prove the request.")
    .takes_object(body.named("BeamKeyRevocation"), "")
    .shows(
        "The agent without the key.",
        revoked.named("BeamRevokedKey"),
        "",
    )
    .refuses(&[
        Code::InvalidRevocation,
        Code::InvalidPublicKeyFormat,
        Code::CallbackSignature,
        Code::KeyAlreadyRevoked,
        Code::ActiveKeyRequired,
        Code::KeyNotFound,
    ])
}
