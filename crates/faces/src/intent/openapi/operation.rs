//! What is told about one route: who may call it, what it takes, and everything it may answer.
//!
//! Invariant: the errors of an operation are listed as codes; their statuses, their shape and their headers follow from
//! the code, as they do when the error is sent.

use consign_kernel::error::Code;
use http::StatusCode;

use super::schema::Schema;

/// Which chapter of the documentation an operation is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::intent) enum Tag {
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
            Self::Publish => "Hand work over. What was answered with 201 is on disk.",
            Self::Work => {
                "Take an intent, keep its lease while you work, and say how it went. A lease that runs out is given to somebody else."
            }
            Self::Read => "Follow what became of your intents, and take the proof with you.",
            Self::Store => {
                "Short-lived values next to the queue. Every API key has a store of its own."
            }
            Self::Operate => {
                "For operators: keys, dead letters, single intents, the state of the queue."
            }
            Self::Server => "What the server says about itself.",
        }
    }
}

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::intent) enum Auth {
    /// Anybody.
    Open,
    /// An API key, signed or not.
    Client,
    /// The admin token, or the password of the user `admin`.
    Operator,
    /// The metrics token, or an operator.
    Metrics,
    /// A client or an operator: what holds no secret, but is not for strangers.
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

    /// What the checks at the door may answer, before an operation is looked at.
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

/// What a request carries.
#[derive(Debug, Clone)]
pub(super) struct RequestBody {
    pub(super) required: bool,
    pub(super) schema: Schema,
    /// JSON text, as one would type it.
    pub(super) example: &'static str,
    pub(super) bytes_max: usize,
}

/// What an answer carries.
#[derive(Debug, Clone)]
pub(super) enum ResponseContent {
    Nothing,
    Json(Schema),
    /// Anything but JSON, by its media type.
    Text(&'static str),
}

/// An answer that is no error.
#[derive(Debug, Clone)]
pub(super) struct ResponseSpec {
    pub(super) status: StatusCode,
    pub(super) about: &'static str,
    pub(super) content: ResponseContent,
    /// As it may look; empty if there is nothing to see.
    pub(super) example: &'static str,
    /// Headers beyond those of every answer.
    pub(super) headers: &'static [&'static str],
    pub(super) links: Vec<OperationLink>,
}

/// What one may do next with an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationLink {
    /// The id of the operation that takes the intent of this answer.
    pub(super) to: &'static str,
    /// Whether it takes the token too.
    pub(super) with_token: bool,
}

/// The documentation of one route.
#[derive(Debug, Clone)]
pub(in crate::intent) struct Operation {
    pub(super) id: &'static str,
    pub(super) tag: Tag,
    pub(super) auth: Auth,
    pub(super) summary: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    pub(super) responses: Vec<ResponseSpec>,
    own_codes: Vec<Code>,
    /// Whether an error may name the item at fault.
    pub(super) batch: bool,
    /// A query string that makes a good example.
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

    /// Headers that the last answer carries beyond those of every answer.
    pub(super) fn with_headers(mut self, headers: &'static [&'static str]) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers = headers;
        }
        self
    }

    /// The intent of the last answer can be looked at with these operations.
    pub(super) fn links_to(self, operations: &'static [&'static str]) -> Self {
        self.link(operations, false)
    }

    /// The intent and the token of the last answer are what these operations take.
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

    /// Every code this may be refused with, in the order of the list of all codes.
    pub(super) fn codes(&self) -> Vec<Code> {
        let may = |code: &Code| self.own_codes.contains(code) || self.auth.codes().contains(code);
        Code::ALL.iter().copied().filter(may).collect()
    }
}
