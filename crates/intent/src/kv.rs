//! The ephemeral key-value store: `POST /set/<key>`, `GET /get/<key>`. Each API key has its own namespace.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::command::Command;
use consign_kernel::error::Code;
use consign_kernel::ids::SECOND_US;
use consign_kernel::json::JsonKind;
use consign_kernel::limits;
use consign_kernel::record::{self, KeyScope, Kind};

use super::authed_request::AuthedRequest;
use super::path_segment::PathName;
use super::{IntentFace, wire};
use consign_web::json_out::Json;
use consign_web::reject::Reject;

pub(super) async fn set(
    State(face): State<IntentFace>,
    PathName(key): PathName,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Publish))
        .await?;
    let put = request.charge_then_reject(parse(&request, key)).await?;
    request.apply(Command::Put(put)).await?;
    let mut body = Json::object();
    body.bool("ok", true);
    Ok(body.into_response())
}

pub(super) async fn get(
    State(face): State<IntentFace>,
    PathName(key): PathName,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Read))
        .await?;
    request.pass().await?;
    let missing = || Reject::new(Code::NotFound, "Key not found.");
    let key = record_key(&request, key.ok_or_else(missing)?);
    let record = face.engine.record(key).await?.ok_or_else(missing)?;
    let mut body = Json::object();
    body.text("value", &record.value);
    Ok(body.into_response())
}

fn parse(request: &AuthedRequest, key: Option<String>) -> Result<record::Put, Reject> {
    let key = key
        .filter(|key| key.len() <= limits::KV_KEY_BYTES_MAX)
        .ok_or_else(|| {
            Reject::new(
                Code::InvalidKey,
                "The key must be UTF-8 text of at most 512 bytes.",
            )
        })?;
    let object = wire::object_or_empty(&request.body)?;
    let value = object
        .get("value")
        .ok_or_else(|| Reject::new(Code::InvalidRequest, "Missing required field: value."))?;
    // Strings are stored unchanged, everything else as JSON text, which clients decode.
    let value = match value.kind() {
        JsonKind::String => value
            .string()
            .map_err(|defect| {
                Reject::new(
                    Code::InvalidPayload,
                    format!("value cannot be stored: {defect}."),
                )
            })?
            .into_owned(),
        JsonKind::Null | JsonKind::Bool | JsonKind::Number | JsonKind::Array | JsonKind::Object => {
            value.compact()
        }
    };
    let ttl_s = match wire::field(&object, "ttl") {
        Some(raw) => wire::clamped(&raw, 1, limits::KV_TTL_MAX_S)
            .or_else(|| {
                raw.as_f64()
                    .map(|ttl| if ttl < 1.0 { 1 } else { whole(ttl) })
            })
            .ok_or_else(|| {
                Reject::new(
                    Code::InvalidTtl,
                    "ttl must be a number of seconds (1-86400).",
                )
            })?,
        None => limits::KV_TTL_DEFAULT_S,
    };
    Ok(record::Put {
        key: record_key(request, key),
        value,
        expires_at: Some(request.face.engine.now().plus(ttl_s * SECOND_US)),
        expect: None,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a float cast saturates, and the bounds follow"
)]
fn whole(ttl: f64) -> i64 {
    (ttl.floor() as i64).clamp(1, limits::KV_TTL_MAX_S)
}

fn record_key(request: &AuthedRequest, name: String) -> record::Key {
    record::Key {
        kind: Kind::Kv,
        owner: request.caller.id().to_owned(),
        name,
    }
}
