//! The operations of the protocol in terms of the common builder: credentials, bodies and errors.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use consign_web::openapi::schema::{Schema, anything, exactly, object, required, text};
use consign_web::openapi::{
    Access, Dialect, Endpoint, ErrorResponseSpec, Operation, ResponseContent, ResponseSpec,
};
use http::{Method, StatusCode};

use super::operators::OFFER_LOGIN;
use super::schemas;
use crate::http::listener_policy::is_open_in_maintenance;
use crate::http::problem_response::word;
use crate::http::receive::BODY_BYTES_MAX;

pub(super) const AGENT_KEY: &str = "beamAgentKey";
pub(super) const AGENT_BEARER: &str = "beamAgentBearer";
pub(super) const SESSION_BEARER: &str = "beamOperatorSession";
pub(super) const SESSION_IN_COOKIE: &str = "beamOperatorCookie";
pub(super) const FEDERATION_SECRET: &str = "beamFederationSecret";
pub(super) const BUS_KEY: &str = "beamBusKey";

/// A response with up to this many codes is shared between operations.
const SHARED_CODES_MAX: usize = 3;

/// Any address may exceed a limit, and any request may need the ledger.
pub(super) const ANYONE: Access = Access {
    words: "nothing",
    schemes: &[],
    codes: &[
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    challenge: &[],
    example_header: "",
};

/// Programs on this machine need no credential; from elsewhere an agent or an administrator has one.
pub(super) const AGENT_OR_ADMIN: Access = Access {
    words: "API key of the agent, or an administrator's session, unless the request comes from this machine",
    schemes: &[
        &[],
        &[AGENT_KEY],
        &[AGENT_BEARER],
        &[SESSION_BEARER],
        &[SESSION_IN_COOKIE],
    ],
    codes: &[
        Code::Unauthorized,
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    example_header: "x-api-key: $AGENT_KEY",
    ..ANYONE
};

/// The API key, or a signature in the request instead.
pub(super) const AGENT: Access = Access {
    words: "API key or signature of the agent",
    schemes: &[&[], &[AGENT_KEY], &[AGENT_BEARER]],
    codes: ANYONE.codes,
    ..AGENT_OR_ADMIN
};

/// The session of an operator with at least the role viewer.
pub(super) const VIEWER: Access = Access {
    words: "session of an operator",
    schemes: &[&[SESSION_BEARER], &[SESSION_IN_COOKIE]],
    codes: &[
        Code::Unauthorized,
        Code::AdminUnavailable,
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    example_header: "Authorization: Bearer $SESSION",
    ..ANYONE
};

/// Another directory.
pub(super) const PEER: Access = Access {
    words: "secret of the federation",
    schemes: &[&[FEDERATION_SECRET]],
    codes: &[
        Code::FederationUnauthorized,
        Code::RateLimited,
        Code::StoreUnavailable,
        Code::InternalError,
    ],
    example_header: "x-beam-federation-secret: $SECRET",
    ..ANYONE
};

/// A client of the bus.
pub(super) const BUS_CLIENT: Access = Access {
    words: "key of the bus",
    schemes: &[&[BUS_KEY]],
    codes: AGENT_OR_ADMIN.codes,
    example_header: "Authorization: Bearer $BUS_KEY",
    ..ANYONE
};

pub(super) fn get(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::GET, path, operation)
}

pub(super) fn post(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::POST, path, operation)
}

pub(super) fn patch(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::PATCH, path, operation)
}

pub(super) fn delete(path: &'static str, operation: Operation) -> Endpoint {
    endpoint(Method::DELETE, path, operation)
}

/// One method of one path; a Beam-ID in the path is added as its parameter, and the policy of the listener as refusals.
fn endpoint(method: Method, path: &'static str, operation: Operation) -> Endpoint {
    let operation = if path.contains("{beam_id}") {
        operation
            .path("beam_id", schemas::beam_id())
            .refuses(&[Code::InvalidBeamId, Code::NotFound])
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
        operation,
    }
}

/// What operations of this protocol have in common.
pub(super) trait BeamOperation {
    /// A body that must be an object.
    fn takes_object(self, schema: Schema, example: &'static str) -> Self;
    /// A body of JSON of any type, whose fields are checked.
    fn takes_json(self, schema: Schema, example: &'static str) -> Self;
    /// A body is received within its limits, but not read.
    fn ignores_body(self) -> Self;
    fn shows(self, about: &'static str, schema: Schema, example: &'static str) -> Self;
    fn without_content(self, status: StatusCode, about: &'static str) -> Self;
}

impl BeamOperation for Operation {
    fn takes_object(self, schema: Schema, example: &'static str) -> Self {
        self.takes_json(schema, example)
            .refuses(&[Code::InvalidBody])
    }

    fn takes_json(self, schema: Schema, example: &'static str) -> Self {
        self.takes(schema, BODY_BYTES_MAX, example).ignores_body()
    }

    fn ignores_body(self) -> Self {
        self.refuses(&[
            Code::InvalidJson,
            Code::RequestTimeout,
            Code::ShieldPayloadTooLarge,
            Code::StoreUnavailable,
        ])
    }

    fn shows(self, about: &'static str, schema: Schema, example: &'static str) -> Self {
        self.answers(StatusCode::OK, about, schema, example)
    }

    fn without_content(mut self, status: StatusCode, about: &'static str) -> Self {
        self.responses.push(ResponseSpec {
            status,
            about,
            content: ResponseContent::Nothing,
            example: "",
            headers: &[],
            links: Vec::new(),
        });
        self
    }
}

pub(super) struct BeamDialect;

impl Dialect for BeamDialect {
    const EMPTY_QUERY_IS_ABSENT: bool = false;

    fn headers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>> {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16();
        BTreeMap::from([(status, Vec::new())])
    }

    fn refusal(&self, operation: &Operation, status: u16, codes: &[Code]) -> ErrorResponseSpec {
        let mut codes = codes.to_vec();
        // An address that is no operator's is refused with the code of another status.
        if (operation.id, status) == (OFFER_LOGIN, 403) {
            codes.push(Code::Unauthorized);
        }
        let shared_as = (codes.len() <= SHARED_CODES_MAX).then(|| {
            let names = codes.iter().map(|code| code.name());
            names.fold(format!("Beam-{status}"), |name, code| {
                format!("{name}-{code}")
            })
        });
        let schema = if status == 431 {
            object(vec![required("error", anything())]).named("BeamUnreadable")
        } else {
            error(&codes)
        };
        ErrorResponseSpec {
            about: meaning(status),
            headers: Vec::new(),
            schema,
            shared_as,
        }
    }
}

fn error(codes: &[Code]) -> Schema {
    let words: Vec<String> = codes.iter().map(|code| word(*code)).collect();
    exactly(vec![
        required("error", text().about("A sentence for people; may change.")),
        required("errorCode", text().one_of(words.iter().map(String::as_str))),
    ])
}

/// The meaning of a status in one sentence.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid; the code says why.",
        401 => "No credentials, or wrong ones.",
        403 => "The sender is known or local, but this is not allowed.",
        404 => "No agent, key, rule, intent, message or peer matches.",
        408 => "The body did not arrive in time.",
        409 => "The current state does not allow this.",
        413 => "The body is larger than 64 KiB.",
        429 => "A limit is reached; try again after Retry-After seconds.",
        431 => {
            "The request line or the headers are too large. The error has the format of the Intent Protocol."
        }
        500 => "Internal error; see the log of the server.",
        502 => "The recipient or another directory did not accept the intent.",
        503 => {
            "The recipient is offline, the ledger is unavailable, or no operators are configured."
        }
        504 => "The recipient sent no result in time.",
        _ => "The request is refused.",
    }
}
