//! The documents of the protocol: the frame, the error responses and the texts of the page.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use consign_web::openapi::schema::{Schema, exactly, integer, optional, required, text};
use consign_web::openapi::{self, Dialect, Endpoint, ErrorResponseSpec, Operation, PageTexts};
use consign_web::{headers, request_id};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::API_VERSION;
use super::access::TAGS;

const ABOUT: &str = "Publish an intent, let a worker claim it, read the result. \
     Every error is `{\"error\":{\"code\",\"message\"}}`: branch on the code, whose meaning never changes. \
     Times are Unix seconds. An explicit null is the same as leaving an optional field out, unknown fields are ignored, \
     and bodies are parsed as JSON whatever their Content-Type is.";

/// A response with up to this many codes is shared between operations; a response with more codes belongs to one operation.
const SHARED_CODES_MAX: usize = 3;

pub(super) fn document(endpoints: &[Endpoint]) -> Value {
    let tags: Vec<Value> = TAGS
        .iter()
        .map(|tag| json!({"name": tag.title, "description": tag.about}))
        .collect();
    let codes = text().one_of(Code::of_face(Face::Intent).map(Code::name));
    let frame = json!({
        "info": {
            "title": "Consign, Intent Protocol",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        // Relative to the URL of this document.
        "servers": [{"url": "/"}],
        "tags": tags,
        "components": {
            "schemas": {"ErrorCode": codes.definition()},
            "headers": header_definitions(),
            "securitySchemes": security_schemes(),
        },
    });
    openapi::document(endpoints, &IntentDialect, frame)
}

struct IntentDialect;

impl Dialect for IntentDialect {
    const EMPTY_QUERY_IS_ABSENT: bool = true;

    fn headers(&self) -> Vec<&'static str> {
        always_sent(true)
    }

    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>> {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16();
        BTreeMap::from([(status, vec![Code::InvalidRequest])])
    }

    fn refusal(&self, operation: &Operation, status: u16, codes: &[Code]) -> ErrorResponseSpec {
        let extra: &[&str] = match status {
            401 => operation.access.challenge,
            429 | 503 => &["Maybe-Retry-After"],
            _ => &[],
        };
        // A head that cannot be parsed is refused before the request gets an id.
        let is_named = !matches!(status, 400 | 431);
        let mut headers = always_sent(is_named);
        headers.extend(extra);
        let shared_as = (codes.len() <= SHARED_CODES_MAX).then(|| {
            let mut name = status.to_string();
            for part in codes
                .iter()
                .map(|code| code.name())
                .chain(extra.iter().copied())
            {
                name.push('-');
                name.push_str(part);
            }
            if operation.batch {
                name.push_str("-item");
            }
            name
        });
        ErrorResponseSpec {
            about: meaning(status),
            headers,
            schema: error(codes, operation.batch),
            shared_as,
        }
    }
}

fn always_sent(is_named: bool) -> Vec<&'static str> {
    let always = headers::ALWAYS.iter().map(|(name, _)| name.as_str());
    let id = is_named.then_some(request_id::HEADER.as_str());
    always.chain(id).collect()
}

fn error(codes: &[Code], batch: bool) -> Schema {
    let code = text().one_of(codes.iter().map(|code| code.name()));
    let mut fields = vec![
        required("code", code),
        required("message", text().about("For people; may change.")),
    ];
    if batch {
        let index = integer().about("The position of the item at fault, from 0.");
        fields.push(optional("index", index));
    }
    exactly(vec![required("error", exactly(fields))])
}

/// The meaning of a status in one sentence.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid; the code says why.",
        401 => "No credentials, or wrong ones.",
        403 => "The credentials are valid but do not allow this.",
        404 => "It does not exist, or belongs to another key.",
        408 => "The body did not arrive in time.",
        413 => "The body, the payload or the result is too large.",
        422 => "The Idempotency-Key was used before with a different body.",
        429 => "A limit of this key is reached; wait a minute, or finish open intents first.",
        431 => "The request line or the headers are too large.",
        500 => "Internal error. Report the X-Request-ID to the operator.",
        503 => "The server is busy or in maintenance; try again shortly.",
        _ => "The request is refused.",
    }
}

fn header_definitions() -> Value {
    let mut out = Map::new();
    for (name, value) in &headers::ALWAYS {
        let value = value.to_str().expect("written as text");
        out.insert(
            name.as_str().to_owned(),
            json!({"required": true, "schema": {"type": "string", "const": value}}),
        );
    }
    let id = format!("^[A-Za-z0-9_.:-]{{1,{}}}$", request_id::LENGTH_MAX);
    for (name, description, required, schema) in [
        (
            request_id::HEADER.as_str(),
            "The id that you sent, or a generated one. Include it in a bug report.",
            true,
            json!({"type": "string", "pattern": id}),
        ),
        (
            "Retry-After",
            "Seconds to wait before the next try.",
            true,
            json!({"type": "integer", "minimum": 1}),
        ),
        (
            "Maybe-Retry-After",
            "Seconds to wait before the next try; only with database_busy and node_draining, and with rate_limited if the key has a rate of its own.",
            false,
            json!({"type": "integer", "minimum": 1}),
        ),
        (
            "WWW-Authenticate",
            "Makes browsers ask for a name and a password.",
            true,
            json!({"type": "string", "pattern": "^Basic "}),
        ),
        (
            "Maybe-WWW-Authenticate",
            "Makes browsers ask for a name and a password; only if no API key was sent.",
            false,
            json!({"type": "string", "pattern": "^Basic "}),
        ),
        (
            "Maybe-X-Consign-Ignored",
            "Query parameters and members of the body that the server does not know and ignored; absent if there are none.",
            false,
            json!({"type": "string"}),
        ),
        (
            "Content-Security-Policy",
            "The page may load and run nothing but its own style.",
            true,
            json!({"type": "string"}),
        ),
    ] {
        out.insert(
            name.to_owned(),
            json!({"description": description, "required": required, "schema": schema}),
        );
    }
    out.into()
}

fn security_schemes() -> Value {
    let header = |name: &str, about: &str| json!({"type": "apiKey", "in": "header", "name": name, "description": about});
    json!({
        "apiKey": header("X-API-KEY", "The main key, or one that an operator created."),
        "signature": header("X-Signature", "HMAC-SHA256 under the API key, 64 lower-case hex digits, over method, path with sorted query, timestamp, nonce and body, joined by newlines. A server may require it; a signature that is sent must be valid."),
        "timestamp": header("X-Timestamp", "Unix time in whole seconds, at most 300 s off. Part of a signature."),
        "nonce": header("X-Nonce", "Must be unique. Part of a signature."),
        "adminToken": header("X-Admin-Token", "The operator's token, for programs."),
        "adminPassword": {"type": "http", "scheme": "basic", "description": "The user admin and the dashboard password, or the name and password of a user."},
        "metricsToken": {"type": "http", "scheme": "bearer", "description": "The metrics token, for Prometheus."},
    })
}

/// The address of a server that was started without flags.
const EXAMPLE_SERVER: &str = "http://127.0.0.1:7070";
const EXAMPLE_ID: &str = "01a1dea803707330800005a06ad96f6b";

const WAYS_IN: &[(&str, &str, &str)] = &[
    (
        "API key",
        "X-API-KEY: ck_…",
        "Clients and workers. Operators create more keys with POST /admin/generate_key.",
    ),
    (
        "Signature",
        "X-Signature, X-Timestamp, X-Nonce",
        "In addition to the key, if the server requires it: HMAC-SHA256 under the key, in hexadecimal, over method, path with sorted query, timestamp, nonce and body, joined by newlines.",
    ),
    ("Admin token", "X-Admin-Token: ca_…", "Operators' programs."),
    (
        "Password",
        "Authorization: Basic …",
        "Operators' browsers: the user admin and the dashboard password, or a user with a sufficient role.",
    ),
    (
        "Metrics token",
        "Authorization: Bearer cm_…",
        "Prometheus, for /metrics only.",
    ),
];

/// The documentation as one self-contained HTML page.
pub(super) fn page(endpoints: &[Endpoint]) -> String {
    let header = format!(
        "\
         <header><h1>Consign HTTP API</h1><p>Consign {} · Intent Protocol 2.1 · API {API_VERSION} · \
         <a href=\"/openapi.json\">openapi.json</a></p></header>\
         <p>Bodies and answers are JSON, times are Unix seconds. An explicit null is the same as leaving an optional field out, \
         and unknown fields are not looked at. An error is always <code>{{\"error\":{{\"code\",\"message\"}}}}</code>: \
         branch on the code, it never changes its meaning.</p>",
        env!("CARGO_PKG_VERSION"),
    );
    let codes: Vec<Code> = Code::of_face(Face::Intent).collect();
    let texts = PageTexts {
        header: &header,
        title: "Consign HTTP API",
        tags: TAGS,
        ways_in: WAYS_IN,
        codes: &codes,
        meaning,
        example_server: EXAMPLE_SERVER,
        example_values: &[("{id}", EXAMPLE_ID), ("{key}", "region")],
    };
    openapi::page(endpoints, &texts)
}
