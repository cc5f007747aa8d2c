//! Authenticates callers and checks their scopes.
//!
//! A handler names its scope in its arguments, so a missing check does not compile. Tokens are looked up in the current
//! configuration, so a reload can revoke them.

use std::marker::PhantomData;

use crate::config::TokenHolder;
use crate::runtime::Runtime;
use axum::extract::{FromRequestParts, Query};
use data_encoding::HEXLOWER;
use http::request::Parts;

use super::api_error::ApiError;
use super::{ApiAccess, ApiState};
use consign_web::body_budget::BodySender;
use consign_web::credentials;

/// The scopes of which a token needs one. Error messages name the first.
pub(super) trait RequiredScope {
    const ANY_OF: &'static [&'static str];
    /// Browsers cannot send a header with an event stream.
    const TOKEN_IN_QUERY: bool = false;
}

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident => $any_of:expr,)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl RequiredScope for $name {
            const ANY_OF: &'static [&'static str] = &$any_of;
        }
    )+};
}

scopes! {
    /// Any token.
    AnyToken => [],
    PluginRead => ["plugin:ro"],
    PluginWrite => ["plugin:rw"],
    JobsRead => ["jobs:ro"],
    JobsWrite => ["jobs:rw"],
    SystemRead => ["system:ro"],
    SystemWrite => ["system:rw"],
}

#[derive(Debug)]
pub(super) struct EventsRead;

impl RequiredScope for EventsRead {
    const ANY_OF: &'static [&'static str] = &["events:ro"];
    const TOKEN_IN_QUERY: bool = true;
}

/// A caller with the scope `S`.
#[derive(Debug)]
pub(super) struct AuthorizedCaller<S> {
    caller: ApiCaller,
    scope: PhantomData<S>,
}

#[derive(Clone, Debug)]
enum ApiCaller {
    Local,
    Token(Box<TokenHolder>),
}

impl ApiCaller {
    fn may(&self, scope: &str) -> bool {
        match self {
            Self::Local => true,
            Self::Token(holder) => holder.may(scope),
        }
    }
}

impl<S> AuthorizedCaller<S> {
    /// For handlers whose required scope depends on the request.
    pub(super) fn needs(&self, scope: &str) -> Result<(), ApiError> {
        if self.caller.may(scope) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!(
            "the token needs the scope {scope}"
        )))
    }

    /// The account for the memory of request bodies.
    pub(super) fn body_sender(&self) -> BodySender {
        match self.token() {
            None => BodySender::Trusted,
            Some(digest) => BodySender::Key(HEXLOWER.encode(digest)),
        }
    }

    /// The digest of the token; `None` for local callers.
    pub(super) fn token(&self) -> Option<&[u8; 32]> {
        match &self.caller {
            ApiCaller::Local => None,
            ApiCaller::Token(holder) => Some(holder.digest()),
        }
    }
}

impl<S: RequiredScope> AuthorizedCaller<S> {
    /// Whether the current configuration still authorizes the caller.
    pub(super) fn is_still_authorized(&self, runtime: &Runtime) -> bool {
        let ApiCaller::Token(holder) = &self.caller else {
            return true;
        };
        let program = runtime.program();
        let known = program.config().registry.find_same(holder);
        known.is_some_and(|known| S::ANY_OF.iter().any(|scope| known.may(scope)))
    }
}

impl<S: RequiredScope> FromRequestParts<ApiState> for AuthorizedCaller<S> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let caller = caller::<S>(parts, state)?;
        if !S::ANY_OF.is_empty() && !S::ANY_OF.iter().any(|scope| caller.may(scope)) {
            let needed = S::ANY_OF[0];
            return Err(ApiError::forbidden(format!(
                "the token needs the scope {needed}"
            )));
        }
        let scope = PhantomData;
        Ok(Self { caller, scope })
    }
}

fn caller<S: RequiredScope>(parts: &Parts, state: &ApiState) -> Result<ApiCaller, ApiError> {
    if state.options.access == ApiAccess::Local {
        return Ok(ApiCaller::Local);
    }
    let in_query;
    let presented = match credentials::bearer(&parts.headers) {
        Some(token) => token,
        None if S::TOKEN_IN_QUERY && !parts.headers.contains_key(http::header::AUTHORIZATION) => {
            in_query = token_in_query(parts).ok_or_else(ApiError::unauthorised)?;
            &in_query
        }
        None => return Err(ApiError::unauthorised()),
    };
    let program = state.runtime.program();
    let holder = program.config().registry.holder(presented).cloned();
    let holder = holder.ok_or_else(|| ApiError::unauthorised().of_wrong_credential())?;
    Ok(ApiCaller::Token(Box::new(holder)))
}

fn token_in_query(parts: &Parts) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).ok()?;
    let mut tokens = pairs.into_iter().filter(|(name, _)| name == "token");
    let (_, token) = tokens.next()?;
    // Two tokens are ambiguous.
    (tokens.next().is_none() && !token.is_empty()).then_some(token)
}
