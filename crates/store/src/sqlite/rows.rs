//! Converts rows to structs and back. An unreadable value is damage, reported with its row.

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, ResultKind, Shelf};
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::{Cause, State, Verb};
use rusqlite::types::{ToSqlOutput, Type, ValueRef};
use rusqlite::{Row, ToSql};

use crate::Outline;
use crate::columns::{self, Cell, result_kind};

/// Columns in the order [`intent`] reads them.
macro_rules! intent_columns {
    () => {
        column_list!(read name "")
    };
}
pub(super) use intent_columns;

/// Columns in the order [`outline`] reads them. The table has all of them before result and payload, so that neither is
/// read.
macro_rules! outline_columns {
    () => {
        outline_names!("")
    };
}
pub(super) use outline_columns;

/// The four lane columns after those of an intent.
pub(super) fn lanes(row: &Row<'_>) -> rusqlite::Result<[Option<i64>; 4]> {
    Ok([
        row.get(columns::READ)?,
        row.get(columns::READ + 1)?,
        row.get(columns::READ + 2)?,
        row.get(columns::READ + 3)?,
    ])
}

macro_rules! fact_columns {
    () => {
        "seq, intent, at, verb, from_state, to_state, cause, attempt, actor, detail, owner, face, previous, \
         wall_offset_us, worker"
    };
}
pub(super) use fact_columns;

pub(super) fn intent(row: &Row<'_>) -> rusqlite::Result<Intent> {
    read_intent!(row, cell)
}

pub(super) fn outline(row: &Row<'_>) -> rusqlite::Result<Outline> {
    read_outline!(row, cell)
}

/// A field as a column stores it.
trait FromSqliteCell: Sized {
    fn from_cell(row: &Row<'_>, index: usize) -> rusqlite::Result<Self>;
}

fn cell<T: FromSqliteCell>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
    T::from_cell(row, index)
}

macro_rules! from_cell {
    ($($field:ty: $read:expr;)*) => {
        $(impl FromSqliteCell for $field {
            fn from_cell(row: &Row<'_>, index: usize) -> rusqlite::Result<Self> {
                let read: fn(&Row<'_>, usize) -> rusqlite::Result<Self> = $read;
                read(row, index)
            }
        })*
    };
}

from_cell! {
    bool: |row, index| row.get(index);
    i32: |row, index| row.get(index);
    u32: |row, index| row.get(index);
    i64: |row, index| row.get(index);
    String: |row, index| row.get(index);
    Option<String>: |row, index| row.get(index);
    Seq: |row, index| unsigned(row, index).map(Seq);
    Option<FactSeq>: fact_seq;
    Micros: |row, index| row.get(index).map(Micros);
    Option<Micros>: |row, index| Ok(row.get::<_, Option<i64>>(index)?.map(Micros));
    IntentId: |row, index| row.get(index).map(IntentId);
    Option<IntentId>: |row, index| Ok(row.get::<_, Option<_>>(index)?.map(IntentId));
    Option<Token>: |row, index| Ok(row.get::<_, Option<_>>(index)?.map(Token));
    ProfileId: |row, index| coded(row, index, ProfileId::from_code);
    State: |row, index| coded(row, index, State::from_code);
    Cause: |row, index| coded(row, index, Cause::from_code);
    Shelf: |row, index| coded(row, index, Shelf::from_code);
    Option<ResultKind>: |row, index| {
        let code: Option<u8> = row.get(index)?;
        Ok(code.map(|code| result_kind(code.into())))
    };
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let number = |number: Option<i64>| number.map_or(ValueRef::Null, ValueRef::Integer);
        Ok(ToSqlOutput::Borrowed(match *self {
            Cell::Code(code) => number(code.map(i64::from)),
            Cell::Int(int) => ValueRef::Integer(int.into()),
            Cell::Number(value) | Cell::Node(value) => number(value),
            Cell::Bool(value) => ValueRef::Integer(value.into()),
            Cell::Bytes(bytes) => bytes.map_or(ValueRef::Null, ValueRef::Blob),
            Cell::Text(text) => text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes())),
        }))
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
        worker: row.get(14)?,
    })
}

fn fact_seq(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<FactSeq>> {
    let value: Option<i64> = row.get(index)?;
    value.map(|_| unsigned(row, index).map(FactSeq)).transpose()
}

pub(super) fn once(row: &Row<'_>) -> rusqlite::Result<once::FirstUse> {
    Ok(once::FirstUse {
        key: once::OnceKey {
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

pub(super) fn nonce(row: &Row<'_>) -> rusqlite::Result<once::FirstUse> {
    let key = once::OnceKey {
        scope: coded(row, 1, once::Scope::from_code)?,
        owner: row.get(2)?,
        key: row.get(3)?,
    };
    Ok(once::FirstUse::bare(key, Micros(row.get(4)?)))
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
