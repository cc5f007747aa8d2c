//! A PostgreSQL database as the source or the target of a copy.
//!
//! Invariant: a source is read as of one instant, in one transaction. Only one copy at a time writes to a target, holding a
//! lock as long as its connection lasts, and no server does: a server refuses to start if there is a mark, and a copy if
//! there are connections of servers.

mod load;

use std::time::Duration;

use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use consign_kernel::{once, record};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Row};

use super::address::DatabaseAddress;
use super::dedupe;
use super::load::BLOCK;
use super::rows::{
    self, INTENT_COLUMNS, fact_columns, get, intent_columns, signed, stored, text, unsigned,
};
use super::schema;
use super::wire::Parameters;
use crate::Error;
use crate::copy::{
    CopyMark, CopySource, CopyTarget, Cursor, LedgerTable, MarkedSource, RowPage, TableRows, lanes,
};
use crate::ledger::{Counter, Position};

/// A copy is one long transaction of few large statements, identified by its application name.
const SETTINGS: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
    SET application_name = 'consign store copy'";

/// One copy at a time into a database.
const LOCK: &str = "SELECT pg_advisory_lock(17231, 2)";

/// Connections of servers and of other copies. An idle server has some open too.
const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
    AND application_name IN ('consign', 'consign store copy') AND pid != pg_backend_pid()";

/// How often and how long to wait for connections that are being closed.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

const MARKED: &str = "SELECT to_regclass('consign.copying') IS NOT NULL";

/// Refuses a database that holds an incomplete copy.
pub(super) async fn refuse_part(address: &DatabaseAddress) -> Result<(), Error> {
    let client = address.connect().await?;
    match mark(&client).await? {
        None => Ok(()),
        Some(mark) => Err(Error::PartCopy {
            place: address.to_string(),
            source_place: mark.source,
        }),
    }
}

async fn mark(client: &Client) -> Result<Option<CopyMark>, Error> {
    let marked: bool = client.query_one(MARKED, &[]).await?.try_get(0)?;
    if !marked {
        return Ok(None);
    }
    let sql = "SELECT source, fingerprint, began_at, tables, first, second, third, name, key FROM consign.copying";
    let Some(row) = client.query_opt(sql, &[]).await? else {
        return Ok(None);
    };
    let tables: i32 = get(&row, 3)?;
    Ok(Some(CopyMark {
        source: text(&row, 0)?,
        fingerprint: get::<&[u8]>(&row, 1)?
            .try_into()
            .map_err(|_| Error::Corrupt("the mark of a copy has no fingerprint".to_owned()))?,
        began_at: get(&row, 2)?,
        tables: usize::try_from(tables).unwrap_or(0),
        cursor: Cursor {
            numbers: [get(&row, 4)?, get(&row, 5)?, get(&row, 6)?],
            texts: [text(&row, 7)?, text(&row, 8)?],
        },
    }))
}

/// A connection, and the runtime that drives it.
pub(crate) struct PostgresEnd {
    client: Client,
    runtime: Runtime,
}

impl PostgresEnd {
    pub(crate) fn source(address: &DatabaseAddress) -> Result<Self, Error> {
        let end = Self::existing(address)?.ok_or_else(|| {
            Error::Copy(format!(
                "{address} holds no ledger, so there is nothing to copy"
            ))
        })?;
        end.runtime.block_on(refuse_part(address))?;
        Ok(end)
    }

    pub(crate) fn existing(address: &DatabaseAddress) -> Result<Option<Self>, Error> {
        let runtime = runtime()?;
        match runtime.block_on(schema::pending(address))? {
            None => Ok(None),
            Some(pending) if pending.is_empty() => {
                runtime.block_on(schema::wholly_known(address))?;
                Self::connect(runtime, address).map(Some)
            }
            Some(_) => Err(Error::TooOld {
                place: address.to_string(),
            }),
        }
    }

    /// Why no ledger could be created there, if there is none yet.
    pub(crate) fn obstacle(address: &DatabaseAddress) -> Result<Option<String>, Error> {
        match runtime()?.block_on(schema::could_hold(address)) {
            Ok(()) => Ok(None),
            Err(refused @ Error::DatabaseAddress(_)) => Ok(Some(refused.to_string())),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn target(address: &DatabaseAddress, now_us: i64) -> Result<Self, Error> {
        let runtime = runtime()?;
        runtime.block_on(schema::migrate(address, now_us, None))?;
        let end = Self::connect(runtime, address)?;
        // The lock of a killed copy is released when PostgreSQL notices.
        match end.run(LOCK) {
            Err(Error::Locked(_)) => Err(Error::Copy(format!(
                "another copy writes to {address}; wait for it or stop it"
            ))),
            other => other.map(|()| end),
        }
    }

    fn connect(runtime: Runtime, address: &DatabaseAddress) -> Result<Self, Error> {
        let client = runtime.block_on(address.connect())?;
        let end = Self { client, runtime };
        end.run(SETTINGS)?;
        Ok(end)
    }

    fn run(&self, text: &str) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.client.batch_execute(text))?)
    }

    fn query(&self, text: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        Ok(self.runtime.block_on(self.client.query(text, parameters))?)
    }

    /// The row of a query that always has one.
    fn one(&self, text: &str) -> Result<Row, Error> {
        Ok(self.runtime.block_on(self.client.query_one(text, &[]))?)
    }
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unavailable(error.to_string()))
}

/// The scopes of once-keys of which only the use is stored.
fn bare() -> Vec<i16> {
    let scopes = once::Scope::ALL.iter().filter(|scope| scope.is_bare());
    scopes.map(|scope| scope.code().into()).collect()
}

impl CopySource for PostgresEnd {
    fn identity(&mut self) -> Result<String, Error> {
        let sql = "SELECT pg_postmaster_start_time()::text, oid::text FROM pg_database WHERE datname = current_database()";
        let row = self.one(sql)?;
        let (started, oid): (&str, &str) = (get(&row, 0)?, get(&row, 1)?);
        Ok(format!("database {started} {oid}"))
    }

    fn others(&mut self) -> Result<u64, Error> {
        let mut looks = 1;
        loop {
            // The view stays the same within a transaction, unless its snapshot is cleared.
            self.run("SELECT pg_stat_clear_snapshot()")?;
            let others = unsigned(&self.one(OTHERS)?, 0)?;
            if others == 0 || looks == LOOKS {
                return Ok(others);
            }
            std::thread::sleep(PAUSE);
            looks += 1;
        }
    }

    fn hold(&mut self) -> Result<(), Error> {
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    fn origin(&mut self) -> Result<String, Error> {
        let row = self.one("SELECT min(applied_at) FROM migrations")?;
        Ok(format!("postgres {}", get::<i64>(&row, 0)?))
    }

    /// Sequences are not transactional: the position is never behind the rows that are read.
    fn position(&mut self) -> Result<Position, Error> {
        let sql = "SELECT (SELECT last_value FROM intent_blocks), (SELECT last_value FROM fact_blocks), \
                   (SELECT coalesce(max(at), 0) FROM facts)";
        let row = self.one(sql)?;
        let last = |block: u64| (block + 1).saturating_mul(BLOCK) - 1;
        Ok(Position {
            // Every step appends a fact, so this is the time of the last step.
            time: Micros(get(&row, 2)?),
            seq: last(unsigned(&row, 0)?),
            fact: last(unsigned(&row, 1)?),
        })
    }

    fn highest(&mut self) -> Result<[u64; 2], Error> {
        let sql = "SELECT (SELECT coalesce(max(seq), 0) FROM intents), (SELECT coalesce(max(seq), 0) FROM facts)";
        let row = self.one(sql)?;
        Ok([unsigned(&row, 0)?, unsigned(&row, 1)?])
    }

    fn count(&mut self, table: LedgerTable) -> Result<u64, Error> {
        let found = match table {
            LedgerTable::Intents => self.query("SELECT count(*) FROM intents", &[])?,
            LedgerTable::Facts => self.query("SELECT count(*) FROM facts", &[])?,
            LedgerTable::Once => {
                let sql = "SELECT count(*) FROM once WHERE scope != ALL($1)";
                self.query(sql, &[&bare()])?
            }
            LedgerTable::Nonces => {
                let sql = "SELECT count(*) FROM once WHERE scope = ANY($1)";
                self.query(sql, &[&bare()])?
            }
            LedgerTable::Records => self.query("SELECT count(*) FROM records", &[])?,
            LedgerTable::Counts => {
                let sql = "SELECT count(*) FROM (SELECT 1 FROM counts GROUP BY kind, face, name, state \
                           HAVING sum(count) != 0) AS each";
                self.query(sql, &[])?
            }
            LedgerTable::Dedupe => {
                self.query("SELECT count(*) FROM mesh.client_message_dedupe", &[])?
            }
        };
        found.first().map_or(Ok(0), |row| unsigned(row, 0))
    }

    fn page(&mut self, table: LedgerTable, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let limit = i64::from(limit);
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

impl PostgresEnd {
    fn intents(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let sql = concat!(
            "SELECT ",
            intent_columns!(),
            ", i.own_lane, i.own_goal_lane, i.public_lane, i.public_goal_lane FROM intents i WHERE i.seq > $1 \
             ORDER BY i.seq LIMIT $2"
        );
        let mut found = Vec::new();
        for row in self.query(sql, &[&after.numbers[0], &limit])? {
            let intent = rows::intent(&row)?;
            let mut stored = [None; 4];
            for (index, lane) in stored.iter_mut().enumerate() {
                *lane = get(&row, INTENT_COLUMNS + index)?;
            }
            let lanes = lanes(intent.seq.0, stored)?;
            found.push((intent, lanes));
        }
        let next = found
            .last()
            .map(|(row, _)| Cursor::number(signed(row.seq.0)));
        Ok(RowPage {
            rows: TableRows::Intents(found),
            next,
        })
    }

    fn facts(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let sql = concat!(
            "SELECT ",
            fact_columns!(),
            " FROM facts f WHERE f.seq > $1 ORDER BY f.seq LIMIT $2"
        );
        let found = read(&self.query(sql, &[&after.numbers[0], &limit])?, rows::fact)?;
        Ok(RowPage {
            next: found.last().map(|row| Cursor::number(signed(row.seq.0))),
            rows: TableRows::Facts(found),
        })
    }

    fn once(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let sql = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once WHERE scope != ALL($1) \
                   AND (scope, owner, key) > ($2::bigint, $3, $4) ORDER BY scope, owner, key LIMIT $5";
        let [owner, key] = after.texts.each_ref().map(|text| stored(text));
        let found = self.query(sql, &[&bare(), &after.numbers[0], &owner, &key, &limit])?;
        let found = read(&found, rows::once)?;
        let cursor = |once::OnceKey { scope, owner, key }: &once::OnceKey| {
            Cursor::named([scope.code().into(), 0, 0], owner, key)
        };
        Ok(RowPage {
            next: found.last().map(|row| cursor(&row.key)),
            rows: TableRows::Once(found),
        })
    }

    /// Earliest expiry first, which is about the order of their use.
    fn nonces(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let sql = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once WHERE scope = ANY($1) \
                   AND (scope, until, owner, key) > ($2::bigint, $3, $4, $5) ORDER BY scope, until, owner, key LIMIT $6";
        let [owner, key] = after.texts.each_ref().map(|text| stored(text));
        let [scope, until, _] = after.numbers;
        let wanted: Parameters<'_> = &[&bare(), &scope, &until, &owner, &key, &limit];
        let found = read(&self.query(sql, wanted)?, rows::once)?;
        let cursor = |row: &once::FirstUse| {
            let once::OnceKey { scope, owner, key } = &row.key;
            Cursor::named([scope.code().into(), row.until.0, 0], owner, key)
        };
        Ok(RowPage {
            next: found.last().map(cursor),
            rows: TableRows::Once(found),
        })
    }

    fn records(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let sql = "SELECT kind, owner, name, version, value, expires_at FROM records \
                   WHERE (kind, owner, name) > ($1::bigint, $2, $3) ORDER BY kind, owner, name LIMIT $4";
        let [owner, name] = after.texts.each_ref().map(|text| stored(text));
        let found = self.query(sql, &[&after.numbers[0], &owner, &name, &limit])?;
        let found = read(&found, rows::record)?;
        let cursor = |record::Key { kind, owner, name }: &record::Key| {
            Cursor::named([kind.code().into(), 0, 0], owner, name)
        };
        Ok(RowPage {
            next: found.last().map(|record| cursor(&record.key)),
            rows: TableRows::Records(found),
        })
    }

    fn dedupe(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let [mesh, key] = after.texts.each_ref().map(|text| stored(text));
        let found = self.query(dedupe::PAGE, &[&mesh, &key, &limit])?;
        let found = read(&found, dedupe::row)?;
        Ok(RowPage {
            next: found
                .last()
                .map(|row| Cursor::named([0; 3], &row.key.owner, &row.key.key)),
            rows: TableRows::Once(found),
        })
    }

    fn counts(&self, after: &Cursor, limit: i64) -> Result<RowPage, Error> {
        let sql = "SELECT kind, face, name, state, sum(count)::bigint FROM counts \
                   WHERE (kind, face, name, state) > ($1::bigint, $2::bigint, $3, $4::bigint) \
                   GROUP BY kind, face, name, state HAVING sum(count) != 0 ORDER BY kind, face, name, state LIMIT $5";
        let [kind, face, state] = after.numbers;
        let name = stored(&after.texts[0]);
        let found = self.query(sql, &[&kind, &face, &name, &state, &limit])?;
        let found = read(&found, counter)?;
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

fn read<T>(found: &[Row], row: impl Fn(&Row) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    found.iter().map(row).collect()
}

fn counter(row: &Row) -> Result<(Counter, i64), Error> {
    let face = rows::coded(row, 1, Face::from_code)?;
    let counter = match get::<i16>(row, 0)? {
        0 => Counter::State {
            face,
            namespace: text(row, 2)?,
            state: rows::coded(row, 3, State::from_code)?,
        },
        kind => Counter::named(u8::try_from(kind).unwrap_or(0), face, text(row, 2)?),
    };
    Ok((counter, get(row, 4)?))
}

impl MarkedSource for PostgresEnd {
    fn mark(&mut self) -> Result<Option<CopyMark>, Error> {
        self.runtime.block_on(mark(&self.client))
    }
}

impl CopyTarget for PostgresEnd {
    fn begin(&mut self, mark: &CopyMark) -> Result<(), Error> {
        self.in_transaction(async |client| {
            let clear = "DROP TABLE IF EXISTS copying; TRUNCATE intents, facts, once, records, counts, mesh.client_message_dedupe; \
                CREATE TABLE copying (source text NOT NULL, fingerprint bytea NOT NULL, began_at bigint NOT NULL, \
                tables integer NOT NULL, first bigint NOT NULL, second bigint NOT NULL, third bigint NOT NULL, \
                name text NOT NULL, key text NOT NULL)";
            client.batch_execute(clear).await?;
            let sql = "INSERT INTO copying (source, fingerprint, began_at, tables, first, second, third, name, key) \
                       VALUES ($1, $2, $3, 0, 0, 0, 0, '', '')";
            let (source, fingerprint) = (stored(&mark.source), &mark.fingerprint[..]);
            client
                .execute(sql, &[&source, &fingerprint, &mark.began_at])
                .await?;
            move_mark(client, mark).await
        })
    }

    fn write(&mut self, rows: TableRows, mark: &CopyMark) -> Result<(), Error> {
        self.in_transaction(async |client| {
            load::write(client, &rows).await?;
            move_mark(client, mark).await
        })
    }

    fn finish(&mut self, position: Position) -> Result<(), Error> {
        // Without statistics the first claims would use the wrong indexes.
        self.run("ANALYZE intents, facts, once, records, counts, mesh.client_message_dedupe")?;
        self.in_transaction(async |client| {
            // The blocks after those with the highest numbers. Never back, even if the target is empty and was used.
            let sql = "SELECT setval('intent_blocks', greatest($1, (SELECT last_value FROM intent_blocks))), \
                       setval('fact_blocks', greatest($2, (SELECT last_value FROM fact_blocks)))";
            let [seq, fact] = [position.seq, position.fact].map(|last| signed(last / BLOCK));
            client.query(sql, &[&seq, &fact]).await?;
            Ok(client.batch_execute("DROP TABLE copying").await?)
        })
    }
}

impl PostgresEnd {
    fn in_transaction(
        &mut self,
        work: impl AsyncFnOnce(&Client) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self { client, runtime } = self;
        runtime.block_on(async {
            client.batch_execute("BEGIN").await?;
            let done = work(client).await;
            // After an error the copy ends, and its connection and transaction with it.
            done?;
            Ok(client.batch_execute("COMMIT").await?)
        })
    }
}

async fn move_mark(client: &Client, mark: &CopyMark) -> Result<(), Error> {
    let sql =
        "UPDATE copying SET tables = $1, first = $2, second = $3, third = $4, name = $5, key = $6";
    let tables = i32::try_from(mark.tables).unwrap_or(i32::MAX);
    let [first, second, third] = mark.cursor.numbers;
    let [name, key] = mark.cursor.texts.each_ref().map(|text| stored(text));
    let moved: Parameters<'_> = &[&tables, &first, &second, &third, &name, &key];
    client.execute(sql, moved).await?;
    Ok(())
}
