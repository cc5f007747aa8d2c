//! The `OpenAPI` description of the local interface, for programs on the machine of a daemon.
//!
//! Invariant: described and served routes are equal, every example of a body is one that the daemon reads, and every member
//! that is described as required is one without which it refuses; tests compare them. The document stands alone, because the
//! interface is no part of a server.

mod messages;
mod operation;
mod operators;
mod reads;
mod schemas;
#[cfg(test)]
mod tests;

use consign_web::openapi::{self, Endpoint, Tag};
use serde_json::{Value, json};

use operation::{LOCAL_TOKEN, LocalDialect};

const SENDING: Tag = Tag {
    title: "Sending",
    about: "What is accepted is on disk. The id of a request is the header `Idempotency-Key`, else `client_message_id`, else a \
     new one; the same request with the same id has the result of the first one.",
};
const READING: Tag = Tag {
    title: "Reading",
    about: "What was received, what the broker knows, and what the daemon reports about itself.",
};
const OPERATING: Tag = Tag {
    title: "Operating",
    about: "The outbox, keys, settings, and the end of the daemon.",
};

/// The document.
pub fn document() -> Value {
    let tags: Vec<Value> = [SENDING, READING, OPERATING]
        .iter()
        .map(|tag| json!({"name": tag.title, "description": tag.about}))
        .collect();
    let frame = json!({
        "info": {
            "title": "Consign, mesh daemon",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "HTTP over the socket file `sock` in the folder of the daemon, without credentials, or over 127.0.0.1 \
             with the content of `local_token`; the port is in `http.port`. A `token` in the query is refused, and so are a \
             foreign `Host`, an `Origin` that is not allowed, and `OPTIONS`.",
        },
        "servers": [{
            "url": "http://127.0.0.1:{port}",
            "variables": {"port": {"default": "0", "description": "The content of `http.port`."}},
        }],
        "tags": tags,
        "components": {"securitySchemes": {
            LOCAL_TOKEN: {"type": "http", "scheme": "bearer", "description": "The content of `local_token`."},
        }},
    });
    openapi::document(&endpoints(), &LocalDialect, frame)
}

fn endpoints() -> Vec<Endpoint> {
    [messages::all(), reads::all(), operators::all()].concat()
}
