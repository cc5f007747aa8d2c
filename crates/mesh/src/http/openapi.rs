//! The `OpenAPI` description of the routes, shown with those of the Intent Protocol.

use serde_json::{Value, json};

/// An `OpenAPI` document of these routes alone.
pub fn document() -> Value {
    json!({"openapi": consign_web::openapi::VERSION, "paths": {}})
}
