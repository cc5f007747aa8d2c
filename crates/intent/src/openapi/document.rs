//! The table of routes as an `OpenAPI` 3.1 document.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::routes::Route;
use super::operation::{
    Auth, Operation, OperationLink, Parameter, ParameterIn, RequestBody, ResponseContent,
    ResponseSpec, Tag,
};
use super::schema::{Schema, exactly, integer, optional, required, text};
use consign_web::{error_status, headers, request_id};

/// The version of `OpenAPI` that the document follows.
pub(super) const VERSION: &str = "3.1.0";

const ABOUT: &str = "Publish an intent, let a worker claim it, read the result. \
     Every error is `{\"error\":{\"code\",\"message\"}}`: branch on the code, whose meaning never changes. \
     Times are Unix seconds. An explicit null is the same as leaving an optional field out, unknown fields are ignored, \
     and bodies are parsed as JSON whatever their Content-Type is.";

/// A response with up to this many codes is shared between operations; a response with more codes belongs to one operation.
const SHARED_CODES_MAX: usize = 3;

pub(super) fn document(routes: &[Route]) -> Value {
    let mut components = Components::default();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let method = route.method.as_str().to_ascii_lowercase();
        let operation = components.operation(&route.operation);
        paths
            .entry(route.path)
            .or_default()
            .insert(method, operation);
    }
    let tags: Vec<Value> = Tag::ALL
        .iter()
        .map(|tag| json!({"name": tag.title(), "description": tag.about()}))
        .collect();
    json!({
        "openapi": VERSION,
        "info": {
            "title": "Consign, Intent Protocol",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        // Relative to the URL of this document.
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "responses": components.responses,
            "headers": header_definitions(),
            "securitySchemes": security_schemes(),
        },
    })
}

/// The components that operations refer to.
struct Components {
    schemas: Map<String, Value>,
    responses: Map<String, Value>,
}

impl Default for Components {
    fn default() -> Self {
        let mut schemas = Map::new();
        let codes = text().one_of(Code::of_face(Face::Intent).map(Code::name));
        schemas.insert("ErrorCode".to_owned(), codes.definition());
        Self {
            schemas,
            responses: Map::new(),
        }
    }
}

impl Components {
    fn operation(&mut self, operation: &Operation) -> Value {
        let mut out = Map::new();
        out.insert("operationId".to_owned(), operation.id.into());
        out.insert("tags".to_owned(), json!([operation.tag.title()]));
        out.insert("summary".to_owned(), operation.summary.into());
        if !operation.about.is_empty() {
            out.insert("description".to_owned(), operation.about.into());
        }
        out.insert("security".to_owned(), security(operation.auth));
        if !operation.parameters.is_empty() {
            let parameters = operation.parameters.iter().map(|one| self.parameter(one));
            out.insert("parameters".to_owned(), parameters.collect());
        }
        if let Some(body) = &operation.body {
            out.insert("requestBody".to_owned(), self.body(body));
        }
        out.insert("responses".to_owned(), self.responses(operation));
        out.into()
    }

    /// Adds the definition of a schema and returns a reference to it.
    fn schema(&mut self, schema: &Schema) -> Value {
        schema.each_named(&mut |name, named| {
            self.schemas.insert(name.to_owned(), named.definition());
        });
        schema.reference()
    }

    fn parameter(&mut self, parameter: &Parameter) -> Value {
        let mut out = json!({
            "name": parameter.name,
            "in": parameter.location.name(),
            "required": parameter.location == ParameterIn::Path,
            "schema": self.schema(&parameter.schema),
        });
        if parameter.location == ParameterIn::Query {
            // An empty value is the same as an absent one.
            out["allowEmptyValue"] = true.into();
        }
        out
    }

    fn body(&mut self, body: &RequestBody) -> Value {
        let example: Value = serde_json::from_str(body.example).expect("an example is JSON");
        json!({
            "required": body.required,
            "description": format!("At most {} bytes.", body.bytes_max),
            "content": {"application/json": {"schema": self.schema(&body.schema), "example": example}},
        })
    }

    fn responses(&mut self, operation: &Operation) -> Value {
        let mut out = Map::new();
        for response in &operation.responses {
            out.insert(response.status.as_str().to_owned(), self.response(response));
        }
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in operation.codes() {
            by_status
                .entry(error_status::of(code).as_u16())
                .or_default()
                .push(code);
        }
        // Refused before a handler runs, for every route.
        by_status.insert(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16(),
            vec![Code::InvalidRequest],
        );
        for (status, codes) in by_status {
            out.insert(status.to_string(), self.refusal(operation, status, &codes));
        }
        out.into()
    }

    fn response(&mut self, response: &ResponseSpec) -> Value {
        let mut out = json!({
            "description": response.about,
            "headers": header_references(response.headers, true),
        });
        match &response.content {
            ResponseContent::Nothing => {}
            ResponseContent::Json(schema) => {
                let mut content = json!({"schema": self.schema(schema)});
                if !response.example.is_empty() {
                    content["example"] =
                        serde_json::from_str(response.example).expect("an example is JSON");
                }
                out["content"] = json!({"application/json": content});
            }
            ResponseContent::Text(kind) => {
                out["content"] = json!({*kind: {"schema": {"type": "string"}}});
            }
        }
        if !response.links.is_empty() {
            let links = response
                .links
                .iter()
                .map(|one| (one.to.to_owned(), link(*one)));
            out["links"] = links.collect::<Map<_, _>>().into();
        }
        out
    }

    fn refusal(&mut self, operation: &Operation, status: u16, codes: &[Code]) -> Value {
        let extra: &[&str] = match (status, operation.auth) {
            (401, Auth::Operator) => &["WWW-Authenticate"],
            (401, Auth::Reader) => &["Maybe-WWW-Authenticate"],
            (503, _) => &["Maybe-Retry-After"],
            _ => &[],
        };
        // A head that cannot be parsed is refused before the request gets an id.
        let is_named = !matches!(status, 400 | 431);
        let response = json!({
            "description": meaning(status),
            "headers": header_references(extra, is_named),
            "content": {"application/json": {"schema": error(codes, operation.batch).definition()}},
        });
        if codes.len() > SHARED_CODES_MAX {
            return response;
        }
        let mut name = status.to_string();
        for code in codes {
            name.push('-');
            name.push_str(code.name());
        }
        for header in extra {
            name.push('-');
            name.push_str(header);
        }
        if operation.batch {
            name.push_str("-item");
        }
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        self.responses.insert(name, response);
        reference
    }
}

fn link(link: OperationLink) -> Value {
    let mut out = json!({"operationId": link.to, "parameters": {"id": "$response.body#/id"}});
    if link.with_token {
        out["requestBody"] = json!({"claim_token": "$response.body#/claim_token"});
    }
    out
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
pub(super) fn meaning(status: u16) -> &'static str {
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

fn header_references(extra: &[&str], is_named: bool) -> Value {
    let always = headers::ALWAYS.iter().map(|(name, _)| name.as_str());
    let id = is_named.then_some(request_id::HEADER.as_str());
    let all = always.chain(id).chain(extra.iter().copied());
    all.map(|name| {
        let reference = json!({"$ref": format!("#/components/headers/{name}")});
        // One header may have two descriptions: always sent with one response, sometimes with another.
        let sent = name.strip_prefix("Maybe-").unwrap_or(name);
        (sent.to_owned(), reference)
    })
    .collect::<Map<_, _>>()
    .into()
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
            "Seconds to wait before the next try; only with database_busy and node_draining.",
            false,
            json!({"type": "integer", "minimum": 1}),
        ),
        (
            "WWW-Authenticate",
            "Makes browsers ask for the password of the user admin.",
            true,
            json!({"type": "string", "pattern": "^Basic "}),
        ),
        (
            "Maybe-WWW-Authenticate",
            "Makes browsers ask for the password of the user admin; only if no API key was sent.",
            false,
            json!({"type": "string", "pattern": "^Basic "}),
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

/// Alternative credentials.
fn security(auth: Auth) -> Value {
    let client = [
        json!({"apiKey": []}),
        json!({"apiKey": [], "signature": [], "timestamp": [], "nonce": []}),
    ];
    let operator = [json!({"adminToken": []}), json!({"adminPassword": []})];
    match auth {
        Auth::Open => json!([]),
        Auth::Client => json!(client),
        Auth::Operator => json!(operator),
        Auth::Metrics => {
            let [token, password] = operator;
            json!([{"metricsToken": []}, token, password])
        }
        Auth::Reader => client.into_iter().chain(operator).collect(),
    }
}

fn security_schemes() -> Value {
    let header = |name: &str, about: &str| json!({"type": "apiKey", "in": "header", "name": name, "description": about});
    json!({
        "apiKey": header("X-API-KEY", "The main key, or one that an operator created."),
        "signature": header("X-Signature", "HMAC-SHA256 under the API key, 64 lower-case hex digits, over method, path with sorted query, timestamp, nonce and body, joined by newlines. A server may require it; a signature that is sent must be valid."),
        "timestamp": header("X-Timestamp", "Unix time in whole seconds, at most 300 s off. Part of a signature."),
        "nonce": header("X-Nonce", "Must be unique. Part of a signature."),
        "adminToken": header("X-Admin-Token", "The operator's token, for programs."),
        "adminPassword": {"type": "http", "scheme": "basic", "description": "The user admin and the dashboard password, for browsers."},
        "metricsToken": {"type": "http", "scheme": "bearer", "description": "The metrics token, for Prometheus."},
    })
}
