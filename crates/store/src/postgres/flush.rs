//! Writing what a transaction decided, all rows of a kind at once.

use consign_kernel::fact::Fact;
use consign_kernel::ids::Seq;
use consign_kernel::intent::Shelf;
use consign_kernel::state::State;
use consign_kernel::{once, record};
use tokio_postgres::types::ToSql;

use super::cells::Cells;
use super::held::Row;
use super::load::keys;
use super::rows::{result_code, signed};
use super::session::{Asked, Session};
use crate::Error;
use crate::ledger::Counter;

/// What a step can change, and what never changes after the admission.
macro_rules! into_intents {
    () => {
        "INSERT INTO intents AS i (seq, state, cause, shelf, wake_at, own_lane, own_goal_lane, public_lane, \
         public_goal_lane, run_at, attempts, expires_at, claimed_at, lease_until, settled_at, last_fact, node, holder, \
         token, last_error, result_kind, result, id, profile, priority, attempts_max, backoff_us, created_at, namespace, \
         goal, owner, public, payload, target, capability, traceparent) "
    };
}

/// New rows, changed rows, facts and counters, in one statement: nearly every group has all of them.
///
/// Changed rows are there and locked, so they are never inserted: the form is chosen because it looks up each row by its
/// key, where a join may be planned as a walk through all rows. Their node stays the one that gave out the token, whoever
/// extends the lease. Counters are taken in the order of their key, so that no two writers wait for each other in a circle.
const WRITE: &str = concat!(
    "WITH new AS (",
    into_intents!(),
    "SELECT * FROM unnest($1::admission[])), changed AS (",
    into_intents!(),
    "SELECT u.*, ''::bytea, 0, 0, 0, 0, 0, '', '', '', false, '', NULL, NULL, NULL FROM unnest($2::change[]) AS u \
     ON CONFLICT (seq) DO UPDATE SET state = excluded.state, cause = excluded.cause, shelf = excluded.shelf, \
     wake_at = excluded.wake_at, own_lane = excluded.own_lane, own_goal_lane = excluded.own_goal_lane, \
     public_lane = excluded.public_lane, public_goal_lane = excluded.public_goal_lane, run_at = excluded.run_at, \
     attempts = excluded.attempts, expires_at = excluded.expires_at, claimed_at = excluded.claimed_at, \
     lease_until = excluded.lease_until, settled_at = excluded.settled_at, last_fact = excluded.last_fact, \
     node = CASE WHEN excluded.node IS NULL OR excluded.token IS DISTINCT FROM i.token THEN excluded.node \
     ELSE i.node END, holder = excluded.holder, token = excluded.token, last_error = excluded.last_error, \
     result_kind = excluded.result_kind, result = excluded.result), \
     told AS (INSERT INTO facts (seq, intent, previous, at, attempt, face, verb, from_state, to_state, cause, owner, \
     actor, detail) SELECT * FROM unnest($3::fact[])) \
     INSERT INTO counts (kind, face, name, state, shard, count) \
     SELECT kind, face, name, state, $5, count FROM unnest($4::counted[]) ORDER BY 1, 2, 3, 4 \
     ON CONFLICT (kind, face, name, state, shard) DO UPDATE SET count = counts.count + excluded.count"
);

const DELETE: &str = "DELETE FROM intents WHERE seq = ANY($1::bigint[])";

/// A key that was not there and is now was used by another node meanwhile: the error makes this transaction look again.
const ONCE: &str = "INSERT INTO once (scope, owner, key, fingerprint, intent, answer, until) \
    SELECT * FROM unnest($1::used_key[])";

/// For keys past their time, which are locked.
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

pub(super) const STATEMENTS: &[&str] = &[
    WRITE,
    DELETE,
    ONCE,
    ONCE_AGAIN,
    RECORD,
    RECORD_AGAIN,
    RECORD_GONE,
];

/// What is to be written in one go.
#[derive(Default)]
pub(super) struct Writes<'r> {
    pub(super) new: Vec<&'r Row>,
    pub(super) changed: Vec<&'r Row>,
    pub(super) removed: Vec<Seq>,
    pub(super) facts: &'r [Fact],
    pub(super) once: Vec<&'r once::Row>,
    pub(super) once_again: Vec<&'r once::Row>,
    pub(super) records: Vec<&'r record::Record>,
    pub(super) records_again: Vec<&'r record::Record>,
    pub(super) records_gone: Vec<&'r record::Key>,
    pub(super) counts: &'r [(Counter, i64)],
}

/// Sends everything at once and waits for all of it. A row to be deleted that vanished although it was locked is an error.
pub(super) fn flush(
    session: &Session,
    writes: &Writes<'_>,
    node: i64,
    shard: i16,
) -> Result<(), Error> {
    let removed: Vec<i64> = writes.removed.iter().map(|seq| signed(seq.0)).collect();
    let new: Vec<Cells> = writes.new.iter().map(|row| admission(row, node)).collect();
    let changed: Vec<Cells> = writes.changed.iter().map(|row| change(row, node)).collect();
    let facts: Vec<Cells> = writes.facts.iter().map(fact).collect();
    let gone = writes.records_gone.iter();
    let gone = keys(gone.map(|key| (key.kind.code(), &key.owner, &key.name)));
    let records: Vec<Cells> = writes.records.iter().map(|row| kept(row)).collect();
    let records_again: Vec<Cells> = writes.records_again.iter().map(|row| kept(row)).collect();
    let once: Vec<Cells> = writes.once.iter().map(|row| used(row)).collect();
    let once_again: Vec<Cells> = writes.once_again.iter().map(|row| used(row)).collect();
    let counts: Vec<Cells> = writes.counts.iter().map(counted).collect();
    let written = new.len() + changed.len() + facts.len() + counts.len();
    // What is deleted goes first: its id may be used anew. Counters come last, so that they are locked as shortly as
    // possible. Of what is written together, the counters alone are counted.
    let steps: [(_, Vec<&(dyn ToSql + Sync)>, _, _); 7] = [
        (DELETE, vec![&removed], removed.len(), removed.len()),
        (
            RECORD_GONE,
            vec![&gone.0, &gone.1, &gone.2],
            gone.0.len(),
            gone.0.len(),
        ),
        (RECORD, vec![&records], records.len(), records.len()),
        (
            RECORD_AGAIN,
            vec![&records_again],
            records_again.len(),
            records_again.len(),
        ),
        (ONCE, vec![&once], once.len(), once.len()),
        (
            ONCE_AGAIN,
            vec![&once_again],
            once_again.len(),
            once_again.len(),
        ),
        (
            WRITE,
            vec![&new, &changed, &facts, &counts, &shard],
            written,
            counts.len(),
        ),
    ];
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for (text, parameters, wanted, counted) in steps {
        if wanted > 0 {
            asked.push(Asked { text, parameters });
            expected.push(counted as u64);
        }
    }
    if session.execute_all(&asked)? == expected {
        return Ok(());
    }
    Err(Error::Corrupt(
        "a locked row vanished inside its transaction".to_owned(),
    ))
}

/// The node that gave out a lease, as long as it lasts.
fn holder_node(row: &Row, node: i64) -> Option<i64> {
    (row.intent.shelf == Shelf::Leased).then_some(node)
}

/// Room for a row without its texts.
const ROW_BYTES: usize = 512;

fn change(row: &Row, node: i64) -> Cells {
    let (intent, lanes) = (&row.intent, row.lanes.as_ref());
    let mut cells = Cells::with_room(ROW_BYTES);
    cells.large(signed(intent.seq.0));
    cells.small(i16::from(intent.state.code()));
    cells.small(i16::from(intent.cause.code()));
    cells.small(i16::from(intent.shelf.code()));
    cells.large(intent.wake_at.0);
    cells.large(lanes.map(|lanes| lanes.own));
    cells.large(lanes.map(|lanes| lanes.own_goal));
    cells.large(lanes.and_then(|lanes| lanes.public));
    cells.large(lanes.and_then(|lanes| lanes.public_goal));
    cells.large(intent.run_at.0);
    cells.large(i64::from(intent.attempts));
    cells.large(intent.expires_at.0);
    cells.large(intent.claimed_at.map(|at| at.0));
    cells.large(intent.lease_until.map(|at| at.0));
    cells.large(intent.settled_at.map(|at| at.0));
    cells.large(intent.last_fact.map(|fact| signed(fact.0)));
    cells.large(holder_node(row, node));
    cells.text(intent.holder.as_deref());
    cells.bytes(intent.token.as_ref().map(|token| &token.0[..]));
    cells.text(intent.last_error.as_deref());
    let result = intent.result.as_ref();
    cells.small(result.map(|result| result_code(result.kind)));
    cells.text(result.map(|result| result.body.as_str()));
    cells
}

/// As a change, and then what stays.
fn admission(row: &Row, node: i64) -> Cells {
    let intent = &row.intent;
    let mut cells = change(row, node);
    cells.bytes(&intent.id.0[..]);
    cells.small(i16::from(intent.profile.code()));
    cells.number(intent.priority);
    cells.large(i64::from(intent.attempts_max));
    cells.large(intent.backoff_us);
    cells.large(intent.created_at.0);
    cells.text(intent.namespace.as_str());
    cells.text(intent.goal.as_str());
    cells.text(intent.owner.as_str());
    cells.truth(intent.public);
    cells.text(intent.payload.as_str());
    cells.text(intent.target.as_deref());
    cells.text(intent.capability.as_deref());
    cells.text(intent.traceparent.as_deref());
    cells
}

fn fact(fact: &Fact) -> Cells {
    let mut cells = Cells::with_room(ROW_BYTES / 2);
    cells.large(signed(fact.seq.0));
    cells.large(signed(fact.intent.0));
    cells.large(fact.previous.map(|seq| signed(seq.0)));
    cells.large(fact.at.0);
    cells.large(i64::from(fact.attempt));
    cells.small(i16::from(fact.face.code()));
    cells.small(i16::from(fact.verb.code()));
    cells.small(fact.from.map(State::code).map(i16::from));
    cells.small(i16::from(fact.to.code()));
    cells.small(i16::from(fact.cause.code()));
    cells.text(fact.owner.as_str());
    cells.text(fact.actor.as_deref());
    cells.text(fact.detail.as_deref());
    cells
}

fn used(row: &once::Row) -> Cells {
    let mut cells = Cells::with_room(ROW_BYTES / 2);
    cells.small(i16::from(row.key.scope.code()));
    cells.text(row.key.owner.as_str());
    cells.text(row.key.key.as_str());
    cells.bytes(&row.fingerprint[..]);
    cells.bytes(row.intent.as_ref().map(|id| &id.0[..]));
    cells.text(row.answer.as_str());
    cells.large(row.until.0);
    cells
}

fn kept(record: &record::Record) -> Cells {
    let mut cells = Cells::with_room(ROW_BYTES / 2);
    cells.small(i16::from(record.key.kind.code()));
    cells.text(record.key.owner.as_str());
    cells.text(record.key.name.as_str());
    cells.large(signed(record.version));
    cells.text(record.value.as_str());
    cells.large(record.expires_at.map(|at| at.0));
    cells
}

fn counted((counter, delta): &(Counter, i64)) -> Cells {
    let (kind, face, name, state) = counter.key();
    let mut cells = Cells::with_room(ROW_BYTES / 4);
    cells.small(i16::from(kind));
    cells.small(i16::from(face));
    cells.text(name);
    cells.small(i16::from(state));
    cells.large(*delta);
    cells
}
