//! Writing what a transaction decided, one statement for each kind of row.

use consign_kernel::fact::Fact;
use consign_kernel::ids::Seq;
use consign_kernel::intent::Shelf;
use consign_kernel::state::State;
use consign_kernel::{once, record};
use tokio_postgres::types::ToSql;

use super::held::Row;
use super::rows::{result_code, signed, stored};
use super::session::{Asked, Session};
use crate::Error;
use crate::ledger::Counter;

/// Rows that are written together, column by column: each column travels as one array.
macro_rules! columns {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Default)]
        struct $name<'r> {
            $($field: Vec<$type>,)*
            marker: std::marker::PhantomData<&'r ()>,
        }

        impl $name<'_> {
            fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
                vec![$(&self.$field),*]
            }
        }
    };
}

type Text<'r> = std::borrow::Cow<'r, str>;

columns!(Changes {
    seq: i64,
    state: i16,
    cause: i16,
    shelf: i16,
    wake_at: i64,
    own_lane: Option<i64>,
    own_goal_lane: Option<i64>,
    public_lane: Option<i64>,
    public_goal_lane: Option<i64>,
    run_at: i64,
    attempts: i64,
    expires_at: i64,
    claimed_at: Option<i64>,
    lease_until: Option<i64>,
    settled_at: Option<i64>,
    last_fact: Option<i64>,
    node: Option<i64>,
    holder: Option<Text<'r>>,
    token: Option<&'r [u8]>,
    last_error: Option<Text<'r>>,
    result_kind: Option<i16>,
    result: Option<Text<'r>>,
});

columns!(Fixed {
    id: &'r [u8],
    profile: i16,
    priority: i32,
    attempts_max: i64,
    backoff_us: i64,
    created_at: i64,
    namespace: Text<'r>,
    goal: Text<'r>,
    owner: Text<'r>,
    public: bool,
    payload: Text<'r>,
    target: Option<Text<'r>>,
    capability: Option<Text<'r>>,
    traceparent: Option<Text<'r>>,
});

/// What a step can change, and what never changes after the admission.
macro_rules! into_intents {
    () => {
        "INSERT INTO intents AS i (seq, state, cause, shelf, wake_at, own_lane, own_goal_lane, public_lane, public_goal_lane, \
         run_at, attempts, expires_at, claimed_at, lease_until, settled_at, last_fact, node, holder, token, last_error, \
         result_kind, result, id, profile, priority, attempts_max, backoff_us, created_at, namespace, goal, owner, public, \
         payload, target, capability, traceparent) "
    };
}

macro_rules! changes {
    () => {
        "$1::bigint[], $2::smallint[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], \
         $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], \
         $15::bigint[], $16::bigint[], $17::bigint[], $18::text[], $19::bytea[], $20::text[], $21::smallint[], $22::text[]"
    };
}

pub(super) const INSERT: &str = concat!(
    into_intents!(),
    "SELECT * FROM unnest(",
    changes!(),
    ", $23::bytea[], $24::smallint[], $25::integer[], $26::bigint[], $27::bigint[], $28::bigint[], $29::text[], \
     $30::text[], $31::text[], $32::boolean[], $33::text[], $34::text[], $35::text[], $36::text[])"
);

/// The node stays the one that gave out the token, whoever extends the lease. The rows are there and locked, so it never inserts: the form is chosen because it looks up each row by its key, where a
/// join may be planned as a walk through all rows.
pub(super) const UPDATE: &str = concat!(
    into_intents!(),
    "SELECT u.*, ''::bytea, 0, 0, 0, 0, 0, '', '', '', false, '', NULL, NULL, NULL FROM unnest(",
    changes!(),
    ") AS u ON CONFLICT (seq) DO UPDATE SET state = excluded.state, cause = excluded.cause, shelf = excluded.shelf, \
     wake_at = excluded.wake_at, own_lane = excluded.own_lane, own_goal_lane = excluded.own_goal_lane, \
     public_lane = excluded.public_lane, public_goal_lane = excluded.public_goal_lane, run_at = excluded.run_at, \
     attempts = excluded.attempts, expires_at = excluded.expires_at, claimed_at = excluded.claimed_at, \
     lease_until = excluded.lease_until, settled_at = excluded.settled_at, last_fact = excluded.last_fact, \
     node = CASE WHEN excluded.token IS DISTINCT FROM i.token THEN excluded.node ELSE i.node END, holder = excluded.holder, token = excluded.token, last_error = excluded.last_error, \
     result_kind = excluded.result_kind, result = excluded.result"
);

pub(super) const DELETE: &str = "DELETE FROM intents WHERE seq = ANY($1::bigint[])";

columns!(Facts {
    seq: i64,
    intent: i64,
    previous: Option<i64>,
    at: i64,
    attempt: i64,
    face: i16,
    verb: i16,
    from: Option<i16>,
    to: i16,
    cause: i16,
    owner: Text<'r>,
    actor: Option<Text<'r>>,
    detail: Option<Text<'r>>,
});

pub(super) const APPEND: &str = "INSERT INTO facts (seq, intent, previous, at, attempt, face, verb, from_state, \
    to_state, cause, owner, actor, detail) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], \
    $5::bigint[], $6::smallint[], $7::smallint[], $8::smallint[], $9::smallint[], $10::smallint[], $11::text[], \
    $12::text[], $13::text[])";

columns!(OnceRows {
    scope: i16,
    owner: Text<'r>,
    key: Text<'r>,
    fingerprint: &'r [u8],
    intent: Option<&'r [u8]>,
    answer: Text<'r>,
    until: i64,
});

/// A key that was not there and is now was used by another node meanwhile: the error makes this transaction look again.
pub(super) const ONCE: &str = "INSERT INTO once (scope, owner, key, fingerprint, intent, answer, until) SELECT * FROM \
    unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::bigint[])";

/// For keys past their time, which are locked.
pub(super) const ONCE_AGAIN: &str = "INSERT INTO once AS o (scope, owner, key, fingerprint, intent, answer, until) \
    SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::bigint[]) \
    ON CONFLICT (scope, owner, key) DO UPDATE SET fingerprint = excluded.fingerprint, intent = excluded.intent, \
    answer = excluded.answer, until = excluded.until";

columns!(RecordRows {
    kind: i16,
    owner: Text<'r>,
    name: Text<'r>,
    version: i64,
    value: Text<'r>,
    expires_at: Option<i64>,
});

pub(super) const RECORD: &str = "INSERT INTO records (kind, owner, name, version, value, expires_at) SELECT * FROM \
    unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])";

pub(super) const RECORD_AGAIN: &str = "INSERT INTO records AS r (kind, owner, name, version, value, expires_at) \
    SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[]) \
    ON CONFLICT (kind, owner, name) DO UPDATE SET version = excluded.version, value = excluded.value, \
    expires_at = excluded.expires_at";

pub(super) const RECORD_GONE: &str = "DELETE FROM records r USING unnest($1::smallint[], $2::text[], $3::text[]) \
    AS u (kind, owner, name) WHERE r.kind = u.kind AND r.owner = u.owner AND r.name = u.name";

/// In the order of the key, so that no two writers wait for each other in a circle.
pub(super) const COUNT: &str = "INSERT INTO counts (kind, face, name, state, shard, count) SELECT kind, face, name, \
    state, $6, count FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::smallint[], $5::bigint[]) \
    AS u (kind, face, name, state, count) ORDER BY 1, 2, 3, 4 \
    ON CONFLICT (kind, face, name, state, shard) DO UPDATE SET count = counts.count + excluded.count";

pub(super) const STATEMENTS: &[&str] = &[
    INSERT,
    UPDATE,
    DELETE,
    APPEND,
    ONCE,
    ONCE_AGAIN,
    RECORD,
    RECORD_AGAIN,
    RECORD_GONE,
    COUNT,
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

/// Sends everything at once and waits for all of it. A row that vanished although it was locked is an error.
pub(super) fn flush(
    session: &Session,
    writes: &Writes<'_>,
    node: i64,
    shard: i16,
) -> Result<(), Error> {
    let (new, new_fixed) = (changes(&writes.new, node), fixed(&writes.new));
    let changed = changes(&writes.changed, node);
    let removed: Vec<i64> = writes.removed.iter().map(|seq| signed(seq.0)).collect();
    let facts = facts(writes.facts);
    let (once, once_again) = (once_rows(&writes.once), once_rows(&writes.once_again));
    let records = record_rows(&writes.records);
    let records_again = record_rows(&writes.records_again);
    let gone = record_keys(&writes.records_gone);
    let counts = count_rows(writes.counts);
    let mut inserted = new.parameters();
    inserted.extend(new_fixed.parameters());
    let mut counted = counts.parameters();
    counted.push(&shard);
    // What is deleted goes first: its id may be used anew. Keys that others may be using come last but one, counters
    // last, so that they are locked as shortly as possible.
    let steps = [
        (DELETE, vec![&removed as &(dyn ToSql + Sync)], removed.len()),
        (INSERT, inserted, new.seq.len()),
        (UPDATE, changed.parameters(), changed.seq.len()),
        (APPEND, facts.parameters(), facts.seq.len()),
        (RECORD_GONE, gone.parameters(), gone.kind.len()),
        (RECORD, records.parameters(), records.kind.len()),
        (
            RECORD_AGAIN,
            records_again.parameters(),
            records_again.kind.len(),
        ),
        (ONCE, once.parameters(), once.scope.len()),
        (ONCE_AGAIN, once_again.parameters(), once_again.scope.len()),
        (COUNT, counted, counts.kind.len()),
    ];
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for (text, parameters, rows) in steps.into_iter().filter(|(_, _, rows)| *rows > 0) {
        asked.push(Asked { text, parameters });
        expected.push(rows as u64);
    }
    if session.execute_all(&asked)? == expected {
        return Ok(());
    }
    Err(Error::Corrupt(
        "a locked row vanished inside its transaction".to_owned(),
    ))
}

fn optional(text: Option<&String>) -> Option<Text<'_>> {
    text.map(|text| stored(text))
}

/// The node that gave out a lease, as long as it lasts.
fn holder_node(row: &Row, node: i64) -> Option<i64> {
    (row.intent.shelf == Shelf::Leased).then_some(node)
}

fn changes<'r>(rows: &[&'r Row], node: i64) -> Changes<'r> {
    let mut columns = Changes::default();
    for row in rows {
        let (intent, lanes) = (&row.intent, row.lanes.as_ref());
        columns.seq.push(signed(intent.seq.0));
        columns.state.push(intent.state.code().into());
        columns.cause.push(intent.cause.code().into());
        columns.shelf.push(intent.shelf.code().into());
        columns.wake_at.push(intent.wake_at.0);
        columns.own_lane.push(lanes.map(|lanes| lanes.own));
        columns
            .own_goal_lane
            .push(lanes.map(|lanes| lanes.own_goal));
        columns
            .public_lane
            .push(lanes.and_then(|lanes| lanes.public));
        columns
            .public_goal_lane
            .push(lanes.and_then(|lanes| lanes.public_goal));
        columns.run_at.push(intent.run_at.0);
        columns.attempts.push(intent.attempts.into());
        columns.expires_at.push(intent.expires_at.0);
        columns.claimed_at.push(intent.claimed_at.map(|at| at.0));
        columns.lease_until.push(intent.lease_until.map(|at| at.0));
        columns.settled_at.push(intent.settled_at.map(|at| at.0));
        columns
            .last_fact
            .push(intent.last_fact.map(|fact| signed(fact.0)));
        columns.node.push(holder_node(row, node));
        columns.holder.push(optional(intent.holder.as_ref()));
        columns
            .token
            .push(intent.token.as_ref().map(|token| &token.0[..]));
        columns
            .last_error
            .push(optional(intent.last_error.as_ref()));
        let result = intent.result.as_ref();
        columns
            .result_kind
            .push(result.map(|result| result_code(result.kind)));
        columns
            .result
            .push(result.map(|result| stored(&result.body)));
    }
    columns
}

fn fixed<'r>(rows: &[&'r Row]) -> Fixed<'r> {
    let mut columns = Fixed::default();
    for row in rows {
        let intent = &row.intent;
        columns.id.push(&intent.id.0);
        columns.profile.push(intent.profile.code().into());
        columns.priority.push(intent.priority);
        columns.attempts_max.push(intent.attempts_max.into());
        columns.backoff_us.push(intent.backoff_us);
        columns.created_at.push(intent.created_at.0);
        columns.namespace.push(stored(&intent.namespace));
        columns.goal.push(stored(&intent.goal));
        columns.owner.push(stored(&intent.owner));
        columns.public.push(intent.public);
        columns.payload.push(stored(&intent.payload));
        columns.target.push(optional(intent.target.as_ref()));
        columns
            .capability
            .push(optional(intent.capability.as_ref()));
        columns
            .traceparent
            .push(optional(intent.traceparent.as_ref()));
    }
    columns
}

fn facts(rows: &[Fact]) -> Facts<'_> {
    let mut columns = Facts::default();
    for fact in rows {
        columns.seq.push(signed(fact.seq.0));
        columns.intent.push(signed(fact.intent.0));
        columns
            .previous
            .push(fact.previous.map(|seq| signed(seq.0)));
        columns.at.push(fact.at.0);
        columns.attempt.push(fact.attempt.into());
        columns.face.push(fact.face.code().into());
        columns.verb.push(fact.verb.code().into());
        columns.from.push(fact.from.map(State::code).map(i16::from));
        columns.to.push(fact.to.code().into());
        columns.cause.push(fact.cause.code().into());
        columns.owner.push(stored(&fact.owner));
        columns.actor.push(optional(fact.actor.as_ref()));
        columns.detail.push(optional(fact.detail.as_ref()));
    }
    columns
}

fn once_rows<'r>(rows: &[&'r once::Row]) -> OnceRows<'r> {
    let mut columns = OnceRows::default();
    for row in rows {
        columns.scope.push(row.key.scope.code().into());
        columns.owner.push(stored(&row.key.owner));
        columns.key.push(stored(&row.key.key));
        columns.fingerprint.push(&row.fingerprint);
        columns.intent.push(row.intent.as_ref().map(|id| &id.0[..]));
        columns.answer.push(stored(&row.answer));
        columns.until.push(row.until.0);
    }
    columns
}

fn record_rows<'r>(rows: &[&'r record::Record]) -> RecordRows<'r> {
    let mut columns = RecordRows::default();
    for record in rows {
        columns.kind.push(record.key.kind.code().into());
        columns.owner.push(stored(&record.key.owner));
        columns.name.push(stored(&record.key.name));
        columns.version.push(signed(record.version));
        columns.value.push(stored(&record.value));
        columns.expires_at.push(record.expires_at.map(|at| at.0));
    }
    columns
}

columns!(RecordKeys {
    kind: i16,
    owner: Text<'r>,
    name: Text<'r>,
});

fn record_keys<'r>(keys: &[&'r record::Key]) -> RecordKeys<'r> {
    let mut columns = RecordKeys::default();
    for key in keys {
        columns.kind.push(key.kind.code().into());
        columns.owner.push(stored(&key.owner));
        columns.name.push(stored(&key.name));
    }
    columns
}

columns!(Counts {
    kind: i16,
    face: i16,
    name: Text<'r>,
    state: i16,
    count: i64,
});

fn count_rows(counts: &[(Counter, i64)]) -> Counts<'_> {
    let mut columns = Counts::default();
    for (counter, delta) in counts {
        let (kind, face, name, state) = counter.key();
        columns.kind.push(kind.into());
        columns.face.push(face.into());
        columns.name.push(stored(name));
        columns.state.push(state.into());
        columns.count.push(*delta);
    }
    columns
}
