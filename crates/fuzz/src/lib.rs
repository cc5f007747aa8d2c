//! Fuzz targets: for each parser of untrusted bytes, a function that runs it and checks its properties.
//!
//! Invariant: a target depends on its input alone, so that a failing input is repeatable; it panics only when a
//! property is violated. The bytes come from libFuzzer in `src/bin` and from files in `tests/replay.rs`.

mod address;
mod agent;
mod beam_catalog;
mod beam_frame;
mod beam_target;
mod beam_text;
mod callback;
mod client_responses;
mod headers;
mod json;
mod mesh;
mod plugin;
mod query;
mod rail;
mod receipt;
mod requests;
mod router;
mod settings;
mod signature;
mod test_server;
mod websocket;

/// One parser of untrusted bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub about: &'static str,
    /// Panics if a property is violated for these bytes.
    pub run: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    Target {
        name: "json",
        about: "the scanner and all that reads, stores, compares and signs with it",
        run: json::run,
    },
    Target {
        name: "receipt",
        about: "receipts and published keys, as a verifier gets them",
        run: receipt::run,
    },
    Target {
        name: "signature",
        about: "what a signature covers, on both sides of the wire",
        run: signature::run,
    },
    Target {
        name: "headers",
        about: "where a request came from, credentials, request ids",
        run: headers::run,
    },
    Target {
        name: "query",
        about: "query strings: filters, cursors, what a claim asks for",
        run: query::run,
    },
    Target {
        name: "router",
        about: "whole requests, one after the other, through the router of the Intent Protocol",
        run: router::run,
    },
    Target {
        name: "address",
        about: "the address of a server, as a user types it",
        run: address::run,
    },
    Target {
        name: "answers",
        about: "what a server sends back to our client, event streams too",
        run: client_responses::run,
    },
    Target {
        name: "settings",
        about: "the variables a server is set up with",
        run: settings::run,
    },
    Target {
        name: "plugin_manifest",
        about: "what a plugin says of itself",
        run: plugin::manifest,
    },
    Target {
        name: "plugin_answer",
        about: "what a plugin prints, and what its run is taken for",
        run: plugin::answer,
    },
    Target {
        name: "atp_document",
        about: "the documents of agent transactions, and what is signed of them",
        run: agent::document,
    },
    Target {
        name: "atp_intent",
        about: "an agent's intent, and the receipt that repeats it",
        run: agent::intent,
    },
    Target {
        name: "atp_rail",
        about: "what payment rails answer",
        run: rail::run,
    },
    Target {
        name: "atp_callback",
        about: "messages from payment rails, and their signatures",
        run: callback::run,
    },
    Target {
        name: "websocket",
        about: "the frames of a WebSocket client",
        run: websocket::run,
    },
    Target {
        name: "beam_text",
        about: "the JSON texts that Beam signs",
        run: beam_text::run,
    },
    Target {
        name: "beam_frame",
        about: "intent frames and result frames",
        run: beam_frame::frame,
    },
    Target {
        name: "beam_signature",
        about: "what the signature of a frame covers",
        run: beam_frame::signature,
    },
    Target {
        name: "beam_target",
        about: "URLs of agents and peers, and which of them may be called",
        run: beam_target::run,
    },
    Target {
        name: "beam_catalog",
        about: "catalogs of intents, and payloads",
        run: beam_catalog::run,
    },
    Target {
        name: "mesh_frame",
        about: "frames of the mesh's WebSocket, in both directions",
        run: mesh::frame,
    },
    Target {
        name: "mesh_ipc",
        about: "requests to the daemon of the mesh, and to the broker's HTTP routes",
        run: mesh::ipc,
    },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
