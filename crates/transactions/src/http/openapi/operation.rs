//! The operations of the protocol in terms of the common builder: credentials, keys, responses and errors.

use std::collections::BTreeMap;

use crate::key::{KEY_CHARS_MAX, KEY_CHARS_MIN};
use consign_kernel::error::Code;
use consign_web::openapi::schema::{Schema, reference_to, text};
use consign_web::openapi::{Access, Dialect, Endpoint, ErrorResponseSpec, Operation};
use http::{Method, StatusCode};

use super::{OPERATOR, TAG};

/// Any request may be malformed, and any server may be unavailable.
const REFUSED_EVERYWHERE: [u16; 5] = [400, 403, 431, 500, 503];

const PUBLIC: Access = Access {
    words: "nothing",
    schemes: &[],
    codes: &[],
    challenge: &[],
    example_header: "",
};

const FOR_OPERATORS: Access = Access {
    words: "admin token",
    schemes: &[&[OPERATOR]],
    example_header: "Authorization: Bearer $ADMIN",
    ..PUBLIC
};

pub(super) fn get(path: &'static str, id: &'static str, summary: &'static str) -> Endpoint {
    endpoint(Method::GET, path, id, summary)
}

pub(super) fn post(path: &'static str, id: &'static str, summary: &'static str) -> Endpoint {
    endpoint(Method::POST, path, id, summary)
}

fn endpoint(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Endpoint {
    let segments = path.split('/');
    let named = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let operation = Operation::new(TAG, PUBLIC, id, summary).refuses_with(&REFUSED_EVERYWHERE);
    let operation = named.fold(operation, |operation, name| {
        operation.path(name, text().rule("minLength", 1))
    });
    Endpoint {
        method,
        path,
        operation,
    }
}

/// What operations of this protocol have in common.
pub(super) trait AtpEndpoint {
    fn for_operators(self) -> Self;
    /// Executed once per idempotency key.
    fn with_idempotency_key(self) -> Self;
    fn query(self, name: &'static str, schema: &Schema) -> Self;
    fn requires_body(self, schema: &'static str, bytes_max: usize) -> Self;
    fn allows_body(self, schema: &'static str, bytes_max: usize) -> Self;
    fn answers(self, status: u16, schema: &'static str) -> Self;
    fn refuses(self, statuses: &[u16]) -> Self;
}

impl AtpEndpoint for Endpoint {
    fn for_operators(self) -> Self {
        self.map(|mut operation| {
            operation.access = FOR_OPERATORS;
            operation.refuses_with(&[401])
        })
    }

    fn with_idempotency_key(self) -> Self {
        let schema = text().characters(KEY_CHARS_MIN, KEY_CHARS_MAX);
        let about = "Chosen by the agent; may be in the body as idempotency_key instead. The same key returns the same answer.";
        self.map(|operation| {
            operation
                .header("Idempotency-Key", schema)
                .about_parameter(about)
                .refuses_with(&[422])
        })
    }

    fn query(self, name: &'static str, schema: &Schema) -> Self {
        self.map(|operation| operation.query(name, schema.clone()))
    }

    fn requires_body(self, schema: &'static str, bytes_max: usize) -> Self {
        self.map(|operation| operation.takes(reference_to(schema), bytes_max, ""))
            .refuses(&[413])
    }

    fn allows_body(self, schema: &'static str, bytes_max: usize) -> Self {
        self.map(|operation| operation.may_take(reference_to(schema), bytes_max, ""))
            .refuses(&[413])
    }

    fn answers(self, status: u16, schema: &'static str) -> Self {
        let about = meaning(status, schema);
        let status = StatusCode::from_u16(status).expect("a status of HTTP");
        self.map(|operation| operation.answers(status, about, reference_to(schema), ""))
    }

    fn refuses(self, statuses: &[u16]) -> Self {
        self.map(|operation| operation.refuses_with(statuses))
    }
}

/// The meaning of a successful response.
fn meaning(status: u16, schema: &str) -> &'static str {
    match (status, schema) {
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
    }
}

pub(super) struct AtpDialect;

impl Dialect for AtpDialect {
    const EMPTY_QUERY_IS_ABSENT: bool = false;

    fn headers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>> {
        BTreeMap::new()
    }

    fn refusal(&self, _: &Operation, status: u16, _: &[Code]) -> ErrorResponseSpec {
        let (about, schema) = match status {
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
        ErrorResponseSpec {
            about,
            headers: Vec::new(),
            schema: reference_to(schema),
            shared_as: None,
        }
    }
}
