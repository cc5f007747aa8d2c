//! A remote service, reached over HTTP with a bearer token.
//!
//! Invariant: the token is sent only to the address that was given with it, and no error shows it.

use std::time::Duration;

use consign_client::{Client, Options, SecretKey};
use http::header::InvalidHeaderValue;
use http::{HeaderValue, Method, StatusCode};

use crate::failure::Failure;

pub(super) struct RemoteService {
    client: Client,
    bearer: Option<HeaderValue>,
}

impl RemoteService {
    pub(super) fn new(
        url: &str,
        key: Option<&SecretKey>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let client = Client::new(Options {
            server: url.to_owned(),
            timeout,
            ..Options::default()
        });
        let client = client.map_err(|error| {
            Failure::failed(error.to_string()).hint("write it like --api-url http://127.0.0.1:8080")
        })?;
        let bearer = key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.reveal()))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let bearer = bearer.transpose().map_err(|_: InvalidHeaderValue| {
            Failure::failed("the key contains characters that are not valid in a token")
        })?;
        Ok(Self { client, bearer })
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let bearer = self.bearer.clone();
        let headers = bearer.map(|bearer| (http::header::AUTHORIZATION, bearer));
        let headers = headers.into_iter().collect();
        let answer = self.client.request(method, path, headers, body.into());
        let answer = answer.await.map_err(|error| {
            Failure::failed(error.to_string())
                .hint("check --api-url, and that the service has `api: {enabled: true}`")
        })?;
        Ok((answer.status, answer.body.to_vec()))
    }
}
