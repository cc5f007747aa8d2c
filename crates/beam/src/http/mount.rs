//! The protocol, as it is mounted in a server.

use std::fmt;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use consign_kernel::error::Code;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::shell::Mount;
use serde_json::{Value, json};

use super::problem_response::BeamProblemResponse;
use super::router;
use crate::service::Beam;

pub struct BeamMount {
    router: Router,
}

impl BeamMount {
    pub fn new(beam: Beam, policy: ListenerPolicy) -> Self {
        Self {
            router: router(beam, policy),
        }
    }
}

impl fmt::Debug for BeamMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeamMount")
    }
}

/// The first segments of the paths of this protocol.
const SEGMENTS: [&str; 14] = [
    "agents",
    "acl",
    "admin/auth",
    "delegations",
    "did",
    "directory",
    "federation",
    "intents/catalog",
    "intents/recent",
    "intents/send",
    "keys",
    "observability",
    "stats",
    "v1/beam",
];

impl Mount for BeamMount {
    fn router(&self) -> Router {
        self.router.clone()
    }

    fn openapi(&self) -> Value {
        json!({})
    }

    fn is_path_of(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        SEGMENTS.iter().any(|segment| {
            path.strip_prefix(segment)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn on_too_many_failures(&self) -> Response {
        let text = "Too many wrong credentials came from this address; try again in a minute";
        BeamProblemResponse::new(Code::RateLimited, text).into_response()
    }
}
