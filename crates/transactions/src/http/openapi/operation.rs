//! One method of one path: request, responses and errors.

use crate::key::{KEY_CHARS_MAX, KEY_CHARS_MIN};
use serde_json::{Map, Value, json};

use super::{OPERATOR, TAG, reference};

/// The description of one method of one path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// For operators only.
    guarded: bool,
    parameters: Vec<Value>,
    body: Option<Value>,
    /// The status and the name of the schema.
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
            // Any request may be malformed, and any server may be unavailable.
            refuses: vec![400, 403, 431, 500, 503],
        }
    }

    pub(super) fn for_operators(mut self) -> Self {
        self.guarded = true;
        self.refuses(&[401])
    }

    /// Executed once per idempotency key.
    pub(super) fn with_idempotency_key(mut self) -> Self {
        self.parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "Chosen by the agent; may be in the body as idempotency_key instead. The same key returns the same answer.",
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

    pub(super) fn into_json(self) -> Value {
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
        let security = if self.guarded {
            json!([{OPERATOR: []}])
        } else {
            json!([])
        };
        let mut operation = json!({
            "operationId": self.id,
            "tags": [TAG],
            "summary": self.summary,
            "security": security,
            "parameters": self.parameters,
            "responses": responses,
        });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        operation
    }
}

fn in_path(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
}

fn answer(status: u16, schema: &str) -> Value {
    let description = match (status, schema) {
        (201, _) => "The intent was created.",
        (202, _) => {
            "The transaction is in progress; repeat the request with the same key after Retry-After seconds."
        }
        (_, "AtpCreated") => "The intent was created before by the same document.",
        (_, "AtpAuthorized") => "The intent is authorized.",
        (_, "AtpCancelled") => "The intent is cancelled.",
        (_, "AtpTransaction") => "The transaction and its current state.",
        (_, "AtpIntent") => "The intent, its current state and its transactions.",
        (_, "AtpIntents" | "AtpTransactions" | "AtpTransitions") => "A page of the list.",
        (_, "AtpReceipt" | "AtpReceipts") => "The signed receipts.",
        (_, "AtpVerification") => "The result of the verification.",
        (_, "AtpKeys" | "AtpManifest" | "AtpRevocations") => "The published document.",
        (_, "AtpHealth") => "The site can store transactions.",
        _ => "The operation is done.",
    };
    json!({
        "description": description,
        "content": {"application/json": {"schema": reference(schema)}},
    })
}

fn refusal(status: u16) -> Value {
    let (description, schema) = match status {
        // A malformed request head is refused before its face is known, so the error may have
        // another format.
        400 | 431 => ("The request is malformed.", "AtpUnreadable"),
        401 => (
            "The signature or the token is missing or not valid.",
            "AtpRefusal",
        ),
        403 => (
            "Not allowed: by the intent, for this user, from this origin, or over plain HTTP.",
            "AtpRefusal",
        ),
        404 => (
            "No intent, transaction, receipt, key or path matches.",
            "AtpRefusal",
        ),
        409 => ("A final conflict; do not repeat the request.", "AtpRefusal"),
        410 => ("The intent has ended.", "AtpRefusal"),
        412 => ("A precondition can no longer be met.", "AtpRefusal"),
        413 => ("The body is too long.", "AtpRefusal"),
        422 => (
            "The request contradicts the intent or an earlier request with the same key.",
            "AtpRefusal",
        ),
        425 => ("A precondition is not met yet.", "AtpRefusal"),
        429 => ("Too many requests; see Retry-After.", "AtpRefusal"),
        _ => (
            "A temporary failure; the same request may be sent again.",
            "AtpRefusal",
        ),
    };
    json!({"description": description, "content": {"application/json": {"schema": reference(schema)}}})
}
