//! The `OpenAPI` description of the routes, shown with those of the Intent Protocol.
//!
//! Invariant: described and routed paths are equal, and every error code belongs to this protocol; tests compare them.
//! Limits come from the code that applies them. The names of components and operations begin with the name of the protocol,
//! because documents are merged by name.

mod blobs;
mod clients;
mod operation;
mod operators;
mod reads;
mod schemas;
mod upkeep;

use consign_web::openapi::{self, Tag};
use serde_json::{Value, json};

use operation::{ADMIN_PASSWORD, ADMIN_TOKEN, API_KEY, MEMBER_SIGNATURE, MeshDialect};

const CLIENTS: Tag = Tag {
    title: "Mesh",
    about: "Join a mesh and send messages over HTTP; everything else is on the WebSocket at `/ws`. Bodies are parsed as JSON \
     whatever their Content-Type is.",
};
const OPERATORS: Tag = Tag {
    title: "Mesh operators",
    about: "Meshes, invites, members and API keys, their retention and their state. Times are milliseconds since 1970 unless a \
     field says otherwise, and unknown fields of a body are refused.",
};
const TAGS: [Tag; 2] = [CLIENTS, OPERATORS];

/// An `OpenAPI` document of these routes alone.
pub fn document() -> Value {
    let tags: Vec<Value> = TAGS
        .iter()
        .map(|tag| json!({"name": tag.title, "description": tag.about}))
        .collect();
    let frame = json!({
        "info": {"title": "Consign, mesh", "version": env!("CARGO_PKG_VERSION")},
        "tags": tags,
        "components": {"securitySchemes": security_schemes()},
    });
    let endpoints: Vec<_> = [
        clients::all(),
        blobs::all(),
        operators::all(),
        reads::all(),
        upkeep::all(),
    ]
    .into_iter()
    .flatten()
    .collect();
    openapi::document(&endpoints, &MeshDialect, frame)
}

fn security_schemes() -> Value {
    json!({
        ADMIN_TOKEN: {"type": "apiKey", "in": "header", "name": "X-Admin-Token", "description": "The operator's token, for programs."},
        ADMIN_PASSWORD: {"type": "http", "scheme": "basic", "description": "The user admin and the dashboard password, for browsers."},
        MEMBER_SIGNATURE: {"type": "apiKey", "in": "header", "name": "X-Mesh-Signature", "description": "Ed25519 of a member, 128 hex digits, over `claudemesh-http|MESH|KEY|METHOD|PATH|TIMESTAMP`, with the headers X-Mesh-Id, X-Mesh-Member and X-Mesh-Timestamp (milliseconds, at most a minute off)."},
        API_KEY: {"type": "http", "scheme": "bearer", "description": "An API key of a mesh, with which a program acts as one member."},
    })
}
