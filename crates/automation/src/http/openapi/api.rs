//! The `OpenAPI` description of the API itself.
//!
//! `GET /openapi.json` describes the commands of plugins, as the protocol demands; this document is printed by
//! `consign openapi --automation`. Invariant: described and routed paths are equal; a test compares them. Bodies of responses are
//! described by their kind alone.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, boolean, exactly, integer, list, object, optional, required, text,
};
use consign_web::openapi::{self, Access, Dialect, Endpoint, ErrorResponseSpec, Operation, Tag};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::super::about::DESCRIPTION;
use super::super::{jobs, operate, query, trigger};

const CATALOGUE: Tag = Tag {
    title: "Catalogue",
    about: "The service, its plugins and its pipelines.",
};
const START: Tag = Tag {
    title: "Start",
    about: "Start commands and pipelines.",
};
const JOBS: Tag = Tag {
    title: "Jobs",
    about: "Inspect, cancel and retry jobs; read their logs, facts and events.",
};
const SCHEDULES: Tag = Tag {
    title: "Schedules",
    about: "Schedules and circuit breakers.",
};
const SYSTEM: Tag = Tag {
    title: "System",
    about: "Configuration, status and checks of the service.",
};
const TAGS: [Tag; 5] = [CATALOGUE, START, JOBS, SCHEDULES, SYSTEM];

const BEARER: &str = "bearer";

const ANYONE: Access = Access {
    words: "nothing",
    schemes: &[],
    codes: &[
        Code::InvalidRequest,
        Code::HttpsRequired,
        Code::RateLimited,
        Code::Maintenance,
        Code::Internal,
    ],
    challenge: &[],
    example_header: "",
};

const TOKEN: Access = Access {
    words: "any token",
    schemes: &[&[BEARER]],
    codes: &[
        Code::InvalidRequest,
        Code::Unauthorized,
        Code::HttpsRequired,
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::Maintenance,
        Code::Internal,
    ],
    example_header: "Authorization: Bearer $TOKEN",
    ..ANYONE
};

const fn scoped(words: &'static str) -> Access {
    Access { words, ..TOKEN }
}

const PLUGIN_READ: Access = scoped("a token with the scope plugin:ro");
const PLUGIN_WRITE: Access = scoped("a token with the scope plugin:rw");
const JOBS_READ: Access = scoped("a token with the scope jobs:ro");
const JOBS_WRITE: Access = scoped("a token with the scope jobs:rw");
const SYSTEM_READ: Access = scoped("a token with the scope system:ro");
const SYSTEM_WRITE: Access = scoped("a token with the scope system:rw");
const EVENTS_READ: Access = Access {
    schemes: &[&[BEARER], &["tokenInQuery"]],
    ..scoped("a token with the scope events:ro")
};

/// An `OpenAPI` document of the API of an automation service.
pub fn document() -> Value {
    let tags: Vec<Value> = TAGS
        .iter()
        .map(|tag| json!({"name": tag.title, "description": tag.about}))
        .collect();
    let frame = json!({
        "info": {
            "title": "Consign, automation API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("{DESCRIPTION} Every error is `{{\"error\":\"<sentence>\"}}`: branch on the status."),
        },
        "tags": tags,
        "components": {"securitySchemes": {
            BEARER: {"type": "http", "scheme": "bearer", "description": "A token of the configuration."},
            "tokenInQuery": {
                "type": "apiKey", "in": "query", "name": "token",
                "description": "The same token, for browsers, which cannot send a header with an event stream.",
            },
        }},
    });
    openapi::document(&endpoints(), &AutomationDialect, frame)
}

struct AutomationDialect;

impl Dialect for AutomationDialect {
    const EMPTY_QUERY_IS_ABSENT: bool = true;

    fn headers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>> {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16();
        BTreeMap::from([(status, vec![Code::InvalidRequest])])
    }

    fn refusal(&self, _: &Operation, status: u16, codes: &[Code]) -> ErrorResponseSpec {
        let about = match status {
            400 => "The request is invalid.",
            401 => "The token is missing or unknown.",
            403 => "The scopes of the token do not allow this, or HTTPS is required.",
            404 => "No such job, plugin, pipeline or schedule exists.",
            408 => "The body did not arrive in time.",
            409 => "The present state does not allow this.",
            413 => "The body or the baggage is too large.",
            429 => "Too many wrong credentials came from this address.",
            431 => "The request line or the headers are too large.",
            503 => "Storage is unavailable, the server is busy, or it is in maintenance.",
            _ => "Internal error; see the log of the service.",
        };
        let sentence = text().about("A sentence for people; may change.");
        let mut fields = vec![required("error", sentence)];
        if codes.contains(&Code::Unhealthy) {
            fields.push(optional("status", text().always("unwell")));
        }
        if codes.contains(&Code::BaggageTooLarge) {
            fields.push(optional("bytes_actual", integer()));
            fields.push(optional("bytes_limit", integer()));
        }
        ErrorResponseSpec {
            about,
            headers: Vec::new(),
            schema: exactly(fields),
            shared_as: None,
        }
    }
}

/// One method of one path; the parameters of the path are added.
fn endpoint(method: Method, path: &'static str, operation: Operation) -> Endpoint {
    let segments = path.split('/');
    let named = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let operation = named.fold(operation, |operation, name| {
        operation.path(name, text()).refuses(&[Code::NotFound])
    });
    // Every token with a scope can lack it.
    let operation = match operation.access.words {
        "nothing" | "any token" => operation,
        _ => operation.refuses(&[Code::Forbidden]),
    };
    Endpoint {
        method,
        path,
        operation,
    }
}

fn get(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::GET, path, operation)
}

fn post(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::POST, path, operation)
}

/// An operation that responds with an object of this meaning.
fn shows(
    tag: Tag,
    access: Access,
    id: &'static str,
    summary: &'static str,
    about: &'static str,
) -> Operation {
    Operation::new(tag, access, id, summary).answers(StatusCode::OK, about, object(Vec::new()), "")
}

fn limit(default: usize, max: usize) -> Schema {
    integer().within(1, max).by_default(default)
}

fn endpoints() -> Vec<Endpoint> {
    let mut all = catalogue();
    all.extend(start());
    all.extend(of_jobs());
    all.extend(schedules());
    all.extend(system());
    all
}

#[rustfmt::skip]
fn catalogue() -> Vec<Endpoint> {
    vec![
        get("/", shows(CATALOGUE, ANYONE, "root", "Show the service", "Name, uptime and where to go on.")),
        get("/healthz", shows(CATALOGUE, ANYONE, "health", "Check the health of the service", "The service is healthy.")
            .about("For programs on this machine only.")
            .refuses(&[Code::Forbidden, Code::Unhealthy, Code::StoreUnavailable])),
        get("/plugins", shows(CATALOGUE, TOKEN, "plugins", "List the plugins", "The plugins.")),
        get("/plugin/{plugin}", shows(CATALOGUE, PLUGIN_READ, "plugin", "Get a plugin", "The plugin and its commands.")),
        get("/plugin/{plugin}/openapi.json", shows(CATALOGUE, TOKEN, "pluginOpenapi", "Describe the commands of a plugin", "An OpenAPI document.")),
        get("/pipelines", shows(CATALOGUE, PLUGIN_READ, "pipelines", "List the pipelines", "The pipelines.")),
        get("/pipeline/{pipeline}", shows(CATALOGUE, PLUGIN_READ, "pipeline", "Get a pipeline", "The pipeline and its steps.")),
        get("/skills", shows(CATALOGUE, TOKEN, "skills", "List what the plugins and pipelines can do", "The skills.")),
        get("/openapi.json", shows(CATALOGUE, TOKEN, "openapi", "Describe the commands of all plugins", "An OpenAPI document.")),
        get("/.well-known/ai-plugin.json", shows(CATALOGUE, TOKEN, "aiPlugin", "Get the description for language models", "Name, description and address of the OpenAPI document.")),
    ]
}

fn start() -> Vec<Endpoint> {
    let body = object(vec![optional(
        "payload",
        object(Vec::new())
            .nullable()
            .about("The input of the command."),
    )]);
    let queued = exactly(vec![
        required("job_id", text()),
        required("status", text().always("queued")),
        required("plugin", text()),
        required("command", text()),
    ]);
    let may_fail = [
        Code::RequestTimeout,
        Code::PayloadTooLarge,
        Code::BaggageTooLarge,
        Code::ServerBusy,
    ];
    let command = Operation::new(
        START,
        PLUGIN_READ,
        "runCommand",
        "Start a command of a plugin",
    )
    .about("A command of type write needs the scope plugin:rw.")
    .may_take(body.clone(), trigger::BODY_BYTES_MAX, r#"{"payload":{}}"#)
    .answers(StatusCode::ACCEPTED, "The job is queued.", queued, "")
    .refuses(&may_fail);
    let pipeline = Operation::new(START, PLUGIN_WRITE, "runPipeline", "Start a pipeline")
        .about("A synchronous pipeline responds when all of its jobs have ended, unless async is true.")
        .query(
            "async",
            boolean().about("Do not wait.").by_default(false),
        )
        .may_take(body, trigger::BODY_BYTES_MAX, r#"{"payload":{}}"#)
        .answers(
            StatusCode::OK,
            "The synchronous pipeline has ended.",
            object(Vec::new()),
            "",
        )
        .answers(
            StatusCode::ACCEPTED,
            "The jobs are queued, or the pipeline takes longer than the call waits.",
            object(vec![
                required("job_id", text()),
                required("status", text()),
                optional("job_ids", list(text())),
            ]),
            "",
        )
        .refuses(&may_fail)
        .refuses(&[Code::PipelineWithoutJobs]);
    vec![
        post("/plugin/{plugin}/{command}", command),
        post("/pipeline/{pipeline}", pipeline),
    ]
}

#[rustfmt::skip]
fn of_jobs() -> Vec<Endpoint> {
    let job = |id, summary, about| shows(JOBS, JOBS_READ, id, summary, about);
    let status = || text().one_of(["queued", "running", "succeeded", "failed", "timed_out", "dead"]);
    let instant = |about| text().about(about).rule("format", "date-time");
    let change = |id, summary| {
        let reason = text().nullable().rule("maxLength", jobs::REASON_CHARS_MAX);
        let done = exactly(vec![required("job_id", text()), required("status", text())]);
        Operation::new(JOBS, JOBS_WRITE, id, summary)
            .may_take(object(vec![optional("reason", reason)]), jobs::BODY_BYTES_MAX, r#"{"reason":"no longer needed"}"#)
            .answers(StatusCode::OK, "The job and its status.", done, "")
            .refuses(&[Code::RequestTimeout, Code::PayloadTooLarge, Code::ServerBusy, Code::InvalidState])
    };
    let logs = job("jobLogs", "Search the logs of ended attempts", "A page of the log.")
        .query("job_id", text())
        .query("plugin", text())
        .query("command", text())
        .query("status", status())
        .query("submitted_by", text())
        .query("from", instant("Not before this time."))
        .query("to", instant("Not after this time."))
        .query("query", text().about("Text to search for."))
        .query("limit", limit(query::LIMIT_DEFAULT, query::LOGS_LIMIT_MAX))
        .query("include_result", boolean().by_default(false))
        .query("cursor", text().about("From the previous page."));
    let events = Operation::new(JOBS, EVENTS_READ, "events", "Follow the events of the service")
        .header("Last-Event-ID", text().about("The id of the last event that was received."))
        .answers_text("Server-sent events.", "text/event-stream", "")
        .refuses(&[Code::ServerBusy]);
    vec![
        get("/pipeline-run/{id}", job("pipelineRun", "Get a run of a pipeline", "The run and its jobs.")),
        get("/job/{id}", job("job", "Get a job", "The job and its last attempt.")),
        get("/job/{id}/tree", job("jobTree", "Get a job and the jobs that it started", "The jobs.")),
        get("/job/{id}/inspect", job("inspectJob", "Inspect a job", "The job with its history.")),
        post("/job/{id}/cancel", change("cancelJob", "Cancel a job")),
        post("/job/{id}/retry", change("retryJob", "Retry a job")),
        get("/jobs", job("jobs", "List jobs", "The latest jobs.")
            .query("plugin", text())
            .query("command", text())
            .query("status", status())
            .query("limit", limit(query::LIMIT_DEFAULT, query::JOBS_LIMIT_MAX))),
        get("/job-logs", logs),
        get("/queue", job("queue", "List open jobs", "The jobs that are queued or running.")
            .query("limit", limit(query::JOBS_LIMIT_MAX, query::JOBS_LIMIT_MAX))),
        get("/facts/{plugin}", shows(JOBS, PLUGIN_READ, "facts", "List the facts of a plugin", "The latest facts.")
            .query("fact_type", text())
            .query("limit", limit(jobs::FACTS_DEFAULT, jobs::FACTS_MAX))),
        get("/events", events),
        get("/analytics/queue", job("queueFigures", "Get figures of the queue", "The figures.")),
        get("/analytics/summary", job("summary", "Get figures of ended jobs", "The figures.")),
    ]
}

#[rustfmt::skip]
fn schedules() -> Vec<Endpoint> {
    let command = || text().by_default(operate::COMMAND_DEFAULT);
    let change = |id, summary, about| shows(SCHEDULES, SYSTEM_WRITE, id, summary, about).refuses(&[Code::ScheduleNotPlanned]);
    vec![
        get("/schedules", shows(SCHEDULES, JOBS_READ, "schedules", "List the schedules", "The schedules.")),
        get("/scheduler/jobs", shows(SCHEDULES, JOBS_READ, "schedulerJobs", "List the schedules in the form of the scheduler", "The schedules.")),
        get("/schedule/{plugin}/{id}", shows(SCHEDULES, JOBS_READ, "schedule", "Get a schedule", "The schedule.")),
        post("/schedule/{plugin}/{id}/pause", change("pauseSchedule", "Pause a schedule", "The schedule.")),
        post("/schedule/{plugin}/{id}/resume", change("resumeSchedule", "Resume a schedule", "The schedule.")),
        post("/schedule/{plugin}/{id}/run", change("runSchedule", "Run a schedule now", "The job is queued.")),
        get("/breaker/{plugin}", shows(SCHEDULES, JOBS_READ, "breaker", "Get the circuit breaker of a command", "The breaker and its latest transitions.")
            .query("command", command())
            .query("limit", limit(operate::TRANSITIONS_DEFAULT, operate::TRANSITIONS_MAX))),
        post("/breaker/{plugin}/reset", shows(SCHEDULES, SYSTEM_WRITE, "resetBreaker", "Close the circuit breaker of a command", "The breaker.")
            .query("command", command())),
    ]
}

#[rustfmt::skip]
fn system() -> Vec<Endpoint> {
    vec![
        get("/config/view", shows(SYSTEM, SYSTEM_READ, "config", "Show the configuration", "The configuration without secrets.")),
        get("/system/status", shows(SYSTEM, SYSTEM_READ, "status", "Show the status of the service", "The status.")),
        post("/system/reload", shows(SYSTEM, SYSTEM_WRITE, "reload", "Reload the configuration", "The new configuration is in use.")
            .refuses(&[Code::ReloadRefused])),
        get("/system/doctor", shows(SYSTEM, SYSTEM_READ, "doctor", "Check the configuration", "The findings.")),
        get("/system/selfcheck", shows(SYSTEM, SYSTEM_READ, "selfcheck", "Check the service", "The findings.")),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let source = include_str!("../../http.rs");
        let mut routed = BTreeSet::new();
        for rest in source.split(".route(").skip(1) {
            let mut parts = rest.split('"');
            let path = parts.nth(1).unwrap().to_owned();
            let handlers = parts.next().unwrap().split("\n        .").next().unwrap();
            for method in ["get", "post"] {
                if handlers.contains(&format!("{method}(")) {
                    routed.insert((path.clone(), method.to_owned()));
                }
            }
        }
        assert!(routed.len() > 35, "{routed:?}");
        let document = document();
        let mut described = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                described.insert((path.clone(), method.clone()));
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(ids.insert(id.clone()), "{id} twice");
            }
        }
        assert_eq!(described, routed);
    }
}
