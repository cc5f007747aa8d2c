//! The `OpenAPI` description of this face's routes, shown with those of the Intent Protocol.
//!
//! Invariant: described and routed paths are equal; a test compares them. Numbers and words come from the protocol's code.

mod operation;
mod operations;
mod schemas;

use crate::state::AtpState;
use consign_web::openapi::{self, Tag};
use serde_json::{Value, json};

use operation::AtpDialect;

const TAG: Tag = Tag {
    title: "Agent transactions",
    about: "The Agent Transaction Protocol: signed permissions, one effect per Idempotency-Key, receipts that anyone can verify. \
     Times are RFC 3339 in UTC; every error is `{\"ok\":false,\"error\",\"message\"}`. Served when ATP_SITE is set.",
};
/// The security scheme of operators.
const OPERATOR: &str = "siteOperator";

/// An `OpenAPI` document of these routes alone.
pub fn document() -> Value {
    let frame = json!({
        "info": {"title": "Consign, Agent Transaction Protocol", "version": env!("CARGO_PKG_VERSION")},
        "tags": [{"name": TAG.title, "description": TAG.about}],
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                OPERATOR: {"type": "http", "scheme": "bearer", "description": "The admin token of the operator."},
            },
        },
    });
    openapi::document(&operations::all(), &AtpDialect, frame)
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn states() -> Vec<&'static str> {
    AtpState::ALL.into_iter().map(AtpState::word).collect()
}
