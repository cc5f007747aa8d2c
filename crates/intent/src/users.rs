//! The operator's routes for users: add, list, change, remove.
//!
//! Invariant: a password is in a response only if the server made it for this request.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{AdminRole, PASSWORD_CHARS_MIN, UserInfo, is_user_name, new_password};
use consign_kernel::error::Code;
use consign_kernel::json::Object;
use http::StatusCode;

use super::keys::only_fields;
use super::path_segment::PathId;
use super::{IntentFace, wire};
use consign_web::json_out::{Json, array, json_response};
use consign_web::operator_guard::AuditTarget;
use consign_web::reject::Reject;

/// Argon2id reads all of it with every check.
pub(super) const PASSWORD_CHARS_MAX: usize = 256;

pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _) = face.authenticate_operator(request).await?;
    let users = face.engine.users(operator).await?;
    Ok(json_response(array(
        users.iter().map(|user| user_out(user).finish()),
    )))
}

pub(super) async fn add(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    only_fields(&object, &["name", "role", "password"])?;
    let name =
        wire::field(&object, "name").and_then(|raw| raw.as_str().map(std::borrow::Cow::into_owned));
    let name = name.filter(|name| is_user_name(name)).ok_or_else(|| {
        invalid(
            "name must have 1 to 64 lower-case letters, digits and . _ - @, and must not be admin."
                .to_owned(),
        )
    })?;
    let role = role(&object)?.ok_or_else(|| invalid("Missing required field: role.".to_owned()))?;
    let chosen = password(&object)?;
    let (password, made) = match chosen {
        Some(chosen) => (chosen, false),
        None => (new_password()?, true),
    };
    let added = face.engine.add_user(operator, &name, role, &password);
    let response = match added.await? {
        Some(user) => {
            let mut body = user_out(&user);
            if made {
                body.text("password", &password);
            }
            (StatusCode::CREATED, body).into_response()
        }
        None => Reject::new(
            Code::InvalidState,
            "There is a user of this name; change the role or the password instead.",
        )
        .into_response(),
    };
    Ok(AuditTarget::of(name, response))
}

pub(super) async fn change(
    State(face): State<IntentFace>,
    PathId(name): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, body) = face.authenticate_operator(request).await?;
    let object = wire::object_or_empty(&body)?;
    only_fields(&object, &["role", "password", "new_password"])?;
    let makes = match wire::field(&object, "new_password") {
        Some(raw) => raw.as_bool().ok_or_else(|| {
            Reject::new(Code::InvalidRequest, "new_password must be true or false.")
        })?,
        None => false,
    };
    let made = makes.then(new_password).transpose()?;
    let chosen = password(&object)?;
    let password = made.as_ref().or(chosen.as_ref());
    let changed = face.engine.change_user(
        operator,
        &name,
        role(&object)?,
        password.map(String::as_str),
    );
    let user = changed.await?.ok_or_else(unknown)?;
    let mut body = user_out(&user);
    if let Some(made) = &made {
        body.text("password", made);
    }
    Ok(body.into_response())
}

pub(super) async fn remove(
    State(face): State<IntentFace>,
    PathId(name): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _) = face.authenticate_operator(request).await?;
    if !face.engine.remove_user(operator, &name).await? {
        return Err(unknown());
    }
    let mut body = Json::object();
    body.bool("ok", true).text("name", &name);
    Ok(body.into_response())
}

fn user_out(user: &UserInfo) -> Json {
    let mut out = Json::object();
    out.text("name", &user.name)
        .text("role", user.role.name())
        .seconds("created_at", Some(user.created_at))
        .seconds("changed_at", Some(user.changed_at));
    out
}

fn role(object: &Object<'_>) -> Result<Option<AdminRole>, Reject> {
    let Some(raw) = wire::field(object, "role") else {
        return Ok(None);
    };
    let role = raw.as_str().and_then(|name| AdminRole::of_name(&name));
    let names = AdminRole::ALL.map(AdminRole::name).join(", ");
    role.ok_or_else(|| invalid(format!("role must be one of: {names}.")))
        .map(Some)
}

fn password(object: &Object<'_>) -> Result<Option<String>, Reject> {
    let Some(raw) = wire::field(object, "password") else {
        return Ok(None);
    };
    let text = raw.as_str().map(std::borrow::Cow::into_owned);
    let fits =
        |text: &String| (PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&text.chars().count());
    text.filter(fits)
        .ok_or_else(|| {
            invalid(format!(
                "password must have {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters."
            ))
        })
        .map(Some)
}

fn unknown() -> Reject {
    Reject::new(
        Code::NotFound,
        "There is no such user. The user admin is not in this list; its password is a file of the server.",
    )
}

fn invalid(message: String) -> Reject {
    Reject::new(Code::InvalidRequest, message)
}
