//! The `OpenAPI` description of the routes, shown with those of the Intent Protocol.
//!
//! Invariant: described and routed paths are equal, and every error code belongs to this protocol; tests compare them.
//! Limits come from the code that applies them. The names of components and operations begin with the name of the protocol,
//! because documents are merged by name.

mod agents;
mod bus;
mod federation;
mod intents;
mod keys;
mod observability;
mod operation;
mod operators;
mod rules;
mod schemas;
mod socket;

use consign_web::openapi::{self, Tag};
use serde_json::{Value, json};

use super::access::SESSION_COOKIE;
use operation::{
    AGENT_BEARER, AGENT_KEY, BUS_KEY, BeamDialect, FEDERATION_SECRET, SESSION_BEARER,
    SESSION_IN_COOKIE,
};

const DIRECTORY: Tag = Tag {
    title: "Beam directory",
    about: "Agents, their keys, access rules and delegations. Every error of Beam is `{\"error\",\"errorCode\"}`: branch on the \
     code. Bodies are parsed as JSON whatever their Content-Type is, and unknown fields are ignored. A request whose head cannot \
     be parsed is refused before its protocol is known, in the format of the Intent Protocol.",
};
const INTENTS: Tag = Tag {
    title: "Beam intents",
    about: "Relay signed intents to agents and return their results, over HTTP and WebSocket.",
};
const OPERATORS: Tag = Tag {
    title: "Beam operators",
    about: "The login of operators, intents with their traces, and figures.",
};
const FEDERATION: Tag = Tag {
    title: "Beam federation",
    about: "Peers, agents of other directories, relayed intents and trust.",
};
const BUS: Tag = Tag {
    title: "Beam message bus",
    about: "Messages between agents with delivery, acknowledgement and retries. Times are Unix seconds with a fraction.",
};
const TAGS: [Tag; 5] = [DIRECTORY, INTENTS, OPERATORS, FEDERATION, BUS];

/// An `OpenAPI` document of these routes alone.
pub fn document() -> Value {
    let tags: Vec<Value> = TAGS
        .iter()
        .map(|tag| json!({"name": tag.title, "description": tag.about}))
        .collect();
    let frame = json!({
        "info": {"title": "Consign, Beam", "version": env!("CARGO_PKG_VERSION")},
        "tags": tags,
        "components": {"securitySchemes": security_schemes()},
    });
    let endpoints: Vec<_> = [
        agents::all(),
        keys::all(),
        rules::all(),
        intents::all(),
        socket::all(),
        operators::all(),
        observability::all(),
        federation::all(),
        bus::all(),
    ]
    .into_iter()
    .flatten()
    .collect();
    openapi::document(&endpoints, &BeamDialect, frame)
}

fn security_schemes() -> Value {
    let header = |name: &str, about: &str| json!({"type": "apiKey", "in": "header", "name": name, "description": about});
    let bearer = |about: &str| json!({"type": "http", "scheme": "bearer", "description": about});
    json!({
        AGENT_KEY: header("x-api-key", "The API key of an agent, which its registration returned."),
        AGENT_BEARER: bearer("The API key of an agent."),
        SESSION_BEARER: bearer("The token of an operator's session."),
        SESSION_IN_COOKIE: {
            "type": "apiKey", "in": "cookie", "name": SESSION_COOKIE,
            "description": "The token of an operator's session; ignored in requests of pages of other sites.",
        },
        FEDERATION_SECRET: header("x-beam-federation-secret", "The secret that directories share."),
        BUS_KEY: bearer("The key of the message bus. Without a configured key, the bus is for programs on this machine."),
    })
}
