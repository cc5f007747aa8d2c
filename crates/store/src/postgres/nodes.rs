//! Which node has given out what. A row names its node exactly as long as it is leased.

use super::reads::Readers;
use super::rows;
use crate::{Error, Held};

/// An index holds leased rows alone, so nothing else is read.
const HELD: &str =
    "SELECT node, count(*) FROM intents WHERE node IS NOT NULL GROUP BY node ORDER BY node";

pub(super) async fn held(readers: &Readers) -> Result<Vec<Held>, Error> {
    let found = readers.query(HELD, &[]).await?;
    let held = |row| {
        Ok(Held {
            node: rows::get(row, 0)?,
            leases: rows::unsigned(row, 1)?,
        })
    };
    found.iter().map(held).collect()
}
