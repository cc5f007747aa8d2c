//! The description of one route: credentials, parameters, body, responses and errors.
//!
//! Invariant: where the errors of an operation are listed as codes, statuses, bodies and headers follow from the code, as
//! they do when the error is sent.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use http::{Method, StatusCode};

use super::schema::Schema;
use crate::error_status;

/// One method of one path, with its description.
#[derive(Debug, Clone)]
#[must_use]
pub struct Endpoint {
    pub method: Method,
    pub path: &'static str,
    pub operation: Operation,
}

impl Endpoint {
    /// The same with a changed description.
    pub fn map(mut self, change: impl FnOnce(Operation) -> Operation) -> Self {
        self.operation = change(self.operation);
        self
    }
}

/// The section of the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    pub title: &'static str,
    pub about: &'static str,
}

/// The credentials that an operation needs.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// For readers of the page.
    pub words: &'static str,
    /// Alternatives, each of which needs all of its security schemes; none for an open operation.
    pub schemes: &'static [&'static [&'static str]],
    /// The errors of the checks before the handler.
    pub codes: &'static [Code],
    /// The header of the response to a request without valid credentials.
    pub challenge: &'static [&'static str],
    /// The header of an example command; may be empty.
    pub example_header: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterIn {
    Path,
    Query,
    Header,
}

impl ParameterIn {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: &'static str,
    pub location: ParameterIn,
    /// May be empty, if the schema has a description.
    pub about: &'static str,
    pub schema: Schema,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub struct RequestBody {
    pub required: bool,
    pub schema: Schema,
    /// An example as JSON text; may be empty.
    pub example: &'static str,
    pub bytes_max: usize,
}

/// The body of a response.
#[derive(Debug, Clone)]
pub enum ResponseContent {
    Nothing,
    Json(Schema),
    /// Not JSON; the media type.
    Text(&'static str),
}

/// A successful response.
#[derive(Debug, Clone)]
pub struct ResponseSpec {
    pub status: StatusCode,
    pub about: &'static str,
    pub content: ResponseContent,
    /// An example; may be empty.
    pub example: &'static str,
    /// Headers beyond those of every response.
    pub headers: &'static [&'static str],
    pub links: Vec<OperationLink>,
}

/// A follow-up operation for a response.
#[derive(Debug, Clone, Copy)]
pub struct OperationLink {
    /// The id of the operation that takes the intent of this response.
    pub to: &'static str,
    /// Whether it takes the claim token too.
    pub with_token: bool,
}

/// The documentation of one route.
#[derive(Debug, Clone)]
#[must_use]
pub struct Operation {
    pub id: &'static str,
    pub tag: Tag,
    pub access: Access,
    pub summary: &'static str,
    pub about: &'static str,
    pub parameters: Vec<Parameter>,
    pub body: Option<RequestBody>,
    pub responses: Vec<ResponseSpec>,
    own_codes: Vec<Code>,
    own_statuses: Vec<u16>,
    /// Whether an error may contain the index of an item.
    pub batch: bool,
    /// An example query string.
    pub example_query: &'static str,
}

impl Operation {
    pub fn new(tag: Tag, access: Access, id: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            tag,
            access,
            summary,
            about: "",
            parameters: Vec::new(),
            body: None,
            responses: Vec::new(),
            own_codes: Vec::new(),
            own_statuses: Vec::new(),
            batch: false,
            example_query: "",
        }
    }

    pub fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    pub fn path(self, name: &'static str, schema: Schema) -> Self {
        self.parameter(ParameterIn::Path, name, schema)
    }

    pub fn query(self, name: &'static str, schema: Schema) -> Self {
        self.parameter(ParameterIn::Query, name, schema)
    }

    pub fn header(self, name: &'static str, schema: Schema) -> Self {
        self.parameter(ParameterIn::Header, name, schema)
    }

    fn parameter(mut self, location: ParameterIn, name: &'static str, schema: Schema) -> Self {
        self.parameters.push(Parameter {
            name,
            location,
            about: "",
            schema,
        });
        self
    }

    /// The description of the last parameter itself, beside that of its schema.
    pub fn about_parameter(mut self, about: &'static str) -> Self {
        if let Some(parameter) = self.parameters.last_mut() {
            parameter.about = about;
        }
        self
    }

    pub fn takes(self, schema: Schema, bytes_max: usize, example: &'static str) -> Self {
        self.body(true, schema, bytes_max, example)
    }

    pub fn may_take(self, schema: Schema, bytes_max: usize, example: &'static str) -> Self {
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

    pub fn answers(
        self,
        status: StatusCode,
        about: &'static str,
        schema: Schema,
        example: &'static str,
    ) -> Self {
        self.response(status, about, ResponseContent::Json(schema), example)
    }

    pub fn answers_text(
        self,
        about: &'static str,
        kind: &'static str,
        example: &'static str,
    ) -> Self {
        self.response(StatusCode::OK, about, ResponseContent::Text(kind), example)
    }

    pub fn answers_nothing(self, about: &'static str) -> Self {
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
    pub fn with_headers(mut self, headers: &'static [&'static str]) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers = headers;
        }
        self
    }

    /// These operations take the intent of the last response.
    pub fn links_to(self, operations: &'static [&'static str]) -> Self {
        self.link(operations, false)
    }

    /// These operations take the intent and the claim token of the last response.
    pub fn links_with_token_to(self, operations: &'static [&'static str]) -> Self {
        self.link(operations, true)
    }

    fn link(mut self, operations: &'static [&'static str], with_token: bool) -> Self {
        if let Some(response) = self.responses.last_mut() {
            let links = operations.iter().map(|to| OperationLink { to, with_token });
            response.links.extend(links);
        }
        self
    }

    pub fn refuses(mut self, codes: &[Code]) -> Self {
        self.own_codes.extend_from_slice(codes);
        self
    }

    /// Errors with these statuses, for a protocol that describes its errors by status.
    pub fn refuses_with(mut self, statuses: &[u16]) -> Self {
        self.own_statuses.extend_from_slice(statuses);
        self
    }

    pub fn names_items(mut self) -> Self {
        self.batch = true;
        self
    }

    pub fn example_query(mut self, query: &'static str) -> Self {
        self.example_query = query;
        self
    }

    /// Every error code of the operation, in the order of the list of all codes.
    pub fn codes(&self) -> Vec<Code> {
        let may = |code: &Code| self.own_codes.contains(code) || self.access.codes.contains(code);
        Code::ALL.iter().copied().filter(may).collect()
    }

    /// The statuses of its errors, with the codes that the description lists.
    pub fn refusals(&self) -> BTreeMap<u16, Vec<Code>> {
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for status in &self.own_statuses {
            by_status.entry(*status).or_default();
        }
        for code in self.codes() {
            let status = error_status::of(code).as_u16();
            by_status.entry(status).or_default().push(code);
        }
        by_status
    }
}
