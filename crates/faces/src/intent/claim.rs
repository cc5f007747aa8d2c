//! `POST /claim`, also as a long poll (`wait`) and for several at once (`max`).

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::Place;
use consign_kernel::command::{Audience, Claim};
use consign_kernel::error::Code;
use consign_kernel::ids::SECOND_US;
use consign_kernel::intent::Intent;
use consign_kernel::limits;
use consign_kernel::profile::Face as KernelFace;
use http::{HeaderValue, StatusCode, header};

use super::events::drained;
use super::json_out::{Json, array};
use super::query::Params;
use super::reject::Reject;
use super::visit::Visit;
use super::{Face, wire};
use crate::web::presence::Presence;

/// A claim as asked for on the wire.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) claim: Claim,
    wait: Duration,
    many: bool,
}

pub(super) async fn claim(State(face): State<Face>, request: Request) -> Result<Response, Reject> {
    let mut visit = face.enter(request, limits::BODY_BYTES_MAX).await?;
    let wanted = visit.checked(parse(&visit)).await?;
    visit.costs(wanted.claim.max as usize);
    let _place = if wanted.wait.is_zero() {
        None
    } else {
        Some(visit.checked(waiting_place(&visit)).await?)
    };
    let mut draining = face.options.draining.clone();
    let presence = visit
        .parts
        .extensions
        .get::<Presence>()
        .cloned()
        .unwrap_or_default();
    let leave = async {
        tokio::select! {
            // A draining server lets its waiting workers go; they find the next one.
            () = drained(&mut draining) => {}
            // Nobody is left to work on what might come.
            () = presence.hung_up() => {}
        }
    };
    let claimed = face
        .engine
        .claim_unless(visit.gate(), wanted.claim, wanted.wait, leave)
        .await?;
    Ok(match claimed.first() {
        None => nothing(),
        Some(_) if wanted.many => {
            let mut body = Json::object();
            body.raw("intents", &claims(&claimed));
            body.into_response()
        }
        Some(intent) => claim_out(intent).into_response(),
    })
}

fn waiting_place(visit: &Visit) -> Result<Place, Reject> {
    visit.face.engine.wait_place(&visit.caller).ok_or_else(|| {
        Reject::new(
            Code::LimitExceeded,
            "Too many claims of this key are waiting; claim without wait.",
        )
    })
}

fn nothing() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

pub(super) fn claims(intents: &[Intent]) -> String {
    array(intents.iter().map(|intent| claim_out(intent).finish()))
}

/// `id` and `claim_token` come before the payload: workers without a JSON parser cut out the first ones they see.
fn claim_out(intent: &Intent) -> Json {
    let mut body = Json::object();
    body.text("id", &intent.id.to_string())
        .text(
            "claim_token",
            &intent.token.map(|token| token.reveal()).unwrap_or_default(),
        )
        .number("claim_attempts", u64::from(intent.attempts))
        .integer("claim_timeout", limits::LEASE_DEFAULT_S)
        .text("goal", &intent.goal)
        .text("namespace", &intent.namespace)
        .integer("priority", i64::from(intent.priority))
        .maybe_text("target_worker", intent.target.as_deref())
        .maybe_text("required_capability", intent.capability.as_deref());
    if let Some(traceparent) = &intent.traceparent {
        body.text("traceparent", traceparent);
    }
    body.raw("payload", &intent.payload);
    body
}

fn parse(visit: &Visit) -> Result<Wanted, Reject> {
    let params = Params::of(&visit.parts.uri)?;
    let namespace = wire::namespace(Some(params.get("namespace").unwrap_or("default")))?;
    let max = params.get("max").map(whole).transpose()?;
    let wait = params.get("wait").map_or(Ok(Duration::ZERO), wait)?;
    let goal = params
        .get("goal")
        .map(|goal| goal.trim().to_owned())
        .filter(|goal| !goal.is_empty());
    let mut claim = claim_for(visit, namespace, goal, max.unwrap_or(1))?;
    if let Some(publisher) = params.get("publisher") {
        claim.audience = audience(visit, publisher)?;
    }
    if claim.worker_id.is_none() {
        claim.worker_id = params.get("worker_id").and_then(worker_id);
    }
    if claim.capabilities.is_empty() {
        let listed = params
            .get("capabilities")
            .or_else(|| params.get("capability"));
        claim.capabilities = listed.map_or(Ok(Vec::new()), capabilities)?;
    }
    Ok(Wanted {
        claim,
        wait,
        many: max.is_some(),
    })
}

/// A claim by this visitor, with the worker's headers.
pub(super) fn claim_for(
    visit: &Visit,
    namespace: String,
    goal: Option<String>,
    max: u32,
) -> Result<Claim, Reject> {
    if wire::is_reserved(&namespace) {
        return Err(Reject::new(
            Code::Forbidden,
            "This key has no grant for namespaces beginning with beam. or mesh.",
        ));
    }
    let listed = visit
        .header("x-worker-capabilities")
        .or_else(|| visit.header("x-worker-capability"));
    Ok(Claim {
        face: KernelFace::Intent,
        namespace,
        goal,
        holder: visit.caller.id().to_owned(),
        audience: Audience::Caller,
        worker_id: visit.header("x-worker-id").and_then(worker_id),
        capabilities: listed.map_or(Ok(Vec::new()), capabilities)?,
        max,
        lease_us: limits::LEASE_DEFAULT_S * SECOND_US,
    })
}

fn audience(visit: &Visit, publisher: &str) -> Result<Audience, Reject> {
    let id = visit.face.engine.publisher_id(publisher);
    if visit.caller.is_main() || id == visit.caller.id() {
        return Ok(Audience::Publisher(id));
    }
    Err(Reject::new(
        Code::Forbidden,
        "Only the main key may claim by another publisher.",
    ))
}

fn worker_id(text: &str) -> Option<String> {
    let id: String = text
        .trim()
        .chars()
        .take(limits::WORKER_ID_CHARS_MAX)
        .collect();
    (!id.is_empty()).then_some(id)
}

/// Each one is another lane to look at, so there is a limit to them.
fn capabilities(text: &str) -> Result<Vec<String>, Reject> {
    let text: String = text.chars().take(limits::CAPABILITIES_CHARS_MAX).collect();
    let mut tokens: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    if tokens.len() > limits::CAPABILITIES_MAX {
        return Err(Reject::new(
            Code::InvalidRequest,
            "A worker may advertise at most 32 capabilities.",
        ));
    }
    Ok(tokens)
}

fn whole(text: &str) -> Result<u32, Reject> {
    text.parse()
        .ok()
        .filter(|max| (1..=limits::CLAIM_BATCH_MAX).contains(max))
        .ok_or_else(|| Reject::new(Code::InvalidMax, "max must be an integer from 1 to 100."))
}

fn wait(text: &str) -> Result<Duration, Reject> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=limits::CLAIM_WAIT_MAX_S).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            Reject::new(
                Code::InvalidWait,
                "wait must be a number of seconds from 0 to 30.",
            )
        })
}
