//! What operators read: intents with their traces, and figures. All of it needs the role viewer.

use axum::Router;
use axum::extract::{FromRequestParts as _, Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use consign_kernel::error::Code;
use http::request::Parts;
use serde_json::{Value, json};

use super::BeamFace;
use super::access::BeamAccess;
use super::problem_response::BeamProblemResponse;
use super::query::QueryText;
use super::response::private_json;
use crate::feed::entry;
use crate::lifecycle::state_word;
use crate::observe::alerts::BeamAlert;
use crate::observe::errors::ErrorReport;
use crate::observe::figures::BeamOverview;
use crate::observe::scan::ScanEnd;
use crate::observe::search::{IntentSearch, SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX};
use crate::observe::trace::IntentTrace;
use crate::overview::{TimelineBucket, window_hours};
use crate::relay::IntentRow;
use crate::sessions::Role;
use crate::timestamp::format_ms;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/observability/intents", get(intents))
        .route("/observability/intents/{nonce}", get(trace))
        .route("/observability/overview", get(overview))
        .route("/observability/errors", get(errors))
}

async fn viewer(face: &BeamFace, request: Request) -> Result<Parts, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    let access = BeamAccess::of(face, &parts);
    access.require_role(face, Role::Viewer).await?;
    Ok(parts)
}

async fn intents(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let query = QueryText::of(&viewer(&face, request).await?);
    let text = |name: &str| query.text(name).map(str::to_owned);
    let search = IntentSearch {
        text: text("q"),
        from: text("from"),
        to: text("to"),
        intent_type: text("intentType"),
        status: text("status"),
        error_code: text("errorCode"),
        hours: text("hours").map(|_| hours(&query)),
        limit: query
            .number("limit")
            .unwrap_or(SEARCH_LIMIT_DEFAULT)
            .clamp(1, SEARCH_LIMIT_MAX),
    };
    let found = face.beam.search_intents(&search).await?;
    let intents: Vec<Value> = found.intents.iter().map(entry).collect();
    Ok(private_json(&json!({
        "intents": intents,
        "total": found.total,
        "truncated": found.end == ScanEnd::Truncated,
    })))
}

async fn trace(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let mut parts = viewer(&face, request).await?;
    let missing = || BeamProblemResponse::new(Code::NotFound, "Intent not found");
    let nonce = Path::<String>::from_request_parts(&mut parts, &face).await;
    let Path(nonce) = nonce.map_err(|_| missing())?;
    let trace = face.beam.trace(&nonce).await?.ok_or_else(missing)?;
    Ok(private_json(&trace_body(&trace)))
}

async fn overview(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let query = QueryText::of(&viewer(&face, request).await?);
    let overview = face.beam.overview(hours(&query)).await?;
    Ok(private_json(&overview_body(&overview)))
}

async fn errors(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let query = QueryText::of(&viewer(&face, request).await?);
    let report = face.beam.error_report(hours(&query)).await?;
    Ok(private_json(&errors_body(&report)))
}

/// The window of a request; a number beyond the limits counts as the nearest one.
fn hours(query: &QueryText) -> u32 {
    let hours = query.text("hours").and_then(|text| text.parse().ok());
    window_hours(hours)
}

fn trace_body(trace: &IntentTrace) -> Value {
    let IntentRow {
        nonce,
        from,
        to,
        intent_type,
        ..
    } = &trace.intent;
    let stages = trace.stages.iter().map(|stage| {
        let word = state_word(stage.state);
        json!({
            "id": stage.id,
            "nonce": nonce,
            "from": from,
            "to": to,
            "intentType": intent_type,
            "stage": word,
            "status": word,
            "timestamp": stage.timestamp,
            "details": stage.details,
        })
    });
    json!({
        "intent": entry(&trace.intent),
        "stages": stages.collect::<Vec<_>>(),
        "audit": [],
        "shield": [],
    })
}

fn overview_body(overview: &BeamOverview) -> Value {
    let counts = overview.counts;
    let top_intents = overview.top_intents.iter().map(|tally| {
        json!({
            "intentType": tally.intent,
            "total": tally.total,
            "errors": tally.errors,
            "avgLatencyMs": tally.average_latency_ms,
        })
    });
    let top_errors = overview.top_errors.iter().map(|tally| {
        json!({
            "errorCode": tally.code,
            "count": tally.count,
            "lastSeenAt": format_ms(tally.last_seen_ms),
        })
    });
    json!({
        "windowHours": overview.window_hours,
        "summary": {
            "totalAgents": overview.agents.total,
            "liveAgents": overview.agents.live,
            "staleAgents": overview.agents.stale,
            "federatedAgents": overview.peers.remote_agents,
            "federationPeers": overview.peers.total,
            "totalIntents": counts.total(),
            "successCount": counts.success,
            "errorCount": counts.error,
            "inFlightCount": counts.in_flight,
            "avgLatencyMs": overview.average_latency_ms,
            "p95LatencyMs": overview.p95_latency_ms,
            "successRate": counts.success_rate(),
            "inFlightOlderThan15m": overview.in_flight_older_than_15m,
        },
        "timeline": overview.timeline.iter().map(bucket_body).collect::<Vec<_>>(),
        "topIntents": top_intents.collect::<Vec<_>>(),
        "topErrors": top_errors.collect::<Vec<_>>(),
        "alerts": overview.alerts.iter().map(alert_body).collect::<Vec<_>>(),
        "truncated": overview.end == ScanEnd::Truncated,
    })
}

fn bucket_body(bucket: &TimelineBucket) -> Value {
    json!({
        "bucketStart": format_ms(bucket.start_ms),
        "total": bucket.counts.total(),
        "success": bucket.counts.success,
        "error": bucket.counts.error,
        "inFlight": bucket.counts.in_flight,
        "p95LatencyMs": bucket.p95_latency_ms,
    })
}

fn alert_body(alert: &BeamAlert) -> Value {
    json!({
        "id": alert.id,
        "severity": alert.severity.word(),
        "title": alert.title,
        "scope": alert.scope,
        "message": alert.message,
        "metric": alert.metric,
        "value": alert.value,
        "threshold": alert.threshold,
        "valueUnit": alert.value_unit,
        "startedAt": format_ms(alert.started_at_ms),
        "links": [],
        "sampleTraces": [],
    })
}

fn errors_body(report: &ErrorReport) -> Value {
    let timeline = report.timeline.iter().map(
        |bucket| json!({"bucketStart": format_ms(bucket.start_ms), "total": bucket.counts.total()}),
    );
    let codes = report.codes.iter().map(|tally| {
        json!({
            "errorCode": tally.code,
            "count": tally.count,
            "lastSeenAt": format_ms(tally.last_seen_ms),
            "avgLatencyMs": tally.average_latency_ms,
            "affectedSenders": tally.senders,
            "affectedRecipients": tally.recipients,
        })
    });
    let routes = report.routes.iter().map(
        |route| json!({"route": format!("{} → {}", route.from, route.to), "count": route.count}),
    );
    json!({
        "windowHours": report.window_hours,
        "summary": {
            "totalErrors": report.total,
            "distinctErrorCodes": report.distinct_codes,
            "timeoutCount": report.timeouts,
            "offlineCount": report.offline,
            "deliveryFailedCount": report.delivery_failed,
        },
        "timeline": timeline.collect::<Vec<_>>(),
        "codes": codes.collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "truncated": report.end == ScanEnd::Truncated,
    })
}
