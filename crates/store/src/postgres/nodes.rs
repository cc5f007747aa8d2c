//! Leases by node. A row has the number of its node exactly as long as it is leased.

use consign_kernel::intent::Shelf;

use super::readers::PostgresReadPool;
use super::rows;
use crate::{Error, LeaseCount};

/// Reads only leased rows, which are adjacent in the index of deadlines.
const HELD: &str = "SELECT node, count(*) FROM intents WHERE shelf = $1 AND node IS NOT NULL GROUP BY node ORDER BY node";

pub(super) async fn lease_counts(readers: &PostgresReadPool) -> Result<Vec<LeaseCount>, Error> {
    let leased = i16::from(Shelf::Leased.code());
    let found = readers.query(HELD, &[&leased]).await?;
    let held = |row| {
        Ok(LeaseCount {
            node: rows::get(row, 0)?,
            leases: rows::unsigned(row, 1)?,
        })
    };
    found.iter().map(held).collect()
}
