//! The operations of the protocol in terms of the common builder: credentials, bodies and errors.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use consign_web::openapi::schema::{Schema, either, exactly, required, text};
use consign_web::openapi::{Access, Dialect, Endpoint, ErrorResponseSpec, Operation};
use http::{Method, StatusCode};

use super::schemas;
use crate::http::listener_rules::is_open_in_maintenance;
use crate::limits::HTTP_BODY_BYTES_MAX;

pub(super) const ADMIN_TOKEN: &str = "meshAdminToken";
pub(super) const ADMIN_PASSWORD: &str = "meshAdminPassword";
pub(super) const API_KEY: &str = "meshApiKey";
pub(super) const MEMBER_SIGNATURE: &str = "meshMemberSignature";

/// A refused invite has a body of its own.
pub(super) const JOIN: &str = "meshJoin";
/// A refused message has the body of its `ack`, beside the errors of the server.
pub(super) const SEND: &str = "meshSend";

/// A response with up to this many codes is shared between operations.
const SHARED_CODES_MAX: usize = 3;

/// The signed invite is the credential.
pub(super) const ANYONE: Access = Access {
    words: "nothing",
    schemes: &[],
    codes: &[Code::RateLimited, Code::DatabaseBusy, Code::Internal],
    challenge: &[],
    example_header: "",
};

pub(super) const OPERATOR: Access = Access {
    words: "admin token, or the dashboard password",
    schemes: &[&[ADMIN_TOKEN], &[ADMIN_PASSWORD]],
    codes: &[
        Code::Unauthorized,
        Code::RateLimited,
        Code::DatabaseBusy,
        Code::Internal,
    ],
    example_header: "X-Admin-Token: $ADMIN_TOKEN",
    ..ANYONE
};

/// A program with an API key of a mesh.
pub(super) const PROGRAM: Access = Access {
    words: "API key of the mesh",
    schemes: &[&[API_KEY]],
    codes: OPERATOR.codes,
    example_header: "Authorization: Bearer $MESH_KEY",
    ..ANYONE
};

/// A member that signs the request.
pub(super) const MEMBER: Access = Access {
    words: "signature of the member",
    schemes: &[&[MEMBER_SIGNATURE]],
    ..PROGRAM
};

/// A member, or a program with an API key.
pub(super) const MEMBER_OR_PROGRAM: Access = Access {
    words: "API key of the mesh, or the signature of a member",
    schemes: &[&[API_KEY], &[MEMBER_SIGNATURE]],
    ..PROGRAM
};

pub(super) fn get(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::GET, path, operation)
}

/// A cross-site request with the password of a browser is refused where it changes something.
pub(super) fn post(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::POST, path, operation.refuses(&[Code::Forbidden]))
}

/// One method of one path; a mesh in the path is added as its parameter, and the policy of the listener as refusals.
pub(super) fn endpoint(method: Method, path: &'static str, operation: Operation) -> Endpoint {
    let operation = if path.contains("{slug}") {
        operation
            .path("slug", text().about("The short name of the mesh."))
            .refuses(&[Code::NotFound])
    } else {
        operation
    };
    let operation = if is_open_in_maintenance(path) {
        operation.refuses(&[Code::HttpsRequired])
    } else {
        operation.refuses(&[Code::HttpsRequired, Code::Maintenance])
    };
    Endpoint {
        method,
        path,
        operation: operation.receives(),
    }
}

/// What operations of this protocol have in common.
pub(super) trait MeshOperation {
    /// A body is received within its limits, read or not.
    fn receives(self) -> Self;
    fn reads(self, schema: Schema, example: &'static str) -> Self;
    fn shows(self, about: &'static str, schema: Schema) -> Self;
    fn creates(self, about: &'static str, schema: Schema) -> Self;
}

impl MeshOperation for Operation {
    fn receives(self) -> Self {
        self.refuses(&[
            Code::InvalidPayload,
            Code::RequestTimeout,
            Code::PayloadTooLarge,
        ])
    }

    fn reads(self, schema: Schema, example: &'static str) -> Self {
        self.takes(schema, HTTP_BODY_BYTES_MAX, example)
            .refuses(&[Code::InvalidRequest])
    }

    fn shows(self, about: &'static str, schema: Schema) -> Self {
        self.answers(StatusCode::OK, about, schema, "")
    }

    fn creates(self, about: &'static str, schema: Schema) -> Self {
        self.answers(StatusCode::CREATED, about, schema, "")
    }
}

pub(super) struct MeshDialect;

impl Dialect for MeshDialect {
    const EMPTY_QUERY_IS_ABSENT: bool = false;

    fn headers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>> {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16();
        BTreeMap::from([(status, vec![Code::InvalidRequest])])
    }

    fn refusal(&self, operation: &Operation, status: u16, codes: &[Code]) -> ErrorResponseSpec {
        let own = match (operation.id, status) {
            (JOIN, 400) => Some(schemas::join_refusal()),
            (SEND, 400 | 403 | 404 | 413 | 429 | 503) => {
                Some(either(vec![error(codes), schemas::message_refusal()]))
            }
            _ => None,
        };
        let is_shared = own.is_none() && codes.len() <= SHARED_CODES_MAX;
        let shared_as = is_shared.then(|| {
            let names = codes.iter().map(|code| code.name());
            names.fold(format!("Mesh-{status}"), |name, code| {
                format!("{name}-{code}")
            })
        });
        ErrorResponseSpec {
            about: meaning(status),
            headers: Vec::new(),
            schema: own.unwrap_or_else(|| error(codes)),
            shared_as,
        }
    }
}

fn error(codes: &[Code]) -> Schema {
    let code = text().one_of(codes.iter().map(|code| code.name()));
    let fields = vec![
        required("code", code),
        required("message", text().about("For people; may change.")),
    ];
    exactly(vec![required("error", exactly(fields))])
}

/// The meaning of a status in one sentence.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid; the code says why.",
        401 => "No credentials, or wrong ones.",
        403 => "The credentials are valid but do not allow this.",
        404 => "No mesh, member, file, invite, key or topic matches.",
        408 => "The body did not arrive in time.",
        409 => "Another mesh has this name.",
        413 => "The body is too large.",
        429 => "Too many wrong credentials came from this address.",
        431 => "The request line or the headers are too large.",
        500 => "Internal error. Report the X-Request-ID to the operator.",
        503 => "The ledger is busy, or the server is in maintenance.",
        _ => "The request is refused.",
    }
}
