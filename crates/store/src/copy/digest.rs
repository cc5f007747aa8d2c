//! A digest of a table in thirty-two bytes: the sum of the hashes of its rows.
//!
//! A sum, because the two databases may order texts differently; so the rows may come in any order. It detects accidents,
//! not a deliberate search for a collision.
//! Invariant: every field of a row is hashed: all columns of an intent, and the fields of structs that are destructured
//! completely, so that a new field does not compile until it is handled here.

use consign_kernel::fact::Fact;
use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;
use consign_kernel::once;
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use super::rows::TableRows;
use crate::columns::{self, Cell};
use crate::ledger::Counter;

/// The number of rows, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) rows: u64,
    sum: [u64; 4],
}

impl Digest {
    pub(crate) fn add(&mut self, rows: &TableRows) {
        match rows {
            TableRows::Intents(rows) => rows
                .iter()
                .for_each(|(row, lanes)| self.row(|fields| intent(fields, row, lanes.as_ref()))),
            TableRows::Facts(rows) => rows
                .iter()
                .for_each(|row| self.row(|fields| fact(fields, row))),
            TableRows::Once(rows) => rows
                .iter()
                .for_each(|row| self.row(|fields| once(fields, row))),
            TableRows::Records(rows) => rows
                .iter()
                .for_each(|row| self.row(|fields| record(fields, row))),
            TableRows::Counts(rows) => rows
                .iter()
                .for_each(|(counter, count)| self.row(|fields| count_of(fields, counter, *count))),
        }
    }

    pub(crate) fn hex(&self) -> String {
        let [first, second, third, fourth] = self.sum;
        format!("{first:016x}{second:016x}{third:016x}{fourth:016x}")
    }

    fn row(&mut self, write: impl FnOnce(&mut RowHasher)) {
        let mut fields = RowHasher(blake3::Hasher::new());
        write(&mut fields);
        let hash = fields.0.finalize();
        let mut carry = false;
        // From the last part to the first, with carry.
        for (part, bytes) in self.sum.iter_mut().rev().zip(hash.as_bytes().rchunks(8)) {
            let number = bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte));
            let (sum, over) = part.overflowing_add(number);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            *part = sum;
            carry = over || over_again;
        }
        self.rows += 1;
    }
}

/// Hashes the fields of one row with an unambiguous encoding.
struct RowHasher(blake3::Hasher);

impl RowHasher {
    fn number(&mut self, number: impl Into<i128>) {
        self.0.update(&number.into().to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.update(&[u8::from(value.is_some())]);
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn maybe_number(&mut self, number: Option<impl Into<i128>>) {
        self.maybe(number, Self::number);
    }

    fn maybe_text(&mut self, text: Option<&String>) {
        self.maybe(text, |fields, text| fields.text(text));
    }
}

fn intent(fields: &mut RowHasher, intent: &Intent, lanes: Option<&Lanes>) {
    for cell in columns::without_node(intent, lanes) {
        match cell {
            Cell::Code(code) => fields.maybe_number(code),
            Cell::Int(int) => fields.number(int),
            Cell::Number(number) | Cell::Node(number) => fields.maybe_number(number),
            Cell::Bool(value) => fields.number(u8::from(value)),
            Cell::Bytes(bytes) => fields.maybe(bytes, RowHasher::bytes),
            Cell::Text(text) => fields.maybe(text, RowHasher::text),
        }
    }
}

fn fact(fields: &mut RowHasher, fact: &Fact) {
    let Fact {
        seq,
        intent,
        previous,
        face,
        owner,
        at,
        wall_offset_us,
        verb,
        from,
        to,
        cause,
        attempt,
        actor,
        worker,
        detail,
    } = fact;
    fields.number(seq.0);
    fields.number(intent.0);
    fields.maybe_number(previous.map(|previous| previous.0));
    for code in [face.code(), verb.code(), to.code(), cause.code()] {
        fields.number(code);
    }
    fields.text(owner);
    fields.number(at.0);
    fields.number(*wall_offset_us);
    fields.maybe_number(from.map(State::code));
    fields.number(*attempt);
    fields.maybe_text(actor.as_ref());
    fields.maybe_text(worker.as_ref());
    fields.maybe_text(detail.as_ref());
}

fn once(fields: &mut RowHasher, row: &once::FirstUse) {
    let once::FirstUse {
        key: once::OnceKey { scope, owner, key },
        fingerprint,
        intent,
        answer,
        until,
    } = row;
    fields.number(scope.code());
    fields.text(owner);
    fields.text(key);
    fields.bytes(fingerprint);
    fields.maybe(intent.as_ref(), |fields, id| fields.bytes(&id.0));
    fields.text(answer);
    fields.number(until.0);
}

fn record(fields: &mut RowHasher, record: &Record) {
    let Record {
        key: record::Key { kind, owner, name },
        version,
        value,
        expires_at,
    } = record;
    fields.number(kind.code());
    fields.text(owner);
    fields.text(name);
    fields.number(*version);
    fields.text(value);
    fields.maybe_number(expires_at.map(|at| at.0));
}

fn count_of(fields: &mut RowHasher, counter: &Counter, count: i64) {
    let (kind, face, name, state) = counter.key();
    for code in [kind, face, state] {
        fields.number(code);
    }
    fields.text(name);
    fields.number(count);
}

#[cfg(test)]
mod tests {
    use consign_kernel::ids::Micros;

    use super::*;

    fn rows(values: &[&str]) -> TableRows {
        let record = |value: &&str| Record {
            key: record::Key {
                kind: record::Kind::Kv,
                owner: "alice".to_owned(),
                name: format!("name of {value}"),
            },
            version: 1,
            value: (*value).to_owned(),
            expires_at: Some(Micros(7)),
        };
        TableRows::Records(values.iter().map(record).collect())
    }

    fn digest(pages: &[&[&str]]) -> Digest {
        let mut digest = Digest::default();
        for page in pages {
            digest.add(&rows(page));
        }
        digest
    }

    #[test]
    fn order_and_pages_do_not_matter_and_every_row_does() {
        let whole = digest(&[&["a", "b", "c"]]);
        assert_eq!(digest(&[&["c"], &["a", "b"]]), whole);
        assert_eq!(whole.hex().len(), 64);
        for other in [&["a", "b"][..], &["a", "b", "b"], &["a", "b", "d"]] {
            assert_ne!(digest(&[other]).hex(), whole.hex(), "{other:?}");
        }
    }

    #[test]
    fn a_row_that_differs_in_one_field_has_another_hash() {
        let TableRows::Records(mut changed) = rows(&["a"]) else {
            panic!("records were made");
        };
        changed[0].expires_at = None;
        let mut other = Digest::default();
        other.add(&TableRows::Records(changed));
        assert_ne!(other, digest(&[&["a"]]));
    }

    #[test]
    fn the_sum_carries_over() {
        let mut digest = Digest {
            rows: 0,
            sum: [0, u64::MAX, u64::MAX, u64::MAX],
        };
        digest.add(&rows(&["a"]));
        let mut alone = Digest::default();
        alone.add(&rows(&["a"]));
        assert_ne!(digest.sum[0], 0);
        // All ones plus one are zero, and the carry adds one.
        assert_eq!(digest.sum[0], alone.sum[0].wrapping_add(1));
    }
}
