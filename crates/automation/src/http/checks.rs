//! Lists of checks: problems that need attention, and the consistency of the ledger.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::ApiState;
use super::api_error::{ApiError, ok};
use super::auth::{AuthorizedCaller, SystemRead};

/// Checks the configuration on disk, so that an invalid one is found before a restart.
pub(super) async fn doctor(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemRead>,
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
    _: AuthorizedCaller<SystemRead>,
) -> Result<Response, ApiError> {
    Ok(checks_response(&state.runtime.selfcheck().await?))
}

fn checks_response(checks: &[Value]) -> Response {
    let healthy = checks.iter().all(|check| check["ok"] == true);
    ok(&json!({"healthy": healthy, "checks": checks}))
}
