//! Converts rows to structs and back. An unreadable value is damage, reported with its row.

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf, Ties};
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::{Cause, State, Verb};
use rusqlite::Row;
use rusqlite::types::Type;

use crate::Outline;

/// Columns in the order [`intent`] reads them.
macro_rules! intent_columns {
    () => {
        "seq, id, profile, state, cause, shelf, wake_at, priority, run_at, attempts, attempts_max, backoff_us, \
         created_at, expires_at, claimed_at, lease_until, settled_at, namespace, goal, owner, public, target, \
         capability, holder, token, traceparent, last_error, result_kind, result, payload, last_fact, parent, series"
    };
}
pub(super) use intent_columns;

/// Columns in the order [`outline`] reads them. All of them precede result and payload, so that neither is read.
macro_rules! outline_columns {
    () => {
        "seq, id, profile, state, cause, run_at, attempts, created_at, claimed_at, settled_at, namespace, goal, \
         capability, holder, last_error"
    };
}
pub(super) use outline_columns;

/// The four lane columns after those of an intent.
pub(super) fn lanes(row: &Row<'_>) -> rusqlite::Result<[Option<i64>; 4]> {
    Ok([row.get(33)?, row.get(34)?, row.get(35)?, row.get(36)?])
}

macro_rules! fact_columns {
    () => {
        "seq, intent, at, verb, from_state, to_state, cause, attempt, actor, detail, owner, face, previous, \
         wall_offset_us"
    };
}
pub(super) use fact_columns;

pub(super) fn intent(row: &Row<'_>) -> rusqlite::Result<Intent> {
    let kind: Option<u8> = row.get(27)?;
    let body: Option<String> = row.get(28)?;
    Ok(Intent {
        seq: Seq(unsigned(row, 0)?),
        id: IntentId(row.get(1)?),
        profile: coded(row, 2, ProfileId::from_code)?,
        state: coded(row, 3, State::from_code)?,
        cause: coded(row, 4, Cause::from_code)?,
        shelf: coded(row, 5, Shelf::from_code)?,
        wake_at: Micros(row.get(6)?),
        priority: row.get(7)?,
        run_at: Micros(row.get(8)?),
        attempts: row.get(9)?,
        attempts_max: row.get(10)?,
        backoff_us: row.get(11)?,
        created_at: Micros(row.get(12)?),
        expires_at: Micros(row.get(13)?),
        claimed_at: row.get::<_, Option<i64>>(14)?.map(Micros),
        lease_until: row.get::<_, Option<i64>>(15)?.map(Micros),
        settled_at: row.get::<_, Option<i64>>(16)?.map(Micros),
        namespace: row.get(17)?,
        goal: row.get(18)?,
        owner: row.get(19)?,
        public: row.get(20)?,
        target: row.get(21)?,
        capability: row.get(22)?,
        holder: row.get(23)?,
        token: row.get::<_, Option<[u8; 16]>>(24)?.map(Token),
        traceparent: row.get(25)?,
        last_error: row.get(26)?,
        result: kind.zip(body).map(|(kind, body)| Outcome {
            kind: result_kind(kind),
            body,
        }),
        payload: row.get(29)?,
        last_fact: fact_seq(row, 30)?,
        ties: Ties {
            parent: row.get::<_, Option<[u8; 16]>>(31)?.map(IntentId),
            series: row.get(32)?,
        },
    })
}

pub(super) fn outline(row: &Row<'_>) -> rusqlite::Result<Outline> {
    Ok(Outline {
        seq: Seq(unsigned(row, 0)?),
        id: IntentId(row.get(1)?),
        profile: coded(row, 2, ProfileId::from_code)?,
        state: coded(row, 3, State::from_code)?,
        cause: coded(row, 4, Cause::from_code)?,
        run_at: Micros(row.get(5)?),
        attempts: row.get(6)?,
        created_at: Micros(row.get(7)?),
        claimed_at: row.get::<_, Option<i64>>(8)?.map(Micros),
        settled_at: row.get::<_, Option<i64>>(9)?.map(Micros),
        namespace: row.get(10)?,
        goal: row.get(11)?,
        capability: row.get(12)?,
        holder: row.get(13)?,
        last_error: row.get(14)?,
    })
}

pub(super) fn result_code(kind: ResultKind) -> u8 {
    match kind {
        ResultKind::Json => 0,
        ResultKind::Text => 1,
    }
}

fn result_kind(code: u8) -> ResultKind {
    if code == 1 {
        ResultKind::Text
    } else {
        ResultKind::Json
    }
}

pub(super) fn fact(row: &Row<'_>) -> rusqlite::Result<Fact> {
    Ok(Fact {
        seq: FactSeq(unsigned(row, 0)?),
        intent: Seq(unsigned(row, 1)?),
        at: Micros(row.get(2)?),
        verb: coded(row, 3, Verb::from_code)?,
        from: match row.get::<_, Option<u8>>(4)? {
            Some(_) => Some(coded(row, 4, State::from_code)?),
            None => None,
        },
        to: coded(row, 5, State::from_code)?,
        cause: coded(row, 6, Cause::from_code)?,
        attempt: row.get(7)?,
        actor: row.get(8)?,
        detail: row.get(9)?,
        owner: row.get(10)?,
        face: coded(row, 11, Face::from_code)?,
        previous: fact_seq(row, 12)?,
        wall_offset_us: row.get::<_, Option<i64>>(13)?.unwrap_or(0),
    })
}

fn fact_seq(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<FactSeq>> {
    let value: Option<i64> = row.get(index)?;
    value.map(|_| unsigned(row, index).map(FactSeq)).transpose()
}

pub(super) fn once(row: &Row<'_>) -> rusqlite::Result<once::Row> {
    Ok(once::Row {
        key: once::Key {
            scope: coded(row, 0, once::Scope::from_code)?,
            owner: row.get(1)?,
            key: row.get(2)?,
        },
        fingerprint: row.get(3)?,
        intent: row.get::<_, Option<[u8; 16]>>(4)?.map(IntentId),
        answer: row.get(5)?,
        until: Micros(row.get(6)?),
    })
}

/// Rows as [`nonce`] reads them.
macro_rules! nonces {
    () => {
        "SELECT seq, scope, owner, key, until FROM nonces"
    };
}
pub(super) use nonces;

pub(super) fn nonce(row: &Row<'_>) -> rusqlite::Result<once::Row> {
    let key = once::Key {
        scope: coded(row, 1, once::Scope::from_code)?,
        owner: row.get(2)?,
        key: row.get(3)?,
    };
    Ok(once::Row::bare(key, Micros(row.get(4)?)))
}

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        key: record::Key {
            kind: coded(row, 0, record::Kind::from_code)?,
            owner: row.get(1)?,
            name: row.get(2)?,
        },
        version: unsigned(row, 3)?,
        value: row.get(4)?,
        expires_at: row.get::<_, Option<i64>>(5)?.map(Micros),
    })
}

/// Sequences never reach 2^63 in practice.
pub(super) fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(index)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, value))
}

pub(super) fn coded<T>(
    row: &Row<'_>,
    index: usize,
    from_code: impl Fn(u8) -> Option<T>,
) -> rusqlite::Result<T> {
    let code: u8 = row.get(index)?;
    from_code(code).ok_or_else(|| {
        let unknown = format!("unknown code {code}");
        rusqlite::Error::FromSqlConversionFailure(index, Type::Integer, unknown.into())
    })
}
