//! Lists of checks: what needs a hand, and whether the ledger holds what it must.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::ApiState;
use super::api_error::{ApiError, ok};
use super::auth::{Authorized, SystemRead};

/// The configuration is the one on the disk: one that would be refused is known before somebody restarts the service.
pub(super) async fn doctor(
    State(state): State<ApiState>,
    _: Authorized<SystemRead>,
) -> Result<Response, ApiError> {
    let config = match state.options.loader.read().await {
        Ok(_) => json!({"name": "config", "ok": true}),
        Err(detail) => json!({"name": "config", "ok": false, "detail": detail}),
    };
    let mut checks = vec![config];
    checks.extend(state.runtime.doctor().await?);
    Ok(checks_response(&checks))
}

pub(super) async fn selfcheck(
    State(state): State<ApiState>,
    _: Authorized<SystemRead>,
) -> Result<Response, ApiError> {
    Ok(checks_response(&state.runtime.selfcheck().await?))
}

fn checks_response(checks: &[Value]) -> Response {
    let healthy = checks.iter().all(|check| check["ok"] == true);
    ok(&json!({"healthy": healthy, "checks": checks}))
}
