//! Users: people who sign in with a name and a password to the routes of operators.
//!
//! Invariant: a password is stored as its Argon2id hash. The check of a name that no user has takes as long as that of a
//! wrong password, and only a few checks run at a time, so that guesses cannot use up memory and processor time.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use argon2::{Algorithm, Argon2, Params, Version};
use consign_kernel::error::Refusal;
use consign_kernel::ids::Micros;
use consign_kernel::record::{Key, Kind};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::records::{TRIES_MAX, Versioned};
use crate::unit_of_work::UnitOfWork;
use crate::{Engine, Error, Operator};

/// The minimum length of a chosen password.
pub const PASSWORD_CHARS_MIN: usize = 12;
const NAME_CHARS_MAX: usize = 64;
/// The user of the dashboard password, who has no record.
const RESERVED_NAME: &str = "admin";

/// The first recommendation of OWASP for Argon2id: 19 MiB and two passes.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;
const HASH_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
const CHECKS_MAX: usize = 2;
/// Remembered successful checks.
const CHECKED_MAX: usize = 64;
const PAGE: u32 = 500;

/// What somebody may do on the routes of operators. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// Reads everything but the tokens of claims.
    Viewer,
    /// Retries, cancels, deletes and cleans up.
    Operator,
    /// Manages keys, users and everything else.
    Admin,
}

impl AdminRole {
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The value of a record of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct UserRecord {
    role: AdminRole,
    password: PasswordHash,
    created_at: i64,
    changed_at: i64,
}

#[derive(Clone, Serialize, Deserialize)]
struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    /// Hex.
    salt: String,
    hash: String,
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// A user, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    pub role: AdminRole,
    pub created_at: Micros,
    /// When role or password were set last.
    pub changed_at: Micros,
}

/// Bounds the checks that run, and remembers those that succeeded: a page of the dashboard sends the password with each of its
/// requests.
#[derive(Debug)]
pub(crate) struct SignIns {
    running: Semaphore,
    /// Marks of name, stored hash and password. A changed password has another hash.
    checked: Mutex<HashSet<String>>,
}

impl Default for SignIns {
    fn default() -> Self {
        Self {
            running: Semaphore::new(CHECKS_MAX),
            checked: Mutex::default(),
        }
    }
}

/// Whether a user can have this name: lower-case letters, digits and `. _ - @`, and not `admin`.
pub fn is_user_name(name: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-@".contains(&byte);
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name != RESERVED_NAME && name.bytes().all(fits)
}

/// A random password.
pub fn new_password() -> Result<String, Error> {
    let mut random = [0_u8; 12];
    getrandom::fill(&mut random).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(format!("cu_{}", HEXLOWER.encode(&random)))
}

fn user_key(name: &str) -> Key {
    Key {
        kind: Kind::User,
        owner: String::new(),
        name: name.to_owned(),
    }
}

impl UserInfo {
    fn new(record: &Versioned<UserRecord>) -> Self {
        Self {
            name: record.key.name.clone(),
            role: record.value.role,
            created_at: Micros(record.value.created_at),
            changed_at: Micros(record.value.changed_at),
        }
    }
}

impl Engine {
    /// Adds a user. `None` if there is one of this name.
    pub async fn add_user(
        &self,
        _: Operator,
        name: &str,
        role: AdminRole,
        password: &str,
    ) -> Result<Option<UserInfo>, Error> {
        let now = self.now().0;
        let record = Versioned::new(
            user_key(name),
            UserRecord {
                role,
                password: self.hash_password(password).await?,
                created_at: now,
                changed_at: now,
            },
        );
        let written = self.put_if_unchanged(record.put()).await?;
        Ok(written.map(|_| UserInfo::new(&record)))
    }

    /// Changes the role or the password of a user. `None` if there is no such user.
    pub async fn change_user(
        &self,
        _: Operator,
        name: &str,
        role: Option<AdminRole>,
        password: Option<&str>,
    ) -> Result<Option<UserInfo>, Error> {
        let hash = match password {
            Some(password) => Some(self.hash_password(password).await?),
            None => None,
        };
        for _ in 0..TRIES_MAX {
            let Some(mut record) = self.load::<UserRecord>(user_key(name)).await? else {
                return Ok(None);
            };
            let user = &mut record.value;
            user.role = role.unwrap_or(user.role);
            if let Some(hash) = &hash {
                user.password = hash.clone();
            }
            user.changed_at = self.now().0;
            if self.put_if_unchanged(record.put()).await?.is_some() {
                return Ok(Some(UserInfo::new(&record)));
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch))
    }

    /// Answers whether there was such a user, who cannot sign in from now on.
    pub async fn remove_user(&self, _: Operator, name: &str) -> Result<bool, Error> {
        let mut unit = UnitOfWork::default();
        let deleted = unit.delete(user_key(name));
        self.commit(unit).await?.get(deleted)
    }

    /// All users, by name.
    pub async fn users(&self, _: Operator) -> Result<Vec<UserInfo>, Error> {
        let mut all: Vec<UserInfo> = Vec::new();
        loop {
            let after = all.last().map(|user| user.name.clone()).unwrap_or_default();
            let page = self.records(Kind::User, "", &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                all.push(UserInfo::new(&Versioned::read(record)?));
            }
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The role of the user with this password, if there is one.
    pub async fn sign_in(&self, name: &str, password: &str) -> Result<Option<AdminRole>, Error> {
        let user = if is_user_name(name) {
            self.load::<UserRecord>(user_key(name)).await?
        } else {
            None
        };
        let Some(user) = user else {
            // As slow as the check of a password.
            self.hash_password(password).await?;
            return Ok(None);
        };
        let stored = user.value.password;
        let mut said = Sha256::new();
        for part in [name, &stored.hash, password] {
            said.update((part.len() as u64).to_be_bytes());
            said.update(part);
        }
        let mark = self.inner.seal.mark(b"sign-in", &said.finalize());
        let sign_ins = &self.inner.sign_ins;
        let is_checked = || {
            let checked = sign_ins.checked.lock();
            checked
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&mark)
        };
        if is_checked() {
            return Ok(Some(user.value.role));
        }
        let expected = HEXLOWER
            .decode(stored.hash.as_bytes())
            .map_err(|_| Error::Internal(format!("the password of user {name} is damaged")))?;
        let hash = self.derive(password, &stored).await?;
        if !bool::from(hash.as_slice().ct_eq(&expected)) {
            return Ok(None);
        }
        let checked = sign_ins.checked.lock();
        let mut checked = checked.unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(mark);
        Ok(Some(user.value.role))
    }

    async fn hash_password(&self, password: &str) -> Result<PasswordHash, Error> {
        let mut salt = [0_u8; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|error| Error::Internal(error.to_string()))?;
        let mut made = PasswordHash {
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: HEXLOWER.encode(&salt),
            hash: String::new(),
        };
        made.hash = HEXLOWER.encode(&self.derive(password, &made).await?);
        Ok(made)
    }

    async fn derive(&self, password: &str, cost: &PasswordHash) -> Result<[u8; HASH_BYTES], Error> {
        let internal = |error: String| Error::Internal(format!("password hash: {error}"));
        let permit = self.inner.sign_ins.running.acquire().await;
        let _permit = permit.map_err(|error| internal(error.to_string()))?;
        let salt = HEXLOWER
            .decode(cost.salt.as_bytes())
            .map_err(|error| internal(error.to_string()))?;
        let params = Params::new(cost.memory_kib, cost.passes, 1, Some(HASH_BYTES))
            .map_err(|error| internal(error.to_string()))?;
        let password = password.to_owned();
        let derived = tokio::task::spawn_blocking(move || {
            let mut hash = [0_u8; HASH_BYTES];
            Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
                .hash_password_into(password.as_bytes(), &salt, &mut hash)
                .map(|()| hash)
                .map_err(|error| error.to_string())
        });
        let derived = derived.await.map_err(|error| internal(error.to_string()))?;
        derived.map_err(internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_is_short_plain_and_not_the_reserved_one() {
        for name in ["ann", "ann.b-c_1", "ann@example.com"] {
            assert!(is_user_name(name), "{name}");
        }
        for name in ["", "admin", "Ann", "a b", "a:b", "é", &"x".repeat(65)] {
            assert!(!is_user_name(name), "{name}");
        }
    }

    #[test]
    fn a_role_includes_those_below_it_and_debug_shows_no_hash() {
        assert!(AdminRole::Viewer < AdminRole::Operator && AdminRole::Operator < AdminRole::Admin);
        for role in AdminRole::ALL {
            assert_eq!(AdminRole::of_name(role.name()), Some(role));
        }
        let hash = PasswordHash {
            memory_kib: 1,
            passes: 1,
            salt: "5a17".to_owned(),
            hash: "4a54".to_owned(),
        };
        assert!(!format!("{hash:?}").contains("4a54"));
    }
}
