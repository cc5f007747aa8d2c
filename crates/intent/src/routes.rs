//! The table of routes: path, handler and description of each.
//!
//! The router and the `OpenAPI` document are generated from this table.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use consign_web::openapi::{Endpoint, Operation};
use http::Method;

use super::openapi::operations;
use super::{
    IntentFace, admin, batch, bulk, claim, dashboard, events, find, grants, kv, lease, nodes,
    publish, read,
};

/// One method of one path.
pub(super) struct Route {
    method: Method,
    path: &'static str,
    operation: Operation,
    handler: MethodRouter<IntentFace>,
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
        get("/admin/dashboard", dashboard::page, operations::dashboard()),
        post("/admin/generate_key", admin::generate_key, operations::generate_key()),
        post("/admin/revoke_key", admin::revoke_key, operations::revoke_key()),
        get("/admin/keys", admin::keys, operations::keys()),
        post("/admin/grant", grants::grant, operations::grant()),
        post("/admin/revoke_grant", grants::revoke, operations::revoke_grant()),
        get("/admin/grants", grants::list, operations::grants()),
        get("/admin/intents", find::search, operations::search()),
        get("/admin/intents/count", find::count, operations::count()),
        get("/admin/intents/{id}", admin::intent, operations::intent()),
        delete("/admin/intents/{id}", find::remove, operations::remove()),
        post("/admin/intents/{id}/cancel", admin::cancel, operations::cancel()),
        post("/admin/intents/{id}/retry", admin::retry, operations::retry()),
        get("/admin/bulk", bulk::list, operations::bulk_jobs()),
        post("/admin/bulk", bulk::start, operations::start_bulk()),
        get("/admin/bulk/{id}", bulk::show, operations::bulk_job()),
        post("/admin/bulk/{id}/cancel", bulk::cancel, operations::cancel_bulk()),
        get("/admin/dead", find::dead, operations::dead()),
        get("/admin/dead/{id}", admin::dead_letter, operations::dead_letter()),
        post("/admin/cleanup", admin::cleanup, operations::cleanup()),
        post("/admin/purge", admin::purge, operations::purge()),
        get("/admin/nodes", nodes::list, operations::nodes()),
        post("/admin/nodes/{id}/drain", nodes::drain, operations::drain_node()),
        post("/admin/nodes/{id}/resume", nodes::resume, operations::resume_node()),
    ]
}

/// The router of the routes of the protocol; its state is set later.
pub(super) fn router() -> Router<IntentFace> {
    routes().into_iter().fold(Router::new(), |router, route| {
        router.route(route.path, route.handler)
    })
}
