//! Reading a file of the original Intent Bus. Read only; what to make of the rows is decided elsewhere.

use std::path::Path;

use rusqlite::{Connection, Row};

use super::schema::{self, Holds};
use crate::Error;

#[derive(Debug)]
pub struct IntentBusFile {
    connection: Connection,
}

/// How much a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignRows {
    pub intents: u64,
    pub dead_letters: u64,
    pub tester_keys: u64,
    pub kv_entries: u64,
    pub idempotency_keys: u64,
    pub nonces: u64,
}

/// One row of the original's `intents`, as stored. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignIntent {
    pub rowid: i64,
    pub id: String,
    pub namespace: String,
    pub goal: String,
    pub payload: String,
    pub status: String,
    pub priority: i64,
    pub target_worker: Option<String>,
    pub required_capability: Option<String>,
    pub created_at: f64,
    pub expires_at: f64,
    pub run_at: f64,
    pub claimed_at: Option<f64>,
    pub claim_expires_at: Option<f64>,
    pub claimed_by: Option<String>,
    pub claim_token: Option<String>,
    pub publisher: String,
    pub claim_attempts: i64,
    pub max_attempts: i64,
    pub backoff_base: f64,
    pub visibility: String,
    pub last_error: Option<String>,
    pub failed_at: Option<f64>,
    pub result: Option<String>,
    pub result_type: Option<String>,
    pub completed_at: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ForeignKey {
    pub api_key: String,
    pub owner: String,
    pub total_requests: u64,
    pub created_at: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ForeignKv {
    /// `apikey:key`.
    pub key: String,
    pub value: String,
    pub expires_at: f64,
}

impl IntentBusFile {
    /// Opens the file as it lies there. It must not be in use: its log, if any, is read with it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unfit = |reason: &str| Error::Open {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        match schema::identify(path)? {
            Holds::IntentBus => {}
            Holds::Nothing => return Err(unfit("there is no such file, or it is empty")),
            Holds::Consign => return Err(unfit("it is a ledger of consign already")),
            Holds::OtherDatabase => return Err(unfit("it is not a database of the Intent Bus")),
        }
        // Without a log the file can be read without leaving side files next to it.
        let log = path.with_file_name(format!(
            "{}-wal",
            path.file_name().unwrap_or_default().to_string_lossy()
        ));
        let connection = schema::read_only(path, !log.exists())?;
        Ok(Self { connection })
    }

    pub fn rows(&self) -> Result<ForeignRows, Error> {
        Ok(ForeignRows {
            intents: self.count("SELECT count(*) FROM intents")?,
            dead_letters: self.count("SELECT count(*) FROM dead_letters")?,
            tester_keys: self.count("SELECT count(*) FROM tester_keys")?,
            kv_entries: self.count("SELECT count(*) FROM store")?,
            idempotency_keys: self.count("SELECT count(*) FROM idempotency_keys")?,
            nonces: self.count("SELECT count(*) FROM request_nonces")?,
        })
    }

    fn count(&self, sql: &str) -> Result<u64, Error> {
        let count: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Intents in stored order, after a row id.
    pub fn intents(&self, after: i64, limit: u32) -> Result<Vec<ForeignIntent>, Error> {
        let sql = "SELECT rowid, id, namespace, goal, payload, status, priority, target_worker, required_capability, \
                   created_at, expires_at, run_at, claimed_at, claim_expires_at, claimed_by, claim_token, publisher, \
                   claim_attempts, max_attempts, backoff_base, visibility, last_error, failed_at, result, result_type, \
                   completed_at FROM intents WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map((after, limit), foreign_intent)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Why the original put an intent aside, by intent id.
    pub fn dead_reason(&self, intent_id: &str) -> Result<Option<(String, f64)>, Error> {
        let sql = "SELECT reason, created_at FROM dead_letters WHERE intent_id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query([intent_id])?;
        match found.next()? {
            Some(row) => Ok(Some((
                row.get::<_, Option<String>>(0)?.unwrap_or_default(),
                row.get(1)?,
            ))),
            None => Ok(None),
        }
    }

    pub fn keys(&self) -> Result<Vec<ForeignKey>, Error> {
        let sql =
            "SELECT api_key, owner, total_requests, created_at FROM tester_keys ORDER BY api_key";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map([], |row| {
            Ok(ForeignKey {
                api_key: row.get(0)?,
                owner: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
                total_requests: u64::try_from(row.get::<_, Option<i64>>(2)?.unwrap_or(0))
                    .unwrap_or(0),
                created_at: row.get::<_, Option<f64>>(3)?.unwrap_or(0.0),
            })
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    pub fn kv(&self) -> Result<Vec<ForeignKv>, Error> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT key, value, expires_at FROM store ORDER BY key")?;
        let found = statement.query_map([], |row| {
            Ok(ForeignKv {
                key: row.get(0)?,
                value: row.get(1)?,
                expires_at: row.get(2)?,
            })
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}

fn foreign_intent(row: &Row<'_>) -> rusqlite::Result<ForeignIntent> {
    Ok(ForeignIntent {
        rowid: row.get(0)?,
        id: row.get(1)?,
        namespace: row.get(2)?,
        goal: row.get(3)?,
        payload: row.get(4)?,
        status: row.get(5)?,
        priority: row.get(6)?,
        target_worker: row.get(7)?,
        required_capability: row.get(8)?,
        created_at: row.get(9)?,
        expires_at: row.get(10)?,
        run_at: row.get(11)?,
        claimed_at: row.get(12)?,
        claim_expires_at: row.get(13)?,
        claimed_by: row.get(14)?,
        claim_token: row.get(15)?,
        publisher: row.get(16)?,
        claim_attempts: row.get(17)?,
        max_attempts: row.get(18)?,
        backoff_base: row.get(19)?,
        visibility: row.get(20)?,
        last_error: row.get(21)?,
        failed_at: row.get(22)?,
        result: row.get(23)?,
        result_type: row.get(24)?,
        completed_at: row.get(25)?,
    })
}
