//! Opening a database: whose schema it is, and which migrations it needs.
//!
//! Invariant: nodes that start together migrate one after the other, and a schema that is not ours is left untouched.

use tokio_postgres::Client;

use super::address::{Address, SCHEMA};
use crate::Error;

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "ledger",
    sql: include_str!("migrations/0001_ledger.sql"),
}];

/// `ORDER BY` and arrays of several columns are older; `hashtext` and sequences as relations are what 12 is needed for.
const SERVER_VERSION_MIN: i32 = 120_000;

/// Locks the migrations of a database against other nodes.
const LOCK: &str = "SELECT pg_advisory_xact_lock(17231, 1)";

pub(super) async fn exists(address: &Address) -> Result<bool, Error> {
    let client = address.connect().await?;
    let sql = "SELECT to_regclass('consign.migrations') IS NOT NULL";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// Brings the schema up to date.
pub(super) async fn migrate(address: &Address, now_us: i64) -> Result<(), Error> {
    let client = address.connect().await?;
    let version: String = client
        .query_one("SHOW server_version_num", &[])
        .await?
        .try_get(0)?;
    if version.parse().unwrap_or(0) < SERVER_VERSION_MIN {
        return Err(Error::Address(format!(
            "PostgreSQL 12 or later is needed, this server is {version}"
        )));
    }
    client.batch_execute("BEGIN").await?;
    client.batch_execute(LOCK).await?;
    let found = found(&client).await?;
    refuse_newer(address, found)?;
    for migration in MIGRATIONS
        .iter()
        .filter(|migration| migration.version > found)
    {
        client.batch_execute(migration.sql).await?;
        let sql = "INSERT INTO migrations (version, name, applied_at) VALUES ($1, $2, $3)";
        client
            .execute(sql, &[&migration.version, &migration.name, &now_us])
            .await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// The migrations that a ledger still needs, by number and name; `None` if there is no ledger. Changes nothing.
pub(super) async fn pending(address: &Address) -> Result<Option<Vec<String>>, Error> {
    if !exists(address).await? {
        return Ok(None);
    }
    let client = address.connect().await?;
    let sql = "SELECT coalesce(max(version), 0) FROM migrations";
    let found: i32 = client.query_one(sql, &[]).await?.try_get(0)?;
    refuse_newer(address, found)?;
    let missing = MIGRATIONS
        .iter()
        .filter(|migration| migration.version > found);
    Ok(Some(
        missing
            .map(|migration| format!("{:04} {}", migration.version, migration.name))
            .collect(),
    ))
}

fn refuse_newer(address: &Address, found: i32) -> Result<(), Error> {
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    if found > known {
        return Err(Error::TooNewDatabase {
            database: address.database().to_owned(),
            found,
            known,
        });
    }
    Ok(())
}

/// The version of the schema, which is made if there is none.
async fn found(client: &Client) -> Result<i32, Error> {
    let sql =
        "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.migrations') IS NOT NULL";
    let row = client.query_one(sql, &[&SCHEMA]).await?;
    let (schema, ours): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if schema && !ours {
        let sql = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1";
        let tables: i64 = client.query_one(sql, &[&SCHEMA]).await?.try_get(0)?;
        if tables > 0 {
            return Err(Error::Address(format!(
                "its schema {SCHEMA} belongs to some other program and was left untouched"
            )));
        }
    }
    if !schema {
        client.batch_execute("CREATE SCHEMA consign").await?;
    }
    if !ours {
        let sql = "CREATE TABLE migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)";
        client.batch_execute(sql).await?;
    }
    let sql = "SELECT coalesce(max(version), 0) FROM migrations";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}
