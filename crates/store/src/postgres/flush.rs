//! Writing what a transaction decided, all rows of a kind at once.

use std::borrow::Cow;

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, Seq};
use consign_kernel::intent::Shelf;
use consign_kernel::state::State;
use consign_kernel::{once, record};

use super::cells::Cells;
use super::held::Row;
use super::load::keys;
use super::rows::{result_code, signed, stored};
use super::session::Session;
use super::wire::Asked;
use crate::Error;
use crate::ledger::Counter;

/// What a step can change, and what never changes after the admission.
macro_rules! into_intents {
    () => {
        "INSERT INTO intents AS i (seq, state, cause, shelf, wake_at, own_lane, own_goal_lane, public_lane, \
         public_goal_lane, run_at, attempts, expires_at, claimed_at, lease_until, settled_at, last_fact, node, holder, \
         token, last_error, result_kind, result, id, profile, priority, attempts_max, backoff_us, created_at, namespace, \
         goal, owner, public, payload, target, capability, traceparent, parent, series) "
    };
}

const NEW: &str = concat!(
    into_intents!(),
    "SELECT * FROM unnest($1::tied_admission[])"
);

/// Changed rows are there and locked, so they are never inserted: the form is chosen because it looks up each row by its
/// key, where a join may be planned as a walk through all rows. Their node stays the one that gave out the token, whoever
/// extends the lease.
const CHANGED: &str = concat!(
    into_intents!(),
    "SELECT u.*, ''::bytea, 0, 0, 0, 0, 0, '', '', '', false, '', NULL, NULL, NULL, NULL, NULL FROM unnest($1::change[]) AS u \
     ON CONFLICT (seq) DO UPDATE SET state = excluded.state, cause = excluded.cause, shelf = excluded.shelf, \
     wake_at = excluded.wake_at, own_lane = excluded.own_lane, own_goal_lane = excluded.own_goal_lane, \
     public_lane = excluded.public_lane, public_goal_lane = excluded.public_goal_lane, run_at = excluded.run_at, \
     attempts = excluded.attempts, expires_at = excluded.expires_at, claimed_at = excluded.claimed_at, \
     lease_until = excluded.lease_until, settled_at = excluded.settled_at, last_fact = excluded.last_fact, \
     node = CASE WHEN excluded.node IS NULL OR excluded.token IS DISTINCT FROM i.token THEN excluded.node \
     ELSE i.node END, holder = excluded.holder, token = excluded.token, last_error = excluded.last_error, \
     result_kind = excluded.result_kind, result = excluded.result"
);

const FACTS: &str = "INSERT INTO facts (seq, intent, previous, at, attempt, face, verb, from_state, to_state, cause, \
    owner, actor, detail, wall_offset_us) SELECT * FROM unnest($1::dated_fact[])";

/// Counters are taken in the order of their key, so that no two writers wait for each other in a circle.
/// Those that come to nothing stay. A shard alone rarely does, for what one writer counts up another counts down; and there
/// are as many as names, states and shards, however many intents come and go.
const COUNTS: &str = "INSERT INTO counts (kind, face, name, state, shard, count) \
    SELECT kind, face, name, state, CASE WHEN kind = 2 AND name <> '' THEN 0::smallint ELSE $2 END, count \
    FROM unnest($1::counted[]) ORDER BY 1, 2, 3, 4 \
    ON CONFLICT (kind, face, name, state, shard) DO UPDATE SET count = counts.count + excluded.count";

/// How much one agent has waiting for consent is in one shard, so that it goes when it comes to nothing: anybody may be an agent.
/// Those that this transaction has changed are locked by it.
const COUNTS_GONE: &str = "DELETE FROM counts c USING unnest($1::text[]) AS u (name) \
    WHERE c.kind = 2 AND c.face = 2 AND c.name = u.name AND c.name <> '' AND c.state = 0 AND c.shard = 0 AND c.count = 0";

const FACTS_GONE: &str = "WITH RECURSIVE chain AS (SELECT seq, previous FROM facts WHERE seq = ANY($1::bigint[]) \
    UNION ALL SELECT f.seq, f.previous FROM chain c JOIN facts f ON f.seq = c.previous) \
    DELETE FROM facts WHERE seq = ANY(ARRAY(SELECT seq FROM chain))";

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

/// What was decided and has to be written.
#[derive(Default)]
pub(super) struct Decided<'r> {
    pub(super) new: Vec<&'r Row>,
    pub(super) changed: Vec<&'r Row>,
    pub(super) removed: Vec<Seq>,
    pub(super) facts: &'r [Fact],
    pub(super) facts_gone: &'r [FactSeq],
    pub(super) once: Vec<&'r once::Row>,
    pub(super) once_again: Vec<&'r once::Row>,
    pub(super) records: Vec<&'r record::Record>,
    pub(super) records_again: Vec<&'r record::Record>,
    pub(super) records_gone: Vec<&'r record::Key>,
    pub(super) counts: &'r [(Counter, i64)],
}

impl Decided<'_> {
    pub(super) fn encode(&self, node: i64, shard: i16) -> Writes {
        let gone = self.records_gone.iter();
        let (kinds, owners, names) = keys(gone.map(|key| (key.kind.code(), &key.owner, &key.name)));
        let owned = |texts: Vec<Cow<'_, str>>| texts.into_iter().map(Cow::into_owned).collect();
        Writes {
            removed: self.removed.iter().map(|seq| signed(seq.0)).collect(),
            records_gone: (kinds, owned(owners), owned(names)),
            records: self.records.iter().map(|row| kept(row)).collect(),
            records_again: self.records_again.iter().map(|row| kept(row)).collect(),
            once: self.once.iter().map(|row| used(row)).collect(),
            once_again: self.once_again.iter().map(|row| used(row)).collect(),
            new: self.new.iter().map(|row| admission(row, node)).collect(),
            changed: self.changed.iter().map(|row| change(row, node)).collect(),
            facts: self.facts.iter().map(fact).collect(),
            facts_gone: self.facts_gone.iter().map(|seq| signed(seq.0)).collect(),
            counts_gone: self.counts.iter().filter_map(may_go).collect(),
            counts: self.counts.iter().map(counted).collect(),
            shard,
        }
    }
}

/// The same, ready to be sent.
#[derive(Default)]
pub(super) struct Writes {
    removed: Vec<i64>,
    records_gone: (Vec<i16>, Vec<String>, Vec<String>),
    records: Vec<Cells>,
    records_again: Vec<Cells>,
    once: Vec<Cells>,
    once_again: Vec<Cells>,
    new: Vec<Cells>,
    changed: Vec<Cells>,
    facts: Vec<Cells>,
    facts_gone: Vec<i64>,
    counts_gone: Vec<String>,
    counts: Vec<Cells>,
    shard: i16,
}

impl Writes {
    /// Sends everything at once and waits for all of it. A row to be deleted that vanished although it was locked is an
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

    /// Sends everything and the commit with it. Where rows are deleted, it is looked first whether they were there.
    pub(super) fn commit(&self, session: &mut Session) -> Result<(), Error> {
        if !self.removed.is_empty() || !self.records_gone.0.is_empty() {
            self.send(session)?;
            return session.commit(Vec::new());
        }
        let statements = self.statements().into_iter();
        session.commit(statements.map(|(asked, _)| asked).collect())
    }

    /// The statements that have something to do, and how many rows each writes where that is known. What is deleted goes first: its id may
    /// be used anew. Counters come last, so that they are locked as shortly as possible.
    fn statements(&self) -> Vec<(Asked<'_>, Option<u64>)> {
        let mut statements = Vec::new();
        let mut add = |text, parameters, rows: usize| {
            if rows > 0 {
                let rows = (![FACTS_GONE, COUNTS_GONE].contains(&text)).then_some(rows as u64);
                statements.push((Asked { text, parameters }, rows));
            }
        };
        let gone = &self.records_gone;
        add(DELETE, vec![&self.removed], self.removed.len());
        add(RECORD_GONE, vec![&gone.0, &gone.1, &gone.2], gone.0.len());
        for (text, cells) in [
            (RECORD, &self.records),
            (RECORD_AGAIN, &self.records_again),
            (ONCE, &self.once),
            (ONCE_AGAIN, &self.once_again),
            (NEW, &self.new),
            (CHANGED, &self.changed),
            (FACTS, &self.facts),
        ] {
            add(text, vec![cells], cells.len());
        }
        // The end of a row and its removal may lie in one transaction, so its last facts may be among those just written.
        add(FACTS_GONE, vec![&self.facts_gone], self.facts_gone.len());
        add(COUNTS, vec![&self.counts, &self.shard], self.counts.len());
        let gone = &self.counts_gone;
        add(COUNTS_GONE, vec![gone], gone.len());
        statements
    }
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
    cells.bytes(intent.ties.parent.as_ref().map(|id| &id.0[..]));
    cells.text(intent.ties.series.as_deref());
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
    cells.large((fact.wall_offset_us != 0).then_some(fact.wall_offset_us));
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

/// The names of counters that go when they have come to nothing.
fn may_go((counter, delta): &(Counter, i64)) -> Option<String> {
    match counter {
        Counter::Unconsented { of, .. } if *delta < 0 => Some(stored(of).into_owned()),
        Counter::Unconsented { .. } | Counter::State { .. } | Counter::Unsettled { .. } => None,
    }
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
