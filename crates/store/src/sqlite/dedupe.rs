//! The table `client_message_dedupe`: the once-keys of mesh messages, in the columns of the mesh protocol.
//!
//! Operators may edit the rows while no server runs, so every form of time that SQLite's functions write is read, and an id
//! or a fingerprint that cannot be one of ours belongs to no message.

use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::once::{DedupeAnswer, FirstUse, OnceKey, Scope};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::{signed, unsigned};
use super::statements::StatementCache;
use crate::{EndingCount, Error, LostMessagePage};

/// Columns in the order [`row`] reads them.
macro_rules! columns {
    () => {
        "mesh_id, client_message_id, request_fingerprint, broker_message_id, destination_kind, destination_ref, \
         first_seen_at, expires_at, history_available"
    };
}

pub(super) const GET: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM client_message_dedupe WHERE mesh_id = ?1 AND client_message_id = ?2"
);

/// After a key, in the order of the keys.
pub(super) const PAGE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM client_message_dedupe WHERE (mesh_id, client_message_id) > (?1, ?2) ORDER BY mesh_id, client_message_id LIMIT ?3"
);

const PUT: &str = concat!(
    "INSERT OR REPLACE INTO client_message_dedupe (",
    columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
);

const MESSAGE_GONE: &str = "UPDATE client_message_dedupe SET history_available = FALSE \
    WHERE mesh_id = ?1 AND client_message_id = ?2 AND broker_message_id = ?3";

/// Times of the ledger's own form are compared as texts. Others are compared as times as well: those with a space instead of
/// the T sort before them, and those with an offset may be found some hours late.
macro_rules! over {
    ($until:literal) => {
        concat!(
            "expires_at <= ",
            $until,
            " AND (expires_at GLOB '*T*.[0-9][0-9][0-9][0-9][0-9][0-9]Z' \
             OR unixepoch(expires_at, 'auto') <= unixepoch(",
            $until,
            "))"
        )
    };
}

const FORGET_OVER: &str = concat!(
    "DELETE FROM client_message_dedupe WHERE (mesh_id, client_message_id) IN \
     (SELECT mesh_id, client_message_id FROM client_message_dedupe WHERE ",
    over!("?1"),
    " ORDER BY expires_at, mesh_id, client_message_id LIMIT ?2)"
);

const FORGET_FIRST: &str = "DELETE FROM client_message_dedupe WHERE (mesh_id, client_message_id) IN \
    (SELECT mesh_id, client_message_id FROM client_message_dedupe ORDER BY mesh_id, client_message_id LIMIT ?1)";

pub(super) fn row(row: &Row<'_>) -> rusqlite::Result<FirstUse> {
    let answer = DedupeAnswer {
        destination_kind: row.get(4)?,
        destination_ref: row.get(5)?,
        first_seen_at: time(row, 6, &row.get::<_, String>(6)?)?.0,
        history_available: row.get(8)?,
    };
    let until = match row.get::<_, Option<String>>(7)? {
        Some(text) => time(row, 7, &text)?,
        None => Micros::MAX,
    };
    Ok(FirstUse {
        key: OnceKey {
            scope: Scope::MeshMessage,
            owner: row.get(0)?,
            key: row.get(1)?,
        },
        fingerprint: fingerprint(&row.get::<_, Vec<u8>>(2)?),
        intent: id(&row.get::<_, String>(3)?),
        answer: answer.text(),
        until,
    })
}

/// One of another length equals no request's.
fn fingerprint(stored: &[u8]) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    let length = stored.len().min(32);
    fingerprint[..length].copy_from_slice(&stored[..length]);
    fingerprint
}

fn id(text: &str) -> Option<IntentId> {
    text.replace('-', "").to_ascii_lowercase().parse().ok()
}

pub(super) fn hyphenated(id: IntentId) -> String {
    let hex = id.to_string();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

fn time(row: &Row<'_>, index: usize, text: &str) -> rusqlite::Result<Micros> {
    parse_time(text).ok_or_else(|| {
        let column = row.as_ref().column_name(index).unwrap_or_default();
        let reason = format!("{column} is {text:?}, which is not a time");
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, reason.into())
    })
}

/// A time with its offset; without one in UTC; or Unix time in seconds.
fn parse_time(text: &str) -> Option<Micros> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(Micros(seconds.checked_mul(1_000_000)?));
    }
    let at = text.parse::<Timestamp>().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        Offset::UTC.to_timestamp(civil).ok()
    })?;
    Some(Micros(at.as_microsecond()))
}

/// The ledger's own form: in UTC, with microseconds, so that the order of the texts is that of the times.
fn time_text(at: Micros) -> Result<String, Error> {
    let at = Timestamp::from_microsecond(at.0)
        .map_err(|_| Error::Corrupt(format!("{} microseconds is not a time", at.0)))?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

pub(super) fn get(
    prepared: &mut StatementCache<'_>,
    key: &OnceKey,
) -> Result<Option<FirstUse>, Error> {
    let statement = prepared.get(GET)?;
    Ok(statement
        .query_row(params![key.owner, key.key], row)
        .optional()?)
}

pub(super) fn put(prepared: &mut StatementCache<'_>, used: &FirstUse) -> Result<(), Error> {
    let answer = DedupeAnswer::parse(&used.answer)
        .ok_or_else(|| Error::Corrupt(format!("{:?} answers no message", used.answer)))?;
    let expires_at = (used.until < Micros::MAX).then_some(used.until);
    prepared.get(PUT)?.execute(params![
        used.key.owner,
        used.key.key,
        used.fingerprint,
        used.intent.map(hyphenated).unwrap_or_default(),
        answer.destination_kind,
        answer.destination_ref,
        time_text(Micros(answer.first_seen_at))?,
        expires_at.map(time_text).transpose()?,
        answer.history_available,
    ])?;
    Ok(())
}

pub(super) fn message_gone(
    prepared: &mut StatementCache<'_>,
    key: &OnceKey,
    message: IntentId,
) -> Result<(), Error> {
    prepared
        .get(MESSAGE_GONE)?
        .execute(params![key.owner, key.key, hyphenated(message)])?;
    Ok(())
}

pub(super) fn forget_over(
    prepared: &mut StatementCache<'_>,
    until: Micros,
    limit: u32,
) -> Result<usize, Error> {
    let statement = prepared.get(FORGET_OVER)?;
    Ok(statement.execute(params![time_text(until)?, limit])?)
}

pub(super) fn forget_owner(prepared: &mut StatementCache<'_>, mesh: &str) -> Result<usize, Error> {
    let sql = "DELETE FROM client_message_dedupe WHERE mesh_id = ?1";
    Ok(prepared.get(sql)?.execute([mesh])?)
}

pub(super) fn forget_first(
    prepared: &mut StatementCache<'_>,
    limit: usize,
) -> Result<usize, Error> {
    let statement = prepared.get(FORGET_FIRST)?;
    Ok(statement.execute([signed(limit as u64)])?)
}

/// Whether the row says that its message exists, although it does not.
macro_rules! lost {
    () => {
        "(history_available AND NOT EXISTS (SELECT 1 FROM intents WHERE id = unhex(replace(broker_message_id, '-', ''))))"
    };
}

/// Of these keys, notes with those that have lost their message that it does not exist.
pub(super) fn note_lost(
    prepared: &mut StatementCache<'_>,
    keys: &[OnceKey],
) -> Result<usize, Error> {
    let sql = concat!(
        "UPDATE client_message_dedupe SET history_available = FALSE WHERE mesh_id = ?1 AND client_message_id = ?2 AND ",
        lost!()
    );
    let mut noted = 0;
    for key in keys {
        noted += prepared.get(sql)?.execute(params![key.owner, key.key])?;
    }
    Ok(noted)
}

pub(super) fn lost_messages(
    connection: &Connection,
    (mesh, key): &(String, String),
    limit: u32,
) -> Result<LostMessagePage, Error> {
    let sql = concat!(
        "SELECT mesh_id, client_message_id, ",
        lost!(),
        " FROM client_message_dedupe WHERE (mesh_id, client_message_id) > (?1, ?2) \
         ORDER BY mesh_id, client_message_id LIMIT ?3"
    );
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![mesh, key, limit])?;
    let mut page = LostMessagePage::default();
    let mut last = None;
    while let Some(row) = found.next()? {
        page.checked += 1;
        let key = OnceKey {
            scope: Scope::MeshMessage,
            owner: row.get(0)?,
            key: row.get(1)?,
        };
        last = Some((key.owner.clone(), key.key.clone()));
        if row.get(2)? {
            page.lost.push(key);
        }
    }
    page.next = last.filter(|_| page.checked == u64::from(limit));
    Ok(page)
}

/// How many messages and keys end by this instant.
pub(super) fn ending(connection: &Connection, until: Micros) -> Result<EndingCount, Error> {
    let sql = concat!(
        "SELECT (SELECT count(*) FROM intents WHERE shelf = 0 AND wake_at <= ?1 AND profile = 7), \
         (SELECT count(*) FROM client_message_dedupe WHERE ",
        over!("?2"),
        ")"
    );
    let mut statement = connection.prepare_cached(sql)?;
    Ok(
        statement.query_row(params![until.0, time_text(until)?], |row| {
            Ok(EndingCount {
                messages: unsigned(row, 0)?,
                keys: unsigned(row, 1)?,
            })
        })?,
    )
}

/// The rows after a key.
pub(super) fn page(
    connection: &Connection,
    (mesh, key): (&str, &str),
    limit: u32,
) -> Result<Vec<FirstUse>, Error> {
    let mut statement = connection.prepare_cached(PAGE)?;
    let found = statement.query_map(params![mesh, key, limit], row)?;
    Ok(found.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_time_is_read_and_one_is_written() {
        let at = Micros(1_700_000_000_250_000);
        assert_eq!(time_text(at).unwrap(), "2023-11-14T22:13:20.250000Z");
        for text in [
            "2023-11-14T22:13:20.250000Z",
            "2023-11-14T22:13:20.25Z",
            "2023-11-14 22:13:20.250",
            "2023-11-14T23:13:20.25+01:00",
        ] {
            assert_eq!(parse_time(text), Some(at), "{text}");
        }
        assert_eq!(
            parse_time("1700000000"),
            Some(Micros(1_700_000_000_000_000))
        );
        assert_eq!(parse_time("soon"), None);
    }

    #[test]
    fn an_id_is_read_with_and_without_hyphens() {
        let known = IntentId([0xab; 16]);
        let text = hyphenated(known);
        assert_eq!(text, "abababab-abab-abab-abab-abababababab");
        for text in [&text, &text.to_uppercase(), &known.to_string()] {
            assert_eq!(id(text), Some(known), "{text}");
        }
        assert_eq!(id("a message of another program"), None);
    }
}
