//! Writes the decisions of a transaction, all rows of a kind with one statement.

use std::borrow::Cow;

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Seq};
use consign_kernel::intent::Shelf;
use consign_kernel::state::State;
use consign_kernel::{once, record};

use super::dedupe;
use super::load::keys;
use super::row_encoder::RowEncoder;
use super::rows::{signed, stored};
use super::session::Session;
use super::wire::BoundStatement;
use super::working_set::LoadedRow;
use crate::Error;
use crate::columns::{self, Cell};
use crate::ledger::Counter;

macro_rules! into_intents {
    () => {
        concat!(
            "INSERT INTO intents AS i (",
            column_list!(all name ""),
            ") "
        )
    };
}

const NEW: &str = concat!(
    into_intents!(),
    "SELECT * FROM unnest($1::worker_admission[])"
);

/// Changed rows exist and are locked, so they are never inserted: the upsert is used because it looks up each row by its
/// key, where a join may be planned as a scan of all rows. Their node stays the one that issued the token, whichever node
/// extends the lease.
const CHANGED: &str = concat!(
    into_intents!(),
    "SELECT u.*, ''::bytea, 0, 0, 0, 0, 0, '', '', '', false, '', NULL, NULL, NULL, NULL, NULL, NULL FROM unnest($1::worker_change[]) AS u \
     ON CONFLICT (seq) DO UPDATE SET node = CASE WHEN excluded.node IS NULL OR excluded.token IS DISTINCT FROM i.token \
     THEN excluded.node ELSE i.node END, ",
    column_list!(change set excluded)
);

const FACTS: &str = "INSERT INTO facts (seq, intent, previous, at, attempt, face, verb, from_state, to_state, cause, \
    owner, actor, detail, wall_offset_us, worker) SELECT * FROM unnest($1::worker_fact[])";

/// Counters are locked in the order of their key, so that writers cannot deadlock.
/// Counters that reach zero stay. A single shard rarely reaches zero, because one writer counts up and another down; and
/// their number is bounded by names, states and shards, not by intents.
const COUNTS: &str = "INSERT INTO counts (kind, face, name, state, shard, count) \
    SELECT kind, face, name, state, CASE WHEN kind = 2 AND name <> '' THEN 0::smallint ELSE $2 END, count \
    FROM unnest($1::counted[]) ORDER BY 1, 2, 3, 4 \
    ON CONFLICT (kind, face, name, state, shard) DO UPDATE SET count = counts.count + excluded.count";

/// The permissions of one agent that wait for consent are counted in one shard, so that the counter is deleted at zero:
/// anyone may be an agent. Counters that this transaction has changed are locked by it.
const COUNTS_GONE: &str = "DELETE FROM counts c USING unnest($1::text[]) AS u (name) \
    WHERE c.kind = 2 AND c.face = 2 AND c.name = u.name AND c.name <> '' AND c.state = 0 AND c.shard = 0 AND c.count = 0";

const FACTS_GONE: &str = "WITH RECURSIVE chain AS (SELECT seq, previous FROM facts WHERE seq = ANY($1::bigint[]) \
    UNION ALL SELECT f.seq, f.previous FROM chain c JOIN facts f ON f.seq = c.previous) \
    DELETE FROM facts WHERE seq = ANY(ARRAY(SELECT seq FROM chain))";

const DELETE: &str = "DELETE FROM intents WHERE seq = ANY($1::bigint[])";

/// A key that did not exist when it was read was used by another node meanwhile: the error makes this transaction retry.
const ONCE: &str = "INSERT INTO once (scope, owner, key, fingerprint, intent, answer, until) \
    SELECT * FROM unnest($1::used_key[])";

/// For expired keys, which are locked.
const ONCE_AGAIN: &str = "INSERT INTO once (scope, owner, key, fingerprint, intent, answer, until) \
    SELECT * FROM unnest($1::used_key[]) ON CONFLICT (scope, owner, key) DO UPDATE SET \
    fingerprint = excluded.fingerprint, intent = excluded.intent, answer = excluded.answer, until = excluded.until";

const RECORD: &str = "INSERT INTO records (kind, owner, name, version, value, expires_at) \
    SELECT * FROM unnest($1::kept_record[])";

const RECORD_AGAIN: &str = "INSERT INTO records (kind, owner, name, version, value, expires_at) \
    SELECT * FROM unnest($1::kept_record[]) ON CONFLICT (kind, owner, name) DO UPDATE SET \
    version = excluded.version, value = excluded.value, expires_at = excluded.expires_at";

const RECORD_GONE: &str = "DELETE FROM records r USING unnest($1::smallint[], $2::text[], $3::text[]) \
    AS u (kind, owner, name) WHERE r.kind = u.kind AND r.owner = u.owner AND r.name = u.name";

/// The decisions that must be written.
#[derive(Default)]
pub(super) struct DecidedWrites<'r> {
    pub(super) new: Vec<&'r LoadedRow>,
    pub(super) changed: Vec<&'r LoadedRow>,
    pub(super) removed: Vec<Seq>,
    pub(super) facts: &'r [Fact],
    pub(super) facts_gone: &'r [FactSeq],
    pub(super) once: Vec<&'r once::FirstUse>,
    pub(super) once_again: Vec<&'r once::FirstUse>,
    pub(super) records: Vec<&'r record::Record>,
    pub(super) records_again: Vec<&'r record::Record>,
    pub(super) records_gone: Vec<&'r record::Key>,
    pub(super) counts: &'r [(Counter, i64)],
    pub(super) messages_gone: &'r [(once::OnceKey, IntentId)],
}

impl DecidedWrites<'_> {
    pub(super) fn encode(&self, node: i64, shard: i16) -> Result<EncodedWrites, Error> {
        let gone = self.records_gone.iter();
        let (kinds, owners, names) = keys(gone.map(|key| (key.kind.code(), &key.owner, &key.name)));
        let owned = |texts: Vec<Cow<'_, str>>| texts.into_iter().map(Cow::into_owned).collect();
        let is_message = |row: &&&once::FirstUse| row.key.scope == once::Scope::MeshMessage;
        let messages = |rows: &[&once::FirstUse]| {
            rows.iter()
                .filter(is_message)
                .map(|row| dedupe::encoded(row))
                .collect::<Result<Vec<_>, Error>>()
        };
        let keys = |rows: &[&once::FirstUse]| {
            rows.iter()
                .filter(|row| !is_message(row))
                .map(|row| once_row(row))
                .collect()
        };
        Ok(EncodedWrites {
            messages: messages(&self.once)?,
            messages_again: messages(&self.once_again)?,
            messages_gone: messages_gone(self.messages_gone),
            removed: self.removed.iter().map(|seq| signed(seq.0)).collect(),
            records_gone: (kinds, owned(owners), owned(names)),
            records: self.records.iter().map(|row| record_row(row)).collect(),
            records_again: self
                .records_again
                .iter()
                .map(|row| record_row(row))
                .collect(),
            once: keys(&self.once),
            once_again: keys(&self.once_again),
            new: self.new.iter().map(|row| new_row(row, node)).collect(),
            changed: self
                .changed
                .iter()
                .map(|row| changed_row(row, node))
                .collect(),
            facts: self.facts.iter().map(fact_row).collect(),
            facts_gone: self.facts_gone.iter().map(|seq| signed(seq.0)).collect(),
            counts_gone: self.counts.iter().filter_map(removable_counter).collect(),
            counts: self.counts.iter().map(counter_row).collect(),
            shard,
        })
    }
}

/// The decisions as statement parameters.
#[derive(Default)]
pub(super) struct EncodedWrites {
    removed: Vec<i64>,
    records_gone: (Vec<i16>, Vec<String>, Vec<String>),
    records: Vec<RowEncoder>,
    records_again: Vec<RowEncoder>,
    once: Vec<RowEncoder>,
    once_again: Vec<RowEncoder>,
    messages: Vec<RowEncoder>,
    messages_again: Vec<RowEncoder>,
    /// Meshes, keys and ids.
    messages_gone: (Vec<String>, Vec<String>, Vec<Vec<u8>>),
    new: Vec<RowEncoder>,
    changed: Vec<RowEncoder>,
    facts: Vec<RowEncoder>,
    facts_gone: Vec<i64>,
    counts_gone: Vec<String>,
    counts: Vec<RowEncoder>,
    shard: i16,
}

impl EncodedWrites {
    /// Sends all statements at once and waits for all results. A row to delete that is gone although it was locked is an
    /// error.
    pub(super) fn send(&self, session: &mut Session) -> Result<(), Error> {
        let (asked, expected): (Vec<_>, Vec<Option<u64>>) = self.statements().into_iter().unzip();
        let answers = session.ask(&asked)?.into_iter();
        let as_expected =
            |(count, expected): (u64, Option<u64>)| expected.is_none_or(|of| of == count);
        if answers
            .map(|answer| answer.count)
            .zip(expected)
            .all(as_expected)
        {
            return Ok(());
        }
        Err(Error::Corrupt(
            "a locked row vanished inside its transaction".to_owned(),
        ))
    }

    /// Sends all statements together with the commit. If rows are deleted, it first checks that they existed.
    pub(super) fn commit(&self, session: &mut Session) -> Result<(), Error> {
        if !self.removed.is_empty() || !self.records_gone.0.is_empty() {
            self.send(session)?;
            return session.commit(Vec::new());
        }
        let statements = self.statements().into_iter();
        session.commit(statements.map(|(asked, _)| asked).collect())
    }

    /// The statements with rows to write, and how many rows each must affect where that is known. Deletions come first: an id
    /// may be used again. Counters come last, so that they are locked as shortly as possible.
    fn statements(&self) -> Vec<(BoundStatement<'_>, Option<u64>)> {
        let mut statements = Vec::new();
        let mut add = |text, parameters, rows: usize| {
            if rows > 0 {
                let any = [FACTS_GONE, COUNTS_GONE, dedupe::MESSAGES_GONE].contains(&text);
                let rows = (!any).then_some(rows as u64);
                statements.push((BoundStatement { text, parameters }, rows));
            }
        };
        let gone = &self.records_gone;
        add(DELETE, vec![&self.removed], self.removed.len());
        add(RECORD_GONE, vec![&gone.0, &gone.1, &gone.2], gone.0.len());
        for (text, row_cells) in [
            (RECORD, &self.records),
            (RECORD_AGAIN, &self.records_again),
            (ONCE, &self.once),
            (ONCE_AGAIN, &self.once_again),
            (dedupe::PUT, &self.messages),
            (dedupe::PUT_AGAIN, &self.messages_again),
            (NEW, &self.new),
            (CHANGED, &self.changed),
            (FACTS, &self.facts),
        ] {
            add(text, vec![row_cells], row_cells.len());
        }
        let gone = &self.messages_gone;
        add(
            dedupe::MESSAGES_GONE,
            vec![&gone.0, &gone.1, &gone.2],
            gone.0.len(),
        );
        // A row may end and be removed in one transaction, so its last facts may be among those just written.
        add(FACTS_GONE, vec![&self.facts_gone], self.facts_gone.len());
        add(COUNTS, vec![&self.counts, &self.shard], self.counts.len());
        let gone = &self.counts_gone;
        add(COUNTS_GONE, vec![gone], gone.len());
        statements
    }
}

/// The node that granted the lease, as long as the row is leased.
fn holder_node(row: &LoadedRow, node: i64) -> Option<i64> {
    (row.intent.shelf == Shelf::Leased).then_some(node)
}

/// The size of a row without its texts.
const ROW_BYTES: usize = 512;

fn changed_row(row: &LoadedRow, node: i64) -> RowEncoder {
    let node = holder_node(row, node);
    let cells = columns::all(&row.intent, row.lanes.as_ref(), node);
    encoded(columns::unfixed(&cells))
}

fn new_row(row: &LoadedRow, node: i64) -> RowEncoder {
    let node = holder_node(row, node);
    encoded(&columns::all(&row.intent, row.lanes.as_ref(), node))
}

fn encoded(cells: &[Cell<'_>]) -> RowEncoder {
    let mut row_cells = RowEncoder::with_capacity(ROW_BYTES);
    for cell in cells {
        match *cell {
            Cell::Code(code) => row_cells.int2(code.map(i16::from)),
            Cell::Int(int) => row_cells.int4(int),
            Cell::Number(number) | Cell::Node(number) => row_cells.int8(number),
            Cell::Bool(value) => row_cells.boolean(value),
            Cell::Bytes(bytes) => row_cells.bytes(bytes),
            Cell::Text(text) => row_cells.text(text),
        }
    }
    row_cells
}

fn fact_row(fact: &Fact) -> RowEncoder {
    let mut row_cells = RowEncoder::with_capacity(ROW_BYTES / 2);
    row_cells.int8(signed(fact.seq.0));
    row_cells.int8(signed(fact.intent.0));
    row_cells.int8(fact.previous.map(|seq| signed(seq.0)));
    row_cells.int8(fact.at.0);
    row_cells.int8(i64::from(fact.attempt));
    row_cells.int2(i16::from(fact.face.code()));
    row_cells.int2(i16::from(fact.verb.code()));
    row_cells.int2(fact.from.map(State::code).map(i16::from));
    row_cells.int2(i16::from(fact.to.code()));
    row_cells.int2(i16::from(fact.cause.code()));
    row_cells.text(fact.owner.as_str());
    row_cells.text(fact.actor.as_deref());
    row_cells.text(fact.detail.as_deref());
    row_cells.int8((fact.wall_offset_us != 0).then_some(fact.wall_offset_us));
    row_cells.text(fact.worker.as_deref());
    row_cells
}

fn once_row(row: &once::FirstUse) -> RowEncoder {
    let mut row_cells = RowEncoder::with_capacity(ROW_BYTES / 2);
    row_cells.int2(i16::from(row.key.scope.code()));
    row_cells.text(row.key.owner.as_str());
    row_cells.text(row.key.key.as_str());
    row_cells.bytes(&row.fingerprint[..]);
    row_cells.bytes(row.intent.as_ref().map(|id| &id.0[..]));
    row_cells.text(row.answer.as_str());
    row_cells.int8(row.until.0);
    row_cells
}

fn messages_gone(gone: &[(once::OnceKey, IntentId)]) -> (Vec<String>, Vec<String>, Vec<Vec<u8>>) {
    let mut gone: Vec<_> = gone.iter().collect();
    gone.sort_unstable();
    let (meshes, keys) = dedupe::keys(gone.iter().map(|(key, _)| key));
    let ids = gone.iter().map(|(_, id)| id.0.to_vec()).collect();
    (meshes, keys, ids)
}

fn record_row(record: &record::Record) -> RowEncoder {
    let mut row_cells = RowEncoder::with_capacity(ROW_BYTES / 2);
    row_cells.int2(i16::from(record.key.kind.code()));
    row_cells.text(record.key.owner.as_str());
    row_cells.text(record.key.name.as_str());
    row_cells.int8(signed(record.version));
    row_cells.text(record.value.as_str());
    row_cells.int8(record.expires_at.map(|at| at.0));
    row_cells
}

/// The name of a counter that is deleted at zero.
fn removable_counter((counter, delta): &(Counter, i64)) -> Option<String> {
    match counter {
        Counter::Unconsented { of, .. } if *delta < 0 => Some(stored(of).into_owned()),
        Counter::Unconsented { .. }
        | Counter::State { .. }
        | Counter::Unsettled { .. }
        | Counter::Messages { .. } => None,
    }
}

fn counter_row((counter, delta): &(Counter, i64)) -> RowEncoder {
    let (kind, face, name, state) = counter.key();
    let mut row_cells = RowEncoder::with_capacity(ROW_BYTES / 4);
    row_cells.int2(i16::from(kind));
    row_cells.int2(i16::from(face));
    row_cells.text(name);
    row_cells.int2(i16::from(state));
    row_cells.int8(*delta);
    row_cells
}
