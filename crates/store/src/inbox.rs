//! The inbox of a mesh daemon: what was received, in a small SQLite file with the table that the mesh protocol prints.
//!
//! It is a cache that the daemon rebuilds if the file is damaged: no leases, no retries, no steps. So it is not a ledger.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use crate::Error;
use crate::failpoint::{self, Failpoint};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS inbox (
  id TEXT PRIMARY KEY,
  client_message_id TEXT NOT NULL UNIQUE,
  broker_message_id TEXT,
  mesh TEXT NOT NULL,
  topic TEXT,
  sender_pubkey TEXT NOT NULL,
  sender_name TEXT NOT NULL,
  body TEXT,
  meta TEXT,
  received_at INTEGER NOT NULL,
  reply_to_id TEXT
);
CREATE INDEX IF NOT EXISTS inbox_received_at ON inbox (received_at);
CREATE INDEX IF NOT EXISTS inbox_topic ON inbox (topic);
CREATE INDEX IF NOT EXISTS inbox_sender ON inbox (sender_pubkey);
CREATE TABLE IF NOT EXISTS inbox_upkeep (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  vacuumed_at INTEGER NOT NULL
);";

/// Stored in the file. A newer one is refused, an older one is migrated.
const VERSION: u32 = 1;

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

macro_rules! columns {
    () => {
        "id, client_message_id, broker_message_id, mesh, topic, sender_pubkey, sender_name, body, meta, received_at, \
         reply_to_id"
    };
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    pub id: String,
    pub client_message_id: String,
    pub broker_message_id: Option<String>,
    pub mesh: String,
    pub topic: Option<String>,
    pub sender_pubkey: String,
    pub sender_name: String,
    /// `None` if it could not be decrypted.
    pub body: Option<String>,
    pub meta: Option<String>,
    /// In Unix milliseconds.
    pub received_at: i64,
    pub reply_to_id: Option<String>,
}

/// Which items a page lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedFilter {
    /// Received at this time or later, in Unix milliseconds.
    pub since: Option<i64>,
    pub topic: Option<String>,
    pub sender_pubkey: Option<String>,
    /// Without regard to the case of ASCII letters.
    pub sender_name: Option<String>,
    /// Leaves out items whose `meta` begins with this text.
    pub without_meta: Option<String>,
    /// Older than the item with this time and id.
    pub before: Option<(i64, String)>,
    pub limit: u32,
}

/// The open file. Calls block for as long as the disk takes.
#[derive(Debug)]
pub struct Inbox {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Inbox {
    /// Opens the file, or creates it. A file that SQLite finds damaged is [`Error::Corrupt`]: its caller moves it away.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unfit = |reason: String| Error::Open {
            path: path.to_owned(),
            reason,
        };
        // Messages are private; SQLite gives its side files the same mode.
        let mut private = std::fs::OpenOptions::new();
        private.write(true).create(true).truncate(false).mode(0o600);
        private
            .open(path)
            .map_err(|error| unfit(error.to_string()))?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let inbox = Self {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        };
        inbox.check()?;
        inbox.migrate()?;
        Ok(inbox)
    }

    fn check(&self) -> Result<(), Error> {
        let connection = self.connection();
        let found = connection.query_row("PRAGMA integrity_check(1)", [], |row| {
            row.get::<_, String>(0)
        });
        match found? {
            ok if ok == "ok" => Ok(()),
            finding => Err(Error::Corrupt(format!(
                "{}: {finding}",
                self.path.display()
            ))),
        }
    }

    fn migrate(&self) -> Result<(), Error> {
        let connection = self.connection();
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A message is acknowledged to the broker after its commit, and the broker forgets it then. So a commit must survive a
        // power failure, which `normal` does not promise.
        connection.pragma_update(None, "synchronous", "full")?;
        let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if found > VERSION {
            return Err(Error::TooNew {
                path: self.path.clone(),
                found,
                known: VERSION,
            });
        }
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT"
        ))?;
        Ok(())
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the calls in one transaction. When this returns, what they stored is on the disk; if one of them fails, nothing is.
    pub fn in_one_commit<T>(
        &self,
        calls: impl FnOnce(&InboxCommit<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let connection = self.connection();
        let commit = InboxCommit(Transaction::new_unchecked(
            &connection,
            TransactionBehavior::Immediate,
        )?);
        let done = calls(&commit)?;
        failpoint::hit(Failpoint::BeforeInboxCommit);
        commit.0.commit()?;
        failpoint::hit(Failpoint::AfterInboxCommit);
        Ok(done)
    }

    /// Stores an item unless its client's id is known. Returns whether it was new.
    pub fn insert(&self, item: &ReceivedMessage) -> Result<bool, Error> {
        self.in_one_commit(|commit| commit.insert(item))
    }

    /// The item under an id of its client.
    pub fn find(&self, client_message_id: &str) -> Result<Option<ReceivedMessage>, Error> {
        find(&self.connection(), client_message_id)
    }

    /// Newest first.
    pub fn list(&self, filter: &ReceivedFilter) -> Result<Vec<ReceivedMessage>, Error> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM inbox WHERE received_at >= coalesce(?1, -9223372036854775808) AND (?2 IS NULL OR topic = ?2) \
             AND (?3 IS NULL OR sender_pubkey = ?3) AND (?4 IS NULL OR (received_at, id) < (?4, ?5)) \
             AND (?7 IS NULL OR sender_name = ?7 COLLATE NOCASE) \
             AND (?8 IS NULL OR meta IS NULL OR substr(meta, 1, length(?8)) <> ?8) \
             ORDER BY received_at DESC, id DESC LIMIT ?6"
        );
        let before = filter.before.as_ref();
        let connection = self.connection();
        let mut statement = connection.prepare_cached(sql)?;
        let wanted = params![
            filter.since,
            filter.topic,
            filter.sender_pubkey,
            before.map(|(at, _)| at),
            before.map(|(_, id)| id),
            filter.limit,
            filter.sender_name,
            filter.without_meta,
        ];
        let found = statement.query_map(wanted, item)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Items whose `meta` begins with one text and whose client's id ends with another, newest first and without their bodies.
    pub fn with_meta(
        &self,
        beginning: &str,
        id_end: &str,
        before: Option<&(i64, String)>,
        limit: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let sql = "SELECT id, client_message_id, broker_message_id, mesh, topic, sender_pubkey, sender_name, NULL, meta, \
                   received_at, reply_to_id FROM inbox WHERE substr(meta, 1, length(?1)) = ?1 \
                   AND substr(client_message_id, -length(?2)) = ?2 AND (?3 IS NULL OR (received_at, id) < (?3, ?4)) \
                   ORDER BY received_at DESC, id DESC LIMIT ?5";
        let connection = self.connection();
        let mut statement = connection.prepare_cached(sql)?;
        let wanted = params![
            beginning,
            id_end,
            before.map(|(at, _)| at),
            before.map(|(_, id)| id),
            limit
        ];
        let found = statement.query_map(wanted, item)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Items of a sender whose client's id begins with this text and a dot, without their bodies.
    pub fn with_id(
        &self,
        beginning: &str,
        sender_pubkey: &str,
        limit: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        // The index has the ids in this order; a slash is the character after a dot.
        let sql = "SELECT id, client_message_id, broker_message_id, mesh, topic, sender_pubkey, sender_name, NULL, meta, \
                   received_at, reply_to_id FROM inbox WHERE client_message_id > ?1 || '.' AND client_message_id < ?1 || '/' \
                   AND sender_pubkey = ?2 LIMIT ?3";
        let connection = self.connection();
        let mut statement = connection.prepare_cached(sql)?;
        let found = statement.query_map(params![beginning, sender_pubkey, limit], item)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Removes the oldest items from before a time in Unix milliseconds, at most so many. Returns how many.
    pub fn forget_before(&self, received_at: i64, limit: u32) -> Result<usize, Error> {
        let sql = "DELETE FROM inbox WHERE id IN \
                   (SELECT id FROM inbox WHERE received_at < ?1 ORDER BY received_at LIMIT ?2)";
        let connection = self.connection();
        Ok(connection
            .prepare_cached(sql)?
            .execute(params![received_at, limit])?)
    }

    /// Gives the space of removed items back to the disk, if that was last done so long ago. The file remembers when, so that
    /// restarts do not matter. Other calls wait meanwhile. Times are Unix milliseconds. Returns whether it was due.
    pub fn vacuum_if_due(&self, now: i64, every: i64) -> Result<bool, Error> {
        let connection = self.connection();
        let sql = "SELECT vacuumed_at FROM inbox_upkeep WHERE id = 1";
        let last = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let last = last.optional()?;
        let is_due = last.is_some_and(|last| now.saturating_sub(last) >= every);
        if is_due {
            connection.execute_batch("VACUUM")?;
        }
        // A time ahead of the clock would put it off for as long as the clock was wrong.
        if is_due || last.is_none_or(|last| last > now) {
            let sql = "INSERT OR REPLACE INTO inbox_upkeep (id, vacuumed_at) VALUES (1, ?1)";
            connection.execute(sql, [now])?;
        }
        Ok(is_due)
    }

    /// The bytes of the file that are free, and used for the next items.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        let sql =
            "SELECT freelist_count * page_size FROM pragma_freelist_count(), pragma_page_size()";
        let free = self
            .connection()
            .query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(free?.unsigned_abs())
    }
}

/// A transaction of [`Inbox::in_one_commit`].
#[derive(Debug)]
pub struct InboxCommit<'a>(Transaction<'a>);

impl InboxCommit<'_> {
    /// Stores an item unless its client's id is known. Returns whether it was new.
    pub fn insert(&self, item: &ReceivedMessage) -> Result<bool, Error> {
        let sql = concat!(
            "INSERT INTO inbox (",
            columns!(),
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (client_message_id) DO NOTHING RETURNING id"
        );
        let mut statement = self.0.prepare_cached(sql)?;
        let row = params![
            item.id,
            item.client_message_id,
            item.broker_message_id,
            item.mesh,
            item.topic,
            item.sender_pubkey,
            item.sender_name,
            item.body,
            item.meta,
            item.received_at,
            item.reply_to_id,
        ];
        let new = statement.query_row(row, |row| row.get::<_, String>(0));
        Ok(new.optional()?.is_some())
    }

    /// The item under an id of its client, also one that this transaction has stored.
    pub fn find(&self, client_message_id: &str) -> Result<Option<ReceivedMessage>, Error> {
        find(&self.0, client_message_id)
    }
}

fn find(
    connection: &Connection,
    client_message_id: &str,
) -> Result<Option<ReceivedMessage>, Error> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM inbox WHERE client_message_id = ?1"
    );
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row([client_message_id], item).optional()?)
}

fn item(row: &Row<'_>) -> rusqlite::Result<ReceivedMessage> {
    Ok(ReceivedMessage {
        id: row.get(0)?,
        client_message_id: row.get(1)?,
        broker_message_id: row.get(2)?,
        mesh: row.get(3)?,
        topic: row.get(4)?,
        sender_pubkey: row.get(5)?,
        sender_name: row.get(6)?,
        body: row.get(7)?,
        meta: row.get(8)?,
        received_at: row.get(9)?,
        reply_to_id: row.get(10)?,
    })
}

#[cfg(test)]
mod tests;
