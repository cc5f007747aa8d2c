//! Logins and sessions of operators.
//!
//! An operator is an e-mail address with a role in the settings. A login token is valid once; a session is a signed token
//! with a record on the ledger.
//!
//! Invariant: only digests of login tokens are stored. A session without its record is over, so a logout takes effect on
//! every node, and a role that was taken away in the settings is gone at the next request.

mod roles;
mod token;

use consign_engine::{Error, UnitOfWork};
use consign_kernel::command::Forget;
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::SECOND_US;
use consign_kernel::record::{Key, Kind};
use consign_web::secret_text::SecretText;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::api_key;
use crate::directory::records::named;
use crate::problem::BeamProblem;
use crate::service::Beam;
pub use roles::Role;
use token::SessionClaims;

const LOGIN_SECONDS: i64 = 15 * 60;
pub const SESSION_SECONDS: i64 = 168 * 60 * 60;
/// The longest address that mail can have.
const EMAIL_BYTES_MAX: usize = 254;
/// A login token is 64 characters long.
const LOGIN_TOKEN_BYTES_MAX: usize = 128;

/// Records of one commit of the cleanup.
const FORGET_ROWS: u32 = 500;

/// A session that is valid now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSession {
    pub id: String,
    pub email: String,
    pub role: Role,
    /// Milliseconds of the wall clock.
    pub expires_at_ms: i64,
}

/// An answer to a request for a login.
#[derive(Debug)]
pub(crate) struct OfferedLogin {
    pub(crate) email: String,
    pub(crate) role: Role,
    pub(crate) expires_at_ms: i64,
    /// Only for a requester that may see it.
    pub(crate) token: Option<SecretText>,
}

/// A session that has just begun.
#[derive(Debug)]
pub(crate) struct BegunSession {
    pub(crate) session: OperatorSession,
    pub(crate) token: SecretText,
}

/// The value of a login record, under the digest of its token.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LoginRecord {
    email: String,
}

/// The value of a session record, under the id of the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SessionRecord {
    email: String,
}

impl Beam {
    /// Offers a login to an operator. No mail is sent: if the requester may not see the token, nobody could use it, so
    /// none is made and nothing is stored. `None` for an address without a role.
    pub(crate) async fn offer_login(
        &self,
        email: &str,
        shows_token: bool,
    ) -> Result<Option<OfferedLogin>, BeamProblem> {
        self.settings().roles.require_any()?;
        let email = email.trim().to_lowercase();
        if !email.contains('@') || email.len() > EMAIL_BYTES_MAX {
            return Err(BeamProblem::new(Code::InvalidEmail, "Valid email required"));
        }
        let Some(role) = self.settings().roles.of(&email) else {
            return Ok(None);
        };
        let mut offered = OfferedLogin {
            email,
            role,
            expires_at_ms: self.now_ms() + LOGIN_SECONDS * 1_000,
            token: None,
        };
        if shows_token {
            let token = self.random_token();
            let record = LoginRecord {
                email: offered.email.clone(),
            };
            let mut unit = UnitOfWork::default();
            let until = self.engine().now().plus(LOGIN_SECONDS * SECOND_US);
            unit.put_until(login_key(token.reveal()), &record, until);
            self.engine().commit(unit).await?;
            offered.token = Some(token);
        }
        Ok(Some(offered))
    }

    /// Uses a login token up and begins a session, in one commit.
    pub(crate) async fn begin_session(&self, token: &str) -> Result<BegunSession, BeamProblem> {
        self.settings().roles.require_any()?;
        let invalid = || BeamProblem::new(Code::InvalidToken, "Invalid or expired token");
        let token = token.trim();
        if token.is_empty() || token.len() > LOGIN_TOKEN_BYTES_MAX {
            return Err(invalid());
        }
        let login = self
            .engine()
            .load::<LoginRecord>(login_key(token))
            .await?
            .ok_or_else(invalid)?;
        let email = login.value.email.clone();
        let role = self.settings().roles.of(&email).ok_or_else(invalid)?;
        let session = OperatorSession {
            id: HEXLOWER.encode(&self.engine().entropy().draw().to_be_bytes()),
            email: email.clone(),
            role,
            expires_at_ms: self.now_ms() + SESSION_SECONDS * 1_000,
        };
        let mut unit = UnitOfWork::default();
        unit.expect_unchanged(&login);
        unit.delete(login.key);
        let until = self.engine().now().plus(SESSION_SECONDS * SECOND_US);
        unit.put_until(session_key(&session.id), &SessionRecord { email }, until);
        match self.engine().commit(unit).await {
            Ok(_) => {}
            // Another request used the token.
            Err(Error::Refused(Refusal::VersionMismatch)) => return Err(invalid()),
            Err(error) => return Err(error.into()),
        }
        let claims = SessionClaims::of(&session);
        let token = claims.sign(&self.settings().session_secret);
        Ok(BegunSession { session, token })
    }

    /// The session of a token; `None` if there is none. Its role is the lower one of the token and the settings.
    pub(crate) async fn session_of(
        &self,
        token: &str,
    ) -> Result<Option<OperatorSession>, BeamProblem> {
        let Some(claims) = SessionClaims::verify(token, &self.settings().session_secret) else {
            return Ok(None);
        };
        let Some(role) = self.settings().roles.of(&claims.email) else {
            return Ok(None);
        };
        if claims.exp <= self.now_ms() {
            return Ok(None);
        }
        let record = self
            .engine()
            .load::<SessionRecord>(session_key(&claims.sid))
            .await?;
        Ok(record
            .filter(|record| record.value.email == claims.email)
            .map(|_| OperatorSession {
                role: role.min(claims.role),
                id: claims.sid,
                email: claims.email,
                expires_at_ms: claims.exp,
            }))
    }

    pub(crate) async fn end_session(&self, session: &OperatorSession) -> Result<(), BeamProblem> {
        let mut unit = UnitOfWork::default();
        unit.delete(session_key(&session.id));
        self.engine().commit(unit).await?;
        Ok(())
    }

    /// Removes logins and sessions that expired, in pieces.
    pub async fn forget_expired_sessions(&self) -> Result<u64, Error> {
        let mut forgotten = 0;
        for kind in [Kind::BeamLogin, Kind::BeamSession] {
            loop {
                let piece = Forget::Records {
                    kind,
                    ahead_us: 0,
                    limit: FORGET_ROWS,
                };
                let count = self.engine().forget_piece(piece).await?;
                forgotten += count;
                if count < u64::from(FORGET_ROWS) {
                    break;
                }
            }
        }
        Ok(forgotten)
    }

    fn random_token(&self) -> SecretText {
        let mut entropy = self.engine().entropy();
        let halves = [entropy.draw().to_be_bytes(), entropy.draw().to_be_bytes()];
        SecretText::new(HEXLOWER.encode(halves.as_flattened()))
    }
}

fn login_key(token: &str) -> Key {
    named(Kind::BeamLogin, &api_key::digest(token))
}

fn session_key(id: &str) -> Key {
    named(Kind::BeamSession, id)
}
