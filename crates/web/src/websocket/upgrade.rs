//! The handshake: from a request to the response 101 and the task of the socket.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONNECTION, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::upgrade::OnUpgrade;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::sync::watch;

use super::Options;
use super::channel::{SocketMessages, SocketSender};
use super::task::SocketTask;
use crate::connections::{Activity, NoSocketSlot, SocketSlot};
use crate::server::ServerPhase;

const VERSION: &str = "13";
/// Of RFC 6455.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const KEY_BYTES: usize = 16;

/// What the connection of a request contributes to an upgrade; an extension of each request that asks for one.
#[derive(Clone, Debug)]
pub(crate) struct SocketAdmission {
    pub(crate) activity: Arc<Activity>,
    pub(crate) phase: watch::Receiver<ServerPhase>,
}

/// A request that can become a WebSocket. It has taken the slot of a socket already, so only the response is missing;
/// dropped, it gives the slot back, and the handler responds as to any other request.
#[derive(Debug)]
#[must_use]
pub struct SocketUpgrade {
    accept: HeaderValue,
    on_upgrade: OnUpgrade,
    slot: SocketSlot,
    phase: watch::Receiver<ServerPhase>,
}

/// Why a request does not become a WebSocket. As a response it is a status without a body; a protocol that has a format
/// of its own extracts `Result<SocketUpgrade, UpgradeRefusal>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefusal {
    #[error("the request does not ask for a WebSocket")]
    NotWebSocket,
    #[error("only version 13 of the WebSocket protocol is supported")]
    WrongVersion,
    #[error("Sec-WebSocket-Key is missing or invalid")]
    InvalidKey,
    #[error("a request for a WebSocket has no body")]
    HasBody,
    #[error("this connection cannot become a WebSocket")]
    NotUpgradable,
    #[error("too many WebSockets are open")]
    TooManySockets,
    #[error("too many WebSockets of this client are open")]
    TooManySocketsOfClient,
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl UpgradeRefusal {
    pub const fn status(self) -> StatusCode {
        match self {
            Self::NotWebSocket | Self::WrongVersion => StatusCode::UPGRADE_REQUIRED,
            Self::InvalidKey | Self::HasBody | Self::NotUpgradable => StatusCode::BAD_REQUEST,
            Self::TooManySockets | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManySocketsOfClient => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// The headers that belong to the status.
    pub fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, value| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        match self {
            Self::NotWebSocket => put(UPGRADE, "websocket"),
            Self::WrongVersion => {
                put(UPGRADE, "websocket");
                put(SEC_WEBSOCKET_VERSION, VERSION);
            }
            Self::TooManySockets | Self::TooManySocketsOfClient | Self::ShuttingDown => {
                put(RETRY_AFTER, "5");
            }
            Self::InvalidKey | Self::HasBody | Self::NotUpgradable => {}
        }
        headers
    }
}

impl IntoResponse for UpgradeRefusal {
    fn into_response(self) -> Response {
        (self.status(), self.headers()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for SocketUpgrade {
    type Rejection = UpgradeRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, UpgradeRefusal> {
        let accept = check(parts)?;
        // Only HTTP/1.1 connections of the server have both.
        let admission = parts.extensions.remove::<SocketAdmission>();
        let on_upgrade = parts.extensions.remove::<OnUpgrade>();
        let (Some(SocketAdmission { activity, phase }), Some(on_upgrade)) = (admission, on_upgrade)
        else {
            return Err(UpgradeRefusal::NotUpgradable);
        };
        if *phase.borrow() != ServerPhase::Serving {
            return Err(UpgradeRefusal::ShuttingDown);
        }
        let slot = activity.upgrade().map_err(|refused| match refused {
            NoSocketSlot::Full => UpgradeRefusal::TooManySockets,
            NoSocketSlot::ClientFull => UpgradeRefusal::TooManySocketsOfClient,
            NoSocketSlot::Receiving => UpgradeRefusal::HasBody,
        })?;
        Ok(Self {
            accept,
            on_upgrade,
            slot,
            phase,
        })
    }
}

/// Checks the request; returns the value of `Sec-WebSocket-Accept`.
fn check(parts: &Parts) -> Result<HeaderValue, UpgradeRefusal> {
    let headers = &parts.headers;
    if parts.method != Method::GET
        || !has_word(headers, &CONNECTION, "upgrade")
        || !has_word(headers, &UPGRADE, "websocket")
    {
        return Err(UpgradeRefusal::NotWebSocket);
    }
    if headers
        .get(SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != VERSION)
    {
        return Err(UpgradeRefusal::WrongVersion);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let key = key.filter(|key| {
        let decoded = BASE64_STANDARD.decode(key);
        decoded.is_ok_and(|key| key.len() == KEY_BYTES)
    });
    let key = key.ok_or(UpgradeRefusal::InvalidKey)?;
    let hash = digest(
        &SHA1_FOR_LEGACY_USE_ONLY,
        &[key, ACCEPT_SUFFIX.as_bytes()].concat(),
    );
    HeaderValue::try_from(BASE64_STANDARD.encode(hash)).map_err(|_| UpgradeRefusal::InvalidKey)
}

/// Whether a header, a list of words in any case, contains `word`.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

impl SocketUpgrade {
    /// The response 101, which must be returned. `handler` runs in a task of its own once the response is sent; when it
    /// returns, the socket is closed with 1000.
    #[must_use = "the socket opens when this response is sent"]
    pub fn accept<H, F>(self, options: Options, handler: H) -> Response
    where
        H: FnOnce(SocketSender, SocketMessages) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let Self {
            accept,
            on_upgrade,
            slot,
            phase,
        } = self;
        let task = SocketTask {
            on_upgrade,
            slot,
            phase,
            options,
        };
        tokio::spawn(task.run(handler));
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        response
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn checked(change: impl FnOnce(&mut Parts)) -> Result<HeaderValue, UpgradeRefusal> {
        let request = Request::get("/ws")
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "WebSocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-extensions", "permessage-deflate");
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        change(&mut parts);
        check(&parts)
    }

    #[test]
    fn the_key_of_the_standard_gets_its_answer() {
        let accept = checked(|_| ()).unwrap();
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_request_that_is_not_a_handshake_is_refused() {
        let without = |name: &str| checked(|parts| drop(parts.headers.remove(name)));
        let not_websocket = Err(UpgradeRefusal::NotWebSocket);
        assert_eq!(without("connection"), not_websocket);
        assert_eq!(without("upgrade"), not_websocket);
        assert_eq!(checked(|parts| parts.method = Method::POST), not_websocket);
        assert_eq!(
            without("sec-websocket-version"),
            Err(UpgradeRefusal::WrongVersion)
        );
        assert_eq!(
            without("sec-websocket-key"),
            Err(UpgradeRefusal::InvalidKey)
        );
        let short = checked(|parts| {
            let key = HeaderValue::from_static("c2hvcnQ=");
            parts.headers.insert(SEC_WEBSOCKET_KEY, key);
        });
        assert_eq!(short, Err(UpgradeRefusal::InvalidKey));
        let refused = UpgradeRefusal::WrongVersion.into_response();
        assert_eq!(refused.headers()[SEC_WEBSOCKET_VERSION], "13");
    }
}
