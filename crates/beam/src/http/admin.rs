//! The login of operators.
//!
//! Responses that name a session are not stored by caches. A page of another site neither gets a session cookie nor can it
//! use or remove one: such a request has no session unless it has a bearer token.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_kernel::error::Code;
use http::header::SET_COOKIE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::access::{BeamAccess, CookieRule, SESSION_COOKIE};
use super::problem_response::BeamProblemResponse;
use super::public_limits::PublicRoute;
use super::response::private_json;
use super::{BeamFace, receive};
use crate::sessions::{Role, SESSION_SECONDS};
use crate::text::BeamValue;
use crate::timestamp::format_ms;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/admin/auth/magic-link", post(offer_login))
        .route("/admin/auth/verify", post(begin_session))
        .route("/admin/auth/session", get(show_session))
        .route("/admin/auth/logout", post(end_session))
}

/// Only a program on this machine sees the token: no mail is sent.
async fn offer_login(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = receive::whole(request).await?;
    face.charge(PublicRoute::Login, &parts)?;
    let body = receive::json_object(&body)?;
    let access = BeamAccess::of(&face, &parts);
    let email = text_field(&body, "email");
    let offered = face.beam.offer_login(email, access.loopback).await?;
    let Some(offered) = offered else {
        let text = "This email is not authorized for admin access";
        let refusal = BeamProblemResponse::new(Code::Unauthorized, text);
        return Err(refusal.with_status(StatusCode::FORBIDDEN));
    };
    let mut body = json!({
        "ok": true,
        "email": offered.email,
        "role": offered.role.word(),
        "expiresAt": format_ms(offered.expires_at_ms),
        "dev": offered.token.is_some(),
    });
    if let Some(token) = &offered.token {
        // There is no page that would take a token from a URL, so none is given.
        body["token"] = json!(token.reveal());
    }
    Ok(private_json(&body))
}

async fn begin_session(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = receive::whole(request).await?;
    face.charge(PublicRoute::Login, &parts)?;
    let body = receive::json_object(&body)?;
    let access = BeamAccess::of(&face, &parts);
    let begun = face.beam.begin_session(text_field(&body, "token")).await;
    let begun = begun.map_err(|problem| {
        if problem.code == Code::InvalidToken {
            BeamProblemResponse::wrong_credential(problem)
        } else {
            problem.into()
        }
    })?;
    let token = begun.token.reveal();
    let mut response = private_json(&json!({
        "ok": true,
        "token": token,
        "email": begun.session.email,
        "role": begun.session.role.word(),
        "expiresAt": format_ms(begun.session.expires_at_ms),
    }));
    set_cookie(&mut response, &access, token, SESSION_SECONDS);
    Ok(response)
}

async fn show_session(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    let access = BeamAccess::of(&face, &parts);
    let session = access.require_role(&face, Role::Viewer).await?;
    Ok(private_json(&json!({
        "email": session.email,
        "role": session.role.word(),
        "expiresAt": format_ms(session.expires_at_ms),
    })))
}

async fn end_session(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = receive::whole(request).await?;
    let access = BeamAccess::of(&face, &parts);
    if let Some(session) = access.session(&face).await? {
        face.beam.end_session(&session).await?;
    }
    let mut response = private_json(&json!({"ok": true}));
    set_cookie(&mut response, &access, "", 0);
    Ok(response)
}

/// A text member of a body; empty if it is missing or something else.
fn text_field<'a>(body: &'a BeamValue, name: &str) -> &'a str {
    let field = body.get(name).and_then(BeamValue::as_str);
    field.unwrap_or_default()
}

/// Sets the cookie of the session; an age of zero removes it.
fn set_cookie(response: &mut Response, access: &BeamAccess, token: &str, max_age: i64) {
    if let Some(cookie) = cookie(access.cookie, token, max_age) {
        let cookie = HeaderValue::try_from(cookie).expect("a token is base64url and dots");
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

fn cookie(rule: CookieRule, token: &str, max_age: i64) -> Option<String> {
    let cookie =
        format!("{SESSION_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}");
    match rule {
        CookieRule::Never => None,
        CookieRule::Plain => Some(cookie),
        CookieRule::Secure => Some(format!("{cookie}; Secure")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn be_150_the_cookie_of_an_encrypted_connection_is_sent_over_no_other() {
        let of = |rule| cookie(rule, "a.b.c", 60);
        let plain = "beam_admin_session=a.b.c; Path=/; HttpOnly; SameSite=Strict; Max-Age=60";
        assert_eq!(of(CookieRule::Plain).as_deref(), Some(plain));
        assert_eq!(of(CookieRule::Secure), Some(format!("{plain}; Secure")));
        assert_eq!(of(CookieRule::Never), None);
    }
}
