//! What the routes of operators need, and the guard in front of them.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use consign_web::operator::AdminRight::{self, Manage, Operate};
use consign_web::operator_guard::AdminAccess;
use http::Method;

use super::super::face::MeshFace;

/// The routes that change something, with their names in the audit log.
const CHANGES: [(&str, AdminRight, &str); 14] = [
    ("/v1/meshes", Manage, "mesh.create"),
    (
        "/v1/meshes/{slug}/dead/{id}/requeue",
        Operate,
        "mesh-item.requeue",
    ),
    ("/v1/meshes/{slug}/invites", Manage, "mesh-invite.create"),
    (
        "/v1/meshes/{slug}/invites/{id}/revoke",
        Manage,
        "mesh-invite.revoke",
    ),
    ("/v1/meshes/{slug}/keys", Manage, "mesh-key.create"),
    (
        "/v1/meshes/{slug}/keys/{id}/revoke",
        Manage,
        "mesh-key.revoke",
    ),
    (
        "/v1/meshes/{slug}/members/{pubkey}/rename",
        Manage,
        "mesh-member.rename",
    ),
    (
        "/v1/meshes/{slug}/members/{pubkey}/revoke",
        Manage,
        "mesh-member.revoke",
    ),
    (
        "/v1/meshes/{slug}/members/{pubkey}/grants",
        Manage,
        "mesh-member.grant",
    ),
    (
        "/v1/meshes/{slug}/subscribe",
        Manage,
        "mesh-topic.subscribe",
    ),
    (
        "/v1/meshes/{slug}/unsubscribe",
        Manage,
        "mesh-topic.unsubscribe",
    ),
    ("/v1/mesh/sweep", Operate, "mesh-sweep.run"),
    ("/v1/mesh/orphan-check", Operate, "mesh-orphan-check.run"),
    // A change that is not in this table yet needs the highest right.
    ("/{path}", Manage, "mesh.change"),
];

pub(super) async fn guard(State(face): State<MeshFace>, request: Request, next: Next) -> Response {
    let access = access(request.method(), request.uri().path());
    face.operator_guard.run(access, request, next).await
}

fn access(method: &Method, path: &str) -> AdminAccess {
    if matches!(*method, Method::GET | Method::HEAD) {
        return AdminAccess::read("");
    }
    let (otherwise, listed) = CHANGES.split_last().expect("the table has rows");
    let row = listed.iter().find(|(of_route, ..)| fits(of_route, path));
    let (of_route, right, action) = *row.unwrap_or(otherwise);
    AdminAccess::change(right, action, of_route)
}

fn fits(of_route: &str, path: &str) -> bool {
    let (names, values) = (of_route.split('/'), path.split('/'));
    names.clone().count() == values.clone().count()
        && names
            .zip(values)
            .all(|(name, value)| name.starts_with('{') || name == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_fits_its_route_and_no_other() {
        assert!(fits("/v1/meshes/{slug}/keys", "/v1/meshes/acme/keys"));
        assert!(!fits("/v1/meshes/{slug}/keys", "/v1/meshes/acme/keys/1"));
        assert!(!fits("/v1/meshes/{slug}/keys", "/v1/meshes/acme/dead"));
    }

    #[test]
    fn every_change_that_is_documented_is_in_the_table() {
        let document = crate::http::openapi::document();
        for (path, item) in document["paths"].as_object().unwrap() {
            let is_of_operators = path.starts_with("/v1/mesh/")
                || path == "/v1/meshes"
                || path.starts_with("/v1/meshes/");
            if is_of_operators && item.get("post").is_some() {
                let known = CHANGES.iter().any(|(of_route, ..)| of_route == path);
                assert!(known, "{path}");
            }
        }
    }
}
