//! Schemas that several operations use.

use consign_web::openapi::schema::{
    Schema, boolean, integer, list, object, optional, required, text,
};

use crate::role::{ApiCapability, ClonePolicy, DedupeMode, MemberRole, PeerGrant};

pub(super) fn pubkey() -> Schema {
    text().hex_digits(64)
}

pub(super) fn milliseconds() -> Schema {
    integer().limit("milliseconds since 1970")
}

pub(super) fn seconds() -> Schema {
    integer().limit("seconds since 1970")
}

pub(super) fn count() -> Schema {
    integer().rule("minimum", 0)
}

pub(super) fn role() -> Schema {
    text().one_of(MemberRole::ALL.iter().map(|role| role.as_str()))
}

pub(super) fn dedupe_mode() -> Schema {
    text().one_of(DedupeMode::ALL.iter().map(|mode| mode.as_str()))
}

pub(super) fn clone_policy() -> Schema {
    text().one_of(ClonePolicy::ALL.iter().map(|policy| policy.as_str()))
}

pub(super) fn capability() -> Schema {
    text().one_of(
        ApiCapability::ALL
            .iter()
            .map(|capability| capability.as_str()),
    )
}

pub(super) fn mesh() -> Schema {
    object(vec![
        required("mesh_id", text()),
        required("slug", text()),
        required("name", text()),
        required("owner_pubkey", pubkey()),
        required("clone_policy", clone_policy()),
        required("dedupe_mode", dedupe_mode()),
        required(
            "dedupe_days",
            count().nullable().about("Null if ids are never forgotten."),
        ),
        required("message_days", count()),
        required("created_at", milliseconds()),
    ])
    .named("MeshSettings")
}

pub(super) fn member() -> Schema {
    object(vec![
        required("member_id", text()),
        required("pubkey", pubkey()),
        required("name", text()),
        required("role", role()),
        required("joined_at", milliseconds()),
        required("revoked", boolean()),
        required("revoked_at", milliseconds().nullable()),
        required(
            "last_seen_host_fingerprint",
            text()
                .nullable()
                .about("The machine from which the member's daemon connected last, as the daemon hashed it."),
        ),
        required(
            "clone_suspected_at",
            milliseconds()
                .nullable()
                .about("When the daemon last connected from another machine than before."),
        ),
        required(
            "grants",
            list(grants()).about("What the member lets others do, where it is not the default."),
        ),
    ])
    .named("MeshMember")
}

fn grants() -> Schema {
    object(vec![
        required("member", pubkey()),
        required("grants", list(grant())),
    ])
    .named("MeshGrants")
}

pub(super) fn grant() -> Schema {
    text().one_of(PeerGrant::ALL.iter().map(|grant| grant.as_str()))
}

pub(super) fn invite() -> Schema {
    object(vec![
        required("id", text().about("The digest of the token.")),
        required("role", role()),
        required("uses_max", count()),
        required("uses", count()),
        required("expires_at", seconds()),
        required("revoked", boolean()),
    ])
    .named("MeshInvite")
}

pub(super) fn api_key() -> Schema {
    object(api_key_fields()).named("MeshKey")
}

/// With the text of the key.
pub(super) fn created_api_key() -> Schema {
    let mut fields = api_key_fields();
    fields.push(required("key", text().about("Shown only now.")));
    object(fields).named("MeshCreatedKey")
}

fn api_key_fields() -> Vec<consign_web::openapi::schema::SchemaField> {
    vec![
        required("id", text().about("The digest of the key.")),
        required("member_id", text()),
        required("label", text()),
        required("capabilities", list(capability())),
        required(
            "topics",
            list(text()).nullable().about("Null for every topic."),
        ),
        required("created_at", milliseconds()),
        required("revoked", boolean()),
    ]
}

/// The answer to a message, accepted or not.
pub(super) fn message_answer() -> Schema {
    object(vec![
        optional("messageId", text()),
        optional("historyId", text()),
        optional("broker_message_id", text()),
        optional("client_message_id", text()),
        optional("history_id", text()),
        optional("duplicate", boolean()),
        optional("history_available", boolean()),
        optional("first_seen_at", text().rule("format", "date-time")),
    ])
    .named("MeshAccepted")
}

/// An invite that does not hold, or a malformed request to join.
pub(super) fn join_refusal() -> Schema {
    object(vec![
        required("ok", boolean().always(false)),
        required("error", text().about("A word, or `malformed` and why.")),
    ])
    .named("MeshJoinRefusal")
}

/// A message that was not accepted.
pub(super) fn message_refusal() -> Schema {
    object(vec![
        required("error", text().about("A stable word.")),
        optional("client_message_id", text()),
        optional("conflict", text()),
        optional("broker_fingerprint_prefix", text().hex_digits(16)),
    ])
    .named("MeshMessageRefusal")
}
