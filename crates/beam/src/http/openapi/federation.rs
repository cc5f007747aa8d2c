//! The routes for other directories.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, boolean, integer, list, number, object, optional, required, text,
};
use consign_web::openapi::{Access, Endpoint, Operation};
use http::StatusCode;

use super::FEDERATION;
use super::operation::{
    ANYONE, BeamOperation as _, FEDERATION_SECRET, PEER, SESSION_BEARER, SESSION_IN_COOKIE, delete,
    get, post,
};
use super::schemas::{beam_id, clamped, count, instant, intent_frame, public_key, result_frame};
use crate::trust::HOPS_MAX;

/// A private directory needs the secret; a wrong one is always refused.
const ANYONE_OR_PEER: Access = Access {
    words: "nothing, or the secret of the federation",
    schemes: &[&[], &[FEDERATION_SECRET]],
    ..PEER
};

const PEER_OR_ADMIN: Access = Access {
    words: "secret of the federation, or an administrator's session",
    schemes: &[
        &[FEDERATION_SECRET],
        &[SESSION_BEARER],
        &[SESSION_IN_COOKIE],
    ],
    ..PEER
};

const LOCAL_OR_ADMIN: Access = Access {
    words: "an administrator's session, unless the request comes from this machine",
    schemes: &[&[], &[SESSION_BEARER], &[SESSION_IN_COOKIE]],
    codes: &[
        Code::Unauthorized,
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    ..ANYONE
};

pub(super) fn all() -> Vec<Endpoint> {
    let mut all = peers();
    all.extend([
        post("/federation/relay", relay()),
        get(
            "/federation/agents/{beam_id}",
            Operation::new(FEDERATION, ANYONE_OR_PEER, "beamFederatedAgent", "Find an agent")
                .about("Peers are asked only for other directories and for programs on this machine. A private directory needs the secret.")
                .query("localOnly", text().about("Look in this directory only.").always("1"))
                .shows("The agent and its directory.", resolved(), ""),
        ),
        post("/federation/resolve", resolve()),
        post("/federation/trust", trust()),
    ]);
    all
}

fn peers() -> Vec<Endpoint> {
    let body = object(vec![
        required("directoryUrl", url()),
        optional("publicKey", text()),
        optional("trustLevel", number().clamped_to(0, 1)),
    ]);
    let peers = object(vec![
        required("total", count()),
        required("peers", list(peer())),
    ]);
    vec![
        post(
            "/federation/peers",
            Operation::new(FEDERATION, PEER_OR_ADMIN, "beamRegisterPeer", "Register a directory as a peer")
                .about("The public agents of the peer are read before the response. A peer whose agents cannot be read stays registered. From elsewhere, a new peer and a changed one need an administrator's session.")
                .takes_object(
                    body.named("BeamNewPeer"),
                    r#"{"directoryUrl":"https://directory.acme.example","trustLevel":0.8}"#,
                )
                .answers(StatusCode::CREATED, "The peer.", peer(), "")
                .refuses(&[Code::InvalidPeer, Code::Forbidden, Code::FederationError]),
        ),
        get(
            "/federation/peers",
            Operation::new(FEDERATION, PEER_OR_ADMIN, "beamPeers", "List the peers").shows(
                "The peers, those with the highest trust level first.",
                peers.named("BeamPeers"),
                "",
            ),
        ),
        delete(
            "/federation/peers",
            Operation::new(FEDERATION, LOCAL_OR_ADMIN, "beamRemovePeer", "Remove a peer")
                .about("Not by the secret, because every peer has it.")
                .query("directoryUrl", url().about("Required."))
                .without_content(StatusCode::NO_CONTENT, "The peer is removed.")
                .refuses(&[Code::InvalidPeer, Code::NotFound]),
        ),
    ]
}

fn url() -> Schema {
    text().rule("format", "uri")
}

fn peer() -> Schema {
    object(vec![
        required("id", integer()),
        required("directoryUrl", url()),
        required("publicKey", text()),
        required("trustLevel", number()),
        required("status", text()),
        required("createdAt", instant()),
        required("lastSeen", instant().nullable()),
        required("syncedAt", instant().nullable()),
    ])
    .named("BeamPeer")
}

fn relay() -> Operation {
    Operation::new(
        FEDERATION,
        PEER,
        "beamFederationRelay",
        "Relay an intent of another directory",
    )
    .about(
        "A request with the secret that cannot be served has the status 502, whatever the cause.",
    )
    .header(
        "x-beam-hop-count",
        integer()
            .about("How many directories the intent has passed.")
            .rule("minimum", 1)
            .by_default(1),
    )
    .header(
        "x-beam-source-directory",
        url().about("The directory that sends the request."),
    )
    .takes_json(intent_frame(), "")
    .shows("The result frame of the recipient.", result_frame(), "")
    .refuses(&[Code::FederationRelayError])
}

fn resolve() -> Operation {
    let body = object(vec![required("beamId", beam_id())]);
    Operation::new(
        FEDERATION,
        PEER,
        "beamResolve",
        "Find an agent here or at a peer",
    )
    .takes_object(
        body.named("BeamResolveRequest"),
        r#"{"beamId":"desk@acme.beam.directory"}"#,
    )
    .shows("The agent and its directory.", resolved(), "")
    .refuses(&[Code::InvalidBeamId, Code::NotFound])
}

fn resolved() -> Schema {
    let agent = object(vec![
        required("beam_id", beam_id()),
        required("org", text().nullable()),
        required("display_name", text().nullable()),
        required("capabilities", list(text())),
        required("public_key", public_key().nullable()),
        required("trust_score", number().nullable()),
        required("verified", boolean()),
        required("created_at", instant().nullable()),
        required("last_seen", instant().nullable()),
    ]);
    object(vec![
        required("agent", agent),
        required("scope", text().one_of(["local", "cache", "peer"])),
        required("directoryUrl", url()),
    ])
    .named("BeamResolvedAgent")
}

fn trust() -> Operation {
    let body = object(vec![
        required("beamId", beam_id()),
        optional(
            "sourceDirectoryUrl",
            url().about("Required, unless X-Beam-Source-Directory is present."),
        ),
        optional(
            "originDirectoryUrl",
            url().about("The source if it is absent."),
        ),
        optional(
            "assertedTrust",
            number().about("At its origin. Required, unless `trustDelta` is present."),
        ),
        optional("trustDelta", number().about("Already reduced.")),
        optional("hopCount", clamped(1, u32::from(HOPS_MAX))),
    ]);
    let report = object(vec![
        required("beamId", beam_id()),
        required("effectiveTrust", number()),
        required("sourceDirectoryUrl", url()),
        required("originDirectoryUrl", url()),
        required("hopCount", integer()),
    ]);
    Operation::new(FEDERATION, PEER, "beamAssertTrust", "Report the trust of a directory in an agent")
        .header("x-beam-source-directory", url().about("The directory that sends the request."))
        .takes_object(
            body.named("BeamTrustAssertion"),
            r#"{"beamId":"desk@acme.beam.directory","sourceDirectoryUrl":"https://directory.acme.example","assertedTrust":0.9,"hopCount":1}"#,
        )
        .shows("The trust that counts here.", report.named("BeamTrustReport"), "")
        .refuses(&[Code::InvalidBeamId, Code::Forbidden])
}
