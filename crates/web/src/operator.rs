//! The credentials of operators: the admin token, or the dashboard password of the user `admin`.

use consign_engine::Operator;
use consign_kernel::error::Code;
use consign_kernel::plant::{self, Plant};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::credentials::{self, SecretDigest};
use crate::cross_site::is_cross_site;
use crate::reject::Reject;

const ADMIN_TOKEN: &str = "x-admin-token";

/// An absent secret matches nothing.
#[derive(Clone, Debug, Default)]
pub struct OperatorCredentials {
    pub admin_secret: Option<SecretDigest>,
    pub dashboard_password: Option<SecretDigest>,
    /// The bearer token that allows to read `/metrics` and nothing else.
    pub metrics_token: Option<SecretDigest>,
}

impl OperatorCredentials {
    /// An operator who sent this request on purpose. A foreign page can make a browser send the password, but not the
    /// token, because no page can add that header.
    pub fn require(&self, parts: &Parts) -> Result<Operator, Reject> {
        let operator = self.check(&parts.headers)?;
        let only_reads = matches!(parts.method, Method::GET | Method::HEAD);
        let by_password = !parts.headers.contains_key(ADMIN_TOKEN);
        if by_password && !only_reads && is_cross_site(&parts.headers) {
            return Err(Reject::new(
                Code::Forbidden,
                "Another site's page made the browser send this. Send it from here, or with X-Admin-Token.",
            ));
        }
        Ok(operator)
    }

    /// `X-Admin-Token` first; a wrong one is final. Then Basic credentials of the user `admin`.
    pub fn check(&self, headers: &HeaderMap) -> Result<Operator, Reject> {
        let matches = |secret: &Option<SecretDigest>, given: &str| {
            secret.as_ref().is_some_and(|secret| secret.matches(given))
        };
        if let Some(token) = headers.get(ADMIN_TOKEN) {
            let fits = token
                .to_str()
                .is_ok_and(|token| matches(&self.admin_secret, token));
            if fits {
                return Ok(Operator::vouched());
            }
            if !plant::on(Plant::AdminFallback) {
                let token = token.to_str().unwrap_or_default();
                return Err(Reject::wrong_admin_token(token));
            }
        }
        match credentials::basic(headers) {
            Some(basic)
                if basic.user == "admin" && matches(&self.dashboard_password, &basic.password) =>
            {
                Ok(Operator::vouched())
            }
            _ if headers.contains_key(AUTHORIZATION) => {
                Err(Reject::admin_challenge().of_wrong_credential())
            }
            _ => Err(Reject::admin_challenge()),
        }
    }
}
