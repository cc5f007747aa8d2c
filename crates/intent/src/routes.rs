//! The table of routes: path, handler and description of each.
//!
//! The router and the `OpenAPI` document are generated from this table.

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use consign_web::openapi::{Endpoint, Operation};
use consign_web::operator::AdminRight;
use consign_web::operator_guard::AdminAccess;
use http::Method;

use super::openapi::operations;
use super::{
    IntentFace, admin, audit, batch, bulk, claim, dashboard, events, find, grants, keys, kv, lease,
    nodes, publish, read, users,
};

/// One method of one path.
pub(super) struct Route {
    method: Method,
    path: &'static str,
    operation: Operation,
    handler: MethodRouter<IntentFace>,
    /// For a route of operators. Handlers of other routes authenticate the client.
    admin: Option<AdminAccess>,
}

impl From<Route> for Endpoint {
    fn from(route: Route) -> Self {
        Self {
            method: route.method,
            path: route.path,
            operation: route.operation,
        }
    }
}

fn get<H, T>(path: &'static str, handler: H, operation: Operation) -> Route
where
    H: Handler<T, IntentFace>,
    T: 'static,
{
    Route {
        method: Method::GET,
        path,
        operation,
        handler: on(MethodFilter::GET, handler),
        admin: None,
    }
}

fn delete<H, T>(path: &'static str, handler: H, operation: Operation) -> Route
where
    H: Handler<T, IntentFace>,
    T: 'static,
{
    Route {
        method: Method::DELETE,
        path,
        operation,
        handler: on(MethodFilter::DELETE, handler),
        admin: None,
    }
}

fn post<H, T>(path: &'static str, handler: H, operation: Operation) -> Route
where
    H: Handler<T, IntentFace>,
    T: 'static,
{
    Route {
        method: Method::POST,
        path,
        operation,
        handler: on(MethodFilter::POST, handler),
        admin: None,
    }
}

/// A route that shows something to operators.
fn admin_get<H, T>(path: &'static str, handler: H, operation: Operation) -> Route
where
    H: Handler<T, IntentFace>,
    T: 'static,
{
    Route {
        admin: Some(AdminAccess::read(path)),
        ..get(path, handler, operation)
    }
}

/// A route that changes something in the name of an operator, and its name in the audit log.
fn admin_post<H, T>(
    path: &'static str,
    handler: H,
    operation: Operation,
    right: AdminRight,
    action: &'static str,
) -> Route
where
    H: Handler<T, IntentFace>,
    T: 'static,
{
    Route {
        admin: Some(AdminAccess::change(right, action, path)),
        ..post(path, handler, operation)
    }
}

/// A route that removes something in the name of an operator, and its name in the audit log.
fn admin_delete<H, T>(
    path: &'static str,
    handler: H,
    operation: Operation,
    right: AdminRight,
    action: &'static str,
) -> Route
where
    H: Handler<T, IntentFace>,
    T: 'static,
{
    Route {
        admin: Some(AdminAccess::change(right, action, path)),
        ..delete(path, handler, operation)
    }
}

#[rustfmt::skip]
pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/intent", publish::publish, operations::publish()),
        // Ordering: an Allow header lists the methods of a path in the order of this table.
        get("/intents", read::list, operations::list()),
        post("/intents", batch::publish, operations::publish_batch()),
        post("/claim", claim::claim, operations::claim()),
        post("/extend_claim/{id}", lease::extend, operations::extend()),
        post("/fulfill/{id}", lease::fulfill, operations::fulfill()),
        post("/fail/{id}", lease::fail, operations::fail()),
        post("/settle", batch::settle, operations::settle()),
        get("/result/{id}", read::result, operations::result()),
        get("/status/{id}", read::status, operations::status()),
        get("/intents/{id}/timeline", read::timeline, operations::timeline()),
        get("/intents/{id}/receipt", read::receipt, operations::receipt()),
        post("/receipts/verify", read::verify, operations::verify_receipt()),
        get("/events", events::events, operations::events()),
        post("/set/{key}", kv::set, operations::set_value()),
        get("/get/{key}", kv::get, operations::get_value()),
        admin_get("/admin/dashboard", dashboard::page, operations::dashboard()),
        admin_post("/admin/generate_key", keys::generate, operations::generate_key(), AdminRight::Manage, "key.create"),
        admin_post("/admin/revoke_key", keys::revoke, operations::revoke_key(), AdminRight::Manage, "key.revoke"),
        admin_get("/admin/keys", keys::list, operations::keys()),
        admin_get("/admin/keys/{id}", keys::show, operations::key()),
        admin_post("/admin/keys/{id}", keys::change, operations::change_key(), AdminRight::Manage, "key.change"),
        admin_post("/admin/keys/{id}/rotate", keys::rotate, operations::rotate_key(), AdminRight::Manage, "key.rotate"),
        admin_get("/admin/users", users::list, operations::users()),
        admin_post("/admin/users", users::add, operations::add_user(), AdminRight::Manage, "user.add"),
        admin_post("/admin/users/{name}", users::change, operations::change_user(), AdminRight::Manage, "user.change"),
        admin_post("/admin/users/{name}/remove", users::remove, operations::remove_user(), AdminRight::Manage, "user.remove"),
        admin_get("/admin/audit", audit::list, operations::audit()),
        admin_post("/admin/grant", grants::grant, operations::grant(), AdminRight::Manage, "grant.create"),
        admin_post("/admin/revoke_grant", grants::revoke, operations::revoke_grant(), AdminRight::Manage, "grant.revoke"),
        admin_get("/admin/grants", grants::list, operations::grants()),
        admin_get("/admin/intents", find::search, operations::search()),
        admin_get("/admin/intents/count", find::count, operations::count()),
        admin_get("/admin/intents/{id}", admin::intent, operations::intent()),
        admin_delete("/admin/intents/{id}", find::remove, operations::remove(), AdminRight::Operate, "intent.delete"),
        admin_post("/admin/intents/{id}/cancel", admin::cancel, operations::cancel(), AdminRight::Operate, "intent.cancel"),
        admin_post("/admin/intents/{id}/retry", admin::retry, operations::retry(), AdminRight::Operate, "intent.retry"),
        admin_get("/admin/bulk", bulk::list, operations::bulk_jobs()),
        admin_post("/admin/bulk", bulk::start, operations::start_bulk(), AdminRight::Operate, "bulk.start"),
        admin_get("/admin/bulk/{id}", bulk::show, operations::bulk_job()),
        admin_post("/admin/bulk/{id}/cancel", bulk::cancel, operations::cancel_bulk(), AdminRight::Operate, "bulk.cancel"),
        admin_get("/admin/dead", find::dead, operations::dead()),
        admin_get("/admin/dead/{id}", admin::dead_letter, operations::dead_letter()),
        admin_post("/admin/cleanup", admin::cleanup, operations::cleanup(), AdminRight::Operate, "cleanup.run"),
        admin_post("/admin/purge", admin::purge, operations::purge(), AdminRight::Manage, "purge.run"),
        admin_get("/admin/nodes", nodes::list, operations::nodes()),
        admin_post("/admin/nodes/{id}/drain", nodes::drain, operations::drain_node(), AdminRight::Manage, "node.drain"),
        admin_post("/admin/nodes/{id}/resume", nodes::resume, operations::resume_node(), AdminRight::Manage, "node.resume"),
    ]
}

/// The router of the routes of the protocol; its state is set later.
pub(super) fn router(face: &IntentFace) -> Router<IntentFace> {
    routes().into_iter().fold(Router::new(), |router, route| {
        let handler = match route.admin {
            None => route.handler,
            Some(access) => {
                let state = (face.clone(), access);
                route.handler.route_layer(from_fn_with_state(state, guard))
            }
        };
        router.route(route.path, handler)
    })
}

/// Lets operators with the right of the route through.
async fn guard(
    State((face, access)): State<(IntentFace, AdminAccess)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(reject) = face.check_transport(&parts).await {
        return reject.into_response();
    }
    let request = Request::from_parts(parts, body);
    face.operator_guard.run(access, request, next).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_operators_states_its_right_and_each_change_has_a_name_of_its_own() {
        let mut actions = std::collections::HashSet::new();
        for route in routes() {
            let path = route.path;
            assert_eq!(route.admin.is_some(), path.starts_with("/admin/"), "{path}");
            let Some(access) = route.admin else { continue };
            let is_change = !access.action().is_empty();
            assert_eq!(is_change, route.method != Method::GET, "{path}");
            assert!(!is_change || actions.insert(access.action()), "{path}");
        }
    }
}
