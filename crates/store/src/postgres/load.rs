//! Loads and locks what the requests of a group will need, with one round trip.
//!
//! What is not prefetched is loaded when a command needs it: the prefetch saves time and decides nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use consign_kernel::command::{Command, Request, Sweep};
use consign_kernel::decide::{Needs, needs};
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Column, Probe};
use consign_kernel::limits;
use consign_kernel::once;
use consign_kernel::record::{self, ApiKey};

use super::dedupe;
use super::rows::{self, INTENT_COLUMNS, intent_columns, stored};
use super::session::Session;
use super::wire::{BoundStatement, Row};
use crate::Error;
use crate::ledger::Counter;

/// Numbers in a block: more than a group usually needs, and few enough never to run out.
pub(super) const BLOCK: u64 = 4_096;

const BEGIN: &str = "BEGIN";

/// How long a transaction waits for each lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockTimeout {
    /// The default of the connection.
    Usual,
    /// For a part of a group that failed on a lock: it may meet the same lock, and other requests wait for it.
    Brief,
}

const BRIEFLY: &str = "SET LOCAL lock_timeout = '20ms'";

/// New blocks of numbers. A reader of events must not pass the numbers of an open transaction. To make the transaction
/// visible to it, the transaction first locks the last assigned block; see `fact_watermark`.
macro_rules! blocks {
    ($and:literal) => {
        concat!(
            "SELECT pg_advisory_xact_lock_shared((17230::bigint << 48) + last_value)::text, \
             nextval('intent_blocks'), nextval('fact_blocks')",
            $and,
            " FROM fact_blocks"
        )
    };
}
pub(super) const BLOCKS: &str = blocks!("");

/// The same, and whether any row is due: mostly none is, and this costs less than reading the rows.
const BLOCKS_AND_DUE: &str = blocks!(
    ", (SELECT bool_or((SELECT true FROM intents WHERE shelf = s.shelf AND wake_at <= s.until LIMIT 1)) \
     FROM unnest($1::smallint[], $2::bigint[]) AS s (shelf, until))"
);
const DUE_OR_NOT: usize = 3;

/// Rows by their id. The index returns them in the order of their ids, and they are locked in that order, so that
/// transactions cannot deadlock.
pub(super) const INTENTS: &str = concat!(
    "SELECT ",
    intent_columns!(),
    " FROM intents i WHERE id = ANY($1::bytea[]) FOR UPDATE"
);

/// Rows that are due, at most so many of each shelf.
const DUE: &str = concat!(
    "SELECT ",
    intent_columns!(),
    " FROM unnest($1::smallint[], $2::bigint[]) AS s (shelf, until), \
     LATERAL (SELECT * FROM intents WHERE shelf = s.shelf AND wake_at <= s.until ORDER BY wake_at, seq LIMIT $3 \
     FOR UPDATE SKIP LOCKED) i"
);

/// Keys are sorted. A lookup for each key, and no join: the planner has no choice, even if the table was empty when it
/// planned.
pub(super) const ONCE: &str = "SELECT o.* FROM unnest($1::smallint[], $2::text[], $3::text[]) AS k (scope, owner, key), \
    LATERAL (SELECT scope, owner, key, fingerprint, intent, answer, until FROM once \
    WHERE scope = k.scope AND owner = k.owner AND key = k.key FOR UPDATE) o";

pub(super) const RECORDS: &str = "SELECT r.* FROM unnest($1::smallint[], $2::text[], $3::text[]) AS k (kind, owner, name), \
    LATERAL (SELECT kind, owner, name, version, value, expires_at FROM records \
    WHERE kind = k.kind AND owner = k.owner AND name = k.name FOR UPDATE) r";

/// Only one transaction at a time counts the rows of an owner with a limit.
pub(super) const LOCK_OWNERS: &str = "SELECT pg_advisory_xact_lock(17230, h) FROM \
    (SELECT hashtext(k) AS h FROM unnest($1::text[]) AS k ORDER BY 1) AS ordered";

pub(super) const COUNT: &str = "SELECT coalesce(sum(count), 0)::bigint FROM counts \
    WHERE kind = $1 AND face = $2 AND name = $3 AND state = $4";

/// Only one transaction at a time reads a series.
pub(super) const LOCK_SERIES: &str = "SELECT pg_advisory_xact_lock(17233, hashtext($1))";

/// The first row of a series in a state.
macro_rules! of_series {
    ($which:literal) => {
        concat!(
            "SELECT ",
            intent_columns!(),
            " FROM intents i WHERE i.series = $1 AND i.state = $2",
            $which
        )
    };
}
pub(super) const HELD_OF_SERIES: &str = of_series!(" ORDER BY i.lease_until DESC LIMIT 1");
pub(super) const WAITING_OF_SERIES: &str = of_series!(" ORDER BY i.settled_at, i.seq LIMIT 1");
pub(super) const COMPLETED_OF_SERIES: &str =
    of_series!(" ORDER BY i.settled_at DESC, i.seq DESC LIMIT 1");
/// The row may be brought forward. A row that another transaction has locked is claimed there, or comes forward when due.
pub(super) const BEHIND_OF_SERIES: &str = of_series!(
    " AND i.shelf = $3 AND i.run_at <= $4 ORDER BY i.settled_at, i.seq LIMIT 1 FOR UPDATE SKIP LOCKED"
);

/// The best rows of a lane. Rows that another transaction has locked are skipped: that transaction claims or releases
/// them.
macro_rules! lane {
    ($lane:literal) => {
        concat!(
            "SELECT ",
            intent_columns!(),
            ", i.",
            $lane,
            " FROM intents i WHERE i.",
            $lane,
            " = $1 ORDER BY i.priority DESC, i.run_at, i.attempts, i.seq LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
    };
}

/// The same for several lanes of a column, at most so many rows of each.
macro_rules! lanes {
    ($lane:literal) => {
        concat!(
            "SELECT ",
            intent_columns!(),
            ", p.lane FROM unnest($1::bigint[], $2::bigint[]) AS p (lane, wanted), \
             LATERAL (SELECT * FROM intents WHERE ",
            $lane,
            " = p.lane ORDER BY priority DESC, run_at, attempts, seq LIMIT p.wanted FOR UPDATE SKIP LOCKED) i"
        )
    };
}

/// The column with the lane of a row.
const LANE: usize = INTENT_COLUMNS;

/// The maximum number of lane rows that a group prefetches. Each is locked and loaded with its payload, and other
/// transactions skip it.
const ROWS_MAX: u32 = 1_024;

const COLUMNS: [Column; 4] = [
    Column::Own,
    Column::OwnGoal,
    Column::Public,
    Column::PublicGoal,
];

pub(super) const fn lane(column: Column) -> &'static str {
    match column {
        Column::Own => lane!("own_lane"),
        Column::OwnGoal => lane!("own_goal_lane"),
        Column::Public => lane!("public_lane"),
        Column::PublicGoal => lane!("public_goal_lane"),
    }
}

const fn lanes(column: Column) -> &'static str {
    match column {
        Column::Own => lanes!("own_lane"),
        Column::OwnGoal => lanes!("own_goal_lane"),
        Column::Public => lanes!("public_lane"),
        Column::PublicGoal => lanes!("public_goal_lane"),
    }
}

/// What the requests of a group will need.
#[derive(Debug, Default)]
pub(super) struct Prefetch<'r> {
    pub(super) ids: BTreeSet<IntentId>,
    pub(super) once: BTreeSet<once::OnceKey>,
    pub(super) records: BTreeSet<record::Key>,
    pub(super) capped: BTreeSet<&'r str>,
    /// How many rows of each lane.
    pub(super) lanes: HashMap<Probe, u32>,
    pub(super) shelves: Vec<(Shelf, Micros)>,
    /// The total of all lanes.
    rows: u32,
}

impl<'r> Prefetch<'r> {
    pub(super) fn of(requests: impl Iterator<Item = &'r Request>, now: Micros) -> Self {
        let mut prefetch = Self::default();
        for request in requests {
            if let Some(asked) = &request.gate {
                if asked.metered {
                    prefetch.records.insert(ApiKey::key(&asked.caller));
                }
                prefetch.once.extend(asked.nonce_key());
            }
            for command in &request.steps {
                prefetch.add(command, now);
            }
        }
        prefetch
    }

    fn add(&mut self, command: &'r Command, now: Micros) {
        if let Command::Claim(claim) = command {
            self.records.extend(claim.grant.clone());
        }
        match needs(command, now) {
            Needs::Intent(id) => {
                self.ids.insert(id);
            }
            Needs::Restored { id, once } => {
                self.ids.insert(id);
                self.once.extend(once.cloned());
            }
            Needs::Admission {
                once,
                owner,
                capped,
                ..
            } => {
                self.once.extend(once.into_iter().flatten().cloned());
                if capped {
                    self.capped.insert(owner);
                }
            }
            Needs::Lanes { probes, max } => {
                for probe in probes.iter() {
                    // What is not loaded in advance is looked for when it is asked for.
                    let more = max.min(ROWS_MAX - self.rows);
                    if more > 0 {
                        *self.lanes.entry(*probe).or_default() += more;
                        self.rows += more;
                    }
                }
                let sweep = Command::Sweep(Sweep {
                    limit: limits::SWEEP_ROWS_MAX,
                });
                if let Needs::Due { shelves, .. } = needs(&sweep, now) {
                    self.shelves = shelves;
                }
            }
            Needs::Unconsented { of, .. } => {
                self.capped.insert(of);
            }
            Needs::Record(key) => {
                self.records.insert(key.clone());
            }
            Needs::Nothing
            | Needs::Series(_)
            | Needs::Due { .. }
            | Needs::Rows { .. }
            | Needs::Forget(_)
            | Needs::ForgetFacts(_) => {}
        }
    }

    /// The lanes of one column, and how many rows of each.
    fn lanes(&self, column: Column) -> (Vec<i64>, Vec<i64>) {
        let lanes: BTreeMap<i64, u32> = self
            .lanes
            .iter()
            .filter(|(probe, _)| probe.column == column)
            .map(|(probe, wanted)| (probe.lane, *wanted))
            .collect();
        lanes
            .into_iter()
            .map(|(lane, wanted)| (lane, i64::from(wanted)))
            .unzip()
    }
}

/// The result of a prefetch.
#[derive(Default)]
pub(super) struct Prefetched {
    pub(super) blocks: Vec<Row>,
    pub(super) records: Vec<Row>,
    pub(super) once: Vec<Row>,
    /// Once-keys of mesh messages.
    pub(super) messages: Vec<Row>,
    /// Intents by id.
    pub(super) named: Vec<Intent>,
    pub(super) due: Vec<Intent>,
    pub(super) lanes: HashMap<Probe, Vec<Intent>>,
}

/// Begins a transaction and sends all queries at once. Locks that may block come first and in a fixed order: owners,
/// records, keys, rows by id.
pub(super) fn load(
    session: &mut Session,
    prefetch: &Prefetch<'_>,
    lock_timeout: LockTimeout,
) -> Result<Prefetched, Error> {
    let owners: Vec<_> = prefetch.capped.iter().map(|owner| stored(owner)).collect();
    let records = keys(
        prefetch
            .records
            .iter()
            .map(|key| (key.kind.code(), &key.owner, &key.name)),
    );
    let (messages, once): (Vec<_>, Vec<_>) =
        (prefetch.once.iter()).partition(|key| key.scope == once::Scope::MeshMessage);
    let messages = dedupe::keys(messages.into_iter());
    let once = keys(
        once.into_iter()
            .map(|key| (key.scope.code(), &key.owner, &key.key)),
    );
    let ids: Vec<&[u8]> = prefetch.ids.iter().map(|id| &id.0[..]).collect();
    let (shelves, untils): (Vec<i16>, Vec<i64>) = prefetch
        .shelves
        .iter()
        .map(|(shelf, until)| (i16::from(shelf.code()), until.0))
        .unzip();
    let rows_max = i64::from(limits::SWEEP_ROWS_MAX);
    let of_columns = COLUMNS.map(|column| prefetch.lanes(column));

    let mut asked = Vec::new();
    let mut ask = |wanted: bool, text, parameters| {
        if wanted {
            asked.push(BoundStatement { text, parameters });
        }
    };
    ask(true, BEGIN, vec![]);
    ask(lock_timeout == LockTimeout::Brief, BRIEFLY, vec![]);
    ask(!owners.is_empty(), LOCK_OWNERS, vec![&owners]);
    ask(
        !records.0.is_empty(),
        RECORDS,
        vec![&records.0, &records.1, &records.2],
    );
    ask(!once.0.is_empty(), ONCE, vec![&once.0, &once.1, &once.2]);
    let any_message = !messages.0.is_empty();
    ask(any_message, dedupe::LOAD, vec![&messages.0, &messages.1]);
    ask(!ids.is_empty(), INTENTS, vec![&ids]);
    for (column, (of_column, wanted)) in COLUMNS.iter().zip(&of_columns) {
        match (&of_column[..], &wanted[..]) {
            ([], _) | (_, []) => {}
            ([of_lane], [wanted]) => ask(true, lane(*column), vec![of_lane, wanted]),
            _ => ask(true, lanes(*column), vec![of_column, wanted]),
        }
    }
    // Last, so that the numbers are above those of all loaded facts.
    ask(shelves.is_empty(), BLOCKS, vec![]);
    ask(!shelves.is_empty(), BLOCKS_AND_DUE, vec![&shelves, &untils]);
    let mut found = Prefetched::default();
    let mut any_due: Option<bool> = None;
    for (asked, answer) in asked.iter().zip(session.ask(&asked)?) {
        let rows = answer.rows;
        match asked.text {
            BEGIN | BRIEFLY | LOCK_OWNERS => {}
            RECORDS => found.records = rows,
            ONCE => found.once = rows,
            dedupe::LOAD => found.messages = rows,
            INTENTS => found.named = intents(&rows)?,
            BLOCKS => found.blocks = rows,
            BLOCKS_AND_DUE => {
                if let Some(row) = rows.first() {
                    any_due = rows::get(row, DUE_OR_NOT)?;
                }
                found.blocks = rows;
            }
            text => {
                let of_column = |column: &Column| lane(*column) == text || lanes(*column) == text;
                let column = COLUMNS.into_iter().find(of_column).ok_or(Error::Closed)?;
                for row in &rows {
                    let lane = rows::get(row, LANE)?;
                    let of_lane = found.lanes.entry(Probe { column, lane }).or_default();
                    of_lane.push(rows::intent(row)?);
                }
            }
        }
    }
    if any_due == Some(true) {
        let due = session.query(DUE, &[&shelves, &untils, &rows_max])?;
        found.due = intents(&due)?;
    }
    Ok(found)
}

fn intents(rows: &[Row]) -> Result<Vec<Intent>, Error> {
    rows.iter().map(rows::intent).collect()
}

type KeyArrays<'k> = (
    Vec<i16>,
    Vec<std::borrow::Cow<'k, str>>,
    Vec<std::borrow::Cow<'k, str>>,
);

pub(super) fn keys<'k>(keys: impl Iterator<Item = (u8, &'k String, &'k String)>) -> KeyArrays<'k> {
    let mut columns = KeyArrays::default();
    for (code, owner, name) in keys {
        columns.0.push(code.into());
        columns.1.push(stored(owner));
        columns.2.push(stored(name));
    }
    columns
}

/// The count of all shards.
pub(super) fn count(session: &mut Session, counter: &Counter) -> Result<i64, Error> {
    let (kind, face, name, state) = counter.key();
    let (kind, face, state) = (i16::from(kind), i16::from(face), i16::from(state));
    let found = session.query(COUNT, &[&kind, &face, &stored(name), &state])?;
    found.first().map_or(Ok(0), |row| super::rows::get(row, 0))
}
