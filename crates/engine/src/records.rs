//! Records as typed values: load, change, and commit on the version that was read.
//!
//! Invariant: [`TRIES_MAX`] is the one bound on repetitions after a concurrent change, and
//! [`Refusal::VersionMismatch`] is the one error when it is reached.

use consign_kernel::error::Refusal;
use consign_kernel::ids::Micros;
use consign_kernel::record::{Key, Put, Record};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::unit_of_work::UnitOfWork;
use crate::{Engine, Error};

/// How often a change is repeated after a version mismatch.
pub const TRIES_MAX: u32 = 64;

/// A record with the version that was read; version zero for a new record.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    pub key: Key,
    pub version: u64,
    pub value: T,
    pub expires_at: Option<Micros>,
}

impl<T> Versioned<T> {
    /// A record that does not exist yet.
    pub const fn new(key: Key, value: T) -> Self {
        Self {
            key,
            version: 0,
            value,
            expires_at: None,
        }
    }
}

impl<T: DeserializeOwned> Versioned<T> {
    pub fn read(record: Record) -> Result<Self, Error> {
        let Record { key, version, .. } = record;
        let value = serde_json::from_str(&record.value).map_err(|error| {
            let (kind, Key { owner, name, .. }) = (key.kind.name(), &key);
            Error::Internal(format!(
                "record {kind}/{owner}/{name} cannot be read: {error}"
            ))
        })?;
        Ok(Self {
            key,
            version,
            value,
            expires_at: record.expires_at,
        })
    }
}

impl<T: Serialize> Versioned<T> {
    /// A write that is refused if the record was changed since it was read.
    pub fn put(&self) -> Put {
        Put {
            expires_at: self.expires_at,
            expect: Some(self.version),
            ..new_put(self.key.clone(), &self.value)
        }
    }
}

/// A write without expiry and without an expected version.
pub fn new_put(key: Key, value: &impl Serialize) -> Put {
    Put {
        key,
        value: serialised(value),
        expires_at: None,
        expect: None,
    }
}

fn serialised(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records have string keys only")
}

impl Engine {
    pub async fn load<T: DeserializeOwned>(&self, key: Key) -> Result<Option<Versioned<T>>, Error> {
        let found = self.record(key).await?;
        found.map(Versioned::read).transpose()
    }

    /// The record, or a new one with the default value.
    pub async fn load_or_default<T: DeserializeOwned + Default>(
        &self,
        key: Key,
    ) -> Result<Versioned<T>, Error> {
        let found = self.load(key.clone()).await?;
        Ok(found.unwrap_or_else(|| Versioned::new(key, T::default())))
    }

    /// Changes a record: load, change, commit on its version, and all of it again after a version mismatch. A missing
    /// record has the default value; use an `Option` to tell the two apart. A value that stays the same is not
    /// written.
    pub async fn update<T, R, E>(
        &self,
        key: Key,
        mut change: impl FnMut(&mut T) -> Result<R, E>,
    ) -> Result<R, E>
    where
        T: Serialize + DeserializeOwned + Default,
        E: From<Error>,
    {
        self.update_with(key, |record, _| change(&mut record.value))
            .await
    }

    /// Like [`Engine::update`], with further steps in the same commit.
    pub async fn update_with<T, R, E>(
        &self,
        key: Key,
        mut change: impl FnMut(&mut Versioned<T>, &mut UnitOfWork) -> Result<R, E>,
    ) -> Result<R, E>
    where
        T: Serialize + DeserializeOwned + Default,
        E: From<Error>,
    {
        for _ in 0..TRIES_MAX {
            let mut record = self.load_or_default(key.clone()).await?;
            let before = serialised(&record.value);
            let mut unit = UnitOfWork::default();
            let result = change(&mut record, &mut unit)?;
            if unit.is_empty() && serialised(&record.value) == before {
                return Ok(result);
            }
            unit.replace(&record);
            match self.commit(unit).await {
                Ok(_) => return Ok(result),
                Err(Error::Refused(Refusal::VersionMismatch)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }
}
