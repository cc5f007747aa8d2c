//! Converts rows to structs and back. An unreadable value is damage, reported with its row.

use std::borrow::Cow;

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, ResultKind, Shelf};
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::{Cause, State, Verb};
use tokio_postgres::types::FromSql;

use crate::columns::result_kind;
use crate::{Error, Outline};

/// A row of either driver.
pub(super) trait SqlRow {
    fn cell<'r, T: FromSql<'r>>(&'r self, index: usize) -> Result<T, Error>;
    fn column(&self, index: usize) -> &str;
}

impl SqlRow for tokio_postgres::Row {
    fn cell<'r, T: FromSql<'r>>(&'r self, index: usize) -> Result<T, Error> {
        self.try_get(index)
            .map_err(|error| Error::Corrupt(error.to_string()))
    }

    fn column(&self, index: usize) -> &str {
        self.columns()
            .get(index)
            .map_or("?", tokio_postgres::Column::name)
    }
}

/// Columns in the order [`intent`] reads them.
macro_rules! intent_columns {
    () => {
        column_list!(read name "i.")
    };
}
pub(super) use intent_columns;

pub(super) use crate::columns::READ as INTENT_COLUMNS;

/// Columns in the order [`outline`] reads them.
macro_rules! outline_columns {
    () => {
        outline_names!("i.")
    };
}
pub(super) use outline_columns;

macro_rules! fact_columns {
    () => {
        "f.seq, f.intent, f.at, f.verb, f.from_state, f.to_state, f.cause, f.attempt, f.actor, f.detail, f.owner, \
         f.face, f.previous, f.wall_offset_us, f.worker"
    };
}
pub(super) use fact_columns;

pub(super) const FACT_COLUMNS: usize = 15;

pub(super) fn intent(row: &impl SqlRow) -> Result<Intent, Error> {
    read_intent!(row, cell)
}

pub(super) fn outline(row: &impl SqlRow) -> Result<Outline, Error> {
    read_outline!(row, cell)
}

/// A field as a column stores it.
trait FromCell: Sized {
    fn from_cell<R: SqlRow>(row: &R, index: usize) -> Result<Self, Error>;
}

fn cell<T: FromCell>(row: &impl SqlRow, index: usize) -> Result<T, Error> {
    T::from_cell(row, index)
}

macro_rules! from_cell {
    ($($field:ty: $read:expr;)*) => {
        $(impl FromCell for $field {
            fn from_cell<R: SqlRow>(row: &R, index: usize) -> Result<Self, Error> {
                let read: fn(&R, usize) -> Result<Self, Error> = $read;
                read(row, index)
            }
        })*
    };
}

from_cell! {
    bool: |row, index| get(row, index);
    i32: |row, index| get(row, index);
    u32: |row, index| small(row, index);
    i64: |row, index| get(row, index);
    String: |row, index| text(row, index);
    Option<String>: |row, index| optional_text(row, index);
    Seq: |row, index| unsigned(row, index).map(Seq);
    Option<FactSeq>: |row, index| fact_seq(row, index);
    Micros: |row, index| get(row, index).map(Micros);
    Option<Micros>: |row, index| Ok(get::<Option<i64>>(row, index)?.map(Micros));
    IntentId: |row, index| bytes(row, index).map(IntentId);
    Option<IntentId>: |row, index| Ok(optional_bytes(row, index)?.map(IntentId));
    Option<Token>: |row, index| Ok(optional_bytes(row, index)?.map(Token));
    ProfileId: |row, index| coded(row, index, ProfileId::from_code);
    State: |row, index| coded(row, index, State::from_code);
    Cause: |row, index| coded(row, index, Cause::from_code);
    Shelf: |row, index| coded(row, index, Shelf::from_code);
    Option<ResultKind>: |row, index| Ok(get::<Option<i16>>(row, index)?.map(result_kind));
}

pub(super) fn fact(row: &impl SqlRow) -> Result<Fact, Error> {
    Ok(Fact {
        seq: FactSeq(unsigned(row, 0)?),
        intent: Seq(unsigned(row, 1)?),
        at: Micros(get(row, 2)?),
        verb: coded(row, 3, Verb::from_code)?,
        from: match get::<Option<i16>>(row, 4)? {
            Some(_) => Some(coded(row, 4, State::from_code)?),
            None => None,
        },
        to: coded(row, 5, State::from_code)?,
        cause: coded(row, 6, Cause::from_code)?,
        attempt: small(row, 7)?,
        actor: optional_text(row, 8)?,
        detail: optional_text(row, 9)?,
        owner: text(row, 10)?,
        face: coded(row, 11, Face::from_code)?,
        previous: fact_seq(row, 12)?,
        wall_offset_us: get::<Option<i64>>(row, 13)?.unwrap_or(0),
        worker: optional_text(row, 14)?,
    })
}

fn fact_seq(row: &impl SqlRow, index: usize) -> Result<Option<FactSeq>, Error> {
    let value: Option<i64> = get(row, index)?;
    value.map(|_| unsigned(row, index).map(FactSeq)).transpose()
}

pub(super) fn once(row: &impl SqlRow) -> Result<once::FirstUse, Error> {
    Ok(once::FirstUse {
        key: once::OnceKey {
            scope: coded(row, 0, once::Scope::from_code)?,
            owner: text(row, 1)?,
            key: text(row, 2)?,
        },
        fingerprint: bytes(row, 3)?,
        intent: optional_bytes(row, 4)?.map(IntentId),
        answer: text(row, 5)?,
        until: Micros(get(row, 6)?),
    })
}

pub(super) fn record(row: &impl SqlRow) -> Result<Record, Error> {
    Ok(Record {
        key: record::Key {
            kind: coded(row, 0, record::Kind::from_code)?,
            owner: text(row, 1)?,
            name: text(row, 2)?,
        },
        version: unsigned(row, 3)?,
        value: text(row, 4)?,
        expires_at: get::<Option<i64>>(row, 5)?.map(Micros),
    })
}

/// Sequences never reach 2^63 in practice.
pub(super) fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(super) fn get<'r, T: FromSql<'r>>(row: &'r impl SqlRow, index: usize) -> Result<T, Error> {
    row.cell(index)
}

pub(super) fn unsigned(row: &impl SqlRow, index: usize) -> Result<u64, Error> {
    let value: i64 = get(row, index)?;
    u64::try_from(value).map_err(|_| unfit(row, index, value))
}

fn small(row: &impl SqlRow, index: usize) -> Result<u32, Error> {
    let value: i64 = get(row, index)?;
    u32::try_from(value).map_err(|_| unfit(row, index, value))
}

pub(super) fn bytes<const N: usize>(row: &impl SqlRow, index: usize) -> Result<[u8; N], Error> {
    let value: &[u8] = get(row, index)?;
    value
        .try_into()
        .map_err(|_| unfit(row, index, format!("{} bytes", value.len())))
}

fn optional_bytes<const N: usize>(
    row: &impl SqlRow,
    index: usize,
) -> Result<Option<[u8; N]>, Error> {
    let value: Option<&[u8]> = get(row, index)?;
    value.map(|_| bytes(row, index)).transpose()
}

pub(super) fn coded<T>(
    row: &impl SqlRow,
    index: usize,
    from_code: impl Fn(u8) -> Option<T>,
) -> Result<T, Error> {
    let code: i16 = get(row, index)?;
    let known = u8::try_from(code).ok().and_then(from_code);
    known.ok_or_else(|| unfit(row, index, format!("unknown code {code}")))
}

fn unfit(row: &impl SqlRow, index: usize, value: impl std::fmt::Display) -> Error {
    let column = row.column(index);
    Error::Corrupt(format!("column {column} holds {value}"))
}

/// PostgreSQL's texts cannot contain the zero character, ours can. It is stored as this character and a zero digit; the
/// character itself, which Unicode will never assign, is stored twice.
const ESCAPE: char = '\u{10ffff}';

pub(super) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => escaped.extend([ESCAPE, '0']),
            ESCAPE => escaped.extend([ESCAPE, ESCAPE]),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

fn read(stored: &str) -> String {
    if !stored.contains(ESCAPE) {
        return stored.to_owned();
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            ESCAPE => characters
                .next()
                .map_or(ESCAPE, |next| if next == '0' { '\0' } else { next }),
            other => other,
        });
    }
    text
}

pub(super) fn text(row: &impl SqlRow, index: usize) -> Result<String, Error> {
    Ok(read(get(row, index)?))
}

pub(super) fn optional_text(row: &impl SqlRow, index: usize) -> Result<Option<String>, Error> {
    Ok(get::<Option<&str>>(row, index)?.map(read))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_is_read_as_it_was_stored(text in "[a\\x000\u{10ffff}]{0,12}") {
            let kept = stored(&text);
            prop_assert!(!kept.contains('\0'));
            prop_assert_eq!(read(&kept), text);
        }
    }
}
