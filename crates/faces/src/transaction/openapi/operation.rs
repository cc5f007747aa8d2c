//! One method of one path: what it takes, what it answers, and how it refuses.

use consign_transactions::key::{KEY_CHARS_MAX, KEY_CHARS_MIN};
use serde_json::{Map, Value, json};

use super::{OPERATOR, TAG, reference};

/// What is told of one method of one path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
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

impl Operation {
    pub(super) fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, id, summary)
    }

    pub(super) fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
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

    pub(super) fn for_operators(mut self) -> Self {
        self.guarded = true;
        self.refuses(&[401])
    }

    /// An effect happens once for each key.
    pub(super) fn with_idempotency_key(mut self) -> Self {
        self.parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "Chosen by the agent; in the body as idempotency_key if not here. The same key brings the same answer.",
            "schema": {"type": "string", "minLength": KEY_CHARS_MIN, "maxLength": KEY_CHARS_MAX},
        }));
        self.refuses(&[422])
    }

    pub(super) fn query(mut self, name: &str, schema: &Value) -> Self {
        self.parameters
            .push(json!({"name": name, "in": "query", "required": false, "schema": schema}));
        self
    }

    pub(super) fn requires_body(self, schema: &str, max_bytes: usize) -> Self {
        self.body(true, schema, max_bytes)
    }

    pub(super) fn allows_body(self, schema: &str, max_bytes: usize) -> Self {
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

    pub(super) fn answers(mut self, status: u16, schema: &'static str) -> Self {
        self.answers.push((status, schema));
        self
    }

    pub(super) fn refuses(mut self, statuses: &[u16]) -> Self {
        self.refuses.extend_from_slice(statuses);
        self
    }

    pub(super) fn to_json(self) -> Value {
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
