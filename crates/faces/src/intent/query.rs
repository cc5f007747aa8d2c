//! Query parameters, decoded once; the first of a repeated name counts.

use axum::extract::Query;
use consign_kernel::error::Code;
use http::Uri;

use super::reject::Reject;

#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn of(uri: &Uri) -> Result<Self, Reject> {
        Query::try_from_uri(uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|_| Reject::new(Code::InvalidRequest, "The query string cannot be decoded."))
    }

    /// An empty value counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}
