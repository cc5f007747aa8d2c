//! The login of operators.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, SchemaField, boolean, object, optional, required, text,
};
use consign_web::openapi::{Access, Endpoint, Operation};

use super::OPERATORS;
use super::operation::{ANYONE, BeamOperation as _, VIEWER, get, post};
use super::schemas::instant;
use crate::sessions::Role;

/// The operation whose status 403 has the code of another status.
pub(super) const OFFER_LOGIN: &str = "beamOfferLogin";

const LOGIN: Access = Access {
    codes: &[
        Code::AdminUnavailable,
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    ..ANYONE
};

const LOGOUT: Access = Access {
    codes: ANYONE.codes,
    ..VIEWER
};

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        post("/admin/auth/magic-link", offer()),
        post("/admin/auth/verify", verify()),
        get(
            "/admin/auth/session",
            Operation::new(OPERATORS, VIEWER, "beamSession", "Get the current session").shows(
                "The session.",
                object(session_fields()).named("BeamSession"),
                "",
            ),
        ),
        post(
            "/admin/auth/logout",
            Operation::new(OPERATORS, LOGOUT, "beamLogout", "End the current session")
                .about("Succeeds without a session too, and removes the cookie.")
                .ignores_body()
                .shows(
                    "There is no session any more.",
                    object(vec![required("ok", boolean().always(true))]).named("BeamLoggedOut"),
                    "",
                ),
        ),
    ]
}

fn role() -> Schema {
    let roles = [Role::Viewer, Role::Operator, Role::Admin];
    text().one_of(roles.map(Role::word))
}

fn session_fields() -> Vec<SchemaField> {
    vec![
        required("email", text()),
        required("role", role()),
        required("expiresAt", instant()),
    ]
}

fn offer() -> Operation {
    let body = object(vec![required("email", text().about("Of an operator."))]);
    let mut fields = session_fields();
    fields.extend([
        required("ok", boolean().always(true)),
        required(
            "dev",
            boolean().about("Whether the response has the token."),
        ),
        optional("token", text().about("Only for programs on this machine.")),
    ]);
    Operation::new(OPERATORS, LOGIN, OFFER_LOGIN, "Create a login token")
        .about("No mail is sent: only a program on this machine gets the token.")
        .takes_object(
            body.named("BeamLoginRequest"),
            r#"{"email":"ops@acme.example"}"#,
        )
        .shows("The login.", object(fields).named("BeamLogin"), "")
        .refuses(&[Code::InvalidEmail])
}

fn verify() -> Operation {
    let body = object(vec![required("token", text().about("Accepted once."))]);
    let mut fields = session_fields();
    fields.extend([
        required("ok", boolean().always(true)),
        required("token", text().about("The token of the session.")),
    ]);
    Operation::new(
        OPERATORS,
        LOGIN,
        "beamBeginSession",
        "Begin a session with a login token",
    )
    .takes_object(
        body.named("BeamLoginToken"),
        r#"{"token":"f3Q0cX1kUv6rI0E7m1Dq1rTqk2pWcRnYcMBN9VYk0mU"}"#,
    )
    .shows(
        "The session; Set-Cookie has its token too.",
        object(fields).named("BeamBegunSession"),
        "",
    )
    .refuses(&[Code::InvalidToken])
}
