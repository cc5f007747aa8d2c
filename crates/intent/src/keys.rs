//! The operator's routes for API keys: create, list, show, change, rotate, revoke.
//!
//! Invariant: the text of a key is in the response to its creation and its rotation, and in no other.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{KeyEnd, KeyInfo, KeySettings, NewKey};
use consign_kernel::error::Code;
use consign_kernel::ids::{DAY_US, Micros, SECOND_US};
use consign_kernel::json::{Object, Raw};
use consign_kernel::limits;
use consign_kernel::record::KeyScope;
use http::StatusCode;

use super::path_segment::PathId;
use super::{IntentFace, wire};
use consign_web::json_out::{Json, array, json_response, string};
use consign_web::operator_guard::AuditTarget;
use consign_web::reject::Reject;

pub(super) const NAME_CHARS_MAX: usize = limits::OWNER_CHARS_MAX;
/// Patterns of one key.
pub(super) const NAMESPACES_MAX: usize = 100;
pub(super) const RATE_MAX: i64 = 1_000_000;
pub(super) const OPEN_MAX: i64 = 100_000_000;
pub(super) const EXPIRES_IN_S_MAX: i64 = 10 * 366 * DAY_US / SECOND_US;
/// How long the secret before a rotation is accepted unless the request says otherwise.
pub(super) const OVERLAP_S_DEFAULT: i64 = DAY_US / SECOND_US;
pub(super) const OVERLAP_S_MAX: i64 = 30 * DAY_US / SECOND_US;

const NO_SUCH_KEY: &str = "There is no such API key. The main key has no settings.";
const NOTHING_REVOKED: &str =
    "No such API key; nothing was revoked. The main key cannot be revoked, only replaced.";

pub(super) async fn generate(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    let owner = match wire::field(&object, "owner") {
        Some(raw) => raw
            .as_str()
            .map_or_else(|| raw.compact(), std::borrow::Cow::into_owned),
        None => "anonymous".to_owned(),
    };
    let grants = face.grants_of_new_key(&object)?;
    let settings = settings(&object, face.engine.now())?;
    let is_plain = settings == KeySettings::default();
    let create = face
        .engine
        .create_key_with(operator, &owner, &grants, settings);
    let key = create.await?;
    let mut body = secret_out(&key);
    if !grants.is_empty() {
        body.raw("grants", &texts(&grants));
    }
    // The protocol defines the response to a request without settings.
    if !is_plain && let Some(info) = face.engine.key(operator, &key.id).await? {
        settings_out(&mut body, &info);
    }
    let response = (StatusCode::CREATED, body).into_response();
    Ok(AuditTarget::of(key.id, response))
}

pub(super) async fn revoke(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    let key = wire::field(&object, "api_key")
        .and_then(|raw| raw.as_str().map(std::borrow::Cow::into_owned));
    let key = key.filter(|key| !key.is_empty());
    let key =
        key.ok_or_else(|| Reject::new(Code::InvalidRequest, "Missing required field: api_key."))?;
    let id = face.engine.resolve_key_id(&key).await?;
    let revoked = face.engine.revoke_key(operator, &id).await?;
    // The revoked key may be in this list; for other keys the ledger is asked once more.
    face.rate_limited_keys.forget_all();
    let response = if revoked {
        let mut body = Json::object();
        body.bool("ok", true);
        body.into_response()
    } else {
        Reject::new(Code::NotFound, NOTHING_REVOKED).into_response()
    };
    Ok(AuditTarget::of(id, response))
}

/// The public properties of the keys, never a key itself.
pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _) = face.authenticate_operator(request).await?;
    let keys = face.engine.keys(operator).await?;
    Ok(json_response(array(
        keys.iter().map(|key| key_out(key).finish()),
    )))
}

pub(super) async fn show(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _) = face.authenticate_operator(request).await?;
    let key = known(face.engine.key(operator, key_id(&id)?).await?)?;
    Ok(key_out(&key).into_response())
}

pub(super) async fn change(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    only_fields(&object, &SETTINGS)?;
    let settings = settings(&object, face.engine.now())?;
    let changed = face.engine.change_key(operator, key_id(&id)?, settings);
    let key = known(changed.await?)?;
    // The rate may be higher now.
    face.rate_limited_keys.forget_all();
    Ok(key_out(&key).into_response())
}

pub(super) async fn rotate(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    only_fields(&object, &["overlap"])?;
    let overlap_s = whole(&object, "overlap", 0, OVERLAP_S_MAX)?.unwrap_or(OVERLAP_S_DEFAULT);
    let overlap_us = overlap_s * SECOND_US;
    let rotate = face.engine.rotate_key(operator, key_id(&id)?, overlap_us);
    let key = known(rotate.await?)?;
    let mut body = secret_out(&key);
    body.integer("overlap", overlap_s);
    Ok(body.into_response())
}

/// A path holds an id, never a key, because paths are logged.
fn key_id(text: &str) -> Result<&str, Reject> {
    if text.starts_with("k_") {
        Ok(text)
    } else {
        Err(Reject::new(Code::NotFound, NO_SUCH_KEY))
    }
}

fn known<T>(found: Option<T>) -> Result<T, Reject> {
    found.ok_or_else(|| Reject::new(Code::NotFound, NO_SUCH_KEY))
}

fn secret_out(key: &NewKey) -> Json {
    let mut body = Json::object();
    body.text("api_key", &key.secret)
        .text("owner", &key.owner)
        .text("id", &key.id);
    body
}

fn key_out(key: &KeyInfo) -> Json {
    let mut out = Json::object();
    out.text("id", &key.id)
        .text("owner", &key.owner)
        .number("total_requests", key.total_requests)
        .seconds("created_at", Some(key.created_at))
        .raw("grants", &texts(&key.grants));
    settings_out(&mut out, key);
    out.seconds("last_used_at", key.last_used_at)
        .seconds("past_secret_until", key.past_secret_until);
    out
}

fn settings_out(out: &mut Json, key: &KeyInfo) {
    let scopes = array(key.scopes.iter().map(|scope| string(scope.name())));
    out.text("name", &key.name)
        .raw("scopes", &scopes)
        .raw("namespaces", &texts(&key.namespaces))
        .number("rate", key.rate.into())
        .number("open_max", key.open_max)
        .seconds("expires_at", key.expires_at);
}

const SETTINGS: [&str; 6] = [
    "name",
    "scopes",
    "namespaces",
    "rate",
    "open_max",
    "expires_in",
];

fn settings(object: &Object<'_>, now: Micros) -> Result<KeySettings, Reject> {
    let name = wire::field(object, "name").map(|raw| {
        let name = raw.as_str().map(std::borrow::Cow::into_owned);
        name.filter(|name| name.chars().count() <= NAME_CHARS_MAX)
            .ok_or_else(|| {
                invalid(format!(
                    "name must have at most {NAME_CHARS_MAX} characters."
                ))
            })
    });
    let expires_in = whole(object, "expires_in", 0, EXPIRES_IN_S_MAX)?;
    let number = |name, max| whole(object, name, 1, max);
    Ok(KeySettings {
        name: name.transpose()?,
        scopes: scopes(object)?,
        namespaces: namespaces(object)?,
        rate: number("rate", RATE_MAX)?.and_then(|rate| u32::try_from(rate).ok()),
        open_max: number("open_max", OPEN_MAX)?.and_then(|max| u64::try_from(max).ok()),
        end: expires_in.map(|seconds| match seconds {
            0 => KeyEnd::Never,
            _ => KeyEnd::At(now.plus(seconds * SECOND_US)),
        }),
    })
}

fn scopes(object: &Object<'_>) -> Result<Option<Vec<KeyScope>>, Reject> {
    let Some(raw) = wire::field(object, "scopes") else {
        return Ok(None);
    };
    let names = KeyScope::ALL.map(KeyScope::name).join(", ");
    let wrong = || {
        invalid(format!(
            "scopes must be an array of one or more of: {names}."
        ))
    };
    let items = raw.items().filter(|items| !items.is_empty());
    let mut scopes = Vec::new();
    for item in items.ok_or_else(wrong)? {
        let scope = item.as_str().and_then(|name| KeyScope::of_name(&name));
        let scope = scope.ok_or_else(wrong)?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Ok(Some(scopes))
}

fn namespaces(object: &Object<'_>) -> Result<Option<Vec<String>>, Reject> {
    let Some(raw) = wire::field(object, "namespaces") else {
        return Ok(None);
    };
    let items = raw.items().filter(|items| items.len() <= NAMESPACES_MAX);
    let items = items.ok_or_else(|| {
        invalid(format!(
            "namespaces must be an array of at most {NAMESPACES_MAX} names, or beginnings of names followed by *."
        ))
    })?;
    items
        .iter()
        .map(pattern)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// A namespace, the beginning of one followed by `*`, or `*` alone.
fn pattern(raw: &Raw<'_>) -> Result<String, Reject> {
    let text = raw.as_str().unwrap_or_default().into_owned();
    match text.strip_suffix('*') {
        Some("") => {}
        Some(beginning) => {
            wire::namespace(Some(beginning))?;
        }
        None => {
            wire::namespace(Some(&text))?;
        }
    }
    Ok(text)
}

fn whole(object: &Object<'_>, name: &str, min: i64, max: i64) -> Result<Option<i64>, Reject> {
    let Some(raw) = wire::field(object, name) else {
        return Ok(None);
    };
    let number = raw.as_i64().filter(|number| (min..=max).contains(number));
    let wrong = || {
        invalid(format!(
            "{name} must be a whole number from {min} to {max}."
        ))
    };
    number.ok_or_else(wrong).map(Some)
}

/// A misspelt setting of a key could leave it with more rights than meant.
pub(super) fn only_fields(object: &Object<'_>, known: &[&str]) -> Result<(), Reject> {
    let mut names = object.members().iter().map(|(name, _)| name);
    match names.find(|name| !known.contains(&name.as_ref())) {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(40).collect();
            let known = known.join(", ");
            Err(invalid(format!(
                "Unknown field: {name}. The fields are: {known}."
            )))
        }
    }
}

fn invalid(message: String) -> Reject {
    Reject::new(Code::InvalidRequest, message)
}

pub(super) fn texts(list: &[String]) -> String {
    array(list.iter().map(|text| string(text)))
}
