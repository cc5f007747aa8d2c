//! The operator's routes: purge, cleanup, single intents.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{CleanupReport, Error, Operator, OperatorAction, Outline};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State as IntentState;

use super::path_segment::PathId;
use super::read::{completed_at, result_json, result_type, show_worker, word};
use super::{IntentFace, wire};
use consign_web::json_out::Json;
use consign_web::operator_guard::AuditTarget;
use consign_web::reject::Reject;

pub(super) async fn purge(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    if object.get("confirm").and_then(|raw| raw.as_bool()) != Some(true) {
        return Err(Reject::new(
            Code::ConfirmationRequired,
            "Send \"confirm\": true to purge; it cannot be undone.",
        ));
    }
    let namespace = match wire::field(&object, "namespace") {
        Some(raw) => Some(wire::namespace(raw.as_str().as_deref())?),
        None => None,
    };
    let purge = async || {
        let namespace = namespace.as_deref();
        face.engine.purge(operator, Face::Intent, namespace).await
    };
    match purge().await {
        // A purge is idempotent, so it can be repeated as a whole.
        Err(Error::Store(_)) if face.releases_reserve() => purge().await?,
        purged => purged?,
    };
    face.rate_limited_keys.forget_all();
    let target = namespace.unwrap_or_else(|| "all namespaces".to_owned());
    Ok(AuditTarget::of(target, ok().into_response()))
}

pub(super) async fn cleanup(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _) = face.authenticate_operator(request).await?;
    let cleanup = async || face.engine.cleanup(operator, Face::Intent).await;
    let report = match cleanup().await {
        Err(Error::Store(_)) if face.releases_reserve() => cleanup().await?,
        report => report?,
    };
    Ok(cleanup_out(&report).into_response())
}

impl IntentFace {
    /// Whether a reserve existed and was released.
    fn releases_reserve(&self) -> bool {
        let release_reserve = self.options.release_reserve.as_ref();
        release_reserve
            .map(|release_reserve| (release_reserve.0)())
            .is_some()
    }
}

pub(super) async fn intent(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (caller, _) = face.admin_caller(request).await?;
    let intent = load(&face, &id).await?;
    // With the token one could settle the intent, which a viewer may not.
    let token = intent.token.filter(|_| caller.sees_claim_tokens());
    let mut body = Json::object();
    body.text("id", &id)
        .text("namespace", &intent.namespace)
        .text("goal", &intent.goal)
        .raw("payload", &intent.payload)
        .text("status", word(intent.state, intent.cause))
        .integer("priority", i64::from(intent.priority))
        .maybe_text("target_worker", intent.target.as_deref())
        .maybe_text("required_capability", intent.capability.as_deref())
        // Key ids, not keys: a response must not contain a secret.
        .text("publisher", &intent.owner)
        .maybe_text("claimed_by", intent.holder.as_deref())
        .maybe_text("worker", intent.worker.as_deref())
        .maybe_text("claim_token", token.map(|token| token.reveal()).as_deref())
        .number("claim_attempts", u64::from(intent.attempts))
        .number("max_attempts", u64::from(intent.attempts_max))
        .float(
            "backoff_base",
            consign_kernel::ids::Micros(intent.backoff_us).seconds(),
        )
        .text(
            "visibility",
            if intent.public { "public" } else { "private" },
        )
        .maybe_text("last_error", intent.last_error.as_deref())
        .seconds("created_at", Some(intent.created_at))
        .seconds("expires_at", Some(intent.expires_at))
        .seconds("run_at", Some(intent.run_at))
        .seconds("claimed_at", intent.claimed_at)
        .seconds("claim_expires_at", intent.lease_until)
        .seconds(
            "failed_at",
            intent
                .settled_at
                .filter(|_| intent.state == IntentState::DeadLetter),
        )
        .seconds("completed_at", completed_at(&intent))
        .text("result_type", result_type(&intent))
        .raw("result", &result_json(&intent));
    Ok(body.into_response())
}

pub(super) async fn cancel(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let action = OperatorAction::Cancel;
    let intent = operate(&face, operator, &id, action, is_forced(&body)?).await?;
    Ok(operated(&id, word_after(&intent, action)).into_response())
}

pub(super) async fn retry(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let action = OperatorAction::Retry;
    let intent = operate(&face, operator, &id, action, is_forced(&body)?).await?;
    Ok(operated(&id, word_after(&intent, action)).into_response())
}

/// Takes a step for an operator, and returns the row as it was.
pub(super) async fn operate(
    face: &IntentFace,
    operator: Operator,
    id: &str,
    action: OperatorAction,
    force: bool,
) -> Result<Intent, Reject> {
    let reason = match action {
        OperatorAction::Retry => "Retried by admin",
        OperatorAction::Cancel => "Cancelled by admin",
        OperatorAction::Delete => "Deleted by admin",
    };
    let (engine, parsed) = (&face.engine, parse_id(id)?);
    match engine
        .operate(operator, parsed, action, force, reason)
        .await
    {
        Ok(Some(intent)) => Ok(intent),
        Ok(None) => Err(Reject::not_found()),
        Err(Error::Refused(refusal @ (Refusal::IllegalState | Refusal::Held))) => {
            let intent = engine.observe(parsed).await?;
            let intent = intent.ok_or_else(Reject::not_found)?;
            Err(why_not(&intent, action, &refusal))
        }
        Err(error) => Err(error.into()),
    }
}

/// Why an operator cannot do this now, and what to do instead.
fn why_not(intent: &Intent, action: OperatorAction, refusal: &Refusal) -> Reject {
    let profile = intent.profile.profile();
    let state = profile.word(intent.state, intent.cause);
    let state = state.unwrap_or(intent.state.name());
    let possible: Vec<&str> = OperatorAction::ALL
        .into_iter()
        .filter(|other| other.allowed_on(intent))
        .map(OperatorAction::name)
        .collect();
    let message = if *refusal == Refusal::Held {
        "A worker holds it; cancel it first, or delete it when its lease is over.".to_owned()
    } else if possible.is_empty() {
        format!(
            "It belongs to the protocol {} and is {state}, where an operator cannot change it.",
            profile.face
        )
    } else {
        format!(
            "It belongs to the protocol {} and is {state}: {} is not possible now, but {} is.",
            profile.face,
            action.name(),
            possible.join(" and ")
        )
    };
    Reject::new(Code::InvalidState, message)
}

/// The word for the state to which an action led.
fn word_after(intent: &Intent, action: OperatorAction) -> &'static str {
    let state = action.leads_to().unwrap_or(intent.state);
    let profile = intent.profile.profile();
    profile
        .word(state, profile.cancel_cause)
        .unwrap_or(state.name())
}

pub(super) async fn dead_letter(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    face.authenticate_operator(request).await?;
    let intent = load(&face, &id).await?;
    if intent.state != IntentState::DeadLetter {
        return Err(Reject::new(Code::NotFound, "Dead letter not found."));
    }
    let mut body = dead_out(&Outline::from(&intent));
    body.raw("payload", &intent.payload)
        .text("publisher", &intent.owner)
        .text(
            "visibility",
            if intent.public { "public" } else { "private" },
        );
    Ok(body.into_response())
}

pub(super) fn dead_out(intent: &Outline) -> Json {
    let mut body = Json::object();
    body.text("intent_id", &intent.id.to_string())
        .text("namespace", &intent.namespace)
        .text("goal", &intent.goal)
        .number("attempts", u64::from(intent.attempts))
        .text("reason", intent.last_error.as_deref().unwrap_or_default())
        .seconds("created_at", intent.settled_at);
    show_worker(&mut body, intent.worker.as_deref());
    body
}

async fn load(face: &IntentFace, id: &str) -> Result<Intent, Reject> {
    let intent = face.engine.observe(parse_id(id)?).await?;
    intent
        .filter(|intent| intent.profile == ProfileId::Intent)
        .ok_or_else(Reject::not_found)
}

/// Whether the operator asks for the step even if the intent is fulfilled.
fn is_forced(body: &[u8]) -> Result<bool, Reject> {
    let object = wire::object_or_empty(body)?;
    let Some(raw) = wire::field(&object, "force") else {
        return Ok(false);
    };
    raw.as_bool()
        .ok_or_else(|| Reject::new(Code::InvalidRequest, "force must be true or false."))
}

fn parse_id(id: &str) -> Result<IntentId, Reject> {
    id.parse().map_err(|_| Reject::not_found())
}

fn ok() -> Json {
    let mut body = Json::object();
    body.bool("ok", true);
    body
}

fn operated(id: &str, status: &str) -> Json {
    let mut body = ok();
    body.text("id", id).text("status", status);
    body
}

/// A dead intent and its dead letter are one row here, so both counters count it.
fn cleanup_out(report: &CleanupReport) -> Json {
    let mut body = Json::object();
    body.number("expired_open_deleted", report.expired_open_deleted)
        .number("expired_claims_requeued", report.expired_claims_requeued)
        .number("expired_claims_dead", report.expired_claims_dead)
        .number("fulfilled_deleted", report.fulfilled_deleted)
        .number("dead_deleted", report.dead_deleted)
        .number("dead_letters_deleted", report.dead_deleted)
        .number("store_deleted", report.store_deleted)
        .number("rate_limits_deleted", report.rate_limits_deleted)
        .number("idempotency_deleted", report.idempotency_deleted)
        .number("nonces_deleted", report.nonces_deleted);
    body
}
