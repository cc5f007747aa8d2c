//! The variable segment of a path. A segment that cannot be decoded is reported after authentication, not before.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

/// The id of an intent as sent; empty if it is not valid text, which matches no intent.
#[derive(Debug)]
pub(super) struct PathId(pub(super) String);

/// A name chosen by a client; `None` if it is not valid text.
#[derive(Debug)]
pub(super) struct PathName(pub(super) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let decoded = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(decoded.ok().map(|Path(text)| text)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let PathName(text) = PathName::from_request_parts(parts, state).await?;
        Ok(Self(text.unwrap_or_default()))
    }
}
