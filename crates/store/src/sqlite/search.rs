//! Searches of operators; see [`crate::Search`].

use std::cmp::Reverse;

use consign_kernel::intent::Shelf;
use rusqlite::{Connection, Params, Row, params};

use super::rows::{self, outline_columns};
use crate::columns::OUTLINE;
use crate::search::{ExaminedRow, HELD, PageInMaking, SearchPath};
use crate::{Error, Search, SearchPage};

/// A statement without the payload, and with it.
macro_rules! listing {
    ($($rest:literal)+) => {
        [
            concat!("SELECT ", outline_columns!(), ", NULL FROM intents ", $($rest),+),
            concat!("SELECT ", outline_columns!(), ", payload FROM intents ", $($rest),+),
        ]
    };
}

const BY_ID: [&str; 2] = listing!("WHERE id = ?1");

const ALL: [&str; 2] = listing!("WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2");

const OF_OWNER: [&str; 2] = listing!("WHERE owner = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2");

/// The inner statement reads only the held part of the index of deadlines, and nothing of the table. The plus signs keep the
/// planner from scanning all rows in their order instead.
const HELD_ROWS: [&str; 2] = listing!(
    "WHERE seq IN (SELECT seq FROM intents WHERE shelf IN (?3, ?4) AND +seq < ?1 ORDER BY +seq DESC LIMIT ?2) \
     ORDER BY seq DESC"
);

/// Dead letters of one profile.
const DEAD_ROWS: [&str; 2] = listing!(
    "WHERE state = 7 AND profile = ?1 AND (settled_at, seq) < (?2, ?3) ORDER BY settled_at DESC, seq DESC LIMIT ?4"
);

pub(super) fn search(connection: &Connection, search: &Search) -> Result<SearchPage, Error> {
    let mut page = PageInMaking::new(search);
    let mut at_end = matches!(page.path(), SearchPath::Nothing);
    while !at_end && let Some(chunk) = page.next_chunk() {
        let found = read(connection, &page, chunk)?;
        // The rows that were named by their ids come at once.
        at_end = found.len() < chunk as usize || matches!(page.path(), SearchPath::Ids(_));
        for (outline, payload) in found {
            page.examine(outline, payload.as_deref());
        }
    }
    Ok(page.finish(at_end))
}

fn read(
    connection: &Connection,
    page: &PageInMaking<'_>,
    chunk: u32,
) -> Result<Vec<ExaminedRow>, Error> {
    let which = usize::from(page.reads_payload());
    let (settled_at, seq) = page.position();
    match page.path() {
        SearchPath::Nothing => Ok(Vec::new()),
        SearchPath::Ids(ids) => {
            let mut found = Vec::new();
            for id in ids {
                found.extend(list(connection, BY_ID[which], [id.0])?);
            }
            Ok(page.in_order(found))
        }
        SearchPath::All => list(connection, ALL[which], params![seq, chunk]),
        SearchPath::Owner(owner) => list(connection, OF_OWNER[which], params![seq, chunk, owner]),
        SearchPath::Held => {
            let [leased, lapsed] = HELD.map(Shelf::code);
            let given = params![seq, chunk, leased, lapsed];
            list(connection, HELD_ROWS[which], given)
        }
        SearchPath::Dead(profiles) => {
            let mut found = Vec::new();
            for profile in profiles {
                let given = params![profile.code(), settled_at, seq, chunk];
                found.extend(list(connection, DEAD_ROWS[which], given)?);
            }
            found.sort_by_key(|(outline, _)| Reverse((outline.settled_at, outline.seq)));
            found.truncate(chunk as usize);
            Ok(found)
        }
    }
}

fn list(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> Result<Vec<ExaminedRow>, Error> {
    let examined = |row: &Row<'_>| Ok((rows::outline(row)?, row.get(OUTLINE)?));
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map(parameters, examined)?;
    Ok(found.collect::<Result<_, _>>()?)
}
