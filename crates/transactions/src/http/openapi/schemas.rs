//! The schemas of requests and answers.

use crate::envelope::RequestOperation;
use crate::intent::{self, ScopeAction};
use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use serde_json::{Map, Value, json};

use super::{reference, states};

/// An object with these required members.
fn whole(members: &[(&str, Value)]) -> Value {
    object(members, &[])
}

/// An object with required and optional members.
fn object(needed: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = needed.iter().map(|(name, _)| *name).collect();
    let members = needed.iter().chain(optional);
    let members: Map<String, Value> = members
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "required": names, "properties": members})
}

fn with_description(schema: &Value, text: &str) -> Value {
    let mut schema = schema.clone();
    schema["description"] = text.into();
    schema
}

pub(super) fn all() -> Value {
    let mut schemas = requests();
    schemas.extend(answers());
    schemas.extend(refusals());
    schemas.into_iter().collect::<Map<_, _>>().into()
}

type NamedSchema = (String, Value);

fn named(name: &str, schema: Value) -> NamedSchema {
    (name.to_owned(), schema)
}

/// The envelope members of every signed request; optional in an unsigned one.
fn envelope_members(operation: RequestOperation) -> Vec<(&'static str, Value)> {
    let maybe = |schema: &str| json!({"type": ["string", "null"], "description": schema});
    vec![
        (
            "type",
            json!({"enum": [operation.document_type(), null], "description": "Required in a signed request."}),
        ),
        (
            "site",
            maybe("The site that the request is for. Required in a signed request."),
        ),
        (
            "issued_at",
            json!({
                "type": ["string", "null"], "format": "date-time",
                "description": "At most 300 seconds from the site's clock. Required in a signed request.",
            }),
        ),
        (
            "idempotency_key",
            maybe("Must equal the header if both are present. Required in a signed request."),
        ),
        (
            "signature",
            json!({"description": "The agent's signature over the RFC 8785 form of all other members."}),
        ),
    ]
}

fn requests() -> Vec<NamedSchema> {
    let text = json!({"type": "string", "minLength": 1});
    let short = json!({"type": "string", "minLength": 1, "maxLength": 128});
    let id = json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"});
    let cents = json!({"type": ["integer", "null"], "minimum": 0, "maximum": (1_u64 << 53) - 1});
    let currency = json!({"type": ["string", "null"], "pattern": "^[A-Z]{3}$"});
    let instant = json!({"type": "string", "format": "date-time"});
    let actions: Vec<&str> = ScopeAction::ALL
        .iter()
        .map(|action| action.word())
        .collect();
    let actions =
        json!({"type": "array", "minItems": 1, "uniqueItems": true, "items": {"enum": actions}});
    let executions =
        json!({"type": ["integer", "null"], "minimum": 1, "maximum": intent::EXECUTIONS_MAX});
    vec![
        named(
            "AtpIntentDocument",
            object(
                &[
                    ("type", json!({"const": intent::TYPE})),
                    ("intent_id", id.clone()),
                    ("site", text.clone()),
                    ("agent_key", text),
                    (
                        "purpose",
                        json!({"type": "string", "minLength": 1, "maxLength": 500}),
                    ),
                    ("scope", whole(&[("actions", actions)])),
                    ("nonce", short.clone()),
                    ("issued_at", instant.clone()),
                    ("expires_at", instant),
                ],
                &[
                    (
                        "amount_cents",
                        with_description(&cents, "The maximum for one execution, and its amount if the request names none."),
                    ),
                    (
                        "max_spend_cents",
                        with_description(&cents, "The maximum for all executions together; if absent, amount_cents for each."),
                    ),
                    ("currency", currency.clone()),
                    ("max_executions", executions),
                    (
                        "signature",
                        json!({"description": "Ed25519 signature over the RFC 8785 form of all other members."}),
                    ),
                ],
            ),
        ),
        named(
            "AtpAuthorize",
            json!({
                "description": "The id and the nonce of a created intent, signed; or a whole signed intent, which is created and authorized at once.",
                "anyOf": [
                    object(
                        &[("intent_id", id.clone()), ("nonce", short)],
                        &envelope_members(RequestOperation::Authorize),
                    ),
                    reference("AtpIntentDocument"),
                ],
            }),
        ),
        named(
            "AtpExecute",
            object(
                &[("intent_id", id.clone())],
                &[
                    &[
                        ("amount_cents", cents.clone()),
                        ("currency", currency),
                        (
                            "rail",
                            json!({"description": "The name of the rail, or an object with it; must be the site's rail."}),
                        ),
                    ],
                    &envelope_members(RequestOperation::Execute)[..],
                ]
                .concat(),
            ),
        ),
        named(
            "AtpCompensate",
            object(
                &[
                    ("intent_id", id.clone()),
                    (
                        "reason",
                        json!({"type": "string", "minLength": 1, "maxLength": 1000}),
                    ),
                ],
                &[
                    &[
                        (
                            "transaction_id",
                            json!({"type": ["string", "null"], "minLength": 1, "maxLength": 128}),
                        ),
                        ("amount_cents", cents),
                    ],
                    &envelope_members(RequestOperation::Compensate)[..],
                ]
                .concat(),
            ),
        ),
        named(
            "AtpCancel",
            object(
                &[("intent_id", id)],
                &[
                    &[(
                        "reason",
                        json!({"type": ["string", "null"], "maxLength": 500}),
                    )],
                    &envelope_members(RequestOperation::Cancel)[..],
                ]
                .concat(),
            ),
        ),
        named(
            "AtpMessage",
            json!({"type": "object", "description": "As it was signed."}),
        ),
        named(
            "AtpWord",
            whole(&[
                (
                    "outcome",
                    json!({"enum": ["charged", "not_charged", "refunded", "not_refunded"]}),
                ),
                (
                    "reason",
                    json!({"type": "string", "minLength": 1, "maxLength": 500}),
                ),
            ]),
        ),
        named(
            "AtpReason",
            object(&[], &[("reason", json!({"type": ["string", "null"]}))]),
        ),
    ]
}

fn answers() -> Vec<NamedSchema> {
    let ok = || ("ok", json!({"const": true}));
    let text = || json!({"type": "string"});
    let maybe_text = || json!({"type": ["string", "null"]});
    let flag = || json!({"type": "boolean"});
    let thing = || json!({"type": "object"});
    let maybe_thing = || json!({"type": ["object", "null"]});
    let count = || json!({"type": "integer", "minimum": 0});
    // The position of the next page, if there is one: `from` of the next request.
    let next = || ("next", json!({"type": ["integer", "null"], "minimum": 0}));
    let list = |items: Value| json!({"type": "array", "items": items});
    let at = || json!({"type": "string", "pattern": "^[0-9-]{10}T[0-9:.]{12}Z$"});
    let state = || ("state", json!({"enum": states()}));
    let intent_id = || ("intent_id", text());
    let rail = whole(&[
        ("name", text()),
        ("reference", text()),
        ("payment_id", maybe_text()),
    ]);
    let swept = whole(&[
        ("looked_at", count()),
        ("settled", count()),
        ("compensated", count()),
        ("open", count()),
    ]);
    let transition = whole(&[
        ("seq", count()),
        ("at", at()),
        intent_id(),
        ("row", text()),
        ("from", maybe_text()),
        ("to", maybe_text()),
        ("cause", text()),
    ]);
    let verification = object(
        &[
            ("ok", flag()),
            ("signature_valid", flag()),
            ("trusted", flag()),
            ("key_id", maybe_text()),
            ("key_status", maybe_text()),
            ("issued_at", maybe_text()),
            ("age_seconds", json!({"type": ["integer", "null"]})),
            ("kind", maybe_text()),
            ("stored", flag()),
        ],
        &[("reason", text())],
    );
    let key = whole(&[
        ("key_id", text()),
        ("public_key", text()),
        (
            "status",
            json!({"enum": ["current", "next", "previous", "revoked"]}),
        ),
        ("valid_from", maybe_text()),
        ("valid_until", maybe_text()),
    ]);
    vec![
        named(
            "AtpCreated",
            whole(&[
                ok(),
                intent_id(),
                ("state", json!({"const": "created"})),
                ("intent_hash", text()),
                ("nonce", text()),
                ("expires_at", at()),
                ("created_at", at()),
                ("data", thing()),
            ]),
        ),
        named(
            "AtpAuthorized",
            whole(&[
                ok(),
                intent_id(),
                ("state", json!({"const": "authorized"})),
                ("nonce", text()),
                ("authorized_at", at()),
                ("expires_at", at()),
            ]),
        ),
        named(
            "AtpTransaction",
            object(
                &[
                    ok(),
                    intent_id(),
                    ("transaction_id", text()),
                    state(),
                    ("amount_cents", count()),
                    ("currency", text()),
                    ("rail", rail),
                    ("failure", maybe_thing()),
                    ("created_at", at()),
                    ("updated_at", at()),
                ],
                &[
                    // Omitted in the operators' list of intents.
                    ("receipt", maybe_thing()),
                    ("compensation_receipt", maybe_thing()),
                    ("data", thing()),
                    ("attempts", count()),
                    ("alert", maybe_text()),
                    ("compensation", maybe_thing()),
                    ("operator_word", maybe_thing()),
                ],
            ),
        ),
        named(
            "AtpResolved",
            whole(&[ok(), ("transaction", reference("AtpTransaction"))]),
        ),
        named(
            "AtpIntent",
            object(
                &[
                    ok(),
                    intent_id(),
                    state(),
                    ("intent_hash", text()),
                    ("created_at", at()),
                    ("expires_at", at()),
                    ("transactions", list(reference("AtpTransaction"))),
                    ("more", flag()),
                    ("data", thing()),
                ],
                &[("authorized_at", at()), ("expired_reason", text())],
            ),
        ),
        named(
            "AtpCancelled",
            whole(&[
                ok(),
                intent_id(),
                ("state", json!({"const": "expired"})),
                ("expired_reason", text()),
                ("expires_at", at()),
            ]),
        ),
        named("AtpDone", whole(&[ok()])),
        named("AtpReceipts", whole(&[ok(), ("receipts", list(thing()))])),
        named(
            "AtpReceipt",
            whole(&[ok(), ("receipt", thing()), ("data", thing())]),
        ),
        named(
            "AtpVerification",
            // Equal to `ok` of the verification.
            whole(&[("ok", flag()), ("verification", verification)]),
        ),
        named("AtpKeys", whole(&[("site", text()), ("keys", list(key))])),
        named(
            "AtpHealth",
            whole(&[
                ok(),
                ("service", json!({"const": "atp"})),
                ("version", text()),
                ("writer", flag()),
            ]),
        ),
        named(
            "AtpManifest",
            whole(&[
                ("schema_version", text()),
                ("site", text()),
                ("public_key", text()),
                ("next_public_key", maybe_text()),
                ("previous_keys", list(thing())),
                ("atp", thing()),
                ("signature", text()),
            ]),
        ),
        named(
            "AtpRevocations",
            whole(&[
                ("site", text()),
                ("revoked", list(thing())),
                ("new_public_key", text()),
                ("signature_by_new_key", text()),
            ]),
        ),
        named(
            "AtpIntents",
            whole(&[ok(), ("data", list(reference("AtpIntent"))), next()]),
        ),
        named(
            "AtpTransactions",
            whole(&[
                ok(),
                ("transactions", list(reference("AtpTransaction"))),
                next(),
            ]),
        ),
        named(
            "AtpTransitions",
            whole(&[
                ok(),
                ("transitions", list(transition)),
                ("next", count()),
                ("more", flag()),
            ]),
        ),
        named("AtpSwept", whole(&[ok(), ("swept", swept)])),
        named("AtpAnnounced", whole(&[ok(), ("next_public_key", text())])),
        named("AtpRotated", whole(&[ok(), ("public_key", text())])),
        named("AtpRevoked", whole(&[ok(), ("key_id", text())])),
    ]
}

/// Each name of the protocol once, in the order of the table of error codes.
fn error_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for code in Code::of_face(Face::Transaction) {
        if !names.contains(&code.name()) {
            names.push(code.name());
        }
    }
    names
}

fn refusals() -> Vec<NamedSchema> {
    let refused = whole(&[
        ("ok", json!({"const": false})),
        (
            "error",
            json!({"type": "string", "enum": error_names(), "description": "The stable name of the error."}),
        ),
        (
            "message",
            json!({"type": "string", "description": "A message for humans; it may change."}),
        ),
    ]);
    let unreadable = json!({"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}});
    vec![
        named("AtpRefusal", refused),
        named(
            "AtpUnreadable",
            json!({"anyOf": [reference("AtpRefusal"), unreadable]}),
        ),
    ]
}
