//! The mesh, as it is mounted in a server.

use std::fmt;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use consign_engine::{Error, Operator};
use consign_kernel::error::Code;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::reject::Reject;
use consign_web::shell::{MetricsText, Mount, MountFuture, SocketRoute};
use serde_json::Value;

use super::face::MeshFace;
use super::{listener_rules, metrics, openapi, router, socket_router};
use crate::broker::Broker;

pub struct MeshMount {
    broker: Broker,
    policy: ListenerPolicy,
    router: Router,
    socket: Router,
}

impl MeshMount {
    pub fn new(broker: Broker, operators: OperatorCredentials, policy: ListenerPolicy) -> Self {
        let face = MeshFace::new(broker.clone(), operators, policy);
        Self {
            broker,
            policy,
            router: router(face.clone()),
            socket: socket_router(face),
        }
    }
}

impl fmt::Debug for MeshMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeshMount")
    }
}

/// The first segments of the paths of this protocol.
const SEGMENTS: [&str; 6] = [
    "join",
    "v1/me",
    "v1/meshes",
    "v1/mesh",
    "v1/messages",
    "v1/blobs",
];

impl Mount for MeshMount {
    fn router(&self) -> Router {
        self.router.clone()
    }

    /// Every socket that belongs to no other protocol.
    fn socket(&self) -> Option<SocketRoute> {
        Some(SocketRoute {
            takes: |_| true,
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
        Box::pin(metrics::write(&self.broker, operator, text))
    }

    fn is_path_of(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        SEGMENTS.iter().any(|segment| {
            path.strip_prefix(segment)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn on_unknown_path(&self, request: &Request) -> Option<Response> {
        let refused = listener_rules::check(self.policy, request).err();
        let missing = || Reject::new(Code::NotFound, "There is nothing at this path.");
        Some(refused.unwrap_or_else(missing).into_response())
    }

    fn on_too_many_failures(&self) -> Response {
        let text = "Too many wrong credentials came from this address; try again in a minute.";
        Reject::new(Code::RateLimited, text).into_response()
    }
}
