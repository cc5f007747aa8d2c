//! Joining a mesh, and sending with an API key.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, anything, boolean, integer, list, object, optional, required, text,
};
use consign_web::openapi::{Endpoint, Operation};
use http::StatusCode;

use super::CLIENTS;
use super::operation::{ANYONE, JOIN, MEMBER, MeshOperation as _, PROGRAM, SEND, post};
use super::schemas;
use crate::limits::FRAME_BYTES_MAX;
use crate::priority::MeshPriority;

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        post("/join", join()),
        post("/v1/messages", send()),
        post("/v1/me/members/{pubkey}/leave", leave()),
    ]
}

fn join() -> Operation {
    let body = object(vec![
        required(
            "invite_token",
            text().about("As it was handed out; a link works too."),
        ),
        optional(
            "invite_payload",
            invite_payload().about("The decoded token, which clients of upstream send."),
        ),
        required("peer_pubkey", schemas::pubkey()),
        required("display_name", text().characters(1, 64)),
    ]);
    let joined = object(vec![
        required("ok", boolean().always(true)),
        required("memberId", text()),
        optional("alreadyMember", boolean()),
    ]);
    Operation::new(CLIENTS, ANYONE, JOIN, "Join a mesh with an invite")
        .about(
            "A refusal is a status 400 whose `error` is a word such as `invite_expired`. A key that is a member already gets its \
             member, and uses nothing up.",
        )
        .takes(
            body.named("MeshJoinRequest"),
            crate::limits::HTTP_BODY_BYTES_MAX,
            "",
        )
        .shows("The member.", joined.named("MeshJoined"))
        .refuses(&[Code::InvalidRequest])
}

fn invite_payload() -> Schema {
    object(vec![
        required("v", integer().always(1)),
        required("mesh_id", text()),
        required("mesh_slug", text()),
        required("broker_url", text()),
        required("expires_at", schemas::seconds().rule("minimum", 0)),
        required("mesh_root_key", text()),
        required("role", schemas::role()),
        required("owner_pubkey", schemas::pubkey()),
        required("signature", text()),
    ])
    .named("MeshInvitePayload")
}

fn leave() -> Operation {
    let left = object(vec![
        required("ok", boolean().always(true)),
        required("memberId", text()),
    ]);
    Operation::new(CLIENTS, MEMBER, "meshLeave", "End one's own membership")
        .path("pubkey", text().about("The key of the member that signs."))
        .about("Closes the connections of the member. Its id never lives again.")
        .shows("The membership has ended.", left.named("MeshLeft"))
        .refuses(&[Code::Forbidden])
}

fn send() -> Operation {
    let priority = text().one_of(MeshPriority::ALL.iter().map(|priority| priority.as_str()));
    let body = object(vec![
        optional(
            "topic",
            text().about("Name of the topic; or a destination."),
        ),
        optional("destination_kind", text().one_of(["topic", "dm", "queue"])),
        optional("destination_ref", text()),
        optional("body", text().about("Clear text; or a ciphertext.")),
        optional("ciphertext", text().limit("base64")),
        optional("nonce", text().limit("base64")),
        optional("priority", priority),
        optional("bodyVersion", integer()),
        optional("mentions", list(text())),
        optional("replyToId", text()),
        optional("reply_to_id", text()),
        optional("meta", anything()),
        optional("client_message_id", text().characters(1, 128)),
        optional("request_fingerprint", text().hex_digits(64)),
        optional("envelope_version", integer()),
        optional("body_sha256", text().hex_digits(64)),
    ]);
    Operation::new(CLIENTS, PROGRAM, SEND, "Send a message")
        .about(
            "The header `Idempotency-Key` precedes `client_message_id`. The same request with the same id is accepted once; a \
             refused message has the status of its `ack` and a stable word in `error`.",
        )
        .header("Idempotency-Key", text())
        .takes(
            body.named("MeshMessage"),
            FRAME_BYTES_MAX,
            r#"{"topic":"alerts","body":"disk is full","client_message_id":"disk-7"}"#,
        )
        .creates("The message is accepted.", schemas::message_answer())
        .shows("It was accepted before.", schemas::message_answer())
        .answers(
            StatusCode::CONFLICT,
            "The id belongs to another request.",
            schemas::message_refusal(),
            "",
        )
        .refuses(&[Code::InvalidRequest])
}
