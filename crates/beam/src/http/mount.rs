//! The protocol, as it is mounted in a server.

use std::fmt;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use consign_engine::{Error, Operator};
use consign_kernel::error::Code;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::shell::{MetricsText, Mount, MountFuture, SocketRoute};
use http::Uri;
use serde_json::Value;

use super::problem_response::BeamProblemResponse;
use super::query::QueryText;
use super::{BeamFace, openapi, router, socket_router, stats, unrouted};
use crate::service::Beam;

pub struct BeamMount {
    beam: Beam,
    policy: ListenerPolicy,
    router: Router,
    socket: Router,
}

impl BeamMount {
    pub fn new(beam: Beam, policy: ListenerPolicy) -> Self {
        let face = BeamFace::new(beam.clone(), policy);
        Self {
            router: router(face.clone()),
            socket: socket_router(face),
            beam,
            policy,
        }
    }
}

impl fmt::Debug for BeamMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeamMount")
    }
}

/// The first segments of the paths of this protocol, also of those that clients of upstream use and that do not exist.
const SEGMENTS: [&str; 16] = [
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
    "reports",
    "stats",
    "v1/beam",
    "ws",
];

/// Sockets of agents and of readers say so in their query; the path is shared with other protocols.
fn names_agent_or_feed(uri: &Uri) -> bool {
    let query = QueryText::of_uri(uri);
    query.get("beamId").is_some() || query.get("feed").is_some()
}

impl Mount for BeamMount {
    fn router(&self) -> Router {
        self.router.clone()
    }

    fn socket(&self) -> Option<SocketRoute> {
        Some(SocketRoute {
            takes: names_agent_or_feed,
            router: self.socket.clone(),
        })
    }

    fn openapi(&self) -> Value {
        openapi::document()
    }

    fn metrics<'a>(
        &'a self,
        operator: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>> {
        Box::pin(stats::write_metrics(&self.beam, operator, text))
    }

    fn health_fields(&self) -> Vec<(&'static str, Value)> {
        stats::health_fields(&self.beam)
    }

    fn is_path_of(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        SEGMENTS.iter().any(|segment| {
            path.strip_prefix(segment)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn on_unknown_path(&self, request: &Request) -> Option<Response> {
        Some(unrouted::unknown_path(self.policy, request))
    }

    fn on_too_many_failures(&self) -> Response {
        let text = "Too many wrong credentials came from this address; try again in a minute";
        BeamProblemResponse::new(Code::RateLimited, text).into_response()
    }
}
