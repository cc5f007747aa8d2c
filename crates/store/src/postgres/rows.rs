//! Converts rows to structs and back. An unreadable value is damage, reported with its row.

use std::borrow::Cow;

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf, Ties};
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::{Cause, State, Verb};
use tokio_postgres::types::FromSql;

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
        "i.seq, i.id, i.profile, i.state, i.cause, i.shelf, i.wake_at, i.priority, i.run_at, i.attempts, \
         i.attempts_max, i.backoff_us, i.created_at, i.expires_at, i.claimed_at, i.lease_until, i.settled_at, \
         i.namespace, i.goal, i.owner, i.public, i.target, i.capability, i.holder, i.token, i.traceparent, \
         i.last_error, i.result_kind, i.result, i.payload, i.last_fact, i.parent, i.series"
    };
}
pub(super) use intent_columns;

pub(super) const INTENT_COLUMNS: usize = 33;

/// Columns in the order [`outline`] reads them.
macro_rules! outline_columns {
    () => {
        "i.seq, i.id, i.profile, i.state, i.cause, i.run_at, i.attempts, i.created_at, i.claimed_at, i.settled_at, \
         i.namespace, i.goal, i.capability, i.holder, i.last_error"
    };
}
pub(super) use outline_columns;

macro_rules! fact_columns {
    () => {
        "f.seq, f.intent, f.at, f.verb, f.from_state, f.to_state, f.cause, f.attempt, f.actor, f.detail, f.owner, \
         f.face, f.previous, f.wall_offset_us"
    };
}
pub(super) use fact_columns;

pub(super) const FACT_COLUMNS: usize = 14;

pub(super) fn intent(row: &impl SqlRow) -> Result<Intent, Error> {
    let kind: Option<i16> = get(row, 27)?;
    let body = optional_text(row, 28)?;
    Ok(Intent {
        seq: Seq(unsigned(row, 0)?),
        id: IntentId(bytes(row, 1)?),
        profile: coded(row, 2, ProfileId::from_code)?,
        state: coded(row, 3, State::from_code)?,
        cause: coded(row, 4, Cause::from_code)?,
        shelf: coded(row, 5, Shelf::from_code)?,
        wake_at: Micros(get(row, 6)?),
        priority: get(row, 7)?,
        run_at: Micros(get(row, 8)?),
        attempts: small(row, 9)?,
        attempts_max: small(row, 10)?,
        backoff_us: get(row, 11)?,
        created_at: Micros(get(row, 12)?),
        expires_at: Micros(get(row, 13)?),
        claimed_at: get::<Option<i64>>(row, 14)?.map(Micros),
        lease_until: get::<Option<i64>>(row, 15)?.map(Micros),
        settled_at: get::<Option<i64>>(row, 16)?.map(Micros),
        namespace: text(row, 17)?,
        goal: text(row, 18)?,
        owner: text(row, 19)?,
        public: get(row, 20)?,
        target: optional_text(row, 21)?,
        capability: optional_text(row, 22)?,
        holder: optional_text(row, 23)?,
        token: optional_bytes(row, 24)?.map(Token),
        traceparent: optional_text(row, 25)?,
        last_error: optional_text(row, 26)?,
        result: kind.zip(body).map(|(kind, body)| Outcome {
            kind: result_kind(kind),
            body,
        }),
        payload: text(row, 29)?,
        last_fact: fact_seq(row, 30)?,
        ties: Ties {
            parent: optional_bytes(row, 31)?.map(IntentId),
            series: optional_text(row, 32)?,
        },
    })
}

pub(super) fn outline(row: &impl SqlRow) -> Result<Outline, Error> {
    Ok(Outline {
        seq: Seq(unsigned(row, 0)?),
        id: IntentId(bytes(row, 1)?),
        profile: coded(row, 2, ProfileId::from_code)?,
        state: coded(row, 3, State::from_code)?,
        cause: coded(row, 4, Cause::from_code)?,
        run_at: Micros(get(row, 5)?),
        attempts: small(row, 6)?,
        created_at: Micros(get(row, 7)?),
        claimed_at: get::<Option<i64>>(row, 8)?.map(Micros),
        settled_at: get::<Option<i64>>(row, 9)?.map(Micros),
        namespace: text(row, 10)?,
        goal: text(row, 11)?,
        capability: optional_text(row, 12)?,
        holder: optional_text(row, 13)?,
        last_error: optional_text(row, 14)?,
    })
}

pub(super) fn result_code(kind: ResultKind) -> i16 {
    match kind {
        ResultKind::Json => 0,
        ResultKind::Text => 1,
    }
}

fn result_kind(code: i16) -> ResultKind {
    if code == 1 {
        ResultKind::Text
    } else {
        ResultKind::Json
    }
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
    })
}

fn fact_seq(row: &impl SqlRow, index: usize) -> Result<Option<FactSeq>, Error> {
    let value: Option<i64> = get(row, index)?;
    value.map(|_| unsigned(row, index).map(FactSeq)).transpose()
}

pub(super) fn once(row: &impl SqlRow) -> Result<once::Row, Error> {
    Ok(once::Row {
        key: once::Key {
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

fn bytes<const N: usize>(row: &impl SqlRow, index: usize) -> Result<[u8; N], Error> {
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
