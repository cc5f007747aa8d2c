//! The operator's routes for keys, users and the audit log.

use consign_engine::{AdminRole, PASSWORD_CHARS_MIN};
use consign_kernel::error::Code;
use consign_kernel::limits;
use consign_kernel::record::KeyScope;
use http::StatusCode;

use super::super::schemas;
use super::operate::{changes, reads};
use crate::audit::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::grants::GRANTS_PER_REQUEST_MAX;
use crate::keys::{
    EXPIRES_IN_S_MAX, NAME_CHARS_MAX, NAMESPACES_MAX, OPEN_MAX, OVERLAP_S_DEFAULT, OVERLAP_S_MAX,
    RATE_MAX,
};
use crate::users::PASSWORD_CHARS_MAX;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{
    Schema, SchemaField, anything, boolean, exactly, integer, list, number, object, optional,
    required, text,
};

fn scope() -> Schema {
    text().one_of(KeyScope::ALL.map(KeyScope::name))
}

fn key_id() -> Schema {
    text()
        .about("The id of the key, as in the list of keys.")
        .rule("pattern", "^k_[0-9a-f]{16}$")
}

fn unix_time() -> Schema {
    number().limit("Unix time in seconds")
}

/// The settings of a key in a request.
fn settings() -> Vec<SchemaField> {
    let pattern = text().rule("pattern", r"^([A-Za-z0-9._-]+\*?|\*)$");
    vec![
        optional(
            "name",
            text()
                .about("What the key is for.")
                .characters(0, NAME_CHARS_MAX)
                .nullable(),
        ),
        optional(
            "scopes",
            list(scope())
                .about("What the key may do; publish, claim and read if nothing else was said.")
                .rule("minItems", 1)
                .nullable(),
        ),
        optional(
            "namespaces",
            list(pattern)
                .about("Where it may: names, or beginnings of names followed by *. Empty for all. Reserved namespaces need grants.")
                .rule("maxItems", NAMESPACES_MAX)
                .nullable(),
        ),
        optional(
            "rate",
            integer()
                .about("Requests per minute.")
                .within(1, RATE_MAX)
                .by_default(limits::RATE_REQUESTS_MAX)
                .nullable(),
        ),
        optional(
            "open_max",
            integer()
                .about("How many of its intents may be open.")
                .within(1, OPEN_MAX)
                .by_default(limits::OPEN_INTENTS_MAX)
                .nullable(),
        ),
        optional(
            "expires_in",
            integer()
                .about("Seconds until the key ends; 0 for never.")
                .within(0, EXPIRES_IN_S_MAX)
                .by_default(0)
                .nullable(),
        ),
    ]
}

fn shown_settings(field: fn(&'static str, Schema) -> SchemaField) -> Vec<SchemaField> {
    vec![
        field("name", text()),
        field("scopes", list(scope())),
        field(
            "namespaces",
            list(text()).about("Empty for all that are not reserved."),
        ),
        field("rate", integer().about("Requests per minute.")),
        field("open_max", integer()),
        field("expires_at", unix_time().nullable()),
    ]
}

fn shown_key() -> Schema {
    let mut fields = vec![
        required("id", text()),
        required("owner", text()),
        required("total_requests", integer()),
        required("created_at", unix_time()),
        required(
            "grants",
            list(text()).about("The reserved namespaces in which it may claim."),
        ),
    ];
    fields.extend(shown_settings(required));
    fields.push(required(
        "last_used_at",
        unix_time()
            .about("The last request that counted.")
            .nullable(),
    ));
    fields.push(required(
        "past_secret_until",
        unix_time()
            .about("How long the secret before the last rotation is still accepted.")
            .nullable(),
    ));
    exactly(fields)
}

fn secret() -> Vec<SchemaField> {
    vec![
        required(
            "api_key",
            text().about("The key. It is returned only once."),
        ),
        required("owner", text()),
        required(
            "id",
            text().about("The id of the key, which intents and responses contain."),
        ),
    ]
}

pub(crate) fn generate_key() -> Operation {
    let owner = anything()
        .about("The owner of the key; a value that is not a string is stored as JSON text.")
        .by_default("anonymous")
        .limit(format!("cut after {} characters", limits::OWNER_CHARS_MAX));
    let mut answer = secret();
    answer.push(optional(
        "grants",
        list(text()).about("As they were asked for; absent if there are none."),
    ));
    answer.extend(shown_settings(optional));
    let granted = list(schemas::granted_namespace())
        .about("The reserved namespaces in which the key may claim.")
        .rule("maxItems", GRANTS_PER_REQUEST_MAX)
        .nullable();
    let mut asked = vec![optional("owner", owner), optional("grants", granted)];
    asked.extend(settings());
    changes("generateKey", "Create an API key")
        .about("The response has the settings of the key only if the request has one.")
        .may_take(
            object(asked),
            limits::BODY_BYTES_MAX,
            r#"{"owner":"alice"}"#,
        )
        .answers(
            StatusCode::CREATED,
            "A new key, limited to 60 requests a minute unless the request says otherwise.",
            exactly(answer),
            r#"{"api_key":"tk_…","owner":"alice","id":"k_0a6ddb62b508491b"}"#,
        )
        .refuses(&[Code::InvalidNamespace])
}

pub(crate) fn revoke_key() -> Operation {
    let key = text().about("The key, or its id.").rule("minLength", 1);
    changes("revokeKey", "Revoke an API key")
        .about(
            "Its requests are refused from now on; its intents stay. The main key cannot be revoked.",
        )
        .takes(
            object(vec![required("api_key", key)]),
            limits::BODY_BYTES_MAX,
            r#"{"api_key":"tk_f1bb5a5a"}"#,
        )
        .answers(
            StatusCode::OK,
            "The key is revoked.",
            schemas::done(),
            r#"{"ok":true}"#,
        )
        .refuses(&[Code::NotFound])
}

pub(crate) fn keys() -> Operation {
    reads("listKeys", "List the API keys").answers(
        StatusCode::OK,
        "The ids, owners and settings, never the keys.",
        list(shown_key()),
        "",
    )
}

pub(crate) fn key() -> Operation {
    reads("showKey", "Show an API key")
        .path("id", key_id())
        .answers(
            StatusCode::OK,
            "Its owner and settings, never the key.",
            shown_key(),
            "",
        )
        .refuses(&[Code::NotFound])
}

pub(crate) fn change_key() -> Operation {
    changes("changeKey", "Change the settings of an API key")
        .about("Absent settings stay as they are. The next request of the key has the new ones.")
        .path("id", key_id())
        .may_take(
            exactly(settings()),
            limits::BODY_BYTES_MAX,
            r#"{"rate":600,"scopes":["publish"]}"#,
        )
        .answers(StatusCode::OK, "The key as it is now.", shown_key(), "")
        .refuses(&[Code::NotFound, Code::InvalidNamespace])
}

pub(crate) fn rotate_key() -> Operation {
    let overlap = integer()
        .about("Seconds for which the present secret is still accepted.")
        .within(0, OVERLAP_S_MAX)
        .by_default(OVERLAP_S_DEFAULT)
        .nullable();
    let mut answer = secret();
    answer.push(required("overlap", integer()));
    changes("rotateKey", "Give an API key a new secret")
        .about("The id of the key, its intents, grants and settings stay.")
        .path("id", key_id())
        .may_take(
            exactly(vec![optional("overlap", overlap)]),
            limits::BODY_BYTES_MAX,
            r#"{"overlap":3600}"#,
        )
        .answers(
            StatusCode::OK,
            "The new secret.",
            exactly(answer),
            r#"{"api_key":"tk_…","owner":"alice","id":"k_0a6ddb62b508491b","overlap":3600}"#,
        )
        .refuses(&[Code::NotFound])
}

fn role() -> Schema {
    text()
        .about("A viewer reads; an operator also retries, cancels, deletes and cleans up; an admin does everything.")
        .one_of(AdminRole::ALL.map(AdminRole::name))
}

fn user_name() -> Schema {
    text()
        .about("Lower-case letters, digits and . _ - @; not admin, whose password is a file of the server.")
        .rule("pattern", r"^[a-z0-9._@-]{1,64}$")
}

fn password() -> Schema {
    text().characters(PASSWORD_CHARS_MIN, PASSWORD_CHARS_MAX)
}

fn shown_user(made: bool) -> Schema {
    let mut fields = vec![
        required("name", text()),
        required("role", role()),
        required("created_at", unix_time()),
        required(
            "changed_at",
            unix_time().about("When the role or the password were set last."),
        ),
    ];
    if made {
        fields.push(optional(
            "password",
            text().about("The password, if the server made it. It is returned only once."),
        ));
    }
    exactly(fields)
}

const USER_EXAMPLE: &str =
    r#"{"name":"ann","role":"viewer","created_at":1794736934.33,"changed_at":1794736934.33}"#;

pub(crate) fn users() -> Operation {
    reads("listUsers", "List the users").answers(
        StatusCode::OK,
        "The names and roles, never a password.",
        list(shown_user(false)),
        "",
    )
}

pub(crate) fn add_user() -> Operation {
    let chosen = password()
        .about("Without it, the server makes one.")
        .nullable();
    changes("addUser", "Add a user")
        .about(
            "A user signs in to the dashboard and the routes of operators with Basic credentials.",
        )
        .takes(
            exactly(vec![
                required("name", user_name()),
                required("role", role()),
                optional("password", chosen),
            ]),
            limits::BODY_BYTES_MAX,
            r#"{"name":"ann","role":"viewer"}"#,
        )
        .answers(
            StatusCode::CREATED,
            "The user.",
            shown_user(true),
            USER_EXAMPLE,
        )
        .refuses(&[Code::InvalidState])
}

pub(crate) fn change_user() -> Operation {
    let new_password = boolean()
        .about("Whether the server makes a new password.")
        .by_default(false)
        .nullable();
    changes("changeUser", "Change the role or the password of a user")
        .path("name", user_name())
        .may_take(
            exactly(vec![
                optional("role", role().nullable()),
                optional("password", password().nullable()),
                optional("new_password", new_password),
            ]),
            limits::BODY_BYTES_MAX,
            r#"{"role":"operator"}"#,
        )
        .answers(
            StatusCode::OK,
            "The user as it is now.",
            shown_user(true),
            USER_EXAMPLE,
        )
        .refuses(&[Code::NotFound])
}

pub(crate) fn remove_user() -> Operation {
    let answer = exactly(vec![
        required("ok", boolean().always(true)),
        required("name", text()),
    ]);
    changes("removeUser", "Remove a user")
        .path("name", user_name())
        .answers(
            StatusCode::OK,
            "The user is removed.",
            answer,
            r#"{"ok":true,"name":"ann"}"#,
        )
        .refuses(&[Code::NotFound])
}

pub(crate) fn audit() -> Operation {
    let entry = exactly(vec![
        required("id", text()),
        required("at", unix_time()),
        required("actor", text().about("admin-token, user NAME or key ID.")),
        required("action", text().about("Noun and verb, as key.create.")),
        required(
            "target",
            text().about("The id or the name of what it was done to; may be empty."),
        ),
        required(
            "outcome",
            text().about("done, the code of the error, or started for an action that did not end."),
        ),
        required("address", text()),
        required("user_agent", text()),
        required("request_id", text()),
    ]);
    reads("listAudit", "List what operators did")
        .query("after", text().about("The member next of an earlier page."))
        .query(
            "limit",
            integer().within(1, LIMIT_MAX).by_default(LIMIT_DEFAULT),
        )
        .query(
            "actor",
            text().about("Only this actor, or this name of a user or id of a key."),
        )
        .query(
            "action",
            text().about("Only this action, or this noun of actions."),
        )
        .query(
            "since",
            integer().about("Nothing from before this Unix time in seconds."),
        )
        .answers(
            StatusCode::OK,
            "Entries from the newest to the oldest.",
            exactly(vec![
                required("entries", list(entry)),
                required(
                    "next",
                    text()
                        .about("Where the next page begins, if there may be one.")
                        .nullable(),
                ),
            ]),
            "",
        )
        .refuses(&[Code::InvalidLimit])
}
