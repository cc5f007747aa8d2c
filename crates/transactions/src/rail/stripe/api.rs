//! Stripe's HTTP API: form requests, JSON answers, and which answers are conclusive.
//!
//! Invariant: an inconclusive answer is [`StripeReply::Unclear`]. A refusal is conclusive if it has Stripe's error object and a
//! status about the request itself; wrong credentials, limits, conflicts and server errors say nothing about the payment.

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

/// Stripe's maximal page size.
const PAGE: usize = 100;
/// How many pages are read: the newest payments of an account come first.
const PAGES_MAX: usize = 8;

pub(in crate::rail) struct StripeApi {
    client: RailClient,
    bearer: HeaderValue,
}

/// The result of a call.
#[derive(Debug)]
pub(in crate::rail) enum StripeReply<T> {
    Done(T),
    /// Understood and refused: the same request will be refused again.
    Refused(RailFailure),
    /// The named object does not exist.
    Missing(RailFailure),
    /// No answer, or an inconclusive one.
    Unclear,
}

/// Name and value of a form field; brackets in a name address an object.
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
            reason: "has characters that are not allowed in a header; check that it was copied completely",
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

    /// With a key, Stripe repeats the first answer for a day.
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

    /// The matching objects among the account's newest; none if a page is not available.
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
        f.debug_struct("StripeApi")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// An object by whose id a listing continues.
pub(in crate::rail) trait ListItem {
    fn id(&self) -> &str;
}

#[derive(Deserialize)]
struct StripePage<T> {
    data: Vec<T>,
    #[serde(default)]
    has_more: bool,
}

/// Stripe's error object: why a request was refused or a payment failed.
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

    /// Whether the error is about the request itself, so that a repetition would fail too.
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
        404 => complaint().map(|error| StripeReply::Missing(error.failure())),
        400 | 402 => complaint()
            .filter(StripeError::is_final)
            .map(|error| StripeReply::Refused(error.failure())),
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
