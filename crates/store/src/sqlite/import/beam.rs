//! Reads a file of Beam's directory or of its message bus. The meaning of the rows is decided elsewhere.
//!
//! Invariant: the file is checked as a whole before the first row is read, so a damaged file is refused before anything is
//! imported. A row with an unreadable cell is returned as such, and never hides other rows.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Params, params_from_iter};

use super::UnreadableRow;
use super::beam_rows::{
    ForeignAclRule, ForeignAgent, ForeignAgentKey, ForeignBeamIntent, ForeignDelegation,
    ForeignMessage, ForeignPeer, ForeignTable, ForeignTraceEvent,
};
use super::cells::ForeignCells;
use crate::Error;
use crate::sqlite::schema;

/// The keys of one agent, and the trace of one intent, beyond which rows are not read.
const DEPENDENT_ROWS_MAX: u32 = 10_000;

#[derive(Debug)]
pub struct BeamFile {
    connection: Connection,
    /// For each table that is in the file, the columns to select.
    selects: BTreeMap<&'static str, String>,
}

/// The number of rows in a file; zero for a table that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeamFileRows {
    pub agents: u64,
    pub acls: u64,
    pub delegations: u64,
    pub peers: u64,
    pub intents: u64,
    pub messages: u64,
}

/// The highest number of each table with numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeamFileNumbers {
    pub keys: u64,
    pub acls: u64,
    pub delegations: u64,
    pub peers: u64,
}

/// Rows of one read, and where the next read starts; none if there is no row.
#[derive(Debug)]
pub struct ForeignPage<T> {
    pub rows: Vec<Result<T, UnreadableRow>>,
    pub next: Option<ForeignCursor>,
}

/// The last row of a page.
#[derive(Clone, Debug)]
pub struct ForeignCursor {
    key: Value,
    rowid: i64,
}

type PositionedRow<T> = (ForeignCursor, Result<T, UnreadableRow>);

impl BeamFile {
    /// Opens the file read-only. It must not be in use: its log, if any, is read too.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unfit = |reason: String| Error::Open {
            path: path.to_owned(),
            reason,
        };
        if !schema::is_foreign_database(path)? {
            return Err(unfit("it is not a database of Beam".to_owned()));
        }
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        // Without a log the file can be read without creating side files.
        let connection = schema::read_only(path, !Path::new(&log).exists())
            .map_err(|error| unfit(error.to_string()))?;
        let file = Self::checked(connection).map_err(|error| {
            if let Error::Unavailable(reason) | Error::DiskFull(reason) | Error::Corrupt(reason) =
                error
            {
                return unfit(reason);
            }
            error
        })?;
        file.ok_or_else(|| unfit("it is not a database of Beam".to_owned()))
    }

    /// `None` if the file has the tables of neither.
    fn checked(connection: Connection) -> Result<Option<Self>, Error> {
        let state: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if state != "ok" {
            return Err(Error::Corrupt(format!("the file is damaged: {state}")));
        }
        let mut file = Self {
            connection,
            selects: BTreeMap::new(),
        };
        file.find::<ForeignAgent>()?;
        file.find::<ForeignAgentKey>()?;
        file.find::<ForeignAclRule>()?;
        file.find::<ForeignDelegation>()?;
        file.find::<ForeignPeer>()?;
        file.find::<ForeignBeamIntent>()?;
        file.find::<ForeignTraceEvent>()?;
        file.find::<ForeignMessage>()?;
        let has = |table: &str, column: &str| {
            (file.selects.get(table)).is_some_and(|select| select.contains(&quoted(column)))
        };
        let is_directory = has("agents", "beam_id") || has("intent_log", "from_beam_id");
        let is_bus = has("beam_messages", "sender") && has("beam_messages", "recipient");
        if !is_directory && !is_bus {
            return Ok(None);
        }
        // Tables with the names of the other service belong to another program.
        if !is_bus {
            file.selects.remove("beam_messages");
        }
        if !is_directory {
            file.selects.retain(|table, _| *table == "beam_messages");
        }
        if !has_column(&file.connection, "intent_trace_events", "nonce")? {
            file.selects.remove("intent_trace_events");
        }
        file.index_traces()?;
        Ok(Some(file))
    }

    /// Looks a table up and remembers which of its columns exist.
    fn find<T: ForeignTable>(&mut self) -> Result<(), Error> {
        let found = columns(&self.connection, T::NAME)?;
        if found.is_empty() {
            return Ok(());
        }
        let select = T::COLUMNS.iter().map(|column| {
            if found.iter().any(|name| name == column) {
                quoted(column)
            } else {
                format!("NULL AS {column}")
            }
        });
        let select: Vec<String> = select.collect();
        self.selects.insert(T::NAME, select.join(", "));
        Ok(())
    }

    /// Early versions have no index on the nonce of a trace. A temporary one keeps the import of a large file linear.
    fn index_traces(&self) -> Result<(), Error> {
        if !self.selects.contains_key("intent_trace_events") {
            return Ok(());
        }
        let indexed: i64 = self.connection.query_row(
            "SELECT count(*) FROM pragma_index_list('intent_trace_events') AS list, \
             pragma_index_info(list.name) AS part WHERE part.seqno = 0 AND part.name = 'nonce'",
            [],
            |row| row.get(0),
        )?;
        if indexed > 0 {
            return Ok(());
        }
        // The connection stays read-only for the file itself.
        self.connection.pragma_update(None, "query_only", false)?;
        self.connection.execute_batch(
            "CREATE TEMP TABLE trace_rows AS SELECT nonce, rowid AS event FROM main.intent_trace_events; \
             CREATE INDEX temp.trace_rows_nonce ON trace_rows (nonce, event);",
        )?;
        self.connection.pragma_update(None, "query_only", true)?;
        Ok(())
    }

    pub fn rows(&self) -> Result<BeamFileRows, Error> {
        Ok(BeamFileRows {
            agents: self.count("agents")?,
            acls: self.count("intent_acls")?,
            delegations: self.count("delegations")?,
            peers: self.count("federation_peers")?,
            intents: self.count("intent_log")?,
            messages: self.count("beam_messages")?,
        })
    }

    pub fn numbers(&self) -> Result<BeamFileNumbers, Error> {
        Ok(BeamFileNumbers {
            keys: self.number("agent_keys")?,
            acls: self.number("intent_acls")?,
            delegations: self.number("delegations")?,
            peers: self.number("federation_peers")?,
        })
    }

    pub fn agents(
        &self,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<ForeignAgent>, Error> {
        self.page("rowid", after, limit)
    }

    /// The keys of an agent, in the order of their numbers.
    pub fn agent_keys(
        &self,
        beam_id: &str,
    ) -> Result<Vec<Result<ForeignAgentKey, UnreadableRow>>, Error> {
        let tail = "WHERE beam_id = ?1 ORDER BY id LIMIT ?2";
        let rows = self.read(tail, (beam_id, DEPENDENT_ROWS_MAX))?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    pub fn acls(
        &self,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<ForeignAclRule>, Error> {
        self.page("rowid", after, limit)
    }

    pub fn delegations(
        &self,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<ForeignDelegation>, Error> {
        self.page("rowid", after, limit)
    }

    pub fn peers(
        &self,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<ForeignPeer>, Error> {
        self.page("rowid", after, limit)
    }

    pub fn intents(
        &self,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<ForeignBeamIntent>, Error> {
        self.page("rowid", after, limit)
    }

    /// The trace of an intent, in the order in which it was written.
    pub fn trace(
        &self,
        nonce: &str,
    ) -> Result<Vec<Result<ForeignTraceEvent, UnreadableRow>>, Error> {
        let is_indexed = self.connection.table_exists(Some("temp"), "trace_rows")?;
        let tail = if is_indexed {
            "WHERE rowid IN (SELECT event FROM temp.trace_rows WHERE nonce = ?1) ORDER BY rowid LIMIT ?2"
        } else {
            "WHERE nonce = ?1 ORDER BY rowid LIMIT ?2"
        };
        let rows = self.read(tail, (nonce, DEPENDENT_ROWS_MAX))?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Messages in the order of their creation.
    pub fn messages(
        &self,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<ForeignMessage>, Error> {
        self.page("created_at", after, limit)
    }

    fn page<T: ForeignTable>(
        &self,
        key: &str,
        after: Option<&ForeignCursor>,
        limit: u32,
    ) -> Result<ForeignPage<T>, Error> {
        let order = if key == "rowid" {
            "rowid"
        } else {
            "created_at, rowid"
        };
        let limit = Value::Integer(limit.into());
        let found = match after {
            None => self.read::<T>(
                &format!("ORDER BY {order} LIMIT ?1"),
                params_from_iter([limit]),
            )?,
            Some(after) if key == "rowid" => self.read::<T>(
                "WHERE rowid > ?1 ORDER BY rowid LIMIT ?2",
                params_from_iter([Value::Integer(after.rowid), limit]),
            )?,
            Some(after) => self.read::<T>(
                &format!("WHERE ({order}) > (?1, ?2) ORDER BY {order} LIMIT ?3"),
                params_from_iter([after.key.clone(), Value::Integer(after.rowid), limit]),
            )?,
        };
        let next = found.last().map(|(cursor, _)| cursor.clone());
        let rows = found.into_iter().map(|(_, row)| row).collect();
        Ok(ForeignPage { rows, next })
    }

    /// Rows of a table with their positions; none if the file does not have the table.
    fn read<T: ForeignTable>(
        &self,
        tail: &str,
        given: impl Params,
    ) -> Result<Vec<PositionedRow<T>>, Error> {
        let Some(select) = self.selects.get(T::NAME) else {
            return Ok(Vec::new());
        };
        let created = if T::COLUMNS.contains(&"created_at") {
            "created_at"
        } else {
            "NULL"
        };
        let sql = format!(
            "SELECT rowid AS position, {created} AS position_key, {select} FROM main.{} {tail}",
            T::NAME
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_map(given, |row| {
            let rowid = row.get("position")?;
            let cursor = ForeignCursor {
                key: row.get("position_key")?,
                rowid,
            };
            let cells = ForeignCells(row);
            let read = T::read(&cells).map_err(|reason| UnreadableRow {
                rowid,
                id: None,
                reason,
            });
            Ok((cursor, read))
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn count(&self, table: &str) -> Result<u64, Error> {
        self.single(table, "count(*)")
    }

    fn number(&self, table: &str) -> Result<u64, Error> {
        self.single(table, "max(id)")
    }

    fn single(&self, table: &str, expression: &str) -> Result<u64, Error> {
        if !self.selects.contains_key(table) {
            return Ok(0);
        }
        let sql = format!("SELECT {expression} FROM main.{table}");
        let found: Value = self.connection.query_row(&sql, [], |row| row.get(0))?;
        Ok(match found {
            Value::Integer(found) => u64::try_from(found).unwrap_or(0),
            Value::Null | Value::Real(_) | Value::Text(_) | Value::Blob(_) => 0,
        })
    }
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let found = statement.query_map([table], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn has_column(connection: &Connection, table: &str, column: &str) -> Result<bool, Error> {
    Ok(columns(connection, table)?
        .iter()
        .any(|name| name == column))
}

/// In the list of selected columns, where an absent one has no quotes.
fn quoted(column: &str) -> String {
    format!("\"{column}\"")
}
