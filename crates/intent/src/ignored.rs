//! Names what a request of the protocol contains and the server does not know.
//!
//! The protocol demands that unknown parameters and members are tolerated, so a misspelt one has no effect. A header of the
//! response names them. What is known follows from the description of the route, so that the two cannot differ.

use std::sync::LazyLock;

use axum::response::Response;
use consign_kernel::error::Code;
use consign_kernel::json::Object;
use consign_web::openapi::schema::Schema;
use consign_web::openapi::{Operation, ParameterIn};
use http::{HeaderName, HeaderValue, Uri};

use super::openapi::operations;
use super::query::QueryParams;
use consign_web::reject::Reject;

pub(super) const HEADER: HeaderName = HeaderName::from_static("x-consign-ignored");

/// More names than these are left out.
const NAMES_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// The names that a route knows.
#[derive(Debug)]
pub(super) struct RouteNames {
    parameters: Vec<&'static str>,
    members: Vec<&'static str>,
    item_members: Vec<&'static str>,
}

impl RouteNames {
    /// Those of a description, and an older name that it does not mention.
    fn of(operation: &Operation, older: Option<&'static str>) -> Self {
        let parameters = operation.parameters.iter();
        let parameters = parameters.filter(|parameter| parameter.location == ParameterIn::Query);
        let body = operation.body.as_ref();
        let members = body.map_or(&[][..], |body| body.schema.fields());
        // The members of an item, for a body that is a list of items.
        let items = members.iter().filter_map(|member| member.schema.element());
        let items = items.flat_map(Schema::fields);
        Self {
            parameters: parameters
                .map(|parameter| parameter.name)
                .chain(older)
                .collect(),
            members: members.iter().map(|member| member.name).collect(),
            item_members: items.map(|member| member.name).collect(),
        }
    }

    /// The parameters of a query that are not known.
    pub(super) fn unknown_parameters(&self, uri: &Uri) -> Vec<String> {
        let Ok(params) = QueryParams::of(uri) else {
            return Vec::new();
        };
        let unknown = params
            .names()
            .filter(|name| !self.parameters.contains(name));
        unknown.map(str::to_owned).collect()
    }

    /// The members of a body that are not known.
    pub(super) fn unknown_members(&self, object: &Object<'_>) -> Vec<String> {
        not_among(object, &self.members)
    }

    /// The members of an item of a body that are not known.
    pub(super) fn unknown_item_members(&self, item: &Object<'_>) -> Vec<String> {
        not_among(item, &self.item_members)
    }

    /// Refuses an unknown parameter, on routes that the protocol does not define.
    pub(super) fn refuse_unknown(&self, uri: &Uri) -> Result<(), Reject> {
        let Some(name) = self.unknown_parameters(uri).into_iter().next() else {
            return Ok(());
        };
        let known = if self.parameters.is_empty() {
            "none".to_owned()
        } else {
            self.parameters.join(", ")
        };
        let name: String = name.chars().take(NAME_BYTES_MAX).collect();
        let message = format!("Unknown query parameter {name:?}; known here: {known}.");
        Err(Reject::new(Code::InvalidRequest, message))
    }
}

impl RouteNames {
    /// Refuses an unknown member of a body, on routes that the protocol does not define.
    pub(super) fn refuse_unknown_members(&self, object: &Object<'_>) -> Result<(), Reject> {
        let Some(name) = self.unknown_members(object).into_iter().next() else {
            return Ok(());
        };
        let name: String = name.chars().take(NAME_BYTES_MAX).collect();
        let known = self.members.join(", ");
        let message = format!("Unknown member {name:?}; known here: {known}.");
        Err(Reject::new(Code::InvalidRequest, message))
    }
}

fn not_among(object: &Object<'_>, known: &[&'static str]) -> Vec<String> {
    let names = object.members().iter().map(|(name, _)| &**name);
    let unknown = names.filter(|name| !known.contains(name));
    unknown.map(str::to_owned).collect()
}

macro_rules! known {
    ($($name:ident => $operation:expr, $older:expr;)*) => {
        $(pub(super) static $name: LazyLock<RouteNames> =
            LazyLock::new(|| RouteNames::of(&$operation, $older));)*
    };
}

known! {
    LIST => operations::list(), None;
    CLAIM => operations::claim(), Some("capability");
    PUBLISH => operations::publish(), None;
    PUBLISH_BATCH => operations::publish_batch(), None;
    DEAD => operations::dead(), None;
    SEARCH => operations::search(), None;
    COUNT => operations::count(), None;
    REMOVE => operations::remove(), None;
    GRANT => operations::grant(), None;
    NODES => operations::nodes(), None;
    BULK => operations::start_bulk(), None;
}

/// The response, with a header if something was ignored.
pub(super) fn named(mut response: Response, ignored: &[String]) -> Response {
    let printable = |name: &&String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
    };
    let mut names: Vec<&str> = ignored
        .iter()
        .filter(printable)
        .take(NAMES_MAX)
        .map(String::as_str)
        .collect();
    if names.len() < ignored.len() {
        names.push("...");
    }
    names.sort_unstable();
    names.dedup();
    if !names.is_empty()
        && let Ok(value) = HeaderValue::from_str(&names.join(", "))
    {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
