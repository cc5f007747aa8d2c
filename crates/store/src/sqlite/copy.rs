//! A SQLite file as the source or the target of a copy.
//!
//! Invariant: a source is only read, as of one instant. The caller of a copy holds the locks of both files.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use consign_kernel::once;
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};

use super::dedupe;
use super::file_lock::FileLock;
use super::nonces::Nonces;
use super::rows::{self, fact_columns, intent_columns, signed};
use super::schema::{self, FileKind};
use super::statements::StatementCache;
use super::tx::SqliteTx;
use super::{checkpoint, reads, writer};
use crate::Error;
use crate::copy::{
    CopyMark, CopySource, CopyTarget, Cursor, LedgerTable, MarkedSource, RowPage, TableRows, lanes,
};
use crate::ledger::{Position, Tx};

/// Facts in one range of the table `news`; a longer range contains more facts of other owners.
const STRETCH_FACTS: usize = 64;

const MARKED: &str = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'copying'";

/// Refuses a file that holds an incomplete copy.
pub(super) fn refuse_part(connection: &Connection, path: &Path) -> Result<(), Error> {
    match mark(connection)? {
        None => Ok(()),
        Some(mark) => Err(Error::PartCopy {
            place: format!("sqlite:{}", path.display()),
            source_place: mark.source,
        }),
    }
}

/// A file that is only read.
pub(crate) struct SqliteSource {
    path: PathBuf,
    connection: Connection,
    superseded: Option<HashSet<i64>>,
}

impl SqliteSource {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let unfit = |reason: &str| Error::Open {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let reader =
            Self::existing(path)?.ok_or_else(|| unfit("there is no such file, or it is empty"))?;
        refuse_part(&reader.connection, path)?;
        Ok(reader)
    }

    pub(crate) fn existing(path: &Path) -> Result<Option<Self>, Error> {
        match schema::identify(path)? {
            FileKind::Nothing => return Ok(None),
            FileKind::Consign => {}
            FileKind::IntentBus => {
                return Err(Error::IntentBusFile {
                    path: path.to_owned(),
                });
            }
            FileKind::OtherDatabase => {
                return Err(Error::ForeignFile {
                    path: path.to_owned(),
                });
            }
        }
        if !schema::pending(path)?.is_empty() {
            return Err(Error::TooOld {
                place: format!("sqlite:{}", path.display()),
            });
        }
        let connection = schema::reader(path)?;
        // An open read transaction keeps one snapshot.
        connection.execute_batch("BEGIN; SELECT 1 FROM sqlite_master LIMIT 1")?;
        Ok(Some(Self {
            path: path.to_owned(),
            connection,
            superseded: None,
        }))
    }
}

/// A file that is written to.
pub(crate) struct SqliteTarget {
    reader: SqliteSource,
    // After the source, so that it is dropped after it.
    hold: FileLock,
}

impl SqliteTarget {
    pub(crate) fn open(path: &Path, now_us: i64) -> Result<Self, Error> {
        let (connection, hold) = schema::writer(path, now_us)?;
        Ok(Self {
            reader: SqliteSource {
                path: path.to_owned(),
                connection,
                superseded: None,
            },
            hold,
        })
    }

    /// Closes the file, after everything is on the disk.
    pub(crate) fn close(self) -> Result<(), Error> {
        let Self { reader, hold } = self;
        let SqliteSource {
            path, connection, ..
        } = reader;
        connection.close().map_err(|(_, error)| error)?;
        drop(hold);
        std::fs::File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::Unavailable(error.to_string()))
    }

    fn in_transaction(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.reader.superseded = None;
        let connection = &self.reader.connection;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let done = work(connection).and_then(|()| Ok(connection.execute_batch("COMMIT")?));
        if done.is_err() {
            // SQLite may have rolled back by itself; the first error is the cause.
            let _ = connection.execute_batch("ROLLBACK");
        }
        done
    }
}

impl CopySource for SqliteSource {
    fn identity(&mut self) -> Result<String, Error> {
        let found = std::fs::metadata(&self.path);
        let found = found.map_err(|error| Error::Open {
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        Ok(format!("file {} {}", found.dev(), found.ino()))
    }

    fn others(&mut self) -> Result<u64, Error> {
        Ok(0)
    }

    fn origin(&mut self) -> Result<String, Error> {
        let sql = "SELECT min(applied_at) FROM migrations";
        let made_at: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(format!("sqlite {made_at}"))
    }

    fn position(&mut self) -> Result<Position, Error> {
        writer::read_position(&self.connection)
    }

    fn highest(&mut self) -> Result<[u64; 2], Error> {
        let sql = "SELECT (SELECT coalesce(max(seq), 0) FROM intents), (SELECT coalesce(max(seq), 0) FROM facts)";
        Ok(self.connection.query_row(sql, [], |row| {
            Ok([rows::unsigned(row, 0)?, rows::unsigned(row, 1)?])
        })?)
    }

    fn count(&mut self, table: LedgerTable) -> Result<u64, Error> {
        let sql = match table {
            LedgerTable::Intents => "SELECT count(*) FROM intents",
            LedgerTable::Facts => "SELECT count(*) FROM facts",
            LedgerTable::Once => "SELECT count(*) FROM once",
            LedgerTable::Nonces => {
                "SELECT count(*) FROM (SELECT DISTINCT scope, owner, key FROM nonces)"
            }
            LedgerTable::Records => "SELECT count(*) FROM records",
            LedgerTable::Counts => "SELECT count(*) FROM counts WHERE count != 0",
            LedgerTable::Dedupe => "SELECT count(*) FROM client_message_dedupe",
        };
        Ok(self
            .connection
            .query_row(sql, [], |row| rows::unsigned(row, 0))?)
    }

    fn page(&mut self, table: LedgerTable, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        match table {
            LedgerTable::Intents => self.intents(after, limit),
            LedgerTable::Facts => self.facts(after, limit),
            LedgerTable::Once => self.once(after, limit),
            LedgerTable::Nonces => self.nonces(after, limit),
            LedgerTable::Records => self.records(after, limit),
            LedgerTable::Counts => self.counts(after, limit),
            LedgerTable::Dedupe => self.dedupe(after, limit),
        }
    }
}

impl SqliteSource {
    fn intents(&self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let mut statement = self.connection.prepare_cached(concat!(
            "SELECT ",
            intent_columns!(),
            ", own_lane, own_goal_lane, public_lane, public_goal_lane FROM intents WHERE seq > ?1 ORDER BY seq LIMIT ?2"
        ))?;
        let found = collect(&mut statement, params![after.numbers[0], limit], |row| {
            let stored = rows::lanes(row)?;
            Ok((rows::intent(row)?, stored))
        })?;
        let next = found
            .last()
            .map(|(row, _)| Cursor::number(signed(row.seq.0)));
        let with_lanes = found.into_iter().map(|(row, stored)| {
            let lanes = lanes(row.seq.0, stored)?;
            Ok((row, lanes))
        });
        Ok(RowPage {
            rows: TableRows::Intents(with_lanes.collect::<Result<_, Error>>()?),
            next,
        })
    }

    fn facts(&self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let mut statement = self.connection.prepare_cached(concat!(
            "SELECT ",
            fact_columns!(),
            " FROM facts WHERE seq > ?1 ORDER BY seq LIMIT ?2"
        ))?;
        let found = collect(&mut statement, params![after.numbers[0], limit], rows::fact)?;
        Ok(RowPage {
            next: found.last().map(|row| Cursor::number(signed(row.seq.0))),
            rows: TableRows::Facts(found),
        })
    }

    fn once(&self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let sql = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once \
                   WHERE (scope, owner, key) > (?1, ?2, ?3) ORDER BY scope, owner, key LIMIT ?4";
        let mut statement = self.connection.prepare_cached(sql)?;
        let [owner, key] = &after.texts;
        let wanted = params![after.numbers[0], owner, key, limit];
        let found: Vec<once::FirstUse> = collect(&mut statement, wanted, rows::once)?;
        let cursor = |once::OnceKey { scope, owner, key }: &once::OnceKey| {
            Cursor::named([scope.code().into(), 0, 0], owner, key)
        };
        Ok(RowPage {
            next: found.last().map(|row| cursor(&row.key)),
            rows: TableRows::Once(found),
        })
    }

    /// In the order of their use. A nonce that was used again after its expiry is stored twice, and the later use counts.
    fn nonces(&mut self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        if self.superseded.is_none() {
            let sql = "SELECT seq FROM (SELECT seq, row_number() OVER (PARTITION BY scope, owner, key ORDER BY seq DESC) \
                       AS uses FROM nonces) WHERE uses > 1";
            let mut statement = self.connection.prepare(sql)?;
            let found = collect(&mut statement, [], |row| row.get(0))?;
            self.superseded = Some(found.into_iter().collect());
        }
        let sql = concat!(rows::nonces!(), " WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found: Vec<(i64, once::FirstUse)> =
            collect(&mut statement, params![after.numbers[0], limit], |row| {
                Ok((row.get(0)?, rows::nonce(row)?))
            })?;
        let next = found.last().map(|(seq, _)| Cursor::number(*seq));
        if let Some(superseded) = &self.superseded {
            found.retain(|(seq, _)| !superseded.contains(seq));
        }
        Ok(RowPage {
            rows: TableRows::Once(found.into_iter().map(|(_, row)| row).collect()),
            next,
        })
    }

    fn records(&self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let sql = "SELECT kind, owner, name, version, value, expires_at FROM records \
                   WHERE (kind, owner, name) > (?1, ?2, ?3) ORDER BY kind, owner, name LIMIT ?4";
        let mut statement = self.connection.prepare_cached(sql)?;
        let [owner, name] = &after.texts;
        let wanted = params![after.numbers[0], owner, name, limit];
        let found = collect(&mut statement, wanted, rows::record)?;
        let next = found.last().map(|record| {
            let key = &record.key;
            Cursor::named([key.kind.code().into(), 0, 0], &key.owner, &key.name)
        });
        Ok(RowPage {
            rows: TableRows::Records(found),
            next,
        })
    }

    fn dedupe(&self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let [mesh, key] = &after.texts;
        let found = dedupe::page(&self.connection, (mesh, key), limit)?;
        Ok(RowPage {
            next: found
                .last()
                .map(|row| Cursor::named([0; 3], &row.key.owner, &row.key.key)),
            rows: TableRows::Once(found),
        })
    }

    fn counts(&self, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let sql = "SELECT kind, face, name, state, count FROM counts WHERE count != 0 \
                   AND (kind, face, name, state) > (?1, ?2, ?3, ?4) ORDER BY kind, face, name, state LIMIT ?5";
        let mut statement = self.connection.prepare_cached(sql)?;
        let [kind, face, state] = after.numbers;
        let wanted = params![kind, face, after.texts[0], state, limit];
        let found = collect(&mut statement, wanted, reads::counter)?;
        let next = found.last().map(|(counter, _)| {
            let (kind, face, name, state) = counter.key();
            Cursor::named([kind.into(), face.into(), state.into()], name, "")
        });
        Ok(RowPage {
            rows: TableRows::Counts(found),
            next,
        })
    }
}

fn collect<T>(
    statement: &mut Statement<'_>,
    wanted: impl rusqlite::Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    Ok(statement
        .query_map(wanted, read)?
        .collect::<Result<_, _>>()?)
}

impl MarkedSource for SqliteSource {
    fn mark(&mut self) -> Result<Option<CopyMark>, Error> {
        mark(&self.connection)
    }
}

fn mark(connection: &Connection) -> Result<Option<CopyMark>, Error> {
    let marked: bool = connection.query_row(MARKED, [], |row| row.get(0))?;
    if !marked {
        return Ok(None);
    }
    let sql = "SELECT source, fingerprint, began_at, tables, first, second, third, name, key FROM copying";
    let mark = connection.query_row(sql, [], |row| {
        let tables: i64 = row.get(3)?;
        Ok(CopyMark {
            source: row.get(0)?,
            fingerprint: row.get(1)?,
            began_at: row.get(2)?,
            tables: usize::try_from(tables).unwrap_or(0),
            cursor: Cursor {
                numbers: [row.get(4)?, row.get(5)?, row.get(6)?],
                texts: [row.get(7)?, row.get(8)?],
            },
        })
    });
    Ok(mark.optional()?)
}

fn put_mark(connection: &Connection, mark: &CopyMark) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO copying (id, source, fingerprint, began_at, tables, first, second, third, name, key) \
               VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let [first, second, third] = mark.cursor.numbers;
    let [name, key] = &mark.cursor.texts;
    connection.prepare_cached(sql)?.execute(params![
        mark.source,
        mark.fingerprint,
        mark.began_at,
        signed(mark.tables as u64),
        first,
        second,
        third,
        name,
        key
    ])?;
    Ok(())
}

impl CopySource for SqliteTarget {
    fn identity(&mut self) -> Result<String, Error> {
        self.reader.identity()
    }

    fn others(&mut self) -> Result<u64, Error> {
        self.reader.others()
    }

    fn origin(&mut self) -> Result<String, Error> {
        self.reader.origin()
    }

    fn position(&mut self) -> Result<Position, Error> {
        self.reader.position()
    }

    fn highest(&mut self) -> Result<[u64; 2], Error> {
        self.reader.highest()
    }

    fn count(&mut self, table: LedgerTable) -> Result<u64, Error> {
        self.reader.count(table)
    }

    fn page(&mut self, table: LedgerTable, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        self.reader.page(table, after, limit)
    }
}

impl MarkedSource for SqliteTarget {
    fn mark(&mut self) -> Result<Option<CopyMark>, Error> {
        self.reader.mark()
    }
}

impl CopyTarget for SqliteTarget {
    fn begin(&mut self, mark: &CopyMark) -> Result<(), Error> {
        self.in_transaction(|connection| {
            connection.execute_batch(
                "DROP TABLE IF EXISTS copying; DELETE FROM intents; DELETE FROM facts; DELETE FROM news; DELETE FROM once; \
                 DELETE FROM nonces; DELETE FROM records; DELETE FROM counts; DELETE FROM client_message_dedupe; \
                 CREATE TABLE copying (id INTEGER PRIMARY KEY CHECK (id = 1), source TEXT NOT NULL, \
                 fingerprint BLOB NOT NULL, began_at INTEGER NOT NULL, tables INTEGER NOT NULL, first INTEGER NOT NULL, \
                 second INTEGER NOT NULL, third INTEGER NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL) STRICT",
            )?;
            put_mark(connection, mark)
        })
    }

    fn write(&mut self, rows: TableRows, mark: &CopyMark) -> Result<(), Error> {
        self.in_transaction(|connection| {
            write_rows(connection, rows)?;
            put_mark(connection, mark)
        })
    }

    fn finish(&mut self, position: Position) -> Result<(), Error> {
        self.in_transaction(|connection| {
            let sql = "UPDATE position SET last_time = max(last_time, ?1), last_seq = max(last_seq, ?2), \
                       last_fact = max(last_fact, ?3) WHERE id = 1";
            let Position { time, seq, fact } = position;
            connection.execute(sql, params![time.0, signed(seq), signed(fact)])?;
            Ok(connection.execute_batch("DROP TABLE copying")?)
        })?;
        // So that the file alone is complete when it is opened or moved next.
        checkpoint::merge_all(&self.reader.connection)?;
        Ok(())
    }
}

/// Uses the same code as the writer of a server.
fn write_rows(connection: &Connection, rows: TableRows) -> Result<(), Error> {
    let mut prepared = StatementCache::new(connection);
    let mut nonces = Nonces::default();
    let mut open = SqliteTx::new(&mut prepared, &mut nonces);
    match rows {
        TableRows::Intents(rows) => {
            for (intent, lanes) in rows {
                open.insert(&intent, lanes.as_ref())?;
            }
        }
        TableRows::Facts(rows) => {
            for (index, fact) in rows.into_iter().enumerate() {
                if index % STRETCH_FACTS == 0 {
                    open.note_news()?;
                }
                open.append(fact)?;
            }
        }
        TableRows::Once(rows) => {
            for row in rows {
                open.put_once(row)?;
            }
        }
        TableRows::Records(rows) => {
            for record in rows {
                open.put_record(record)?;
            }
        }
        TableRows::Counts(rows) => {
            for (counter, count) in rows {
                open.add(&counter, count)?;
            }
        }
    }
    open.finish()
}
