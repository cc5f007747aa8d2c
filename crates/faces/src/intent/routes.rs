//! Every route of the face, once: where it is, who answers it, and what is told about it.
//!
//! The router and the `OpenAPI` document are both made from this table.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::openapi::operation::Operation;
use super::openapi::operations as told;
use super::{
    Face, admin, batch, claim, dashboard, events, health, kv, lease, metrics, nodes, openapi,
    publish, read, root,
};

/// One method of one path.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) operation: Operation,
    handler: MethodRouter<Face>,
}

fn get<H, T>(path: &'static str, handler: H, operation: Operation) -> Route
where
    H: Handler<T, Face>,
    T: 'static,
{
    Route {
        method: Method::GET,
        path,
        operation,
        handler: on(MethodFilter::GET, handler),
    }
}

fn post<H, T>(path: &'static str, handler: H, operation: Operation) -> Route
where
    H: Handler<T, Face>,
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
        post("/intent", publish::publish, told::publish()),
        // Ordering: an Allow header names the methods of a path in the order of this table.
        get("/intents", read::list, told::list()),
        post("/intents", batch::publish, told::publish_batch()),
        post("/claim", claim::claim, told::claim()),
        post("/extend_claim/{id}", lease::extend, told::extend()),
        post("/fulfill/{id}", lease::fulfill, told::fulfill()),
        post("/fail/{id}", lease::fail, told::fail()),
        post("/settle", batch::settle, told::settle()),
        get("/result/{id}", read::result, told::result()),
        get("/status/{id}", read::status, told::status()),
        get("/intents/{id}/timeline", read::timeline, told::timeline()),
        get("/intents/{id}/receipt", read::receipt, told::receipt()),
        post("/receipts/verify", read::verify, told::verify_receipt()),
        get("/events", events::events, told::events()),
        post("/set/{key}", kv::set, told::set_value()),
        get("/get/{key}", kv::get, told::get_value()),
        get("/admin/dashboard", dashboard::page, told::dashboard()),
        post("/admin/generate_key", admin::generate_key, told::generate_key()),
        post("/admin/revoke_key", admin::revoke_key, told::revoke_key()),
        get("/admin/keys", admin::keys, told::keys()),
        get("/admin/intents/{id}", admin::intent, told::intent()),
        post("/admin/intents/{id}/cancel", admin::cancel, told::cancel()),
        post("/admin/intents/{id}/retry", admin::retry, told::retry()),
        get("/admin/dead", admin::dead, told::dead()),
        get("/admin/dead/{id}", admin::dead_letter, told::dead_letter()),
        post("/admin/cleanup", admin::cleanup, told::cleanup()),
        post("/admin/purge", admin::purge, told::purge()),
        get("/admin/nodes", nodes::list, told::nodes()),
        post("/admin/nodes/{id}/drain", nodes::drain, told::drain_node()),
        post("/admin/nodes/{id}/resume", nodes::resume, told::resume_node()),
        get("/", root, told::root()),
        get("/health", health, told::health()),
        get("/.well-known/jwks.json", read::jwks, told::jwks()),
        get("/metrics", metrics::metrics, told::metrics()),
        get("/openapi.json", openapi::document, told::openapi()),
        get("/docs", openapi::docs, told::docs()),
    ]
}

/// Every route, none of them answered yet for lack of a face.
pub(super) fn router() -> Router<Face> {
    routes().into_iter().fold(Router::new(), |router, route| {
        router.route(route.path, route.handler)
    })
}
