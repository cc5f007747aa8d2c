//! Loading and locking what the requests of a group will ask for, all of it in one go.
//!
//! What is not foreseen here is loaded when a command asks for it: foreseeing saves time and decides nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use consign_kernel::command::{Command, Request, Sweep};
use consign_kernel::decide::{Needs, needs};
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Column, Probe};
use consign_kernel::limits;
use consign_kernel::once;
use consign_kernel::record::{self, ApiKey};
use tokio_postgres::Row;

use super::rows::{self, INTENT_COLUMNS, intent_columns, stored};
use super::session::{Asked, Session};
use crate::Error;
use crate::ledger::Counter;

/// Numbers of a block: more than a group usually needs, and few enough that they last for ever.
pub(super) const BLOCK: u64 = 4_096;

const BEGIN: &str = "BEGIN";

/// New blocks of numbers. Whoever reads events must not pass the numbers of a transaction that is still open. So that it
/// can be seen, the transaction first locks the last block that was given out; see `reads::blocks`.
pub(super) const BLOCKS: &str = "SELECT pg_advisory_xact_lock_shared((17230::bigint << 48) + last_value)::text, \
    nextval('intent_blocks'), nextval('fact_blocks') FROM fact_blocks";

/// Keys come in their order, and so they are locked: no two transactions wait for each other in a circle. A look-up for
/// each key, and no join: whatever the planner thinks of a table that was empty when it planned, it has no choice.
macro_rules! named {
    () => {
        " FROM unnest($1::bytea[]) AS k (id), LATERAL (SELECT * FROM intents WHERE id = k.id FOR UPDATE) i"
    };
}

/// Rows by their id.
pub(super) const INTENTS: &str = concat!("SELECT ", intent_columns!(), named!());

pub(super) const ONCE: &str = "SELECT o.* FROM unnest($1::smallint[], $2::text[], $3::text[]) AS k (scope, owner, key), \
    LATERAL (SELECT scope, owner, key, fingerprint, intent, answer, until FROM once \
    WHERE scope = k.scope AND owner = k.owner AND key = k.key FOR UPDATE) o";

pub(super) const RECORDS: &str = "SELECT r.* FROM unnest($1::smallint[], $2::text[], $3::text[]) AS k (kind, owner, name), \
    LATERAL (SELECT kind, owner, name, version, value, expires_at FROM records \
    WHERE kind = k.kind AND owner = k.owner AND name = k.name FOR UPDATE) r";

/// An owner with a cap is counted by one transaction at a time.
pub(super) const LOCK_OWNERS: &str = "SELECT pg_advisory_xact_lock(17230, h) FROM \
    (SELECT hashtext(k) AS h FROM unnest($1::text[]) AS k ORDER BY 1) AS ordered";

pub(super) const COUNT: &str = "SELECT coalesce(sum(count), 0)::bigint FROM counts \
    WHERE kind = $1 AND face = $2 AND name = $3 AND state = $4";

/// The best rows of some lanes of one column, so many of each. Rows that another transaction holds are passed over: it
/// will hand them out itself, or let them go.
macro_rules! lanes {
    ($lane:literal, $lanes:literal, $wanted:literal, $part:literal) => {
        concat!(
            "SELECT ",
            intent_columns!(),
            ", ",
            $part,
            ", p.lane FROM unnest(",
            $lanes,
            "::bigint[], ",
            $wanted,
            "::bigint[]) AS p (lane, wanted), LATERAL (SELECT * FROM intents WHERE ",
            $lane,
            " = p.lane ORDER BY priority DESC, run_at, attempts, seq LIMIT p.wanted FOR UPDATE SKIP LOCKED) i"
        )
    };
}

/// All rows of intents at once: those that are named, those that are due, and the best of each lane. A statement for each
/// would cost more than what it finds.
const ROWS: &str = concat!(
    "SELECT ",
    intent_columns!(),
    ", 0::smallint, NULL::bigint",
    named!(),
    " UNION ALL SELECT ",
    intent_columns!(),
    ", 1::smallint, NULL::bigint FROM unnest($2::smallint[], $3::bigint[]) AS s (shelf, until), \
     LATERAL (SELECT * FROM intents WHERE shelf = s.shelf AND wake_at <= s.until ORDER BY wake_at, seq LIMIT $4 \
     FOR UPDATE SKIP LOCKED) i UNION ALL ",
    lanes!("own_lane", "$5", "$6", "2::smallint"),
    " UNION ALL ",
    lanes!("own_goal_lane", "$7", "$8", "3::smallint"),
    " UNION ALL ",
    lanes!("public_lane", "$9", "$10", "4::smallint"),
    " UNION ALL ",
    lanes!("public_goal_lane", "$11", "$12", "5::smallint")
);

/// Which part of [`ROWS`] a row comes from, and of which lane.
const PART: usize = INTENT_COLUMNS;
const LANE: usize = INTENT_COLUMNS + 1;

/// Rows of lanes that a group loads in advance. Each is locked and comes with its payload, and others pass over it.
const ROWS_MAX: u32 = 1_024;

const COLUMNS: [Column; 4] = [
    Column::Own,
    Column::OwnGoal,
    Column::Public,
    Column::PublicGoal,
];

pub(super) const fn lane(column: Column) -> &'static str {
    match column {
        Column::Own => lanes!("own_lane", "$1", "$2", "2::smallint"),
        Column::OwnGoal => lanes!("own_goal_lane", "$1", "$2", "3::smallint"),
        Column::Public => lanes!("public_lane", "$1", "$2", "4::smallint"),
        Column::PublicGoal => lanes!("public_goal_lane", "$1", "$2", "5::smallint"),
    }
}

pub(super) const STATEMENTS: &[&str] = &[BEGIN, BLOCKS, ROWS, ONCE, RECORDS, LOCK_OWNERS];

/// What the requests of a group will ask for.
#[derive(Debug, Default)]
pub(super) struct Foreseen<'r> {
    pub(super) ids: BTreeSet<IntentId>,
    pub(super) once: BTreeSet<once::Key>,
    pub(super) records: BTreeSet<record::Key>,
    pub(super) capped: BTreeSet<&'r str>,
    /// How many rows of which lane.
    pub(super) lanes: HashMap<Probe, u32>,
    pub(super) shelves: Vec<(Shelf, Micros)>,
    /// Of all lanes.
    rows: u32,
}

impl<'r> Foreseen<'r> {
    pub(super) fn of(requests: impl Iterator<Item = &'r Request>, now: Micros) -> Self {
        let mut foreseen = Self::default();
        for request in requests {
            if let Some(asked) = &request.gate {
                if asked.metered {
                    foreseen.records.insert(ApiKey::key(&asked.caller));
                }
                foreseen.once.extend(asked.nonce_key());
            }
            for command in &request.steps {
                foreseen.add(command, now);
            }
        }
        foreseen
    }

    fn add(&mut self, command: &'r Command, now: Micros) {
        if let Command::Claim(claim) = command {
            let wanted = claim.max.clamp(1, limits::CLAIM_BATCH_MAX);
            for probe in claim.probes() {
                // What is not loaded in advance is looked for when it is asked for.
                let more = wanted.min(ROWS_MAX - self.rows);
                if more > 0 {
                    *self.lanes.entry(probe).or_default() += more;
                    self.rows += more;
                }
            }
            let sweep = Command::Sweep(Sweep {
                limit: limits::SWEEP_ROWS_MAX,
            });
            if let Needs::Due { shelves, .. } = needs(&sweep, now) {
                self.shelves = shelves;
            }
            return;
        }
        match needs(command, now) {
            Needs::Intent(id) => {
                self.ids.insert(id);
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
            Needs::Record(key) => {
                self.records.insert(key.clone());
            }
            Needs::Nothing | Needs::Due { .. } | Needs::Rows { .. } => {}
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

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) blocks: Vec<Row>,
    pub(super) records: Vec<Row>,
    pub(super) once: Vec<Row>,
    /// By their id.
    pub(super) named: Vec<Intent>,
    pub(super) due: Vec<Intent>,
    pub(super) lanes: HashMap<Probe, Vec<Intent>>,
}

impl Found {
    fn take_rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            let intent = rows::intent(row)?;
            let part: i16 = rows::get(row, PART)?;
            let lane: Option<i64> = rows::get(row, LANE)?;
            match lane {
                None if part == 0 => self.named.push(intent),
                None => self.due.push(intent),
                Some(lane) => {
                    let column = usize::try_from(part - 2).ok();
                    let column = column.and_then(|index| COLUMNS.get(index).copied());
                    let column = column.ok_or(Error::Closed)?;
                    let probe = Probe { column, lane };
                    self.lanes.entry(probe).or_default().push(intent);
                }
            }
        }
        Ok(())
    }
}

/// Begins a transaction and sends all questions at once. Locks that may have to be waited for come first and in a fixed
/// order: owners, records, keys, rows by id.
pub(super) fn load(session: &Session, foreseen: &Foreseen<'_>) -> Result<Found, Error> {
    let owners: Vec<_> = foreseen.capped.iter().map(|owner| stored(owner)).collect();
    let records = keys(
        foreseen
            .records
            .iter()
            .map(|key| (key.kind.code(), &key.owner, &key.name)),
    );
    let once = keys(
        foreseen
            .once
            .iter()
            .map(|key| (key.scope.code(), &key.owner, &key.key)),
    );
    let ids: Vec<&[u8]> = foreseen.ids.iter().map(|id| &id.0[..]).collect();
    let (shelves, untils): (Vec<i16>, Vec<i64>) = foreseen
        .shelves
        .iter()
        .map(|(shelf, until)| (i16::from(shelf.code()), until.0))
        .unzip();
    let rows_max = i64::from(limits::SWEEP_ROWS_MAX);
    let [own, own_goal, public, public_goal] = COLUMNS.map(|column| foreseen.lanes(column));
    let any_rows = !(ids.is_empty() && shelves.is_empty() && foreseen.lanes.is_empty());

    let mut asked = Vec::new();
    let mut ask = |wanted: bool, text, parameters| {
        if wanted {
            asked.push(Asked { text, parameters });
        }
    };
    ask(true, BEGIN, vec![]);
    ask(!owners.is_empty(), LOCK_OWNERS, vec![&owners]);
    ask(
        !records.0.is_empty(),
        RECORDS,
        vec![&records.0, &records.1, &records.2],
    );
    ask(!once.0.is_empty(), ONCE, vec![&once.0, &once.1, &once.2]);
    ask(
        any_rows,
        ROWS,
        vec![
            &ids,
            &shelves,
            &untils,
            &rows_max,
            &own.0,
            &own.1,
            &own_goal.0,
            &own_goal.1,
            &public.0,
            &public.1,
            &public_goal.0,
            &public_goal.1,
        ],
    );
    // Last, so that the numbers are above those of all facts that were loaded.
    ask(true, BLOCKS, vec![]);
    let mut found = Found::default();
    for (asked, rows) in asked.iter().zip(session.query_all(&asked)?) {
        match asked.text {
            RECORDS => found.records = rows,
            ONCE => found.once = rows,
            BLOCKS => found.blocks = rows,
            ROWS => found.take_rows(&rows)?,
            _ => {}
        }
    }
    Ok(found)
}

type Keys<'k> = (
    Vec<i16>,
    Vec<std::borrow::Cow<'k, str>>,
    Vec<std::borrow::Cow<'k, str>>,
);

pub(super) fn keys<'k>(keys: impl Iterator<Item = (u8, &'k String, &'k String)>) -> Keys<'k> {
    let mut columns = Keys::default();
    for (code, owner, name) in keys {
        columns.0.push(code.into());
        columns.1.push(stored(owner));
        columns.2.push(stored(name));
    }
    columns
}

/// What was counted so far, by everybody.
pub(super) fn count(session: &mut Session, counter: &Counter) -> Result<i64, Error> {
    let (kind, face, name, state) = counter.key();
    let (kind, face, state) = (i16::from(kind), i16::from(face), i16::from(state));
    let found = session.query(COUNT, &[&kind, &face, &stored(name), &state])?;
    found.first().map_or(Ok(0), |row| super::rows::get(row, 0))
}
