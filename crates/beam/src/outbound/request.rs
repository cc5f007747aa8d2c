//! The request of an outgoing call.
//!
//! Invariant: a header value is printable ASCII on one line, so text of another agent cannot add a header.

use consign_client::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::call::OutboundError;

/// The client sets these itself; another value would change how the target reads the request.
const FRAMING_HEADERS: &[HeaderName] = &[
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What is sent to a target, except its URL.
#[derive(Debug, Clone)]
pub struct OutboundRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl OutboundRequest {
    pub fn get() -> Self {
        Self {
            method: Method::GET,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    pub fn post_json(body: impl Into<Bytes>) -> Self {
        let json = HeaderValue::from_static("application/json");
        Self {
            method: Method::POST,
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, json)]),
            body: body.into(),
        }
    }

    /// Adds a header. Values with control characters or letters beyond ASCII are refused.
    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Self, OutboundError> {
        let value = header_value(&name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Adds a header whose value does not appear in `Debug`.
    pub fn secret_header(mut self, name: HeaderName, value: &str) -> Result<Self, OutboundError> {
        let mut value = header_value(&name, value)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }
}

fn header_value(name: &HeaderName, value: &str) -> Result<HeaderValue, OutboundError> {
    let refused = || OutboundError::Header { name: name.clone() };
    let is_printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if FRAMING_HEADERS.contains(name) || !is_printable {
        return Err(refused());
    }
    HeaderValue::from_str(value).map_err(|_| refused())
}
