//! The WebSocket, as far as this format can describe it.

use consign_kernel::error::Code;
use consign_web::openapi::schema::text;
use consign_web::openapi::{Access, Endpoint, Operation};
use http::StatusCode;

use super::INTENTS;
use super::operation::{AGENT_OR_ADMIN, BeamOperation as _, get};
use super::schemas::beam_id;

const ABOUT: &str = "With `beamId`, the socket of an agent: the server sends `{\"type\":\"connected\",\"beamId\",\"auth\"}`, then \
     `{\"type\":\"intent\",\"frame\"}` for every intent to the agent and `{\"type\":\"result\",\"frame\"}` for every result of its own \
     intents; the agent sends the same two types. An error is `{\"type\":\"error\",\"message\",\"errorCode\",\"nonce\"}`. An agent has one \
     socket; a new one replaces it. With `feed=intents` alone, a socket that only receives: `{\"type\":\"feed_connected\"}`, then \
     `{\"type\":\"intent_feed\",\"entry\"}`. On this machine, an unknown agent is accepted and closed with code 1008.";

/// Too many sockets are refused by the listener, without a body.
const SOCKET: Access = Access {
    codes: &[
        Code::Unauthorized,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    ..AGENT_OR_ADMIN
};

pub(super) fn all() -> Vec<Endpoint> {
    let connect = Operation::new(
        INTENTS,
        SOCKET,
        "beamSocket",
        "Connect an agent, or follow the intents",
    )
    .about(ABOUT)
    .query("beamId", beam_id().about("The agent that connects."))
    .query("feed", text().always("intents"))
    .query(
        "apiKey",
        text().about("The API key, for clients that cannot send a header."),
    )
    .without_content(
        StatusCode::SWITCHING_PROTOCOLS,
        "The connection is a WebSocket now.",
    )
    .without_content(
        StatusCode::BAD_REQUEST,
        "The request cannot become a WebSocket.",
    )
    .without_content(
        StatusCode::UPGRADE_REQUIRED,
        "The request is not for a WebSocket of version 13.",
    )
    .without_content(
        StatusCode::TOO_MANY_REQUESTS,
        "This client has too many WebSockets; try again after Retry-After seconds.",
    )
    .refuses(&[Code::NotFound]);
    vec![get("/ws", connect)]
}
