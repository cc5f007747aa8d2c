//! Batches, which the protocol does not define: `POST /intents` and `POST /settle`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::command::{Admit, Answer, Claim, Command, NewIntent, Settle, Settlement};
use consign_kernel::error::Code;
use consign_kernel::json::{Object, Raw};
use consign_kernel::limits;
use consign_kernel::record::KeyScope;
use http::StatusCode;

use super::authed_request::AuthedRequest;
use super::claim::{claim_for, claims};
use super::failure::FailureReport;
use super::lease;
use super::publish::{admitted, cap, published, traceparent};
use super::{IntentFace, ignored, wire};
use consign_web::json_out::{Json, array};
use consign_web::reject::{NOT_GRANTED, Reject};

/// All intents are published, or none.
pub(super) async fn publish(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let mut request = face
        .authenticate(
            request,
            limits::BATCH_BODY_BYTES_MAX,
            Some(KeyScope::Publish),
        )
        .await?;
    let (items, ignored) = request.charge_then_reject(parse_publish(&request)).await?;
    request.costs(items.len());
    let admit = Admit {
        items,
        cap: cap(&request),
    };
    let admitted = admitted(request.apply(Command::Admit(admit)).await?)?;
    let mut body = Json::object();
    body.raw(
        "intents",
        &array(admitted.iter().map(|one| published(one).finish())),
    );
    let response = (StatusCode::CREATED, body).into_response();
    Ok(ignored::named(response, &ignored))
}

/// Each item is settled independently; the next claims run in the same commit.
pub(super) async fn settle(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let mut request = face
        .authenticate(request, limits::BATCH_BODY_BYTES_MAX, Some(KeyScope::Claim))
        .await?;
    let mut batch = request.charge_then_reject(parse_settle(&request)).await?;
    request
        .charge_then_reject(check_grant(&request, batch.claim.as_ref()).await)
        .await?;
    if face.engine.claims_paused().is_some() {
        // Settlements are executed all the same; only the claim is left out, and the worker's next claim is refused.
        batch.claim = None;
    }
    let claims_max = batch.claim.as_ref().map_or(0, |claim| claim.max as usize);
    request.costs(batch.items.len() + claims_max);
    let mut steps = Vec::with_capacity(batch.items.len() + 1);
    steps.extend(
        batch
            .items
            .iter()
            .filter_map(|item| item.settle.as_ref().ok().cloned())
            .map(Command::Settle),
    );
    steps.extend(batch.claim.map(Command::Claim));
    let mut answers = request.execute(steps).await?.into_iter();
    let mut outs = Vec::with_capacity(batch.items.len());
    for item in batch.items {
        let outcome = match item.settle {
            Ok(_) => answers
                .next()
                .unwrap_or(Ok(Answer::Operated))
                .map(|_| ())
                .map_err(|refusal| Reject::from(refusal).of_lease()),
            Err(reject) => Err(reject),
        };
        outs.push(settled(&item.id, outcome, item.truncated));
    }
    let mut body = Json::object();
    body.raw("items", &array(outs.into_iter()));
    let claimed = match answers.next() {
        Some(Ok(Answer::Claimed(intents))) => claims(&face, &intents),
        _ => "[]".to_owned(),
    };
    body.raw("intents", &claimed);
    Ok(body.into_response())
}

/// Refuses the whole batch before anything is settled. If the grant is revoked after this, only the claim is refused, and
/// finds nothing.
async fn check_grant(request: &AuthedRequest, claim: Option<&Claim>) -> Result<(), Reject> {
    let Some(grant) = claim.and_then(|claim| claim.grant.clone()) else {
        return Ok(());
    };
    match request.face.engine.record(grant).await? {
        Some(_) => Ok(()),
        None => Err(Reject::new(Code::Forbidden, NOT_GRANTED)),
    }
}

fn settled(id: &str, outcome: Result<(), Reject>, truncated: bool) -> String {
    let mut out = Json::object();
    out.text("id", id).bool("ok", outcome.is_ok());
    match outcome {
        Ok(()) if truncated => {
            out.bool("error_truncated", true);
        }
        Ok(()) => {}
        Err(reject) => {
            out.raw("error", &reject.error_object().finish());
        }
    }
    out.finish()
}

/// The intents, and the names that were ignored.
fn parse_publish(request: &AuthedRequest) -> Result<(Vec<NewIntent>, Vec<String>), Reject> {
    let object = wire::object(&request.body)?;
    let mut items = Vec::new();
    let mut ignored = ignored::PUBLISH_BATCH.unknown_members(&object);
    ignored.extend(ignored::PUBLISH_BATCH.unknown_parameters(&request.parts.uri));
    for (index, raw) in list(&object, "intents")?.into_iter().enumerate() {
        let item = parse_item(request, &raw, &mut ignored);
        items.push(item.map_err(|reject| reject.at(index))?);
    }
    Ok((items, ignored))
}

fn parse_item(
    request: &AuthedRequest,
    raw: &Raw<'_>,
    ignored: &mut Vec<String>,
) -> Result<NewIntent, Reject> {
    if raw.text().len() > limits::BODY_BYTES_MAX {
        return Err(Reject::new(
            Code::PayloadTooLarge,
            "One item exceeds 8192 bytes.",
        ));
    }
    let object = raw
        .object()
        .map_err(|defect| Reject::new(Code::InvalidPayload, format!("Not an object: {defect}.")))?;
    ignored.extend(ignored::PUBLISH_BATCH.unknown_item_members(&object));
    let owner = request.caller.id();
    let key = match wire::field(&object, "idempotency_key") {
        Some(raw) => Some(raw.as_str().filter(|key| !key.is_empty()).ok_or_else(|| {
            Reject::new(
                Code::InvalidIdempotencyKey,
                "idempotency_key must be a string that is not empty.",
            )
        })?),
        None => None,
    };
    // The key is not part of the fingerprint: the same intent published alone has the same fingerprint.
    let once = key
        .map(|key| wire::once_guard(owner, &key, without_key(&object).as_bytes()))
        .transpose()?;
    let item = wire::new_intent(&object, owner, traceparent(request), once)?;
    request.check_namespace(&item.namespace)?;
    Ok(item)
}

fn without_key(object: &Object<'_>) -> String {
    let mut rest = Json::object();
    for (key, value) in object.members() {
        if key != "idempotency_key" {
            let literal = consign_web::json_out::string(key);
            rest.raw(&literal[1..literal.len() - 1], value.text());
        }
    }
    rest.finish()
}

struct SettleBatch {
    items: Vec<SettleItem>,
    claim: Option<Claim>,
}

/// An item that cannot be parsed gets its own error; the others are settled.
struct SettleItem {
    id: String,
    settle: Result<Settle, Reject>,
    /// The error of a failure was longer than what is kept of it.
    truncated: bool,
}

fn parse_settle(request: &AuthedRequest) -> Result<SettleBatch, Reject> {
    let object = wire::object(&request.body)?;
    let mut items = Vec::new();
    for (index, raw) in list(&object, "items")?.into_iter().enumerate() {
        let item = raw.object().map_err(|_| {
            Reject::new(Code::InvalidPayload, "Each item must be an object.").at(index)
        })?;
        let id =
            wire::field(&item, "id").and_then(|id| id.as_str().map(std::borrow::Cow::into_owned));
        let id = id.ok_or_else(|| {
            Reject::new(
                Code::InvalidRequest,
                "Each item needs the id of its intent.",
            )
            .at(index)
        })?;
        let mut truncated = false;
        items.push(SettleItem {
            settle: settlement(request, &id, &item, &mut truncated),
            id,
            truncated,
        });
    }
    let claim = match wire::field(&object, "claim") {
        Some(raw) => Some(next_claim(request, &raw)?),
        None => None,
    };
    Ok(SettleBatch { items, claim })
}

fn settlement(
    request: &AuthedRequest,
    id: &str,
    item: &Object<'_>,
    truncated: &mut bool,
) -> Result<Settle, Reject> {
    let token = lease::token(item)?;
    let how = match wire::field(item, "action")
        .and_then(|action| action.as_str().map(std::borrow::Cow::into_owned))
        .as_deref()
    {
        Some("fulfill") => Settlement::Complete {
            result: wire::outcome(item)?,
        },
        Some("fail") => {
            let report = FailureReport::parse(item)?;
            *truncated = report.truncated;
            report.settlement
        }
        _ => {
            return Err(Reject::new(
                Code::InvalidAction,
                "action must be \"fulfill\" or \"fail\".",
            ));
        }
    };
    Ok(Settle {
        detail: None,
        id: lease::known(id)?,
        holder: request.caller.id().to_owned(),
        token: token?,
        how,
    })
}

fn next_claim(request: &AuthedRequest, raw: &Raw<'_>) -> Result<Claim, Reject> {
    let object = raw
        .object()
        .map_err(|_| Reject::new(Code::InvalidRequest, "claim must be an object."))?;
    let namespace = match wire::field(&object, "namespace") {
        Some(raw) => wire::namespace(raw.as_str().as_deref())?,
        None => "default".to_owned(),
    };
    let goal = match wire::field(&object, "goal") {
        Some(raw) => Some(
            raw.as_str()
                .ok_or_else(|| Reject::new(Code::InvalidGoal, "goal must be a string."))?
                .trim()
                .to_owned(),
        ),
        None => None,
    };
    let goal = goal.filter(|goal| !goal.is_empty());
    let max = match wire::field(&object, "max") {
        Some(raw) => raw
            .as_i64()
            .and_then(|max| u32::try_from(max).ok())
            .filter(|max| (1..=limits::CLAIM_BATCH_MAX).contains(max)),
        None => Some(1),
    };
    let max =
        max.ok_or_else(|| Reject::new(Code::InvalidMax, "max must be an integer from 1 to 100."))?;
    claim_for(request, namespace, goal, max)
}

fn list<'a>(object: &Object<'a>, name: &str) -> Result<Vec<Raw<'a>>, Reject> {
    let items = wire::field(object, name).and_then(|raw| raw.items());
    let items = items
        .ok_or_else(|| Reject::new(Code::InvalidRequest, format!("{name} must be an array.")))?;
    if items.is_empty() || items.len() > limits::BATCH_ITEMS_MAX {
        return Err(Reject::new(
            Code::InvalidRequest,
            format!("{name} must have 1 to {} items.", limits::BATCH_ITEMS_MAX),
        ));
    }
    Ok(items)
}
