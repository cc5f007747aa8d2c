//! The HTTP client of a rail: one server, hard limits on time and size, no interpretation.
//!
//! Invariant: a call returns a complete answer or none. A call that was late, cut short, too long or not HTTP returns none,
//! because its effect is unknown. Redirects are not followed, so the secret is sent to no other host.

use std::time::Duration;

use consign_client::{Bytes, Client, HeaderMap, Method};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};

use super::RailFailure;

/// The default time limit for one operation of a rail.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A list of a hundred payments is much smaller.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Texts of a rail are stored in rows and receipts, so their length is limited.
const CODE_CHARS_MAX: usize = 100;
const MESSAGE_CHARS_MAX: usize = 500;
const ID_CHARS_MAX: usize = 255;

/// Why a rail cannot be used as configured. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum RailSetupError {
    #[error(transparent)]
    Address(#[from] consign_client::Error),
    #[error("the rail's secret {reason}")]
    Secret { reason: &'static str },
}

#[derive(Debug)]
pub(super) struct RailClient {
    client: Client,
    /// The path of the base URL, without its last slash.
    prefix: String,
    timeout: Duration,
}

/// A complete answer with any status.
#[derive(Debug)]
pub(super) struct RailResponse {
    pub(super) status: u16,
    body: Bytes,
}

impl RailResponse {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Logs an inconclusive answer: the configuration may be wrong.
    pub(super) fn log_unusable(&self) {
        let status = self.status;
        match status {
            401 | 403 => tracing::warn!(status, "the rail refuses the configured secret"),
            _ => tracing::warn!(
                status,
                "the rail's answer is inconclusive; asking again later"
            ),
        }
    }
}

impl RailClient {
    pub(super) fn new(base: &str, timeout: Duration) -> Result<Self, RailSetupError> {
        let (server, prefix) = split_path(base.trim());
        let options = consign_client::Options {
            server: server.to_owned(),
            timeout,
            ..consign_client::Options::default()
        };
        Ok(Self {
            client: Client::new(options)?.with_answers_up_to(ANSWER_BYTES_MAX),
            prefix: prefix.trim_end_matches('/').to_owned(),
            timeout,
        })
    }

    pub(super) async fn get(&self, path: &str, headers: HeaderMap) -> Option<RailResponse> {
        self.call(Method::GET, path, headers, Bytes::new()).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Option<RailResponse> {
        self.call(Method::POST, path, headers, Bytes::from(body))
            .await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Option<RailResponse> {
        let path = format!("{}{path}", self.prefix);
        match self.client.request(method, &path, headers, body).await {
            Ok(response) => Some(RailResponse {
                status: response.status.as_u16(),
                body: response.body,
            }),
            Err(error) => {
                tracing::warn!(path, %error, "the rail did not answer; asking again later");
                None
            }
        }
    }

    /// Runs an operation of one or more calls within the time limit.
    pub(super) async fn within<T>(&self, operation: impl Future<Output = T>, late: T) -> T {
        tokio::time::timeout(self.timeout, operation)
            .await
            .unwrap_or(late)
    }
}

/// Splits off the path from scheme and host. Anything else stays with the host, which is then refused with a reason.
fn split_path(base: &str) -> (&str, &str) {
    let host = base.find("://").map_or(0, |at| at + "://".len());
    match base[host..].find('/') {
        Some(slash) if !base.contains(['?', '#']) => base.split_at(host + slash),
        _ => (base, ""),
    }
}

/// Why a payment failed, as reported by the rail, truncated for storage.
pub(super) fn failure(code: &str, message: &str) -> RailFailure {
    RailFailure {
        code: code.chars().take(CODE_CHARS_MAX).collect(),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    }
}

/// An id of the rail. It becomes the key of a record, is part of receipts and is used for later calls, so an answer with an
/// unusable id is not understood.
pub(super) fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    maybe_id(deserializer)?.ok_or_else(|| D::Error::custom("an id is missing"))
}

/// For an id that may be null; needs `default` if it may be absent.
pub(super) fn maybe_id<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let id = Option::<String>::deserialize(deserializer)?;
    let is_usable = |id: &String| {
        (1..=ID_CHARS_MAX).contains(&id.chars().count()) && !id.chars().any(char::is_control)
    };
    match id {
        Some(id) if !is_usable(&id) => Err(D::Error::custom("no usable id")),
        id => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Named {
        #[serde(deserialize_with = "id")]
        id: String,
        #[serde(default, deserialize_with = "maybe_id")]
        other: Option<String>,
    }

    #[test]
    fn an_id_that_cannot_be_used_makes_the_answer_unreadable() {
        let read = |id: &str, other: &str| {
            let text = serde_json::json!({"id": id, "other": other}).to_string();
            serde_json::from_str::<Named>(&text).ok()
        };
        let long = "x".repeat(ID_CHARS_MAX + 1);
        assert!(read("pi_1", "re_1").is_some());
        assert!(read(&long[1..], "é").is_some());
        for bad in ["", "a\0b", "a\nb", &long] {
            assert!(read(bad, "re_1").is_none(), "{bad:?}");
            assert!(read("pi_1", bad).is_none(), "{bad:?}");
        }
        for (text, taken) in [
            (r#"{"id":"a"}"#, true),
            (r#"{"id":"a","other":null}"#, true),
            (r#"{"id":null}"#, false),
            ("{}", false),
        ] {
            let named = serde_json::from_str::<Named>(text);
            assert_eq!(named.is_ok(), taken, "{text}");
            assert!(named.is_ok_and(|named| named.id == "a" && named.other.is_none()) || !taken);
        }
    }

    #[test]
    fn a_base_may_have_a_path() {
        for (base, expected) in [
            ("https://api.example", ("https://api.example", "")),
            ("https://api.example/", ("https://api.example", "/")),
            ("http://127.0.0.1:7/a/b/", ("http://127.0.0.1:7", "/a/b/")),
            ("api.example", ("api.example", "")),
            ("https://a/b?c", ("https://a/b?c", "")),
        ] {
            assert_eq!(split_path(base), expected, "{base}");
        }
    }

    #[test]
    fn a_base_that_cannot_be_called_is_refused_with_the_reason() {
        for base in [
            "",
            "api.example",
            "ftp://a",
            "https://a/b?c",
            "https://u:p@a",
        ] {
            let refused = RailClient::new(base, TIMEOUT).unwrap_err().to_string();
            assert!(refused.contains("cannot be used: "), "{refused}");
        }
    }

    #[test]
    fn what_a_rail_says_is_cut_where_it_gets_too_long() {
        let long = failure(&"é".repeat(101), &"ß".repeat(501));
        assert_eq!(long.code.chars().count(), 100);
        assert_eq!(long.message.chars().count(), 500);
    }
}
