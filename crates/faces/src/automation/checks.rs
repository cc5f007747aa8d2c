//! Lists of checks: what needs a hand, and whether the ledger holds what it must.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::Face;
use super::reject::{Reject, ok};
use super::right::{Allowed, SystemRead};

/// The configuration is the one on the disk: one that would be refused is known before somebody restarts the service.
pub(super) async fn doctor(
    State(face): State<Face>,
    _: Allowed<SystemRead>,
) -> Result<Response, Reject> {
    let config = match face.options.loader.read().await {
        Ok(_) => json!({"name": "config", "ok": true}),
        Err(detail) => json!({"name": "config", "ok": false, "detail": detail}),
    };
    let mut checks = vec![config];
    checks.extend(face.runtime.doctor().await?);
    Ok(judged(&checks))
}

pub(super) async fn selfcheck(
    State(face): State<Face>,
    _: Allowed<SystemRead>,
) -> Result<Response, Reject> {
    Ok(judged(&face.runtime.selfcheck().await?))
}

fn judged(checks: &[Value]) -> Response {
    let healthy = checks.iter().all(|check| check["ok"] == true);
    ok(&json!({"healthy": healthy, "checks": checks}))
}
