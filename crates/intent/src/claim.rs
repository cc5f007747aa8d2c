//! `POST /claim`, also as a long poll (`wait`) and for several at once (`max`).

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::Slot;
use consign_kernel::command::{Audience, Claim};
use consign_kernel::error::Code;
use consign_kernel::ids::SECOND_US;
use consign_kernel::intent::Intent;
use consign_kernel::limits;
use consign_kernel::profile::Face;
use consign_kernel::record::{Grant, KeyScope};
use http::{HeaderValue, StatusCode, header};

use super::authed_request::AuthedRequest;
use super::exposed::is_reserved;
use super::query::QueryParams;
use super::query::claim_query::{ClaimQuery, capabilities, worker_id};
use super::{IntentFace, ignored};
use consign_web::json_out::{Json, array};
use consign_web::presence::Presence;
use consign_web::reject::{NOT_GRANTED, Reject};
use consign_web::sse::drained;

/// A parsed claim.
#[derive(Debug)]
pub(super) struct ClaimRequest {
    pub(super) claim: Claim,
    wait: Duration,
    many: bool,
}

pub(super) async fn claim(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let mut request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Claim))
        .await?;
    let mut claim_request = request.charge_then_reject(parse(&request)).await?;
    if let Audience::Publisher(id) = &mut claim_request.claim.audience
        && claim_request.claim.grant.is_none()
        && request.caller.is_main()
    {
        // A secret that a rotation made names the key by another id.
        *id = face.engine.resolve_key_id(id).await?;
    }
    if let Some(why) = face.engine.claims_paused() {
        return request
            .charge_then_reject(Err(Reject::claims_paused(why)))
            .await;
    }
    request.costs(claim_request.claim.max as usize);
    let _slot = if claim_request.wait.is_zero() {
        None
    } else {
        Some(request.charge_then_reject(take_wait_slot(&request)).await?)
    };
    let mut ending = face.options.draining.clone();
    let presence = request
        .parts
        .extensions
        .get::<Presence>()
        .cloned()
        .unwrap_or_default();
    let leave = async {
        tokio::select! {
            // A server that shuts down or drains ends the wait, so that workers can claim elsewhere.
            () = drained(&mut ending) => {}
            () = face.engine.until_claims_paused() => {}
            // The client has disconnected, so it cannot process an intent.
            () = presence.hung_up() => {}
        }
    };
    let claimed = face
        .engine
        .claim_unless(
            request.gate(),
            claim_request.claim,
            claim_request.wait,
            leave,
        )
        .await;
    let claimed = request.record_outcome(claimed)?;
    let response = match claimed.first() {
        None => match face.engine.claims_paused() {
            Some(why) => return Err(Reject::claims_paused(why)),
            None => no_content(),
        },
        Some(_) if claim_request.many => {
            let mut body = Json::object();
            body.raw("intents", &claims(&face, &claimed));
            body.into_response()
        }
        Some(intent) => claim_out(&face, intent).into_response(),
    };
    let ignored = ignored::CLAIM.unknown_parameters(&request.parts.uri);
    Ok(ignored::named(response, &ignored))
}

fn take_wait_slot(request: &AuthedRequest) -> Result<Slot<String>, Reject> {
    request
        .face
        .engine
        .wait_slot(&request.caller)
        .ok_or_else(|| {
            Reject::new(
                Code::LimitExceeded,
                "Too many claims of this key are waiting; claim without wait.",
            )
        })
}

fn no_content() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

pub(super) fn claims(face: &IntentFace, intents: &[Intent]) -> String {
    array(
        intents
            .iter()
            .map(|intent| claim_out(face, intent).finish()),
    )
}

/// `id` and `claim_token` come before the payload: workers without a JSON parser use the first occurrence.
fn claim_out(face: &IntentFace, intent: &Intent) -> Json {
    let exposed = face.exposed_item(intent);
    let namespace = exposed
        .as_ref()
        .map_or(&intent.namespace, |item| &item.namespace);
    let mut body = Json::object();
    body.text("id", &intent.id.to_string())
        .text(
            "claim_token",
            &intent.token.map(|token| token.reveal()).unwrap_or_default(),
        )
        .number("claim_attempts", u64::from(intent.attempts))
        .integer("claim_timeout", limits::LEASE_DEFAULT_S)
        .text("goal", &intent.goal)
        .text("namespace", namespace)
        .integer("priority", i64::from(intent.priority))
        .maybe_text("target_worker", intent.target.as_deref())
        .maybe_text("required_capability", intent.capability.as_deref());
    if let Some(traceparent) = &intent.traceparent {
        body.text("traceparent", traceparent);
    }
    match exposed {
        Some(item) => {
            let mut source = Json::object();
            source.text("protocol", intent.profile.profile().face.name());
            for (name, value) in &item.source {
                source.maybe_text(name, value.as_deref());
            }
            body.raw("source", &source.finish())
                .raw("payload", &item.payload);
        }
        None => {
            body.raw("payload", &intent.payload);
        }
    }
    body
}

fn parse(request: &AuthedRequest) -> Result<ClaimRequest, Reject> {
    let asked = ClaimQuery::of(&QueryParams::of(&request.parts.uri)?)?;
    let max = asked.max.unwrap_or(1);
    let mut claim = claim_for(request, asked.namespace, asked.goal, max)?;
    if let Some(publisher) = asked.publisher {
        if claim.grant.is_some() {
            return Err(Reject::new(
                Code::Forbidden,
                "publisher does not apply to a reserved namespace, whose rows have one owner.",
            ));
        }
        claim.audience = audience(request, &publisher)?;
    }
    // Headers take precedence over the query.
    claim.worker_id = claim.worker_id.or(asked.worker_id);
    if let (true, Some(listed)) = (claim.capabilities.is_empty(), asked.capabilities) {
        claim.capabilities = capabilities(&listed)?;
    }
    Ok(ClaimRequest {
        claim,
        wait: asked.wait,
        many: asked.max.is_some(),
    })
}

/// A claim by this caller, with the worker's headers.
pub(super) fn claim_for(
    request: &AuthedRequest,
    namespace: String,
    goal: Option<String>,
    max: u32,
) -> Result<Claim, Reject> {
    let mut granted = None;
    if is_reserved(&namespace) {
        // No grant exists for a namespace without a queue.
        let queue = request.face.exposed_queue(&namespace);
        let queue = queue.map_err(|_| Reject::new(Code::Forbidden, NOT_GRANTED))?;
        let grant = Grant::key(&namespace, request.caller.id());
        granted = Some((queue, grant));
    } else {
        request.check_namespace(&namespace)?;
    }
    let listed = request
        .header("x-worker-capabilities")
        .or_else(|| request.header("x-worker-capability"));
    let mut claim = Claim {
        face: Face::Intent,
        namespace,
        goal,
        holder: request.caller.id().to_owned(),
        audience: Audience::Caller,
        worker_id: request.header("x-worker-id").and_then(worker_id),
        capabilities: listed.map_or(Ok(Vec::new()), capabilities)?,
        max,
        lease_us: limits::LEASE_DEFAULT_S * SECOND_US,
        grant: None,
    };
    if let Some((queue, grant)) = granted {
        claim.face = queue.face;
        claim.namespace = queue.namespace;
        claim.audience = Audience::Publisher(queue.owner);
        claim.grant = Some(grant);
    }
    Ok(claim)
}

fn audience(request: &AuthedRequest, publisher: &str) -> Result<Audience, Reject> {
    let id = request.face.engine.publisher_id(publisher);
    if request.caller.is_named(&id) {
        return Ok(Audience::Publisher(request.caller.id().to_owned()));
    }
    if request.caller.is_main() {
        return Ok(Audience::Publisher(id));
    }
    Err(Reject::new(
        Code::Forbidden,
        "Only the main key may claim by another publisher.",
    ))
}
