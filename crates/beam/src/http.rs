//! The routes of the directory, the relay and the message bus; their bodies and status codes.
//!
//! Each module has its routes and their handlers; `receive` reads requests, `access` finds out who sends them, and
//! `problem_response` renders errors.

mod access;
mod acl;
mod admin;
mod agent_keys;
mod agent_updates;
mod agent_view;
mod agents;
mod body_fields;
mod bus;
mod delegations;
mod did;
mod federation;
mod federation_secret;
mod intents;
mod listener_policy;
mod local_failures;
mod mount;
mod observability;
pub mod openapi;
mod problem_response;
mod public_limits;
mod query;
mod receive;
mod response;
mod socket;
mod stats;
mod stranger_bytes;
mod unrouted;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use consign_web::listener_policy::ListenerPolicy;

pub(crate) use access::IntentReader;
pub use mount::BeamMount;
use public_limits::PublicLimits;
pub use socket::serve_agent;

use crate::service::Beam;

/// The version of the wire format.
pub const PROTOCOL: &str = "beam/1";

/// The state of every handler.
#[derive(Clone, Debug)]
pub(crate) struct BeamFace {
    pub(crate) beam: Beam,
    pub(crate) policy: Arc<ListenerPolicy>,
    limits: Arc<PublicLimits>,
}

impl BeamFace {
    fn new(beam: Beam, policy: ListenerPolicy) -> Self {
        Self {
            limits: Arc::new(PublicLimits::new(beam.settings().public_limits)),
            beam,
            policy: Arc::new(policy),
        }
    }
}

/// All routes but that of sockets. It has no fallback, so that it can be merged into another router.
fn router(face: BeamFace) -> Router {
    let routes = Router::new()
        .merge(acl::routes())
        .merge(agent_keys::routes())
        .merge(agent_updates::routes())
        .merge(agents::routes())
        .merge(delegations::routes())
        .merge(did::routes())
        .merge(bus::routes(&face))
        .merge(admin::routes())
        .merge(federation::routes())
        .merge(intents::routes())
        .merge(observability::routes())
        .merge(stats::routes());
    around(routes, face)
}

/// The route of sockets, a router of its own because other protocols share its path.
fn socket_router(face: BeamFace) -> Router {
    around(socket::routes(), face)
}

fn around(routes: Router<BeamFace>, face: BeamFace) -> Router {
    let routes = routes
        .method_not_allowed_fallback(unrouted::wrong_method)
        .layer(from_fn_with_state(face.clone(), local_failures::allow));
    let routes = if face.policy.restricts_access() {
        routes.layer(from_fn_with_state(face.clone(), listener_policy::enforce))
    } else {
        routes
    };
    routes.with_state(face)
}
