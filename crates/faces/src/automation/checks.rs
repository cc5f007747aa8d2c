//! Lists of checks: what needs a hand, and whether the ledger holds what it must.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::ApiState;
use super::auth::{Authorized, SystemRead};
use super::reject::{Reject, ok};

/// The configuration is the one on the disk: one that would be refused is known before somebody restarts the service.
pub(super) async fn doctor(
    State(state): State<ApiState>,
    _: Authorized<SystemRead>,
) -> Result<Response, Reject> {
    let config = match state.options.loader.read().await {
        Ok(_) => json!({"name": "config", "ok": true}),
        Err(detail) => json!({"name": "config", "ok": false, "detail": detail}),
    };
    let mut checks = vec![config];
    checks.extend(state.runtime.doctor().await?);
    Ok(judged(&checks))
}

pub(super) async fn selfcheck(
    State(state): State<ApiState>,
    _: Authorized<SystemRead>,
) -> Result<Response, Reject> {
    Ok(judged(&state.runtime.selfcheck().await?))
}

fn judged(checks: &[Value]) -> Response {
    let healthy = checks.iter().all(|check| check["ok"] == true);
    ok(&json!({"healthy": healthy, "checks": checks}))
}
