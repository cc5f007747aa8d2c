//! Lists of checks: problems that need attention, and the consistency of the ledger.

use axum::extract::State;
use axum::response::Response;

use super::ApiState;
use super::api_error::{ApiError, ok};
use super::auth::{AuthorizedCaller, SystemRead};
use super::views::service;
use crate::runtime::reads::ServiceCheck;

/// Checks the configuration on disk, so that an invalid one is found before a restart.
pub(super) async fn doctor(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemRead>,
) -> Result<Response, ApiError> {
    let problem = state.options.loader.read().await.err();
    let mut checks = vec![ServiceCheck::of("config", problem)];
    checks.extend(state.runtime.doctor().await?);
    Ok(ok(&service::checks(&checks)))
}

pub(super) async fn selfcheck(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemRead>,
) -> Result<Response, ApiError> {
    Ok(ok(&service::checks(&state.runtime.selfcheck().await?)))
}
