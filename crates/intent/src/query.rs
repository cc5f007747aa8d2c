//! Query strings: decoded parameters, and the queries of list, claim, search and event stream.
//!
//! Invariant: a query and its canonical form, which the signature covers, give the same values. This module does not
//! know the caller.

pub mod claim_query;
pub mod cursor;
pub mod list_query;
pub mod search_query;

use axum::extract::Query;
use consign_kernel::error::Code;
use http::Uri;

use consign_web::reject::Reject;

/// Names and values in the order they were sent; the first of a repeated name is used.
#[derive(Debug)]
pub struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    pub fn of(uri: &Uri) -> Result<Self, Reject> {
        Query::try_from_uri(uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|_| Reject::new(Code::InvalidRequest, "The query string cannot be decoded."))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// An empty value is the same as an absent one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}
