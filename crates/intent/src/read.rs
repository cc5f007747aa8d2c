//! Reads of a client's own intents: result, status, list, timeline, receipt, and the keys that sign receipts.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{IntentFilter, ReceiptStatus};
use consign_kernel::error::Code;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::{Intent, ResultKind};
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::receipt;
use consign_kernel::record::KeyScope;
use consign_kernel::state::{Cause, State as IntentState};

use super::authed_request::AuthedRequest;
use super::path_segment::PathId;
use super::query::list_query::ListQuery;
use super::query::{QueryParams, cursor};
use super::{IntentFace, ignored};
use consign_web::body;
use consign_web::json_out::{Json, array, json_response, string};
use consign_web::reject::Reject;

/// Many times the size of a receipt.
pub(super) const RECEIPT_BYTES_MAX: usize = 64 << 10;

pub(super) async fn result(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (_, intent) = load_readable(&face, &id, request).await?;
    let mut body = Json::object();
    head(&mut body, &intent);
    body.text("result_type", result_type(&intent))
        .raw("result", &result_json(&intent))
        .seconds("completed_at", completed_at(&intent));
    if let Some(error) = &intent.last_error {
        body.text("error", error);
    }
    Ok(body.into_response())
}

pub(super) async fn status(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (_, intent) = load_readable(&face, &id, request).await?;
    Ok(status_out(&intent).into_response())
}

pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Read))
        .await?;
    request.pass().await?;
    let asked = ListQuery::of(&QueryParams::of(&request.parts.uri)?)?;
    let filter = IntentFilter {
        face: Face::Intent,
        owner: Some(request.caller.id().to_owned()),
        namespace: asked.namespace,
        goal: asked.goal,
        state: asked.state,
        before: asked.before,
        limit: asked.limit,
    };
    if let Some(namespace) = &filter.namespace {
        request.check_namespace(namespace)?;
    }
    let mut page = face.engine.intents(filter).await?;
    page.intents
        .retain(|intent| request.caller.may_use_namespace(&intent.namespace));
    let mut body = Json::object();
    body.raw(
        "intents",
        &array(
            page.intents
                .iter()
                .map(|intent| status_out(intent).finish()),
        ),
    );
    body.maybe_text("cursor", page.next.map(cursor::page_text).as_deref());
    let ignored = ignored::LIST.unknown_parameters(&request.parts.uri);
    Ok(ignored::named(body.into_response(), &ignored))
}

pub(super) async fn timeline(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (request, intent) = load_readable(&face, &id, request).await?;
    let facts = request.face.engine.timeline(intent.seq).await?;
    let mut body = Json::object();
    body.text("id", &id).raw(
        "facts",
        &array(facts.iter().map(|fact| fact_out(fact).finish())),
    );
    Ok(body.into_response())
}

pub(super) async fn receipt(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (_, intent) = load_readable(&face, &id, request).await?;
    Ok(json_response(face.engine.receipt(&intent).await?))
}

/// Public, like the keys: the holder of a receipt may have no API key. Only documents that this server signed are
/// looked up.
pub(super) async fn verify(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    face.check_transport(&parts).await?;
    face.check_maintenance()?;
    let body = body::read(body, RECEIPT_BYTES_MAX, body::DEADLINE_DEFAULT).await?;
    if body.is_empty() {
        let message = "Send the receipt as the body of the request.";
        return Err(Reject::new(Code::InvalidRequest, message));
    }
    let verified = match std::str::from_utf8(&body) {
        Ok(document) => face.engine.verify_receipt(document).await?,
        Err(error) => Err(receipt::VerifyError::NotText(error)),
    };
    let mut answer = Json::object();
    let (verified, standing) = match verified {
        Ok(verified) => verified,
        Err(error) => {
            answer
                .bool("valid", false)
                .text("error", &error.to_string());
            return Ok(answer.into_response());
        }
    };
    let (word, by) = match &standing {
        ReceiptStatus::Current => ("current", None),
        ReceiptStatus::Reopened => ("reopened", None),
        ReceiptStatus::Superseded { by } => ("superseded", Some(by.as_str())),
        ReceiptStatus::Unknown => ("unknown", None),
    };
    answer
        .bool("valid", true)
        .text("id", &verified.statement.id)
        .text("intent", &verified.statement.intent)
        .text("key_id", &verified.key_id)
        .text("standing", word)
        .maybe_text("superseded_by", by);
    Ok(answer.into_response())
}

/// The intent, if the caller published it, claimed it, or holds the main key.
async fn load_readable(
    face: &IntentFace,
    id: &str,
    request: Request,
) -> Result<(AuthedRequest, Intent), Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Read))
        .await?;
    request.pass().await?;
    let id: IntentId = id.parse().map_err(|_| Reject::not_found())?;
    let intent = face
        .engine
        .observe(id)
        .await?
        .filter(|intent| intent.profile == ProfileId::Intent);
    let intent = intent.ok_or_else(Reject::not_found)?;
    let caller = request.caller.id();
    let may_read = request.caller.is_main()
        || intent.owner == caller
        || intent.holder.as_deref() == Some(caller);
    if !may_read {
        return Err(Reject::new(
            Code::Forbidden,
            "Only the publisher, the claimer and the main key may read this.",
        ));
    }
    request.check_namespace(&intent.namespace)?;
    Ok((request, intent))
}

fn head(body: &mut Json, intent: &Intent) {
    body.text("id", &intent.id.to_string())
        .text("namespace", &intent.namespace)
        .text("goal", &intent.goal)
        .text("status", word(intent.state, intent.cause))
        .integer("priority", i64::from(intent.priority))
        .text(
            "visibility",
            if intent.public { "public" } else { "private" },
        )
        .number("claim_attempts", u64::from(intent.attempts))
        .seconds("run_at", Some(intent.run_at))
        .seconds("claim_expires_at", intent.lease_until)
        .maybe_text("target_worker", intent.target.as_deref())
        .maybe_text("required_capability", intent.capability.as_deref());
    show_worker(body, intent.worker.as_deref());
}

/// The protocol does not know this member, so it is left out if there is nothing to show.
pub(super) fn show_worker(body: &mut Json, worker: Option<&str>) {
    if let Some(worker) = worker {
        body.text("worker", worker);
    }
}

fn status_out(intent: &Intent) -> Json {
    let mut body = Json::object();
    head(&mut body, intent);
    body.seconds("completed_at", completed_at(intent))
        .maybe_text("last_error", intent.last_error.as_deref());
    body
}

pub(super) fn fact_out(fact: &Fact) -> Json {
    let mut body = Json::object();
    body.number("seq", fact.seq.0)
        .seconds("at", Some(fact.time_of_day()))
        .text("verb", fact.verb.fact())
        .maybe_text("from", fact.from.map(|state| word(state, Cause::None)))
        .text("to", word(fact.to, fact.cause))
        .maybe_text(
            "cause",
            (fact.cause != Cause::None).then(|| fact.cause.name()),
        )
        .number("attempt", u64::from(fact.attempt))
        .maybe_text("actor", fact.actor.as_deref())
        .maybe_text("worker", fact.worker.as_deref())
        .maybe_text("detail", fact.detail.as_deref());
    body
}

/// The protocol's name of a state.
pub(super) fn word(state: IntentState, cause: Cause) -> &'static str {
    ProfileId::Intent
        .profile()
        .word(state, cause)
        .unwrap_or(state.name())
}

pub(super) fn result_type(intent: &Intent) -> &'static str {
    match intent.result.as_ref().map(|result| result.kind) {
        Some(ResultKind::Text) => "text",
        // Also if no result is stored: the published client expects a string.
        Some(ResultKind::Json) | None => "json",
    }
}

pub(super) fn result_json(intent: &Intent) -> String {
    match &intent.result {
        Some(result) if result.kind == ResultKind::Text => string(&result.body),
        Some(result) => result.body.clone(),
        None => "null".to_owned(),
    }
}

pub(super) fn completed_at(intent: &Intent) -> Option<Micros> {
    intent
        .settled_at
        .filter(|_| intent.state == IntentState::Acked)
}
