//! The routes of this face described for programs, to be shown with those of the face that it is merged into.
//!
//! Invariant: what is described is what is routed; a test walks both. Numbers and words come from the protocol's own code.

use consign_transactions::document::{NOTE_BYTES_MAX, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX};
use consign_transactions::intent::{self, Action};
use consign_transactions::key::{KEY_CHARS_MAX, KEY_CHARS_MIN};
use consign_transactions::state::State;
use serde_json::{Map, Value, json};

use super::CALLBACK_BYTES_MAX;

const TAG: &str = "Agent transactions";
const ABOUT: &str = "The Agent Transaction Protocol: signed permissions, one effect for each Idempotency-Key, receipts that anybody verifies. \
     Times are RFC 3339 in UTC; every refusal is `{\"ok\":false,\"error\",\"message\"}`. Served when ATP_SITE is set.";
/// The way in of operators.
const OPERATOR: &str = "siteOperator";

/// An `OpenAPI` document of these routes alone.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for (path, method, operation) in operations() {
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Consign, Agent Transaction Protocol", "version": env!("CARGO_PKG_VERSION")},
        "tags": [{"name": TAG, "description": ABOUT}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                OPERATOR: {"type": "http", "scheme": "bearer", "description": "The operator's token."},
            },
        },
    })
}

/// What is told of one method of one path.
struct Told {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// For operators alone.
    guarded: bool,
    parameters: Vec<Value>,
    body: Option<Value>,
    /// Status and the name of the schema.
    answers: Vec<(u16, &'static str)>,
    refuses: Vec<u16>,
}

impl Told {
    fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, id, summary)
    }

    fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("post", path, id, summary)
    }

    fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        let segments = path.split('/');
        let named = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        Self {
            method,
            path,
            id,
            summary,
            guarded: false,
            parameters: named.map(in_path).collect(),
            body: None,
            answers: Vec::new(),
            // Any request may be unreadable, and any may meet a server that cannot.
            refuses: vec![400, 403, 431, 500, 503],
        }
    }

    fn guarded(mut self) -> Self {
        self.guarded = true;
        self.refuses(&[401])
    }

    /// An effect happens once for each key.
    fn once(mut self) -> Self {
        self.parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "Chosen by the agent; in the body as idempotency_key if not here. The same key brings the same answer.",
            "schema": {"type": "string", "minLength": KEY_CHARS_MIN, "maxLength": KEY_CHARS_MAX},
        }));
        self.refuses(&[422])
    }

    fn query(mut self, name: &str, schema: &Value) -> Self {
        self.parameters
            .push(json!({"name": name, "in": "query", "required": false, "schema": schema}));
        self
    }

    fn takes(self, schema: &str, max_bytes: usize) -> Self {
        self.body(true, schema, max_bytes)
    }

    fn may_take(self, schema: &str, max_bytes: usize) -> Self {
        self.body(false, schema, max_bytes)
    }

    fn body(mut self, required: bool, schema: &str, max_bytes: usize) -> Self {
        self.body = Some(json!({
            "required": required,
            "description": format!("At most {max_bytes} bytes."),
            "content": {"application/json": {"schema": reference(schema)}},
        }));
        self.refuses(&[413])
    }

    fn answers(mut self, status: u16, schema: &'static str) -> Self {
        self.answers.push((status, schema));
        self
    }

    fn refuses(mut self, statuses: &[u16]) -> Self {
        self.refuses.extend_from_slice(statuses);
        self
    }

    fn told(self) -> Value {
        let refused = self
            .refuses
            .iter()
            .map(|status| (*status, refusal(*status)));
        let answered = self.answers.iter();
        let answered = answered.map(|(status, schema)| (*status, answer(*status, schema)));
        let responses: Map<String, Value> = answered
            .chain(refused)
            .map(|(status, response)| (status.to_string(), response))
            .collect();
        let ways_in = if self.guarded {
            json!([{OPERATOR: []}])
        } else {
            json!([])
        };
        let mut told = json!({
            "operationId": self.id,
            "tags": [TAG],
            "summary": self.summary,
            "security": ways_in,
            "parameters": self.parameters,
            "responses": responses,
        });
        if let Some(body) = self.body {
            told["requestBody"] = body;
        }
        told
    }
}

fn in_path(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn answer(status: u16, schema: &str) -> Value {
    let description = match status {
        201 => "It is created.",
        202 => "It is under way; ask again with the same key after Retry-After seconds.",
        _ => "It is so.",
    };
    json!({
        "description": description,
        "content": {"application/json": {"schema": reference(schema)}},
    })
}

fn refusal(status: u16) -> Value {
    let (description, schema) = match status {
        // A head that cannot be read is refused before anybody knows which face it is for.
        400 | 431 => ("Something in the request is wrong.", "AtpUnreadable"),
        401 => ("The signature or the token is not right.", "AtpRefusal"),
        403 => (
            "Neither the intent nor plain HTTP allows this.",
            "AtpRefusal",
        ),
        404 => ("There is no such thing.", "AtpRefusal"),
        409 => ("Refused for good; do not repeat it.", "AtpRefusal"),
        410 => ("The intent is over.", "AtpRefusal"),
        412 => ("A precondition can hold no more.", "AtpRefusal"),
        413 => ("The body is too long.", "AtpRefusal"),
        422 => ("It contradicts what is known.", "AtpRefusal"),
        425 => ("A precondition does not hold yet.", "AtpRefusal"),
        429 => ("Too many requests; see Retry-After.", "AtpRefusal"),
        _ => ("The same request may be sent again.", "AtpRefusal"),
    };
    json!({"description": description, "content": {"application/json": {"schema": reference(schema)}}})
}

fn operations() -> impl Iterator<Item = (String, &'static str, Value)> {
    let all = agents().into_iter().chain(readers()).chain(operators());
    all.map(|told| (told.path.to_owned(), told.method, told.told()))
}

fn agents() -> Vec<Told> {
    vec![
        Told::post("/api/atp/intents", "atpCreate", "Present a signed intent")
            .takes("AtpIntentDocument", REQUEST_BYTES_MAX)
            .answers(201, "AtpCreated")
            .answers(200, "AtpCreated")
            .refuses(&[401, 403, 409, 410]),
        Told::post(
            "/api/atp/authorize",
            "atpAuthorize",
            "Record consent and burn the nonce",
        )
        .once()
        .takes("AtpAuthorize", REQUEST_BYTES_MAX)
        .answers(200, "AtpAuthorized")
        .refuses(&[401, 403, 404, 409, 410, 412, 425]),
        Told::post("/api/atp/execute", "atpExecute", "Have the effect, once")
            .once()
            .takes("AtpExecute", REQUEST_BYTES_MAX)
            .answers(200, "AtpTransaction")
            .answers(202, "AtpTransaction")
            .refuses(&[401, 403, 404, 409, 410, 429]),
        Told::post(
            "/api/atp/compensate",
            "atpCompensate",
            "Have the effect undone",
        )
        .once()
        .takes("AtpCompensate", NOTE_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 403, 404, 409, 410, 429]),
        Told::post(
            "/api/atp/cancel",
            "atpCancel",
            "Take an intent back before anything is done",
        )
        .takes("AtpCancel", NOTE_BYTES_MAX)
        .answers(200, "AtpCancelled")
        .refuses(&[401, 403, 404, 409, 410]),
        Told::post(
            "/api/atp/transactions/{transaction_id}/compensate",
            "atpCompensateNamed",
            "Have the effect undone; the path may stand for intent_id and transaction_id",
        )
        .once()
        .may_take("AtpMessage", NOTE_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 404, 409, 410, 429]),
        Told::post(
            "/api/atp/intents/{intent_id}/revoke",
            "atpRevoke",
            "Take an intent back; the path may stand for intent_id",
        )
        .may_take("AtpMessage", NOTE_BYTES_MAX)
        .answers(200, "AtpCancelled")
        .refuses(&[401, 404, 409, 410]),
        Told::post(
            "/api/atp/rails/{rail}/callback",
            "atpCallback",
            "A payment rail tells that it has news",
        )
        .takes("AtpMessage", CALLBACK_BYTES_MAX)
        .answers(200, "AtpDone")
        .refuses(&[404]),
    ]
}

fn readers() -> Vec<Told> {
    vec![
        Told::get(
            "/api/atp/intents/{intent_id}",
            "atpIntent",
            "See an intent and its transactions",
        )
        .answers(200, "AtpIntent")
        .refuses(&[404]),
        Told::get(
            "/api/atp/intents/{intent_id}/receipts",
            "atpReceipts",
            "See the receipts under an intent",
        )
        .answers(200, "AtpReceipts")
        .refuses(&[404]),
        Told::get(
            "/api/atp/transactions/{transaction_id}",
            "atpTransaction",
            "See a transaction",
        )
        .answers(200, "AtpTransaction")
        .refuses(&[404]),
        Told::get(
            "/api/atp/receipts/{receipt_id}",
            "atpReceipt",
            "See a receipt",
        )
        .answers(200, "AtpReceipt")
        .refuses(&[404, 429]),
        Told::post(
            "/api/atp/receipts/verify",
            "atpVerify",
            "Ask what a document proves",
        )
        .takes("AtpMessage", VERIFY_BYTES_MAX)
        .answers(200, "AtpVerification")
        .refuses(&[404, 429]),
        Told::get("/api/atp/keys", "atpKeys", "Fetch the site's keys").answers(200, "AtpKeys"),
        Told::get("/api/atp/health", "atpHealth", "Ask whether it is well")
            .answers(200, "AtpHealth"),
        Told::get(
            "/.well-known/wab.json",
            "atpManifest",
            "Fetch the site's signed manifest",
        )
        .answers(200, "AtpManifest"),
        Told::get(
            "/.well-known/wab-revocations.json",
            "atpRevocations",
            "Fetch the signed list of revoked keys",
        )
        .answers(200, "AtpRevocations"),
    ]
}

fn operators() -> Vec<Told> {
    // More than a page holds is no error: a page is what comes.
    let count = json!({"type": "integer", "minimum": 0});
    let states = json!({"type": "string", "enum": states()});
    vec![
        Told::get("/api/atp/intents", "atpIntents", "List the latest intents")
            .guarded()
            .query("limit", &count)
            .query("offset", &count)
            .answers(200, "AtpIntents"),
        Told::get(
            "/api/atp/admin/transactions",
            "atpTransactions",
            "List transactions, open ones first",
        )
        .guarded()
        .query("limit", &count)
        .query("state", &states)
        .answers(200, "AtpTransactions"),
        Told::get(
            "/api/atp/admin/audit",
            "atpAudit",
            "Read the log of transitions",
        )
        .guarded()
        .query("after", &count)
        .answers(200, "AtpTransitions"),
        Told::post(
            "/api/atp/admin/reconcile",
            "atpReconcile",
            "Look at open transactions now",
        )
        .guarded()
        .answers(200, "AtpSwept"),
        Told::post(
            "/api/atp/admin/keys/announce",
            "atpAnnounceKey",
            "Make the next key known before it signs",
        )
        .guarded()
        .answers(200, "AtpAnnounced"),
        Told::post(
            "/api/atp/admin/keys/rotate",
            "atpRotateKey",
            "Sign with the announced key, or with a new one",
        )
        .guarded()
        .may_take("AtpReason", NOTE_BYTES_MAX)
        .answers(200, "AtpRotated"),
        Told::post(
            "/api/atp/admin/keys/{key_id}/revoke",
            "atpRevokeKey",
            "Vouch for a key no more",
        )
        .guarded()
        .may_take("AtpReason", NOTE_BYTES_MAX)
        .answers(200, "AtpRevoked")
        .refuses(&[404]),
    ]
}

fn states() -> Vec<&'static str> {
    State::ALL.into_iter().map(State::word).collect()
}

/// An object with these members, which all are there.
fn whole(members: &[(&str, Value)]) -> Value {
    object(members, &[])
}

/// An object with these members, of which the latter may be missing.
fn object(needed: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = needed.iter().map(|(name, _)| *name).collect();
    let members = needed.iter().chain(optional);
    let members: Map<String, Value> = members
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "required": names, "properties": members})
}

fn schemas() -> Value {
    let mut schemas = requests();
    schemas.extend(answers());
    schemas.extend(refusals());
    schemas.into_iter().collect::<Map<_, _>>().into()
}

type Named = (String, Value);

fn named(name: &str, schema: Value) -> Named {
    (name.to_owned(), schema)
}

fn requests() -> Vec<Named> {
    let text = json!({"type": "string", "minLength": 1});
    let short = json!({"type": "string", "minLength": 1, "maxLength": 128});
    let id = json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"});
    let cents = json!({"type": ["integer", "null"], "minimum": 0, "maximum": (1_u64 << 53) - 1});
    let currency = json!({"type": ["string", "null"], "pattern": "^[A-Z]{3}$"});
    let instant = json!({"type": "string", "format": "date-time"});
    let actions: Vec<&str> = Action::ALL.iter().map(|action| action.word()).collect();
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
                    ("amount_cents", cents.clone()),
                    ("max_spend_cents", cents.clone()),
                    ("currency", currency.clone()),
                    ("max_executions", executions),
                    (
                        "signature",
                        json!({"description": "Ed25519 over the RFC 8785 form of all else."}),
                    ),
                ],
            ),
        ),
        named(
            "AtpAuthorize",
            json!({
                "description": "The id and the nonce of an intent that was created, signed; or a whole signed intent, which is created by this.",
                "anyOf": [whole(&[("intent_id", id.clone()), ("nonce", short)]), reference("AtpIntentDocument")],
            }),
        ),
        named(
            "AtpExecute",
            object(
                &[("intent_id", id.clone())],
                &[("amount_cents", cents.clone()), ("currency", currency)],
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
                    (
                        "transaction_id",
                        json!({"type": ["string", "null"], "minLength": 1, "maxLength": 128}),
                    ),
                    ("amount_cents", cents),
                ],
            ),
        ),
        named(
            "AtpCancel",
            object(
                &[("intent_id", id)],
                &[(
                    "reason",
                    json!({"type": ["string", "null"], "maxLength": 500}),
                )],
            ),
        ),
        named(
            "AtpMessage",
            json!({"type": "object", "description": "As it was signed."}),
        ),
        named(
            "AtpReason",
            object(&[], &[("reason", json!({"type": ["string", "null"]}))]),
        ),
    ]
}

fn answers() -> Vec<Named> {
    let ok = || ("ok", json!({"const": true}));
    let text = || json!({"type": "string"});
    let maybe_text = || json!({"type": ["string", "null"]});
    let flag = || json!({"type": "boolean"});
    let thing = || json!({"type": "object"});
    let maybe_thing = || json!({"type": ["object", "null"]});
    let count = || json!({"type": "integer", "minimum": 0});
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
                    // Left out in the operators' list of intents.
                    ("receipt", maybe_thing()),
                    ("compensation_receipt", maybe_thing()),
                    ("data", thing()),
                    ("attempts", count()),
                    ("alert", maybe_text()),
                ],
            ),
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
            whole(&[ok(), ("verification", verification)]),
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
            whole(&[ok(), ("data", list(reference("AtpIntent")))]),
        ),
        named(
            "AtpTransactions",
            whole(&[ok(), ("transactions", list(reference("AtpTransaction")))]),
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

fn refusals() -> Vec<Named> {
    let refused = whole(&[
        ("ok", json!({"const": false})),
        (
            "error",
            json!({"type": "string", "pattern": "^[a-z_]+$", "description": "Branch on this."}),
        ),
        (
            "message",
            json!({"type": "string", "description": "For people; may change."}),
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
