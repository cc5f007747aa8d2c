//! The operator's search across owners and protocols: list, count, dead letters, and the removal of what was found.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{OperatorAction, Outline};
use consign_kernel::filter::Filter;
use consign_kernel::ids::Micros;
use consign_kernel::limits;
use consign_kernel::profile::Face;

use super::admin::{dead_out, operate};
use super::path_segment::PathId;
use super::query::QueryParams;
use super::query::search_query::{SearchQuery, filter, place_text};
use super::{IntentFace, ignored};
use consign_web::json_out::{Json, array, json_response};
use consign_web::reject::Reject;

pub(super) async fn search(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::SEARCH.refuse_unknown(&uri)?;
    let asked = SearchQuery::of(&QueryParams::of(&uri)?)?;
    let found = face
        .engine
        .search(operator, asked.filter, asked.after, asked.limit)
        .await?;
    let now = face.engine.now();
    let rows = found.outlines.iter();
    let mut body = Json::object();
    body.raw(
        "intents",
        &array(rows.map(|row| row_out(row, now).finish())),
    )
    .maybe_text("cursor", found.next.map(place_text).as_deref())
    .number("examined", found.examined.into());
    Ok(body.into_response())
}

pub(super) async fn count(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::COUNT.refuse_unknown(&uri)?;
    let asked = SearchQuery::of(&QueryParams::of(&uri)?)?;
    let found = face
        .engine
        .count_matching(operator, &asked.filter, asked.after)
        .await?;
    let mut body = Json::object();
    body.number("count", found.count)
        .number("examined", found.examined)
        .maybe_text("cursor", found.next.map(place_text).as_deref());
    Ok(body.into_response())
}

pub(super) async fn remove(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::REMOVE.refuse_unknown(&uri)?;
    operate(&face, operator, &id, OperatorAction::Delete, false).await?;
    let mut body = Json::object();
    body.bool("ok", true).text("id", &id);
    Ok(body.into_response())
}

/// Without parameters the newest dead letters, as the protocol has it; with a filter or a cursor a page of them.
pub(super) async fn dead(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    let params = QueryParams::of(&uri)?;
    let ignored = ignored::DEAD.unknown_parameters(&uri);
    let own = ["filter", "cursor", "limit"];
    let response = if own.iter().all(|name| params.get(name).is_none()) {
        let limit = limits::DEAD_LIST_MAX;
        let dead = face.engine.dead(operator, Face::Intent, limit).await?;
        let dead = dead.iter().map(Outline::from);
        json_response(array(dead.map(|row| dead_out(&row).finish())))
    } else {
        let asked = SearchQuery::of(&params)?;
        let found = face
            .engine
            .search(
                operator,
                among_dead(&asked.filter)?,
                asked.after,
                asked.limit,
            )
            .await?;
        let dead = found.outlines.iter();
        let mut body = Json::object();
        body.raw("dead", &array(dead.map(|row| dead_out(row).finish())))
            .maybe_text("cursor", found.next.map(place_text).as_deref());
        body.into_response()
    };
    Ok(ignored::named(response, &ignored))
}

/// The same condition, on dead letters of this protocol.
fn among_dead(asked: &Filter) -> Result<Filter, Reject> {
    filter(&format!("{asked} state:dead face:intent"))
}

fn row_out(row: &Outline, now: Micros) -> Json {
    let profile = row.profile.profile();
    let state = profile.word(row.state, row.cause);
    let age_us = now.0.saturating_sub(row.created_at.0).max(0);
    let mut body = Json::object();
    body.text("id", &row.id.to_string())
        .text("face", profile.face.name())
        .text("state", state.unwrap_or(row.state.name()))
        .text("namespace", &row.namespace)
        .text("goal", &row.goal)
        .text("owner", &row.owner)
        .maybe_text("claimed_by", row.holder.as_deref())
        .maybe_text("worker", row.worker.as_deref())
        .integer("priority", i64::from(row.priority))
        .number("attempts", u64::from(row.attempts))
        .number("max_attempts", u64::from(row.attempts_max))
        .maybe_text("last_error", row.last_error.as_deref())
        .float("age", Micros(age_us).seconds())
        .seconds("created_at", Some(row.created_at))
        .seconds("run_at", Some(row.run_at))
        .seconds("claimed_at", row.claimed_at)
        .seconds("settled_at", row.settled_at)
        .seconds("expires_at", Some(row.expires_at));
    body
}
