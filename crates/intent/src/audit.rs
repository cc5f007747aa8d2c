//! `GET /admin/audit`: what was done through the routes of operators.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{AuditEntry, AuditFilter};
use consign_kernel::error::Code;
use consign_kernel::ids::{Micros, SECOND_US};

use super::IntentFace;
use super::query::QueryParams;
use consign_web::json_out::{Json, array};
use consign_web::reject::Reject;

pub(super) const LIMIT_DEFAULT: u32 = 100;
pub(super) const LIMIT_MAX: u32 = 1_000;

pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let filter = filter(&QueryParams::of(request.uri())?);
    let (operator, _) = face.authenticate_operator(request).await?;
    let page = face.engine.audit(operator, &filter?).await?;
    let mut body = Json::object();
    let entries = page.entries.iter();
    body.raw(
        "entries",
        &array(entries.map(|(id, entry)| entry_out(id, entry).finish())),
    )
    .maybe_text("next", page.next.as_deref());
    Ok(body.into_response())
}

fn filter(params: &QueryParams) -> Result<AuditFilter, Reject> {
    let limit = match params.get("limit") {
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=LIMIT_MAX).contains(limit))
            .ok_or_else(|| {
                let text = format!("limit must be a whole number from 1 to {LIMIT_MAX}.");
                Reject::new(Code::InvalidLimit, text)
            })?,
        None => LIMIT_DEFAULT,
    };
    let since = match params.get("since") {
        Some(text) => {
            let seconds: Option<i64> = text.parse().ok();
            let since = seconds.and_then(|seconds| seconds.checked_mul(SECOND_US));
            let wrong = || {
                Reject::new(
                    Code::InvalidRequest,
                    "since must be a Unix time in seconds.",
                )
            };
            Some(Micros(since.ok_or_else(wrong)?))
        }
        None => None,
    };
    let text = |name| params.get(name).map(str::to_owned);
    Ok(AuditFilter {
        after: text("after").unwrap_or_default(),
        limit,
        actor: text("actor"),
        action: text("action"),
        since,
    })
}

fn entry_out(id: &str, entry: &AuditEntry) -> Json {
    let mut out = Json::object();
    out.text("id", id)
        .seconds("at", Some(Micros(entry.at)))
        .text("actor", &entry.actor)
        .text("action", &entry.action)
        .text("target", &entry.target)
        .text("outcome", &entry.outcome)
        .text("address", &entry.address)
        .text("user_agent", &entry.user_agent)
        .text("request_id", &entry.request_id);
    out
}
