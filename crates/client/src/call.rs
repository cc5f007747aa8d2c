//! One typed call: the request, its credential, and how the answer becomes a value or an error.
//!
//! Invariant: a status of 400 or more is always [`Error::Refused`], with the server's own code when
//! it sent one.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{plain, secret};
use crate::surrogates;
use crate::wire::{BeamErrorBody, ErrorBody, FlatErrorBody};
use crate::{Client, Error, Response, SecretKey};

/// Limit on the message of a server with another error format; it may be a whole page.
const FOREIGN_MESSAGE_CHARS_MAX: usize = 200;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Credential {
    Key,
    Admin,
    /// The admin token as bearer token, as the transaction protocol requires it.
    Bearer,
    None,
}

#[derive(Debug)]
pub(crate) struct Call {
    /// The name of the call in errors.
    what: &'static str,
    method: Method,
    path_and_query: String,
    headers: HeaderMap,
    body: Bytes,
    credential: Credential,
    extra_wait: Duration,
}

impl Call {
    pub(crate) fn get(what: &'static str, path_and_query: String) -> Self {
        Self::new(what, Method::GET, path_and_query)
    }

    pub(crate) fn post(what: &'static str, path_and_query: String) -> Self {
        Self::new(what, Method::POST, path_and_query)
    }

    pub(crate) fn delete(what: &'static str, path_and_query: String) -> Self {
        Self::new(what, Method::DELETE, path_and_query)
    }

    fn new(what: &'static str, method: Method, path_and_query: String) -> Self {
        Self {
            what,
            method,
            path_and_query,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            credential: Credential::Key,
            extra_wait: Duration::ZERO,
        }
    }

    pub(crate) fn json(mut self, body: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| Error::Request(format!("{}: {error}", self.what)))?;
        self.body = Bytes::from(bytes);
        Ok(self)
    }

    pub(crate) fn header(mut self, name: &'static str, value: Option<&str>) -> Result<Self, Error> {
        if let Some(value) = value {
            self.headers.insert(name, plain(value)?);
        }
        Ok(self)
    }

    /// A header that must not be printed.
    pub(crate) fn secret_header(
        mut self,
        name: &'static str,
        value: &SecretKey,
    ) -> Result<Self, Error> {
        self.headers.insert(name, secret(value)?);
        Ok(self)
    }

    /// A body that is sent unchanged, because it is signed.
    pub(crate) fn text(mut self, body: &str) -> Self {
        self.body = Bytes::copy_from_slice(body.as_bytes());
        self
    }

    /// The name of the call in errors.
    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    pub(crate) fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Time the server may take on purpose, in addition to the client's limit.
    pub(crate) fn extra_wait(mut self, wait: Duration) -> Self {
        self.extra_wait = wait;
        self
    }
}

impl Client {
    /// Sends the call; statuses of 400 and more become errors.
    pub(crate) async fn answer(&self, call: Call) -> Result<Response, Error> {
        let response = self.respond(call).await?;
        if response.status.as_u16() >= 400 {
            return Err(refused(&response));
        }
        Ok(response)
    }

    /// Sends the call and returns the answer with any status.
    pub(crate) async fn respond(&self, call: Call) -> Result<Response, Error> {
        let request = self.build(
            call.method,
            &call.path_and_query,
            call.headers,
            call.body,
            call.credential,
        )?;
        let timeout = self.timeout().saturating_add(call.extra_wait);
        self.exchange(request, timeout).await
    }

    /// Sends the call and parses the answer as JSON.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let what = call.what;
        let response = self.answer(call).await?;
        decode(what, &response.body)
    }
}

pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, Error> {
    let parsed = serde_json::from_slice(body).or_else(|error| match surrogates::replaced(body) {
        Some(body) => serde_json::from_slice(&body),
        None => Err(error),
    });
    parsed.map_err(|error| Error::Unreadable {
        what,
        why: error.to_string(),
    })
}

pub(crate) fn refused(response: &Response) -> Error {
    let retry_after_s = response
        .headers
        .get(header::RETRY_AFTER)
        .map(HeaderValue::as_bytes)
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(|text| text.trim().parse().ok());
    let (code, message) = nested(&response.body)
        .or_else(|| flat(&response.body))
        .or_else(|| beam(&response.body))
        .unwrap_or_else(|| ("unknown".to_owned(), foreign_message(response)));
    Error::Refused {
        status: response.status,
        code,
        message,
        retry_after_s,
    }
}

/// Code and message in the Intent Protocol's format.
pub(crate) fn nested(body: &[u8]) -> Option<(String, String)> {
    let body: ErrorBody = serde_json::from_slice(body).ok()?;
    Some((body.error.code, body.error.message))
}

/// Code and message in the transaction protocol's format.
fn flat(body: &[u8]) -> Option<(String, String)> {
    let body: FlatErrorBody = serde_json::from_slice(body).ok()?;
    Some((body.error, body.message))
}

/// Code and message in Beam's format.
fn beam(body: &[u8]) -> Option<(String, String)> {
    let body: BeamErrorBody = serde_json::from_slice(body).ok()?;
    Some((body.code, body.error))
}

fn foreign_message(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    let line = text.trim().lines().next().unwrap_or_default();
    if line.is_empty() {
        let reason = response.status.canonical_reason().unwrap_or("no reason");
        return format!("the server sent no message but {reason:?}");
    }
    line.chars().take(FOREIGN_MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn check(body: &'static str, expected: &str) {
        let response = Response {
            status: StatusCode::BAD_GATEWAY,
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
        };
        assert_eq!(refused(&response).to_string(), expected);
    }

    #[test]
    fn refusals_are_readable_whoever_wrote_them() {
        check(
            r#"{"error":{"code":"not_found","message":"Key not found."}}"#,
            "Key not found. (not_found, status 502)",
        );
        check(
            r#"{"ok":false,"error":"intent_expired","message":"the intent has ended: expired"}"#,
            "the intent has ended: expired (intent_expired, status 502)",
        );
        check(
            r#"{"error":"agent_offline","errorCode":"OFFLINE"}"#,
            "agent_offline (OFFLINE, status 502)",
        );
        check("<html>\n<p>oops", "<html> (unknown, status 502)");
        check(
            "",
            "the server sent no message but \"Bad Gateway\" (unknown, status 502)",
        );
    }

    #[test]
    fn an_answer_of_another_shape_says_which_call_it_was() {
        let error = decode::<crate::Published>("publish", b"[]").unwrap_err();
        let shown = error.to_string();
        assert!(
            shown.starts_with("answer to publish is not what this version expects"),
            "{shown}"
        );
        assert!(error.hint().is_some());
    }
}
