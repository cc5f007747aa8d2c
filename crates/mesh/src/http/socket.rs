//! The WebSocket of the mesh, at a path that other protocols share: a request that no other one takes is the mesh's.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use consign_web::shell::SOCKET_PATH;
use consign_web::websocket::{SocketUpgrade, UpgradeRefusal};

use super::face::MeshFace;
use crate::broker::socket_options;

pub(super) fn routes() -> Router<MeshFace> {
    Router::new().route(SOCKET_PATH, get(connect))
}

async fn connect(
    State(face): State<MeshFace>,
    upgrade: Result<SocketUpgrade, UpgradeRefusal>,
) -> Response {
    match upgrade {
        Ok(upgrade) => upgrade.accept(socket_options(), move |sender, messages| {
            face.broker.serve_socket(sender, messages)
        }),
        Err(refusal) => refusal.into_response(),
    }
}
