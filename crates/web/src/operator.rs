//! The credentials of operators: the admin token, the password of a user, or an API key with a scope of operators.
//!
//! Invariant: a request gets as far as its role allows. A right is an argument of the check, so a route that states none does
//! not compile.

use consign_engine::{AdminRole, Authenticated, Engine, Error, Operator};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::plant::{self, Plant};
use consign_kernel::record::KeyScope;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

use crate::credentials::{self, SecretDigest};
use crate::cross_site::is_cross_site;
use crate::reject::Reject;

const ADMIN_TOKEN: &str = "x-admin-token";
const API_KEY: &str = "x-api-key";
/// The user of the dashboard password.
const ADMIN_USER: &str = "admin";

/// How long an entry of the audit log is kept unless configured.
pub const AUDIT_RETENTION_DAYS_DEFAULT: u32 = 90;

/// An absent secret matches nothing.
#[derive(Clone, Debug)]
pub struct OperatorCredentials {
    pub admin_secret: Option<SecretDigest>,
    pub dashboard_password: Option<SecretDigest>,
    /// The bearer token that allows to read `/metrics` and nothing else.
    pub metrics_token: Option<SecretDigest>,
    pub audit_retention_days: u32,
}

impl Default for OperatorCredentials {
    fn default() -> Self {
        Self {
            admin_secret: None,
            dashboard_password: None,
            metrics_token: None,
            audit_retention_days: AUDIT_RETENTION_DAYS_DEFAULT,
        }
    }
}

/// What a route of operators needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRight {
    /// Shows something.
    Read,
    /// Changes single intents, or cleans up.
    Operate,
    /// Changes keys, users, nodes, or all intents.
    Manage,
}

impl AdminRight {
    const fn role(self) -> AdminRole {
        match self {
            Self::Read => AdminRole::Viewer,
            Self::Operate => AdminRole::Operator,
            Self::Manage => AdminRole::Admin,
        }
    }

    /// The scope of a key for routes with this right.
    const fn scope(self) -> KeyScope {
        match self {
            Self::Read => KeyScope::AdminRead,
            Self::Operate | Self::Manage => KeyScope::Admin,
        }
    }
}

/// By which credential a request was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AdminActor {
    Token,
    User(String),
    Key(String),
}

/// An authenticated operator.
#[derive(Clone, Debug)]
pub struct AdminCaller {
    pub operator: Operator,
    pub role: AdminRole,
    actor: AdminActor,
}

impl AdminCaller {
    /// For the audit log.
    pub fn actor(&self) -> String {
        match &self.actor {
            AdminActor::Token => "admin-token".to_owned(),
            AdminActor::User(name) => format!("user {name}"),
            AdminActor::Key(id) => format!("key {id}"),
        }
    }

    /// Whether it may see the tokens of claims, with which an intent can be settled.
    pub fn sees_claim_tokens(&self) -> bool {
        self.role > AdminRole::Viewer
    }

    fn new(role: AdminRole, actor: AdminActor) -> Self {
        Self {
            operator: Operator::vouched(),
            role,
            actor,
        }
    }

    /// The refusal of a request that needs more than this role, or `None`.
    pub fn refusal(&self, right: AdminRight) -> Option<Reject> {
        if self.role >= right.role() {
            return None;
        }
        Some(match &self.actor {
            AdminActor::Key(_) => Reject::missing_scope(right.scope()),
            AdminActor::User(_) | AdminActor::Token => {
                let message = format!(
                    "This needs the role {}; yours is {}.",
                    right.role().name(),
                    self.role.name()
                );
                Reject::new(Code::Forbidden, message)
            }
        })
    }
}

impl OperatorCredentials {
    /// An operator who sent this request on purpose and may do what it asks for. A foreign page can make a browser send a
    /// password, but not a token or a key, because no page can add those headers.
    pub async fn require(
        &self,
        engine: &Engine,
        parts: &Parts,
        right: AdminRight,
    ) -> Result<AdminCaller, Reject> {
        let caller = self.identify(engine, parts).await?;
        match caller.refusal(right) {
            Some(refusal) => Err(refusal),
            None => Ok(caller),
        }
    }

    /// The operator who sent this request on purpose, whatever the role.
    pub async fn identify(&self, engine: &Engine, parts: &Parts) -> Result<AdminCaller, Reject> {
        let caller = self
            .check(engine, &parts.headers, KeyCharge::Request)
            .await?;
        let only_reads = matches!(parts.method, Method::GET | Method::HEAD);
        let by_password = matches!(caller.actor, AdminActor::User(_));
        if by_password && !only_reads && is_cross_site(&parts.headers) {
            return Err(Reject::new(
                Code::Forbidden,
                "Another site's page made the browser send this. Send it from here, or with X-Admin-Token.",
            ));
        }
        Ok(caller)
    }

    /// Whether the credentials of a stream that is open still allow to read. This is no request of its own, so it does not
    /// count against the rate of a key.
    pub async fn still_allow_reads(&self, engine: &Engine, headers: &HeaderMap) -> bool {
        let caller = self.check(engine, headers, KeyCharge::Nothing).await;
        caller.is_ok_and(|caller| caller.refusal(AdminRight::Read).is_none())
    }

    /// `X-Admin-Token` first; a wrong one is final. Then Basic credentials, then an API key.
    async fn check(
        &self,
        engine: &Engine,
        headers: &HeaderMap,
        charge: KeyCharge,
    ) -> Result<AdminCaller, Reject> {
        let matches = |secret: &Option<SecretDigest>, given: &str| {
            secret.as_ref().is_some_and(|secret| secret.matches(given))
        };
        if let Some(token) = headers.get(ADMIN_TOKEN) {
            let fits = token
                .to_str()
                .is_ok_and(|token| matches(&self.admin_secret, token));
            if fits {
                return Ok(AdminCaller::new(AdminRole::Admin, AdminActor::Token));
            }
            if !plant::on(Plant::AdminFallback) {
                let token = token.to_str().unwrap_or_default();
                return Err(Reject::wrong_admin_token(token));
            }
        }
        if headers.contains_key(AUTHORIZATION) {
            let wrong = || Reject::admin_challenge().of_wrong_credential();
            let basic = credentials::basic(headers).ok_or_else(wrong)?;
            let role = if basic.user == ADMIN_USER {
                matches(&self.dashboard_password, &basic.password).then_some(AdminRole::Admin)
            } else {
                engine.sign_in(&basic.user, &basic.password).await?
            };
            let role = role.ok_or_else(wrong)?;
            return Ok(AdminCaller::new(role, AdminActor::User(basic.user)));
        }
        match headers.get(API_KEY).map(HeaderValue::to_str) {
            Some(Ok(key)) => by_key(engine, key, charge).await,
            Some(Err(_)) | None => Err(Reject::admin_challenge()),
        }
    }
}

/// What a check charges to the rate of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyCharge {
    Request,
    Nothing,
}

/// Most keys have no scope of operators; for the routes of operators such a key is like none.
async fn by_key(engine: &Engine, key: &str, charge: KeyCharge) -> Result<AdminCaller, Reject> {
    let caller = match engine.authenticate(key).await? {
        Authenticated::Caller(caller) => caller,
        Authenticated::Expired(end) => return Err(Reject::expired_key(end)),
        Authenticated::Unknown => return Err(Reject::admin_challenge().of_wrong_credential()),
    };
    let role = if caller.may(KeyScope::Admin) {
        AdminRole::Admin
    } else if caller.may(KeyScope::AdminRead) {
        AdminRole::Viewer
    } else {
        return Err(Reject::admin_challenge());
    };
    if charge == KeyCharge::Request {
        let passed = engine.pass(caller.gate(None, 1)).await;
        passed.map_err(|error| {
            if let Error::Refused(Refusal::RateLimited { retry_after_s }) = &error {
                Reject::rate_limited(&caller, *retry_after_s)
            } else {
                error.into()
            }
        })?;
    }
    Ok(AdminCaller::new(
        role,
        AdminActor::Key(caller.id().to_owned()),
    ))
}
