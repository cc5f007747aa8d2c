//! The description of one route: credentials, parameters, body, responses and errors.
//!
//! Invariant: the errors of an operation are listed as codes; statuses, bodies and headers follow from the code, as they
//! do when the error is sent.

use consign_kernel::error::Code;
use http::StatusCode;

use super::schema::Schema;

/// The section of the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Publish,
    Work,
    Read,
    Store,
    Operate,
    Server,
}

impl Tag {
    pub(super) const ALL: &[Self] = &[
        Self::Publish,
        Self::Work,
        Self::Read,
        Self::Store,
        Self::Operate,
        Self::Server,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Publish => "Publish",
            Self::Work => "Work",
            Self::Read => "Read",
            Self::Store => "Key-value store",
            Self::Operate => "Operate",
            Self::Server => "Server",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Publish => {
                "Publish work. A response with status 201 means that the intent is on disk."
            }
            Self::Work => {
                "Claim an intent, extend its lease while you work, and report the outcome. When a lease expires, another worker can claim the intent."
            }
            Self::Read => "Read the state, history and receipts of your intents.",
            Self::Store => "Short-lived values next to the queue. Each API key has its own store.",
            Self::Operate => {
                "For operators: keys, dead letters, single intents, nodes, the state of the queue."
            }
            Self::Server => "Health, metrics, keys and documentation of the server.",
        }
    }
}

/// The credentials that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    /// None.
    Open,
    /// An API key, signed or not.
    Client,
    /// The admin token, or the password of the user `admin`.
    Operator,
    /// The metrics token, or an operator.
    Metrics,
    /// A client or an operator, for documents that contain no secret but are not public.
    Reader,
}

impl Auth {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Open => "nothing",
            Self::Client => "API key",
            Self::Operator => "admin token or password",
            Self::Metrics => "metrics token, admin token or password",
            Self::Reader => "API key, admin token or password",
        }
    }

    /// The errors of the checks before the handler.
    pub(super) const fn codes(self) -> &'static [Code] {
        match self {
            Self::Open => &[Code::InvalidRequest, Code::Internal],
            Self::Client => &[
                Code::InvalidRequest,
                Code::InvalidPayload,
                Code::Unauthorized,
                Code::InvalidSignature,
                Code::HttpsRequired,
                Code::RequestTimeout,
                Code::PayloadTooLarge,
                Code::RateLimited,
                Code::DatabaseBusy,
                Code::Maintenance,
                Code::Internal,
            ],
            Self::Operator => &[
                Code::InvalidRequest,
                Code::InvalidPayload,
                Code::Unauthorized,
                Code::HttpsRequired,
                Code::RequestTimeout,
                Code::PayloadTooLarge,
                Code::DatabaseBusy,
                Code::Internal,
            ],
            Self::Metrics => &[
                Code::InvalidRequest,
                Code::Unauthorized,
                Code::HttpsRequired,
                Code::DatabaseBusy,
                Code::Internal,
            ],
            Self::Reader => Self::Client.codes(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterIn {
    Path,
    Query,
    Header,
}

impl ParameterIn {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) location: ParameterIn,
    pub(super) schema: Schema,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub(super) struct RequestBody {
    pub(super) required: bool,
    pub(super) schema: Schema,
    /// An example as JSON text.
    pub(super) example: &'static str,
    pub(super) bytes_max: usize,
}

/// The body of a response.
#[derive(Debug, Clone)]
pub(super) enum ResponseContent {
    Nothing,
    Json(Schema),
    /// Not JSON; the media type.
    Text(&'static str),
}

/// A successful response.
#[derive(Debug, Clone)]
pub(super) struct ResponseSpec {
    pub(super) status: StatusCode,
    pub(super) about: &'static str,
    pub(super) content: ResponseContent,
    /// An example; may be empty.
    pub(super) example: &'static str,
    /// Headers beyond those of every response.
    pub(super) headers: &'static [&'static str],
    pub(super) links: Vec<OperationLink>,
}

/// A follow-up operation for a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationLink {
    /// The id of the operation that takes the intent of this response.
    pub(super) to: &'static str,
    /// Whether it takes the claim token too.
    pub(super) with_token: bool,
}

/// The documentation of one route.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(super) id: &'static str,
    pub(super) tag: Tag,
    pub(super) auth: Auth,
    pub(super) summary: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    pub(super) responses: Vec<ResponseSpec>,
    own_codes: Vec<Code>,
    /// Whether an error may contain the index of an item.
    pub(super) batch: bool,
    /// An example query string.
    pub(super) example_query: &'static str,
}

impl Operation {
    pub(super) fn new(tag: Tag, auth: Auth, id: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            tag,
            auth,
            summary,
            about: "",
            parameters: Vec::new(),
            body: None,
            responses: Vec::new(),
            own_codes: Vec::new(),
            batch: false,
            example_query: "",
        }
    }

    pub(super) fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    pub(super) fn path(self, name: &'static str, schema: Schema) -> Self {
        self.parameter(ParameterIn::Path, name, schema)
    }

    pub(super) fn query(self, name: &'static str, schema: Schema) -> Self {
        self.parameter(ParameterIn::Query, name, schema)
    }

    pub(super) fn header(self, name: &'static str, schema: Schema) -> Self {
        self.parameter(ParameterIn::Header, name, schema)
    }

    fn parameter(mut self, location: ParameterIn, name: &'static str, schema: Schema) -> Self {
        self.parameters.push(Parameter {
            name,
            location,
            schema,
        });
        self
    }

    pub(super) fn takes(self, schema: Schema, bytes_max: usize, example: &'static str) -> Self {
        self.body(true, schema, bytes_max, example)
    }

    pub(super) fn may_take(self, schema: Schema, bytes_max: usize, example: &'static str) -> Self {
        self.body(false, schema, bytes_max, example)
    }

    fn body(
        mut self,
        required: bool,
        schema: Schema,
        bytes_max: usize,
        example: &'static str,
    ) -> Self {
        self.body = Some(RequestBody {
            required,
            schema,
            example,
            bytes_max,
        });
        self
    }

    pub(super) fn answers(
        self,
        status: StatusCode,
        about: &'static str,
        schema: Schema,
        example: &'static str,
    ) -> Self {
        self.response(status, about, ResponseContent::Json(schema), example)
    }

    pub(super) fn answers_text(
        self,
        about: &'static str,
        kind: &'static str,
        example: &'static str,
    ) -> Self {
        self.response(StatusCode::OK, about, ResponseContent::Text(kind), example)
    }

    pub(super) fn answers_nothing(self, about: &'static str) -> Self {
        self.response(StatusCode::NO_CONTENT, about, ResponseContent::Nothing, "")
    }

    fn response(
        mut self,
        status: StatusCode,
        about: &'static str,
        content: ResponseContent,
        example: &'static str,
    ) -> Self {
        self.responses.push(ResponseSpec {
            status,
            about,
            content,
            example,
            headers: &[],
            links: Vec::new(),
        });
        self
    }

    /// Headers of the last response beyond those of every response.
    pub(super) fn with_headers(mut self, headers: &'static [&'static str]) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers = headers;
        }
        self
    }

    /// These operations take the intent of the last response.
    pub(super) fn links_to(self, operations: &'static [&'static str]) -> Self {
        self.link(operations, false)
    }

    /// These operations take the intent and the claim token of the last response.
    pub(super) fn links_with_token_to(self, operations: &'static [&'static str]) -> Self {
        self.link(operations, true)
    }

    fn link(mut self, operations: &'static [&'static str], with_token: bool) -> Self {
        if let Some(response) = self.responses.last_mut() {
            let links = operations.iter().map(|to| OperationLink { to, with_token });
            response.links.extend(links);
        }
        self
    }

    pub(super) fn refuses(mut self, codes: &[Code]) -> Self {
        self.own_codes.extend_from_slice(codes);
        self
    }

    pub(super) fn names_items(mut self) -> Self {
        self.batch = true;
        self
    }

    pub(super) fn example_query(mut self, query: &'static str) -> Self {
        self.example_query = query;
        self
    }

    /// Every error code of the operation, in the order of the list of all codes.
    pub(super) fn codes(&self) -> Vec<Code> {
        let may = |code: &Code| self.own_codes.contains(code) || self.auth.codes().contains(code);
        Code::ALL.iter().copied().filter(may).collect()
    }
}
