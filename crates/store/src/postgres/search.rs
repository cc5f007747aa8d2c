//! Searches of operators; see [`crate::Search`].

use tokio_postgres::Row;

use super::readers::PostgresReadPool;
use super::rows::{self, outline_columns, stored};
use super::wire::Parameters;
use crate::columns::OUTLINE;
use crate::search::{ExaminedRow, HELD, PageInMaking, SearchPath};
use crate::{Error, Search, SearchPage};

/// A statement without the payload, and with it.
macro_rules! listing {
    ($($rest:literal)+) => {
        [
            concat!("SELECT ", outline_columns!(), ", NULL::text FROM ", $($rest),+),
            concat!("SELECT ", outline_columns!(), ", i.payload FROM ", $($rest),+),
        ]
    };
}

const BY_ID: [&str; 2] = listing!("intents i WHERE i.id = ANY($1::bytea[])");

const ALL: [&str; 2] = listing!("intents i WHERE i.seq < $1 ORDER BY i.seq DESC LIMIT $2");

const OF_OWNER: [&str; 2] =
    listing!("intents i WHERE i.owner = $3 AND i.seq < $1 ORDER BY i.seq DESC LIMIT $2");

/// The inner statement reads only the held part of the index of deadlines. The sums keep the planner from scanning all rows in
/// their order instead.
const HELD_ROWS: [&str; 2] = listing!(
    "(SELECT seq FROM intents WHERE shelf = ANY($3) AND seq + 0 < $1 ORDER BY seq + 0 DESC LIMIT $2) h \
     JOIN intents i ON i.seq = h.seq ORDER BY i.seq DESC"
);

/// Dead letters of some profiles. The row of three columns is a bound of the index by profile, so that a later page does not
/// read the rows of the earlier ones; with `profile = p` the planner might choose another index.
const DEAD_ROWS: [&str; 2] = listing!(
    "unnest($1::smallint[]) p CROSS JOIN LATERAL (SELECT * FROM intents WHERE state = 7 AND profile >= p \
     AND (profile, settled_at, seq) < (p, $2, $3) ORDER BY profile DESC, settled_at DESC, seq DESC LIMIT $4) i \
     ORDER BY i.settled_at DESC, i.seq DESC LIMIT $4"
);

pub(super) async fn search(
    readers: &PostgresReadPool,
    search: &Search,
) -> Result<SearchPage, Error> {
    let mut page = PageInMaking::new(search);
    let mut at_end = matches!(page.path(), SearchPath::Nothing);
    while !at_end && let Some(chunk) = page.next_chunk() {
        let found = read(readers, &page, chunk).await?;
        // The rows that were named by their ids come at once.
        at_end = found.len() < chunk as usize || matches!(page.path(), SearchPath::Ids(_));
        for (outline, payload) in found {
            page.examine(outline, payload.as_deref());
        }
    }
    Ok(page.finish(at_end))
}

async fn read(
    readers: &PostgresReadPool,
    page: &PageInMaking<'_>,
    chunk: u32,
) -> Result<Vec<ExaminedRow>, Error> {
    let which = usize::from(page.reads_payload());
    let (settled_at, seq) = page.position();
    let chunk = i64::from(chunk);
    match page.path() {
        SearchPath::Nothing => Ok(Vec::new()),
        SearchPath::Ids(ids) => {
            let ids: Vec<&[u8]> = ids.iter().map(|id| &id.0[..]).collect();
            Ok(page.in_order(list(readers, BY_ID[which], &[&ids]).await?))
        }
        SearchPath::All => list(readers, ALL[which], &[&seq, &chunk]).await,
        SearchPath::Owner(owner) => {
            list(readers, OF_OWNER[which], &[&seq, &chunk, &stored(owner)]).await
        }
        SearchPath::Held => {
            let shelves = HELD.map(|shelf| i16::from(shelf.code()));
            list(readers, HELD_ROWS[which], &[&seq, &chunk, &&shelves[..]]).await
        }
        SearchPath::Dead(profiles) => {
            let profiles: Vec<i16> = profiles.iter().map(|id| id.code().into()).collect();
            let given: Parameters<'_> = &[&profiles, &settled_at, &seq, &chunk];
            list(readers, DEAD_ROWS[which], given).await
        }
    }
}

async fn list(
    readers: &PostgresReadPool,
    sql: &'static str,
    parameters: Parameters<'_>,
) -> Result<Vec<ExaminedRow>, Error> {
    let examined = |row: &Row| Ok((rows::outline(row)?, rows::optional_text(row, OUTLINE)?));
    let found = readers.query(sql, parameters).await?;
    found.iter().map(examined).collect()
}
