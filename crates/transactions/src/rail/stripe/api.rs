//! Stripe's HTTP API: form in, JSON out, and which answers can be relied upon.
//!
//! Invariant: only an answer that settles the question is more than [`StripeReply::Unclear`]. A refusal counts if Stripe's own error
//! object comes with a status that means the request itself; wrong credentials, limits, conflicts and failures of the server
//! say nothing about the payment.

use std::fmt;
use std::time::Duration;

use consign_client::{HeaderMap, HeaderName, HeaderValue, percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::rail::RailFailure;
use crate::rail::client::{RailClient, RailResponse, RailSetupError, failure};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const AUTHORIZATION: HeaderName = HeaderName::from_static("authorization");
const CONTENT_TYPE: HeaderName = HeaderName::from_static("content-type");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// As many as Stripe lists at once.
const PAGE: usize = 100;
/// How far back a listing goes: the newest payments of an account are at its front.
const PAGES_MAX: usize = 8;

pub(in crate::rail) struct StripeApi {
    client: RailClient,
    bearer: HeaderValue,
}

/// What became of a call.
#[derive(Debug)]
pub(in crate::rail) enum StripeReply<T> {
    Done(T),
    /// Understood and refused: the same request will be refused again.
    Refused(RailFailure),
    /// What the request names does not exist.
    Missing(RailFailure),
    /// No answer, or none that settles anything.
    Unclear,
}

/// Name and value in a form; a name with brackets leads into an object.
pub(in crate::rail) type FormField<'a> = (&'a str, String);

impl StripeApi {
    pub(in crate::rail) fn new(
        base: &str,
        secret: &str,
        timeout: Duration,
    ) -> Result<Self, RailSetupError> {
        let secret = secret.trim();
        if secret.is_empty() {
            return Err(RailSetupError::Secret {
                reason: "is empty; give the rail's API key",
            });
        }
        let bearer = HeaderValue::from_str(&format!("Bearer {secret}"));
        let mut bearer = bearer.map_err(|_| RailSetupError::Secret {
            reason: "has characters that no header can carry; check that it was copied whole",
        })?;
        bearer.set_sensitive(true);
        Ok(Self {
            client: RailClient::new(base, timeout)?,
            bearer,
        })
    }

    pub(in crate::rail) async fn within<T>(
        &self,
        operation: impl Future<Output = T>,
        late: T,
    ) -> T {
        self.client.within(operation, late).await
    }

    pub(in crate::rail) async fn get<T: DeserializeOwned>(&self, path: &str) -> StripeReply<T> {
        read(self.client.get(path, self.headers()).await)
    }

    /// With a key, the first answer to it is what later calls get as well, for a day.
    pub(in crate::rail) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[FormField<'_>],
        key: Option<&str>,
    ) -> StripeReply<T> {
        let mut headers = self.headers();
        if let Some(key) = key {
            let Ok(key) = HeaderValue::from_str(key) else {
                return StripeReply::Unclear;
            };
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        headers.insert(CONTENT_TYPE, FORM);
        read(self.client.post(path, headers, encoded(form)).await)
    }

    /// Those of the account's newest objects that are wanted; none if the listing broke off.
    pub(in crate::rail) async fn list<T: DeserializeOwned + ListItem>(
        &self,
        path: &str,
        filter: &[FormField<'_>],
        wanted: impl Fn(&T) -> bool,
    ) -> Option<Vec<T>> {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut query = filter.to_vec();
            query.push(("limit", PAGE.to_string()));
            query.extend(after.take().map(|after| ("starting_after", after)));
            let query = String::from_utf8(encoded(&query)).ok()?;
            let StripeReply::Done(page) =
                self.get::<StripePage<T>>(&format!("{path}?{query}")).await
            else {
                return None;
            };
            after = page.data.last().map(|last| last.id().to_owned());
            found.extend(page.data.into_iter().filter(&wanted));
            if !page.has_more || after.is_none() {
                break;
            }
        }
        Some(found)
    }

    fn headers(&self) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, self.bearer.clone())])
    }
}

impl fmt::Debug for StripeApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// An object that listings go on after.
pub(in crate::rail) trait ListItem {
    fn id(&self) -> &str;
}

#[derive(Deserialize)]
struct StripePage<T> {
    data: Vec<T>,
    #[serde(default)]
    has_more: bool,
}

/// Why Stripe refuses, or why a payment failed.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::rail) struct StripeError {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    code: Option<String>,
    message: Option<String>,
}

impl StripeError {
    pub(in crate::rail) fn failure(&self) -> RailFailure {
        let code = self.code.as_deref().or(self.kind.as_deref());
        failure(
            code.unwrap_or("refused"),
            self.message.as_deref().unwrap_or("the rail gave no reason"),
        )
    }

    /// Whether it is about the request itself, so that it will not pass.
    fn is_final(&self) -> bool {
        self.kind.as_deref() != Some("idempotency_error")
            && self.code.as_deref() != Some("balance_insufficient")
    }
}

#[derive(Deserialize)]
struct StripeErrorBody {
    error: StripeError,
}

fn read<T: DeserializeOwned>(answer: Option<RailResponse>) -> StripeReply<T> {
    let Some(answer) = answer else {
        return StripeReply::Unclear;
    };
    let complaint = || answer.json::<StripeErrorBody>().map(|body| body.error);
    let reply = match answer.status {
        200..=299 => answer.json().map(StripeReply::Done),
        404 => complaint().map(|told| StripeReply::Missing(told.failure())),
        400 | 402 => complaint()
            .filter(StripeError::is_final)
            .map(|told| StripeReply::Refused(told.failure())),
        _ => None,
    };
    reply.unwrap_or_else(|| {
        answer.log_unusable();
        StripeReply::Unclear
    })
}

fn encoded(form: &[FormField<'_>]) -> Vec<u8> {
    let pairs = form.iter().map(|(name, value)| {
        let name = percent_encode(name.as_bytes());
        format!("{name}={}", percent_encode(value.as_bytes()))
    });
    pairs.collect::<Vec<_>>().join("&").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_encoded_strictly() {
        let form = vec![
            ("metadata[atp_ref]", "atp_1".to_owned()),
            ("description", "a&b=c d+é".to_owned()),
        ];
        assert_eq!(
            String::from_utf8(encoded(&form)).unwrap(),
            "metadata%5Batp_ref%5D=atp_1&description=a%26b%3Dc%20d%2B%C3%A9"
        );
    }

    #[test]
    fn a_secret_is_not_shown_and_must_be_one() {
        let api = StripeApi::new("https://a", "sk_test_hidden", crate::rail::TIMEOUT).unwrap();
        assert!(!format!("{api:?}").contains("hidden"));
        for secret in ["", " \n", "sk_\n_hidden"] {
            let refused = StripeApi::new("https://a", secret, crate::rail::TIMEOUT).unwrap_err();
            assert!(!refused.to_string().contains("hidden"), "{refused}");
        }
    }
}
