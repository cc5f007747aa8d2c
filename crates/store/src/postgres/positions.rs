//! Detects sequences that are behind their tables, as after a restore without sequences: a number would be assigned twice.

use super::DatabaseAddress;
use super::load::BLOCK;
use crate::Error;

/// Each sequence with the highest block that its table uses, and the last assigned one.
const STANDS: [(&str, &str, &str); 2] = [
    (
        "intents",
        "SELECT coalesce(max(seq), 0) / 4096, (SELECT last_value FROM intent_blocks) FROM intents",
        "SELECT max(nextval('intent_blocks')) FROM generate_series(1, $1::bigint)",
    ),
    (
        "facts",
        "SELECT coalesce(max(seq), 0) / 4096, (SELECT last_value FROM fact_blocks) FROM facts",
        "SELECT max(nextval('fact_blocks')) FROM generate_series(1, $1::bigint)",
    ),
];
const _: () = assert!(BLOCK == 4_096, "the statements above say so");

/// Advances the sequences to what the tables hold, and returns which were behind. With `dry_run` it changes nothing. Other
/// nodes may run: blocks are drawn and never set, so none is assigned twice.
pub(super) async fn recover(
    address: &DatabaseAddress,
    dry_run: bool,
) -> Result<Vec<String>, Error> {
    let client = address.connect().await?;
    let mut behind = Vec::new();
    for (table, stands, draw) in STANDS {
        let row = client.query_one(stands, &[]).await?;
        let (used, given): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let missing = used - given;
        if missing <= 0 {
            continue;
        }
        behind.push(format!("position: block {given} of {table} set to {used}"));
        if !dry_run {
            client.query_one(draw, &[&missing]).await?;
        }
    }
    Ok(behind)
}
