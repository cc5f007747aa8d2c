//! The operations of the local interface in terms of the common builder: credentials, bodies and errors.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use consign_web::openapi::schema::Schema;
use consign_web::openapi::{Access, Dialect, Endpoint, ErrorResponseSpec, Operation, Tag};
use http::{Method, StatusCode};

use super::schemas;
use crate::ipc::IpcRoute;
use crate::limits::IPC_BODY_BYTES_MAX;

pub(super) const LOCAL_TOKEN: &str = "localToken";

/// Over the socket file, the file is the credential.
const LOCAL: Access = Access {
    words: "the local token, or nothing over the socket file",
    schemes: &[&[LOCAL_TOKEN], &[]],
    codes: &[],
    challenge: &[],
    example_header: "Authorization: Bearer $LOCAL_TOKEN",
};

/// Refusals of every request: a token in the query, no or a wrong token, a foreign host or origin, a body that stops, too many
/// requests.
const ALWAYS: [u16; 6] = [400, 401, 403, 408, 413, 429];

pub(super) fn operation(tag: Tag, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(tag, LOCAL, id, summary)
}

pub(super) fn endpoint(route: IpcRoute, operation: Operation) -> Endpoint {
    let method = if route.method() == "GET" {
        Method::GET
    } else {
        Method::POST
    };
    Endpoint {
        method,
        path: route.path(),
        operation: operation.refuses_with(&ALWAYS),
    }
}

/// What operations of this interface have in common.
pub(super) trait LocalOperation {
    fn reads(self, schema: Schema, example: &'static str) -> Self;
    fn shows(self, about: &'static str, schema: Schema, example: &'static str) -> Self;
}

impl LocalOperation for Operation {
    fn reads(self, schema: Schema, example: &'static str) -> Self {
        self.takes(schema, IPC_BODY_BYTES_MAX, example)
    }

    fn shows(self, about: &'static str, schema: Schema, example: &'static str) -> Self {
        self.answers(StatusCode::OK, about, schema, example)
    }
}

pub(super) struct LocalDialect;

impl Dialect for LocalDialect {
    const EMPTY_QUERY_IS_ABSENT: bool = true;

    fn headers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>> {
        BTreeMap::new()
    }

    fn refusal(&self, _: &Operation, status: u16, _: &[Code]) -> ErrorResponseSpec {
        ErrorResponseSpec {
            about: meaning(status),
            headers: Vec::new(),
            schema: schemas::refusal(),
            shared_as: Some(format!("Refused-{status}")),
        }
    }
}

/// The meaning of a status in one sentence.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid, or has a token in its query.",
        401 => "The local token is missing or wrong.",
        403 => {
            "The host or the origin is foreign, or the token of a hook does not cover the request."
        }
        404 => "Nothing has this name, or this part of the interface is off.",
        408 => "The body did not come in time.",
        409 => "It contradicts the state of the daemon.",
        413 => "The body is too large.",
        422 => "A hook refused the message.",
        429 => "Too many requests, or too many at once.",
        503 => "The broker cannot be reached, or the disk does not take the write.",
        504 => "The broker did not answer in time.",
        507 => "The queue or the disk is full.",
        _ => "The request is refused.",
    }
}
