//! Opens a database: identifies its schema, runs its migrations.
//!
//! Invariant: nodes that start together migrate one after the other and wait only if there is something to do; a schema of
//! another program is left untouched; and what nodes of the previous version still use stays, so that nodes can be replaced
//! one by one while the others run.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::address::{DatabaseAddress, SCHEMA};
use crate::Error;

struct PostgresMigration {
    version: i32,
    name: &'static str,
    /// Programs that know only migrations up to this number still work after this one.
    oldest: i32,
    run: MigrationMode,
    sql: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MigrationMode {
    /// In one transaction. Tables in use must not be locked for long.
    Together,
    /// Statement by statement while nodes run, such as an index of a large table. Each may be repeated.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "no migration of this version needs it; tests run it"
        )
    )]
    Online,
}

const MIGRATIONS: &[PostgresMigration] = &[
    PostgresMigration {
        version: 1,
        name: "initial",
        oldest: 1,
        run: MigrationMode::Together,
        sql: include_str!("migrations/0001_initial.sql"),
    },
    PostgresMigration {
        version: 2,
        name: "mesh",
        oldest: 1,
        run: MigrationMode::Together,
        sql: include_str!("migrations/0002_mesh.sql"),
    },
    PostgresMigration {
        version: 3,
        name: "workers",
        oldest: 1,
        run: MigrationMode::Together,
        sql: include_str!("migrations/0003_workers.sql"),
    },
];

/// The oldest schema on which the statements of this program work: they name the columns of it. A test cannot hold back its
/// migration.
const OLDEST_SERVED: i32 = 3;

/// The schema version that this program writes.
pub const SCHEMA_VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// `hashtext`, sequences as relations and the setting for cached plans need 12.
const SERVER_VERSION_MIN: i32 = 120_000;

/// Held by the node that migrates. Others poll: waiting in a statement would block an online migration.
const LOCK: &str = "SELECT pg_try_advisory_lock(17231, 1)";
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// For a migration in one transaction.
const BEGIN_BRIEFLY: &str = "BEGIN; SET LOCAL lock_timeout = '200ms'";
const PAUSE: Duration = Duration::from_millis(500);
/// How long a migration retries.
const MIGRATION_WAIT_MAX: Duration = Duration::from_mins(2);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The schema version of a database.
struct SchemaVersion {
    version: i32,
    /// The oldest version of the program that still works on it.
    oldest: i32,
}

/// Whether the schema is of Consign. Other programs may have a table `migrations`, but not with this column.
const OURS: &str = "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('consign.migrations') \
    AND attname = 'oldest' AND NOT attisdropped)";

/// Whether the user may create what is missing: the schema, or tables in it.
const MAY_MAKE: &str = "SELECT CASE WHEN to_regnamespace('consign') IS NULL \
    THEN has_database_privilege(current_database(), 'CREATE') ELSE has_schema_privilege('consign', 'CREATE') END";

pub(super) async fn exists(address: &DatabaseAddress) -> Result<bool, Error> {
    is_ours(&address.connect().await?).await
}

async fn is_ours(client: &Client) -> Result<bool, Error> {
    Ok(client.query_one(OURS, &[]).await?.try_get(0)?)
}

/// Refuses a database in which no ledger can be created, as [`migrate`] would, and changes nothing.
pub(super) async fn could_hold(address: &DatabaseAddress) -> Result<(), Error> {
    let client = address.connect().await?;
    fits(&client, address).await?;
    refuse_foreign(&client).await?;
    let may: bool = client.query_one(MAY_MAKE, &[]).await?.try_get(0)?;
    if may {
        return Ok(());
    }
    let database = address.database();
    Err(Error::DatabaseAddress(format!(
        "its user may not make a schema in database {database}; let its owner say GRANT CREATE ON DATABASE"
    )))
}

/// Refuses a schema that this program does not know completely: an older server may run on it, but its copy would be
/// incomplete.
pub(super) async fn wholly_known(address: &DatabaseAddress) -> Result<(), Error> {
    let found = found(&address.connect().await?, address, MIGRATIONS).await?;
    let needed = SchemaVersion {
        oldest: found.version,
        ..found
    };
    known(address, &needed, MIGRATIONS)
}

/// The migrations that a ledger still needs, by number and name; `None` if there is no ledger. Changes nothing.
pub(super) async fn pending(address: &DatabaseAddress) -> Result<Option<Vec<String>>, Error> {
    if !exists(address).await? {
        return Ok(None);
    }
    let client = address.connect().await?;
    let found = found(&client, address, MIGRATIONS).await?;
    known(address, &found, MIGRATIONS)?;
    Ok(Some(
        missing(&found, MIGRATIONS)
            .map(|migration| format!("{:04} {}", migration.version, migration.name))
            .collect(),
    ))
}

/// Migrates the schema to the newest version, or to the one that a test asks for.
pub(super) async fn migrate(
    address: &DatabaseAddress,
    now_us: i64,
    hold: Option<i32>,
) -> Result<(), Error> {
    let last = hold.map_or(i32::MAX, |hold| hold.max(OLDEST_SERVED));
    let count = MIGRATIONS.partition_point(|migration| migration.version <= last);
    apply(address, now_us, &MIGRATIONS[..count]).await
}

async fn apply(
    address: &DatabaseAddress,
    now_us: i64,
    list: &[PostgresMigration],
) -> Result<(), Error> {
    let client = address.connect().await?;
    fits(&client, address).await?;
    // If nothing is to do, no lock is taken.
    let before = found(&client, address, list).await?;
    known(address, &before, list)?;
    if missing(&before, list).next().is_none() {
        return Ok(());
    }
    // A migration may take long, and so may those of other nodes before it.
    client
        .batch_execute("SET statement_timeout = 0; SET lock_timeout = 0")
        .await?;
    lock(&client).await?;
    make_schema(&client).await?;
    let found = found(&client, address, list).await?;
    known(address, &found, list)?;
    for migration in missing(&found, list) {
        tracing::info!(
            version = migration.version,
            name = migration.name,
            "migrating the database"
        );
        run(&client, migration, now_us).await?;
    }
    // The connection releases the lock.
    Ok(())
}

/// The migrations that a database still needs, in order.
fn missing<'l>(
    found: &SchemaVersion,
    list: &'l [PostgresMigration],
) -> impl Iterator<Item = &'l PostgresMigration> + use<'l> {
    let done = found.version;
    list.iter()
        .filter(move |migration| migration.version > done)
}

async fn lock(client: &Client) -> Result<(), Error> {
    let (began, mut logged_at) = (Instant::now(), None);
    while !client.query_one(LOCK, &[]).await?.try_get::<_, bool>(0)? {
        if should_log(&mut logged_at) {
            tracing::info!(
                waited_s = began.elapsed().as_secs(),
                "another node migrates the schema; this one waits for it"
            );
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Ok(())
}

/// Whether a wait should be logged: at once, and then every few seconds.
fn should_log(logged_at: &mut Option<Instant>) -> bool {
    let time = logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
    if time {
        *logged_at = Some(Instant::now());
    }
    time
}

async fn run(client: &Client, migration: &PostgresMigration, now_us: i64) -> Result<(), Error> {
    if migration.run == MigrationMode::Together {
        return run_together(client, migration, now_us, MIGRATION_WAIT_MAX).await;
    }
    for statement in migration.sql.split(";\n").map(str::trim) {
        if !statement.is_empty() {
            client.batch_execute(statement).await?;
        }
    }
    record(client, migration, now_us).await
}

/// A table is locked only for an instant. But a wait for that lock behind a long reader blocks all later requests, so each
/// wait is short, with pauses in which the others continue.
async fn run_together(
    client: &Client,
    migration: &PostgresMigration,
    now_us: i64,
    wait_max: Duration,
) -> Result<(), Error> {
    let began = Instant::now();
    let mut logged_at = None;
    loop {
        match try_together(client, migration, now_us).await {
            Err(Error::Locked(reason)) if began.elapsed() < wait_max => {
                tracing::debug!(reason, "a table is in use");
            }
            Err(Error::Locked(_)) => return Err(in_use(migration, wait_max)),
            ended => return ended,
        }
        client.batch_execute("ROLLBACK").await?;
        if should_log(&mut logged_at) {
            tracing::info!(
                version = migration.version,
                waited_s = began.elapsed().as_secs(),
                "a table that the migration changes is in use; the migration is retried"
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn try_together(
    client: &Client,
    migration: &PostgresMigration,
    now_us: i64,
) -> Result<(), Error> {
    client.batch_execute(BEGIN_BRIEFLY).await?;
    client.batch_execute(migration.sql).await?;
    record(client, migration, now_us).await?;
    Ok(client.batch_execute("COMMIT").await?)
}

fn in_use(migration: &PostgresMigration, waited: Duration) -> Error {
    Error::Unavailable(format!(
        "migration {:04} {} found its tables in use for {} seconds; look in pg_stat_activity for a transaction that is open \
         for long, end it, and start again",
        migration.version,
        migration.name,
        waited.as_secs()
    ))
}

async fn record(client: &Client, migration: &PostgresMigration, now_us: i64) -> Result<(), Error> {
    let sql = "INSERT INTO migrations (version, name, oldest, applied_at) VALUES ($1, $2, $3, $4)";
    let PostgresMigration {
        version,
        name,
        oldest,
        ..
    } = migration;
    client
        .execute(sql, &[version, name, oldest, &now_us])
        .await?;
    Ok(())
}

/// Refuses servers and databases on which the guarantees of the ledger would not hold, and warns of one without durability.
async fn fits(client: &Client, address: &DatabaseAddress) -> Result<(), Error> {
    let version: String = show(client, "SHOW server_version_num").await?;
    if version.parse().unwrap_or(0) < SERVER_VERSION_MIN {
        return Err(Error::DatabaseAddress(format!(
            "PostgreSQL 12 or later is needed, this server is {version}"
        )));
    }
    let encoding = show(client, "SHOW server_encoding").await?;
    if encoding != "UTF8" {
        return Err(Error::DatabaseAddress(format!(
            "database {} is encoded as {encoding}; make one with ENCODING 'UTF8' TEMPLATE template0",
            address.database()
        )));
    }
    if show(client, "SHOW fsync").await? == "off" {
        tracing::warn!(
            "the database runs with fsync = off: acknowledged commits, or the whole database, are lost when its machine fails"
        );
    }
    Ok(())
}

async fn show(client: &Client, sql: &str) -> Result<String, Error> {
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// A newer schema is accepted if it says that this version of the program still works on it.
fn known(
    address: &DatabaseAddress,
    found: &SchemaVersion,
    list: &[PostgresMigration],
) -> Result<(), Error> {
    let known = list.last().map_or(0, |migration| migration.version);
    if found.version > known && found.oldest > known {
        return Err(Error::TooNewDatabase {
            database: address.database().to_owned(),
            found: found.version,
            known,
        });
    }
    Ok(())
}

/// Refuses a schema whose migrations have other names.
async fn found(
    client: &Client,
    address: &DatabaseAddress,
    list: &[PostgresMigration],
) -> Result<SchemaVersion, Error> {
    let mut found = SchemaVersion {
        version: 0,
        oldest: 0,
    };
    if !is_ours(client).await? {
        return Ok(found);
    }
    let sql = "SELECT version, name, oldest FROM migrations ORDER BY version";
    for row in client.query(sql, &[]).await? {
        let (version, name): (i32, &str) = (row.try_get(0)?, row.try_get(1)?);
        let mut list = list.iter();
        if list.any(|migration| migration.version == version && migration.name != name) {
            return Err(Error::DevelopmentSchema {
                place: format!("database {}", address.database()),
            });
        }
        found.version = version;
        found.oldest = found.oldest.max(row.try_get(2)?);
    }
    Ok(found)
}

/// Creates the schema if there is none. A schema of another program with the same name is left untouched.
async fn make_schema(client: &Client) -> Result<(), Error> {
    if is_ours(client).await? {
        return Ok(());
    }
    refuse_foreign(client).await?;
    let sql = "BEGIN; CREATE SCHEMA IF NOT EXISTS consign; CREATE TABLE migrations (version integer PRIMARY KEY, \
               name text NOT NULL, oldest integer NOT NULL, applied_at bigint NOT NULL); COMMIT";
    client.batch_execute(sql).await?;
    Ok(())
}

async fn refuse_foreign(client: &Client) -> Result<(), Error> {
    let sql = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1";
    let tables: i64 = client.query_one(sql, &[&SCHEMA]).await?.try_get(0)?;
    if tables == 0 || is_ours(client).await? {
        return Ok(());
    }
    Err(Error::DatabaseAddress(format!(
        "its schema {SCHEMA} belongs to some other program and was left untouched"
    )))
}

#[cfg(test)]
mod tests;
