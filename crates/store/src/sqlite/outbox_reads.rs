//! Reads of the table `outbox`: what a daemon shows of its messages, in the words of the mesh protocol.
//!
//! Bodies are not read: a page of them would be many megabytes, and the ledger has them.

use consign_kernel::profile::Face;
use consign_kernel::state::State;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::Sqlite;
use super::rows::unsigned;
use crate::Error;

/// A row of the table without its body. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxTableRow {
    pub id: String,
    pub client_message_id: String,
    pub request_fingerprint: Vec<u8>,
    pub enqueued_at: i64,
    pub attempts: u32,
    pub next_attempt_at: i64,
    /// A word of the profile.
    pub status: String,
    pub last_error: Option<String>,
    pub delivered_at: Option<i64>,
    pub broker_message_id: Option<String>,
    pub aborted_at: Option<i64>,
    pub aborted_by: Option<String>,
    pub superseded_by: Option<String>,
    pub history_id: Option<String>,
    pub destination_kind: Option<String>,
    pub destination_ref: Option<String>,
    pub payload_bytes: u64,
}

/// How many rows wait, and since when the oldest of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxTally {
    pub pending: u64,
    pub inflight: u64,
    pub dead: u64,
    pub oldest_pending_at: Option<i64>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, client_message_id, request_fingerprint, enqueued_at, coalesce(attempts, 0), next_attempt_at, status, \
             last_error, delivered_at, broker_message_id, aborted_at, aborted_by, superseded_by, history_id, destination_kind, \
             destination_ref, length(payload) \
             FROM outbox ",
            $rest
        )
    };
}

impl Sqlite {
    /// Rows with this status, or all, newest first.
    pub async fn outbox_rows(
        &self,
        status: Option<String>,
        limit: u32,
    ) -> Result<Vec<OutboxTableRow>, Error> {
        let sql =
            select!("WHERE ?1 IS NULL OR status = ?1 ORDER BY enqueued_at DESC, id DESC LIMIT ?2");
        self.read_outbox(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_map(params![status, limit], row)?;
            Ok(found.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The row with this id.
    pub async fn outbox_row(&self, id: String) -> Result<Option<OutboxTableRow>, Error> {
        let sql = select!("WHERE id = ?1");
        self.read_outbox(move |connection| one(connection, sql, &id))
            .await
    }

    /// The row of the message with this id.
    pub async fn outbox_row_of(
        &self,
        client_message_id: String,
    ) -> Result<Option<OutboxTableRow>, Error> {
        let sql = select!("WHERE client_message_id = ?1");
        self.read_outbox(move |connection| one(connection, sql, &client_message_id))
            .await
    }

    /// The oldest rows that were delivered before a time in Unix milliseconds.
    pub async fn outbox_delivered_before(
        &self,
        delivered_at: i64,
        limit: u32,
    ) -> Result<Vec<OutboxTableRow>, Error> {
        let sql = select!(
            "WHERE status = 'done' AND delivered_at < ?1 ORDER BY delivered_at, id LIMIT ?2"
        );
        self.outbox_before(sql, delivered_at, limit).await
    }

    /// The oldest rows that were retired before a time in Unix milliseconds.
    pub async fn outbox_retired_before(
        &self,
        aborted_at: i64,
        limit: u32,
    ) -> Result<Vec<OutboxTableRow>, Error> {
        let sql = select!(
            "WHERE status = 'aborted' AND aborted_at < ?1 ORDER BY aborted_at, id LIMIT ?2"
        );
        self.outbox_before(sql, aborted_at, limit).await
    }

    async fn outbox_before(
        &self,
        sql: &'static str,
        at: i64,
        limit: u32,
    ) -> Result<Vec<OutboxTableRow>, Error> {
        self.read_outbox(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_map(params![at, limit], row)?;
            Ok(found.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Whether the message with this id was retired, and its row removed since.
    pub async fn outbox_was_retired(&self, client_message_id: String) -> Result<bool, Error> {
        let sql = "SELECT EXISTS (SELECT 1 FROM outbox_retired WHERE client_message_id = ?1)";
        self.read_outbox(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row([client_message_id], |row| row.get(0))?)
        })
        .await
    }

    /// The bytes of the file that are free, and used for the next rows.
    pub async fn free_bytes(&self) -> Result<u64, Error> {
        let sql =
            "SELECT freelist_count * page_size FROM pragma_freelist_count(), pragma_page_size()";
        self.read_outbox(move |connection| {
            Ok(connection.query_row(sql, [], |row| unsigned(row, 0))?)
        })
        .await
    }

    /// Whether a message waits or is in flight; intents do not count.
    pub async fn outbox_messages_wait(&self) -> Result<bool, Error> {
        let sql = "SELECT EXISTS (SELECT 1 FROM outbox WHERE status IN ('pending', 'inflight') \
                   AND destination_kind IS NOT 'intent')";
        self.read_outbox(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row([], |row| row.get(0))?)
        })
        .await
    }

    /// From the counters of the ledger and the ends of indexes, so that it costs the same however many rows wait. The ledger
    /// counts retired rows with the dead ones; operators retire few.
    pub async fn outbox_tally(&self) -> Result<OutboxTally, Error> {
        let sql = "SELECT coalesce(sum(count) FILTER (WHERE state = ?2), 0), coalesce(sum(count) FILTER (WHERE state = ?3), 0), \
                   coalesce(sum(count) FILTER (WHERE state = ?4), 0) - (SELECT count(*) FROM outbox WHERE status = 'aborted'), \
                   (SELECT enqueued_at FROM outbox INDEXED BY outbox_waiting WHERE status = 'pending' ORDER BY enqueued_at LIMIT 1) \
                   FROM counts WHERE kind = 0 AND face = ?1";
        let states = [State::Queued, State::Dispatched, State::DeadLetter].map(State::code);
        self.read_outbox(move |connection| {
            let [pending, inflight, dead] = states;
            let of = params![Face::Mesh.code(), pending, inflight, dead];
            let tally = connection.prepare_cached(sql)?.query_row(of, |row| {
                Ok(OutboxTally {
                    pending: unsigned(row, 0)?,
                    inflight: unsigned(row, 1)?,
                    dead: unsigned(row, 2)?,
                    oldest_pending_at: row.get(3)?,
                })
            });
            Ok(tally?)
        })
        .await
    }

    async fn read_outbox<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.readers.run(read).await
    }
}

fn one(connection: &Connection, sql: &str, key: &str) -> Result<Option<OutboxTableRow>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row([key], row).optional()?)
}

fn row(row: &Row<'_>) -> rusqlite::Result<OutboxTableRow> {
    Ok(OutboxTableRow {
        id: row.get(0)?,
        client_message_id: row.get(1)?,
        request_fingerprint: row.get(2)?,
        enqueued_at: row.get(3)?,
        attempts: row.get(4)?,
        next_attempt_at: row.get(5)?,
        status: row.get(6)?,
        last_error: row.get(7)?,
        delivered_at: row.get(8)?,
        broker_message_id: row.get(9)?,
        aborted_at: row.get(10)?,
        aborted_by: row.get(11)?,
        superseded_by: row.get(12)?,
        history_id: row.get(13)?,
        destination_kind: row.get(14)?,
        destination_ref: row.get(15)?,
        payload_bytes: unsigned(row, 16)?,
    })
}
