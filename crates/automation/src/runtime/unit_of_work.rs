//! A unit of work: collects record versions to expect, records to write and jobs to queue, for one commit.
//!
//! Ordering: steps that can be refused come first, so all of it happens or nothing.

use consign_engine::{Engine, Error};
use consign_kernel::command::Command;
use consign_kernel::ids::Micros;
use consign_kernel::record::{Key, Put};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::job::Job;

/// How often a commit is retried after a version conflict.
pub(super) const TRIES_MAX: u32 = 50;

/// A record with the version that was read; version 0 if it does not exist yet.
pub(super) struct Versioned<T> {
    pub(super) key: Key,
    pub(super) version: u64,
    pub(super) value: T,
}

#[derive(Default)]
pub(super) struct UnitOfWork {
    pub(super) expects: Vec<Command>,
    /// Commands that settle something together with the job and can be refused.
    pub(super) coupled: Vec<Command>,
    pub(super) puts: Vec<Command>,
    pub(super) jobs: Vec<Job>,
}

impl UnitOfWork {
    pub(super) fn put<T: Serialize>(&mut self, key: Key, value: &T, expires_at: Option<Micros>) {
        self.puts
            .push(Command::Put(record_put(key, value, expires_at, None)));
    }

    /// Writes a record if it still has the version that was read.
    pub(super) fn replace<T: Serialize>(&mut self, record: &Versioned<T>) {
        self.expects
            .push(Command::Expect(record.key.clone(), record.version));
        self.put(record.key.clone(), &record.value, None);
    }

    /// The commands in order: expectations, coupled commands, `refusable`, then writes.
    pub(super) fn steps(self, refusable: impl IntoIterator<Item = Command>) -> Vec<Command> {
        let mut steps = self.expects;
        steps.extend(self.coupled);
        steps.extend(refusable);
        steps.extend(self.puts);
        steps
    }
}

pub(super) fn record_put<T: Serialize>(
    key: Key,
    value: &T,
    expires_at: Option<Micros>,
    expect: Option<u64>,
) -> Put {
    Put {
        key,
        value: serde_json::to_string(value).expect("texts and JSON values always serialise"),
        expires_at,
        expect,
    }
}

pub(super) async fn get_record_or_default<T: DeserializeOwned + Default>(
    engine: &Engine,
    key: Key,
) -> Result<Versioned<T>, Error> {
    let found = get_record(engine, key.clone()).await?;
    Ok(found.unwrap_or(Versioned {
        key,
        version: 0,
        value: T::default(),
    }))
}

pub(super) async fn get_record<T: DeserializeOwned>(
    engine: &Engine,
    key: Key,
) -> Result<Option<Versioned<T>>, Error> {
    let Some(record) = engine.record(key.clone()).await? else {
        return Ok(None);
    };
    let value = serde_json::from_str(&record.value).map_err(|error| {
        Error::Internal(format!(
            "record {}/{} cannot be read: {error}",
            key.owner, key.name
        ))
    })?;
    Ok(Some(Versioned {
        key,
        version: record.version,
        value,
    }))
}
