//! Whether the sequences stand behind the tables, as after a restore that left them out: then a number would be given out twice.

use super::DatabaseAddress;
use super::load::BLOCK;
use crate::Error;

/// Each with the blocks that its table has used at least, and the last one that was given out.
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

/// Brings the sequences up to what the tables hold, and says which were behind. With `dry_run` it changes nothing. Other nodes
/// may run: numbers are drawn and never set, so none is given out twice by this.
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
