//! Every route of agents, rails, operators and verifiers. The routes of the compatibility profile are in `compat`.

use axum::Router;
use axum::routing::{any, get, post};

use super::{TransactionFace, handlers, operator};

pub(super) fn routes() -> Router<TransactionFace> {
    Router::new()
        .route(
            "/api/atp/intents",
            post(handlers::create).get(handlers::intents),
        )
        .route("/api/atp/intents/{intent_id}", get(handlers::intent))
        .route(
            "/api/atp/intents/{intent_id}/receipts",
            get(handlers::receipts),
        )
        .route("/api/atp/authorize", post(handlers::authorize))
        .route("/api/atp/execute", post(handlers::execute))
        .route("/api/atp/compensate", post(handlers::compensate))
        .route("/api/atp/cancel", post(handlers::cancel))
        .route(
            "/api/atp/intents/{intent_id}/revoke",
            post(handlers::revoke),
        )
        .route(
            "/api/atp/transactions/{transaction_id}",
            get(handlers::transaction),
        )
        .route(
            "/api/atp/transactions/{transaction_id}/compensate",
            post(handlers::compensate_named),
        )
        .route("/api/atp/receipts/verify", post(handlers::verify))
        .route("/api/atp/receipts/{receipt_id}", get(handlers::receipt))
        .route("/api/atp/rails/{rail}/callback", post(handlers::callback))
        .route("/api/atp/keys", get(handlers::keys))
        .route("/api/atp/health", get(handlers::health))
        .route("/api/atp/admin/reconcile", post(operator::reconcile))
        .route("/api/atp/admin/audit", get(operator::audit))
        .route("/api/atp/admin/transactions", get(operator::transactions))
        .route(
            "/api/atp/admin/transactions/{transaction_id}/resolve",
            post(operator::resolve),
        )
        .route("/api/atp/admin/keys/announce", post(operator::announce))
        .route("/api/atp/admin/keys/rotate", post(operator::rotate))
        .route(
            "/api/atp/admin/keys/{key_id}/revoke",
            post(operator::revoke),
        )
        .route("/api/atp/{*rest}", any(handlers::unknown_path))
        .route("/.well-known/wab.json", get(handlers::manifest))
        .route(
            "/.well-known/wab-revocations.json",
            get(handlers::revocations),
        )
        .method_not_allowed_fallback(handlers::wrong_method)
}
