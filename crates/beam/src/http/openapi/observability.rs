//! What operators read: intents with their traces, and figures.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, anything, boolean, integer, list, number, object, required, text,
};
use consign_web::openapi::{Endpoint, Operation};

use super::OPERATORS;
use super::operation::{BeamOperation as _, VIEWER, get};
use super::schemas::{beam_id, clamped, count, instant, intent_entry, state};
use crate::observe::search::{SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX};
use crate::overview::{WINDOW_HOURS_DEFAULT, WINDOW_HOURS_MAX};

pub(super) fn all() -> Vec<Endpoint> {
    let found = object(vec![
        required("intents", list(intent_entry())),
        required("total", count()),
        required("truncated", truncated()),
    ]);
    vec![
        get(
            "/observability/intents",
            viewer("beamSearchIntents", "Search intents")
                .query("q", text().about("Text to search for."))
                .query("from", beam_id())
                .query("to", beam_id())
                .query("intentType", text())
                .query("status", state())
                .query("errorCode", text())
                .query(
                    "hours",
                    integer()
                        .clamped_to(1, WINDOW_HOURS_MAX)
                        .about("Without it, all stored intents are searched."),
                )
                .query("limit", clamped(SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX))
                .shows(
                    "The intents, newest first.",
                    found.named("BeamIntentSearch"),
                    "",
                ),
        ),
        get(
            "/observability/intents/{nonce}",
            viewer("beamTrace", "Get an intent and its stages")
                .path("nonce", text())
                .shows("The intent and its stages.", trace(), "")
                .refuses(&[Code::NotFound]),
        ),
        get(
            "/observability/overview",
            viewer("beamOverview", "Get figures and alerts")
                .query("hours", clamped(WINDOW_HOURS_DEFAULT, WINDOW_HOURS_MAX))
                .shows("The figures of the window.", overview(), ""),
        ),
        get(
            "/observability/errors",
            viewer("beamErrors", "Get figures of failed intents")
                .query("hours", clamped(WINDOW_HOURS_DEFAULT, WINDOW_HOURS_MAX))
                .shows("The errors of the window.", errors(), ""),
        ),
    ]
}

fn viewer(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(OPERATORS, VIEWER, id, summary)
}

fn truncated() -> Schema {
    boolean().about("Whether older intents were not read.")
}

fn latency() -> Schema {
    number().nullable()
}

fn trace() -> Schema {
    let stage = object(vec![
        required("id", integer()),
        required("nonce", text()),
        required("from", beam_id()),
        required("to", beam_id()),
        required("intentType", text()),
        required("stage", state()),
        required("status", state()),
        required("timestamp", text()),
        required("details", anything().about("What the transport did.")),
    ]);
    object(vec![
        required("intent", intent_entry()),
        required("stages", list(stage)),
        required("audit", list(anything())),
        required("shield", list(anything())),
    ])
    .named("BeamTrace")
}

fn overview() -> Schema {
    let summary = object(vec![
        required("totalAgents", count()),
        required("liveAgents", count()),
        required("staleAgents", count()),
        required("federatedAgents", count()),
        required("federationPeers", count()),
        required("totalIntents", count()),
        required("successCount", count()),
        required("errorCount", count()),
        required("inFlightCount", count()),
        required("avgLatencyMs", latency()),
        required("p95LatencyMs", latency()),
        required("successRate", number().nullable()),
        required("inFlightOlderThan15m", count()),
    ]);
    let bucket = object(vec![
        required("bucketStart", instant()),
        required("total", count()),
        required("success", count()),
        required("error", count()),
        required("inFlight", count()),
        required("p95LatencyMs", latency()),
    ]);
    let top_intent = object(vec![
        required("intentType", text()),
        required("total", count()),
        required("errors", count()),
        required("avgLatencyMs", latency()),
    ]);
    let top_error = object(vec![
        required("errorCode", text()),
        required("count", count()),
        required("lastSeenAt", instant()),
    ]);
    object(vec![
        required("windowHours", integer()),
        required("summary", summary),
        required("timeline", list(bucket)),
        required("topIntents", list(top_intent)),
        required("topErrors", list(top_error)),
        required("alerts", list(alert())),
        required("truncated", truncated()),
    ])
    .named("BeamOverview")
}

fn alert() -> Schema {
    object(vec![
        required("id", text()),
        required("severity", text().one_of(["critical", "warning"])),
        required("title", text()),
        required("scope", text().one_of(["network", "federation", "agent"])),
        required("message", text()),
        required("metric", text()),
        required("value", number()),
        required("threshold", number()),
        required("valueUnit", text().one_of(["ratio", "ms", "count"])),
        required("startedAt", instant()),
        required("links", list(anything())),
        required("sampleTraces", list(anything())),
    ])
    .named("BeamAlert")
}

fn errors() -> Schema {
    let summary = object(vec![
        required("totalErrors", count()),
        required("distinctErrorCodes", count()),
        required("timeoutCount", count()),
        required("offlineCount", count()),
        required("deliveryFailedCount", count()),
    ]);
    let bucket = object(vec![
        required("bucketStart", instant()),
        required("total", count()),
    ]);
    let code = object(vec![
        required("errorCode", text()),
        required("count", count()),
        required("lastSeenAt", instant()),
        required("avgLatencyMs", latency()),
        required("affectedSenders", count()),
        required("affectedRecipients", count()),
    ]);
    let route = object(vec![required("route", text()), required("count", count())]);
    object(vec![
        required("windowHours", integer()),
        required("summary", summary),
        required("timeline", list(bucket)),
        required("codes", list(code)),
        required("routes", list(route)),
        required("truncated", truncated()),
    ])
    .named("BeamErrors")
}
