//! The operator's bulk jobs: start, list, show, cancel.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{BulkJob, OperatorAction};
use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use http::StatusCode;

use super::path_segment::PathId;
use super::query::search_query::filter;
use super::{IntentFace, ignored, wire};
use consign_web::json_out::{Json, array, json_response};
use consign_web::reject::Reject;

/// Counts first: without `confirm` nothing is changed, and the message says how many rows match.
pub(super) async fn start(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, body) = face.authenticate_operator(request).await?;
    ignored::BULK.refuse_unknown(&uri)?;
    let object = wire::object(&body)?;
    ignored::BULK.refuse_unknown_members(&object)?;
    let text = |name: &str| wire::field(&object, name).and_then(|raw| raw.as_str());
    let action = text("action").as_deref().and_then(OperatorAction::named);
    let action = action.ok_or_else(|| {
        Reject::new(
            Code::InvalidRequest,
            "action must be \"retry\", \"cancel\" or \"delete\".",
        )
    })?;
    let filter = filter(&text("filter").unwrap_or_default())?;
    if filter.is_empty() {
        return Err(Reject::new(
            Code::InvalidFilter,
            "filter, column 1: expected at least one term; a bulk job never treats all rows.",
        ));
    }
    let flag = |name: &str| match wire::field(&object, name) {
        None => Ok(false),
        Some(raw) => raw.as_bool().ok_or_else(|| {
            Reject::new(
                Code::InvalidRequest,
                format!("{name} must be true or false."),
            )
        }),
    };
    let (dry_run, confirmed) = (flag("dry_run")?, flag("confirm")?);
    if dry_run || !confirmed {
        let counted = face.engine.count_matching(operator, &filter, None).await?;
        let all = if counted.next.is_some() {
            "at least "
        } else {
            ""
        };
        if !dry_run {
            return Err(Reject::new(
                Code::ConfirmationRequired,
                format!(
                    "{all}{} rows match; send \"confirm\": true to {} them.",
                    counted.count,
                    action.name()
                ),
            ));
        }
        let mut body = Json::object();
        body.bool("dry_run", true)
            .text("action", action.name())
            .text("filter", &filter.to_string())
            .number("matching", counted.count)
            .bool("complete", counted.next.is_none());
        return Ok(body.into_response());
    }
    let job = face.engine.start_bulk(operator, action, &filter).await?;
    Ok((StatusCode::ACCEPTED, job_out(&job)).into_response())
}

pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::BULK.refuse_unknown(&uri)?;
    let jobs = face.engine.bulk_jobs(operator).await?;
    Ok(json_response(array(
        jobs.iter().map(|job| job_out(job).finish()),
    )))
}

pub(super) async fn show(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::BULK.refuse_unknown(&uri)?;
    let job = face.engine.bulk_job(operator, &id).await?;
    Ok(job_out(&job.ok_or_else(unknown)?).into_response())
}

pub(super) async fn cancel(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::BULK.refuse_unknown(&uri)?;
    let job = face.engine.cancel_bulk(operator, &id).await?;
    Ok(job_out(&job.ok_or_else(unknown)?).into_response())
}

fn unknown() -> Reject {
    Reject::new(Code::NotFound, "Bulk job not found.")
}

fn job_out(job: &BulkJob) -> Json {
    let mut refused = Json::object();
    for (code, count) in &job.refused {
        refused.number(code, *count);
    }
    let refusals = job.refusals.iter().map(|refusal| {
        let mut out = Json::object();
        out.text("id", &refusal.id).text("code", &refusal.code);
        out.finish()
    });
    let mut body = Json::object();
    body.text("id", &job.id)
        .text("action", job.action().name())
        .text("filter", &job.filter)
        .text("state", job.state.name())
        .raw(
            "matching",
            &job.matching
                .map_or_else(|| "null".to_owned(), |count| count.to_string()),
        )
        .number("examined", job.examined)
        .number("done", job.done)
        .raw("refused", &refused.finish())
        .raw("refusals", &array(refusals))
        .seconds("created_at", Some(Micros(job.created_at)))
        .seconds("ended_at", job.ended_at.map(Micros));
    body
}
