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
use super::query::claiming::{Claiming, capabilities, worker_id};
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
    if let Some(why) = face.engine.off_duty() {
        return visit.checked(Err(Reject::off_duty(why))).await;
    }
    visit.costs(wanted.claim.max as usize);
    let _place = if wanted.wait.is_zero() {
        None
    } else {
        Some(visit.checked(waiting_place(&visit)).await?)
    };
    let mut ending = face.options.draining.clone();
    let presence = visit
        .parts
        .extensions
        .get::<Presence>()
        .cloned()
        .unwrap_or_default();
    let leave = async {
        tokio::select! {
            // A server that ends or drains lets its waiting workers go; they find the next one.
            () = drained(&mut ending) => {}
            () = face.engine.until_off_duty() => {}
            // Nobody is left to work on what might come.
            () = presence.hung_up() => {}
        }
    };
    let claimed = face
        .engine
        .claim_unless(visit.gate(), wanted.claim, wanted.wait, leave)
        .await;
    let claimed = visit.noted(claimed)?;
    Ok(match claimed.first() {
        None => match face.engine.off_duty() {
            Some(why) => return Err(Reject::off_duty(why)),
            None => nothing(),
        },
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
    let asked = Claiming::of(&Params::of(&visit.parts.uri)?)?;
    let max = asked.max.unwrap_or(1);
    let mut claim = claim_for(visit, asked.namespace, asked.goal, max)?;
    if let Some(publisher) = asked.publisher {
        claim.audience = audience(visit, &publisher)?;
    }
    // What the headers say of the worker comes first.
    claim.worker_id = claim.worker_id.or(asked.worker_id);
    if let (true, Some(listed)) = (claim.capabilities.is_empty(), asked.capabilities) {
        claim.capabilities = capabilities(&listed)?;
    }
    Ok(Wanted {
        claim,
        wait: asked.wait,
        many: asked.max.is_some(),
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
