//! Reads files of other programs: here, one of the original Intent Bus. The meaning of the rows is decided elsewhere.
//!
//! Invariant: a row with an unreadable cell is returned as such, and never hides other rows.

mod beam;
mod beam_rows;
mod cells;

use std::path::Path;

use rusqlite::{Connection, Row};

use super::schema::{self, FileKind};
use crate::Error;
use cells::ForeignCells;

pub use beam::{BeamFile, BeamFileNumbers, BeamFileRows, ForeignCursor, ForeignPage};
pub use beam_rows::{
    ForeignAclRule, ForeignAgent, ForeignAgentKey, ForeignBeamIntent, ForeignDelegation,
    ForeignMessage, ForeignPeer, ForeignTraceEvent,
};

#[derive(Debug)]
pub struct IntentBusFile {
    connection: Connection,
}

/// The number of rows in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignRows {
    pub intents: u64,
    pub dead_letters: u64,
    pub tester_keys: u64,
    pub kv_entries: u64,
    pub idempotency_keys: u64,
    pub nonces: u64,
}

/// A row with a cell whose value does not fit its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    pub rowid: i64,
    /// Only for intents: the ids of other tables are secret keys.
    pub id: Option<String>,
    /// Which cell, and what is wrong with it.
    pub reason: String,
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
    /// Opens the file read-only. It must not be in use: its log, if any, is read too.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unfit = |reason: &str| Error::Open {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        match schema::identify(path)? {
            FileKind::IntentBus => {}
            FileKind::Nothing => return Err(unfit("there is no such file, or it is empty")),
            FileKind::Consign => return Err(unfit("it is a ledger of consign already")),
            FileKind::OtherDatabase => return Err(unfit("it is not a database of the Intent Bus")),
        }
        // Without a log the file can be read without creating side files.
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

    /// Intents in stored order, starting at a row id; ids may be negative.
    pub fn intents(
        &self,
        from: i64,
        limit: u32,
    ) -> Result<Vec<Result<ForeignIntent, UnreadableRow>>, Error> {
        let sql = "SELECT rowid, id, namespace, goal, payload, status, priority, target_worker, required_capability, \
                   created_at, expires_at, run_at, claimed_at, claim_expires_at, claimed_by, claim_token, publisher, \
                   claim_attempts, max_attempts, backoff_base, visibility, last_error, failed_at, result, result_type, \
                   completed_at FROM intents WHERE rowid >= ?1 ORDER BY rowid LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map((from, limit), |row| {
            let rowid = row.get("rowid")?;
            let unreadable = |reason| UnreadableRow {
                rowid,
                id: ForeignCells(row).text("id").ok(),
                reason,
            };
            Ok(foreign_intent(rowid, &ForeignCells(row)).map_err(unreadable))
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Why and when the original marked an intent as dead, by intent id.
    pub fn dead_reason(&self, intent_id: &str) -> Result<Option<(String, Option<f64>)>, Error> {
        let sql = "SELECT reason, created_at FROM dead_letters WHERE intent_id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query([intent_id])?;
        let Some(row) = found.next()? else {
            return Ok(None);
        };
        let cells = ForeignCells(row);
        // Worth a warning, but no reason to skip the intent.
        let reason = match cells.text_or_null("reason") {
            Ok(reason) => reason.unwrap_or_default(),
            Err(reason) => format!("dead letter: {reason}"),
        };
        Ok(Some((
            reason,
            cells.real_or_null("created_at").ok().flatten(),
        )))
    }

    pub fn keys(&self) -> Result<Vec<Result<ForeignKey, UnreadableRow>>, Error> {
        self.all(
            "SELECT rowid, api_key, owner, total_requests, created_at FROM tester_keys ORDER BY api_key",
            |cells| {
                let requests = cells.integer_or_null("total_requests")?.unwrap_or(0);
                Ok(ForeignKey {
                    api_key: cells.text("api_key")?,
                    owner: cells.text_or_null("owner")?.unwrap_or_default(),
                    total_requests: u64::try_from(requests).unwrap_or(0),
                    created_at: cells.real_or_null("created_at")?.unwrap_or(0.0),
                })
            },
        )
    }

    pub fn kv(&self) -> Result<Vec<Result<ForeignKv, UnreadableRow>>, Error> {
        self.all(
            "SELECT rowid, key, value, expires_at FROM store ORDER BY key",
            |cells| {
                Ok(ForeignKv {
                    key: cells.text("key")?,
                    value: cells.text("value")?,
                    expires_at: cells.real("expires_at")?,
                })
            },
        )
    }

    fn all<T>(
        &self,
        sql: &str,
        read: impl Fn(&ForeignCells<'_>) -> Result<T, String>,
    ) -> Result<Vec<Result<T, UnreadableRow>>, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map([], |row: &Row<'_>| {
            let rowid = row.get("rowid")?;
            Ok(read(&ForeignCells(row)).map_err(|reason| UnreadableRow {
                rowid,
                id: None,
                reason,
            }))
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}

fn foreign_intent(rowid: i64, cells: &ForeignCells<'_>) -> Result<ForeignIntent, String> {
    Ok(ForeignIntent {
        rowid,
        id: cells.text("id")?,
        namespace: cells.text("namespace")?,
        goal: cells.text("goal")?,
        payload: cells.text("payload")?,
        status: cells.text("status")?,
        priority: cells.integer("priority")?,
        target_worker: cells.text_or_null("target_worker")?,
        required_capability: cells.text_or_null("required_capability")?,
        created_at: cells.real("created_at")?,
        expires_at: cells.real("expires_at")?,
        run_at: cells.real("run_at")?,
        claimed_at: cells.real_or_null("claimed_at")?,
        claim_expires_at: cells.real_or_null("claim_expires_at")?,
        claimed_by: cells.text_or_null("claimed_by")?,
        claim_token: cells.text_or_null("claim_token")?,
        publisher: cells.text("publisher")?,
        claim_attempts: cells.integer("claim_attempts")?,
        max_attempts: cells.integer("max_attempts")?,
        backoff_base: cells.real("backoff_base")?,
        visibility: cells.text("visibility")?,
        last_error: cells.text_or_null("last_error")?,
        failed_at: cells.real_or_null("failed_at")?,
        result: cells.text_or_null("result")?,
        result_type: cells.text_or_null("result_type")?,
        completed_at: cells.real_or_null("completed_at")?,
    })
}
