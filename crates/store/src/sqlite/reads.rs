//! Reads, on read-only connections.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Column, Probe};
use consign_kernel::once::Scope;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::dedupe;
use super::rows::{self, fact_columns, intent_columns, outline_columns, signed};
use super::schema;
use super::search;
use super::writer::read_position;
use crate::group::CommitShared;
use crate::ledger::{Counter, UNDER_WAY, profiles_of};
use crate::{
    BoxFuture, Count, Dump, Error, EventFilter, EventPage, IntentColumns, IntentFilter, IntentPage,
    JobCount, LeaseCount, MessageCount, MessagesOf, NamePage, Outline, OutlinePage, Query, Rows,
    SeqPage,
};

/// Rows that one listing may examine; with a sparse filter the page is short and names its successor.
const SCAN_ROWS_MAX: u32 = 5_000;

pub(super) struct SqliteReadPool {
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
    shared: Arc<CommitShared>,
}

impl SqliteReadPool {
    pub(super) fn open(
        path: &Path,
        count: usize,
        shared: &Arc<CommitShared>,
    ) -> Result<Self, Error> {
        let idle = (0..count)
            .map(|_| schema::read_only(path, false))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            idle: Mutex::new(idle),
            returned: Condvar::new(),
            shared: Arc::clone(shared),
        })
    }

    /// Runs a read on a blocking thread, so that a slow disk never delays other tasks. The result is returned when every
    /// commit that it saw is synced.
    pub(super) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let readers = Arc::clone(self);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || {
                let connection = readers.take();
                let done = read(&connection);
                readers.give_back(connection);
                done
            });
            let seen = done
                .await
                .map_err(|error| Error::Unavailable(error.to_string()))?;
            shared.durability.until_synced().await?;
            seen
        })
    }

    fn take(&self) -> Connection {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = idle.pop() {
                return connection;
            }
            idle = self
                .returned
                .wait(idle)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, connection: Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        self.returned.notify_one();
    }
}

macro_rules! select {
    ($columns:ident $(, $rest:literal)+) => {
        concat!("SELECT ", $columns!() $(, $rest)+)
    };
}

const INTENT: &str = select!(intent_columns, " FROM intents WHERE id = ?1");

const CHILDREN: &str = select!(
    intent_columns,
    " FROM intents WHERE parent = ?1 ORDER BY seq LIMIT ?2"
);

const CHILD_JOBS: &str = select!(
    outline_columns,
    " FROM intents WHERE parent = ?1 AND profile = 1 ORDER BY seq LIMIT ?2"
);

/// Payloads are not copied; nothing is sorted, so that the scan ends at the first match.
const JOB_BY_PAYLOAD: &str = select!(
    outline_columns,
    " FROM (SELECT * FROM intents WHERE id > ?1 AND +profile = 1 ORDER BY id LIMIT ?2) WHERE instr(payload, ?3) > 0 LIMIT 1"
);

const OPEN_JOBS: &str = select!(
    outline_columns,
    " FROM intents WHERE profile = 1 AND state IN (2, 3) AND capability = ?1 AND (?2 IS NULL OR goal = ?2) \
     ORDER BY goal, seq LIMIT ?3"
);

/// Uses the index of open jobs: the plus sign keeps the planner from scanning all rows in their order instead.
const JOBS_BY_STATE: &str = select!(
    outline_columns,
    " FROM intents INDEXED BY jobs_by_work WHERE profile = 1 AND state IN (2, 3) AND (?1 IS NULL OR state = ?1) \
     ORDER BY +seq LIMIT ?2"
);

const JOB_COUNTS: &str = "SELECT capability, count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 2 AND run_at > ?1), \
     count(*) FILTER (WHERE state = 3) FROM intents INDEXED BY jobs_by_work \
     WHERE profile = 1 AND state IN (2, 3) GROUP BY capability ORDER BY capability";

/// Uses the index of deadlines: the plus signs keep the planner from scanning all rows in their order instead.
const ACTIVE_ROWS: &str = select!(
    intent_columns,
    " FROM intents WHERE shelf IN (?1, ?2, ?3) AND profile = ?4 AND state = ?5 AND +seq > ?6 ORDER BY +seq LIMIT ?7"
);

/// Messages of a profile that match a condition. The constant list of profiles is the condition of the index.
macro_rules! messages {
    ($condition:literal) => {
        (
            select!(
                intent_columns,
                " FROM intents WHERE profile = ?1 AND profile IN (3, 4) AND ",
                $condition,
                " AND seq > ?2 ORDER BY seq LIMIT ?3"
            ),
            select!(
                intent_columns,
                " FROM intents WHERE profile = ?1 AND profile IN (3, 4) AND ",
                $condition,
                " AND seq < ?2 ORDER BY seq DESC LIMIT ?3"
            ),
        )
    };
}

const MESSAGE_COUNTS: &str = "SELECT name, count FROM counts WHERE kind = ?1 AND face = ?2 AND name >= ?3 AND count > 0 \
     ORDER BY name LIMIT ?4";

const FIRST_USE: &str = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once \
     WHERE scope = ?1 AND owner = ?2 AND key = ?3 AND until > ?4";

const DEAD: &str = select!(
    intent_columns,
    " FROM intents WHERE state = 7 AND profile = ?1 ORDER BY settled_at DESC, seq DESC LIMIT ?2"
);

const RECORD: &str = "SELECT kind, owner, name, version, value, expires_at FROM records \
     WHERE kind = ?1 AND owner = ?2 AND name = ?3 AND (expires_at IS NULL OR expires_at > ?4)";

const RECORDS_AFTER: &str = "SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = ?1 AND owner = ?2 \
     AND name > ?3 AND (expires_at IS NULL OR expires_at > ?4) ORDER BY name LIMIT ?5";

const RECORDS_BEFORE: &str = "SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = ?1 AND owner = ?2 \
     AND (?3 = '' OR name < ?3) AND (expires_at IS NULL OR expires_at > ?4) ORDER BY name DESC LIMIT ?5";

const COUNTS: &str = "SELECT name, state, count FROM counts WHERE kind = 0 AND face = ?1 AND count > 0 ORDER BY name, state";

/// Reads only the leased part of the index of deadlines, and nothing of the table.
const LEASES: &str = "SELECT count(*) FROM intents WHERE shelf = ?1";

const DUE: &str = "SELECT min(wake_at) FROM intents WHERE shelf = ?1";

/// Answers a question; records that ended before `now` are left out.
pub(super) fn read(connection: &Connection, query: &Query, now: Micros) -> Result<Rows, Error> {
    Ok(match query {
        Query::Intent(id) => Rows::Intents(list(connection, INTENT, [id.0], rows::intent)?),
        Query::IntentsById(ids) => {
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                found.extend(list(connection, INTENT, [id.0], rows::intent)?);
            }
            Rows::Intents(found)
        }
        Query::Intents { filter, view } => page(connection, filter, *view)?,
        Query::Search(wanted) => Rows::SearchPage(search::search(connection, wanted)?),
        Query::Children { parent, limit } => {
            let given = params![parent.0, limit];
            Rows::Intents(list(connection, CHILDREN, given, rows::intent)?)
        }
        Query::ChildJobs { parent, limit } => {
            let given = params![parent.0, limit];
            Rows::Outlines(list(connection, CHILD_JOBS, given, rows::outline)?)
        }
        Query::JobByPayload {
            text,
            after,
            scan_max,
        } => {
            let given = params![after.0, scan_max, text];
            Rows::Outlines(list(connection, JOB_BY_PAYLOAD, given, rows::outline)?)
        }
        Query::OpenJobs {
            capability,
            goal,
            limit,
        } => {
            let given = params![capability, goal, limit];
            Rows::Outlines(list(connection, OPEN_JOBS, given, rows::outline)?)
        }
        Query::JobsByState { state, limit } => {
            let given = params![state.map(State::code), limit];
            Rows::Outlines(list(connection, JOBS_BY_STATE, given, rows::outline)?)
        }
        Query::JobCounts { now } => {
            Rows::JobCounts(list(connection, JOB_COUNTS, [now.0], job_count)?)
        }
        Query::ActiveRows {
            profile,
            state,
            after,
            limit,
        } => {
            let [first, second, third] = UNDER_WAY.map(Shelf::code);
            let (profile, state, after) = (profile.code(), state.code(), signed(after.0));
            let given = params![first, second, third, profile, state, after, limit];
            Rows::Intents(list(connection, ACTIVE_ROWS, given, rows::intent)?)
        }
        Query::Messages(filter) => {
            let (ascending, descending) = match filter.of {
                MessagesOf::All => messages!("?4 IS NULL"),
                MessagesOf::Sender(_) => messages!("sender = ?4"),
                MessagesOf::Recipient(_) => messages!("owner = ?4"),
                MessagesOf::AwaitingAck(_) => messages!("owner = ?4 AND profile = 4 AND state = 4"),
            };
            let (sql, seq) = match filter.page {
                SeqPage::After(seq) => (ascending, seq),
                SeqPage::Before(seq) => (descending, seq),
            };
            let (profile, party) = (filter.profile.code(), filter.of.party());
            let given = params![profile, signed(seq.0), filter.limit, party];
            Rows::Intents(list(connection, sql, given, rows::intent)?)
        }
        Query::MessageCounts {
            face,
            tally,
            from,
            limit,
        } => {
            let given = params![tally.kind(), face.code(), from, limit];
            Rows::MessageCounts(list(connection, MESSAGE_COUNTS, given, message_count)?)
        }
        Query::FirstUse(key) if key.scope == Scope::MeshMessage => {
            let mut found = list(
                connection,
                dedupe::GET,
                params![key.owner, key.key],
                dedupe::row,
            )?;
            found.retain(|row| row.until > now);
            Rows::FirstUses(found)
        }
        Query::FirstUse(key) => {
            let given = params![key.scope.code(), key.owner, key.key, now.0];
            Rows::FirstUses(list(connection, FIRST_USE, given, rows::once)?)
        }
        Query::LostMessages { after, limit } => {
            Rows::LostMessages(dedupe::lost_messages(connection, after, *limit)?)
        }
        Query::MeshEnding { until } => Rows::Ending(dedupe::ending(connection, *until)?),
        Query::Dead { face, limit } => Rows::Intents(dead(connection, *face, *limit)?),
        Query::Facts { intent, limit } => Rows::Facts(facts(connection, *intent, *limit)?),
        Query::LastFactTo {
            intent,
            states,
            before,
            scan_max,
        } => Rows::Facts(last_fact_to(
            connection, *intent, states, *before, *scan_max,
        )?),
        Query::Events(filter) => Rows::Events(events(connection, filter)?),
        Query::AllEvents { face, after, limit } => {
            Rows::Events(all_events(connection, *face, *after, *limit)?)
        }
        Query::LastFact => Rows::FactSeq(last_fact(connection)?),
        // From the file and not from the counter: a fact may be visible before the counter is updated. The number counts
        // even if its fact is removed by now.
        Query::HighestFact => Rows::FactSeq(FactSeq(read_position(connection)?.fact)),
        Query::Record(key) => {
            let given = params![key.kind.code(), key.owner, key.name, now.0];
            Rows::Records(list(connection, RECORD, given, rows::record)?)
        }
        Query::RecordsByKey(keys) => {
            let mut found = Vec::with_capacity(keys.len());
            for key in keys {
                let given = params![key.kind.code(), key.owner, key.name, now.0];
                found.extend(list(connection, RECORD, given, rows::record)?);
            }
            Rows::Records(found)
        }
        Query::Records {
            kind,
            owner,
            page,
            limit,
        } => {
            let (sql, name) = match page {
                NamePage::After(name) => (RECORDS_AFTER, name),
                NamePage::Before(name) => (RECORDS_BEFORE, name),
            };
            let given = params![kind.code(), owner, name, now.0, limit];
            Rows::Records(list(connection, sql, given, rows::record)?)
        }
        Query::Counts { face } => Rows::Counts(list(connection, COUNTS, [face.code()], count)?),
        Query::LeaseCounts => Rows::LeaseCounts(lease_counts(connection)?),
        Query::OldestClaimable { face, scan_max } => {
            Rows::Due(oldest_claimable(connection, *face, *scan_max)?)
        }
        Query::NextDue => Rows::Due(next_due(connection)?),
    })
}

fn list<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map(parameters, read)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The newest rows, or the newest of an owner: two statements, so that each uses its own index.
macro_rules! newest {
    ($filter:ident, $columns:ident) => {
        if $filter.owner.is_some() {
            select!(
                $columns,
                " FROM intents WHERE owner = ?2 AND seq < ?1 ORDER BY seq DESC LIMIT ?3"
            )
        } else {
            select!(
                $columns,
                " FROM intents WHERE seq < ?1 AND ?2 IS NULL ORDER BY seq DESC LIMIT ?3"
            )
        }
    };
}

fn page(
    connection: &Connection,
    filter: &IntentFilter,
    view: IntentColumns,
) -> Result<Rows, Error> {
    Ok(match view {
        IntentColumns::Full => {
            let sql = newest!(filter, intent_columns);
            let wants = |intent: &Intent| (intent.seq, filter.wants(intent));
            let (intents, next) = scan(connection, filter, sql, rows::intent, wants)?;
            Rows::IntentPage(IntentPage { intents, next })
        }
        IntentColumns::Outline => {
            let sql = newest!(filter, outline_columns);
            let wants = |outline: &Outline| (outline.seq, filter.wants_outline(outline));
            let (outlines, next) = scan(connection, filter, sql, rows::outline, wants)?;
            Rows::OutlinePage(OutlinePage { outlines, next })
        }
    })
}

/// `wants` returns for each row its position and whether it matches.
fn scan<T>(
    connection: &Connection,
    filter: &IntentFilter,
    sql: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    wants: impl Fn(&T) -> (Seq, bool),
) -> Result<(Vec<T>, Option<Seq>), Error> {
    let before = filter.before.map_or(i64::MAX, |seq| signed(seq.0));
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![before, filter.owner, SCAN_ROWS_MAX])?;
    let (mut page, mut looked, mut last) = (Vec::new(), 0, None);
    while let Some(row) = found.next()? {
        let row = read(row)?;
        looked += 1;
        let (seq, is_wanted) = wants(&row);
        last = Some(seq);
        if is_wanted {
            page.push(row);
        }
        if page.len() == filter.limit as usize {
            break;
        }
    }
    let more = page.len() == filter.limit as usize || looked == SCAN_ROWS_MAX;
    Ok((page, last.filter(|_| more)))
}

fn message_count(row: &Row<'_>) -> rusqlite::Result<MessageCount> {
    Ok(MessageCount {
        name: row.get(0)?,
        count: rows::unsigned(row, 1)?,
    })
}

fn job_count(row: &Row<'_>) -> rusqlite::Result<JobCount> {
    Ok(JobCount {
        capability: row.get(0)?,
        queued: rows::unsigned(row, 1)?,
        delayed: rows::unsigned(row, 2)?,
        running: rows::unsigned(row, 3)?,
    })
}

fn dead(connection: &Connection, face: Face, limit: u32) -> Result<Vec<Intent>, Error> {
    let mut dead = Vec::new();
    for profile in profiles_of(face) {
        let given = params![profile.code(), limit];
        dead.extend(list(connection, DEAD, given, rows::intent)?);
    }
    dead.sort_by_key(|intent| Reverse((intent.settled_at, intent.seq)));
    dead.truncate(limit as usize);
    Ok(dead)
}

fn facts(connection: &Connection, intent: Seq, limit: u32) -> Result<Vec<Fact>, Error> {
    let mut facts = Vec::new();
    walk_back(connection, intent, None, |fact| {
        facts.push(fact);
        facts.len() < limit as usize
    })?;
    facts.reverse();
    Ok(facts)
}

fn last_fact_to(
    connection: &Connection,
    intent: Seq,
    states: &[State],
    before: Option<FactSeq>,
    scan_max: u32,
) -> Result<Vec<Fact>, Error> {
    let (mut found, mut left) = (None, scan_max);
    walk_back(connection, intent, before, |fact| {
        found = Some(fact).filter(|fact| left > 0 && states.contains(&fact.to));
        left = left.saturating_sub(1);
        found.is_none() && left > 0
    })?;
    Ok(found.into_iter().collect())
}

/// Passes the facts of an intent to `more`, newest first or from before one of them, until it returns false. Old facts may
/// have been removed.
fn walk_back(
    connection: &Connection,
    intent: Seq,
    before: Option<FactSeq>,
    mut more: impl FnMut(Fact) -> bool,
) -> Result<(), Error> {
    let sql = match before {
        None => "SELECT last_fact FROM intents WHERE seq = ?1 AND ?2 IS NULL",
        Some(_) => {
            "SELECT f.previous FROM facts f JOIN intents i ON i.seq = f.intent WHERE i.seq = ?1 AND f.seq = ?2"
        }
    };
    let mut next: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row(
            params![signed(intent.0), before.map(|seq| signed(seq.0))],
            |row| row.get(0),
        )
        .optional()?
        .flatten();
    let sql = concat!("SELECT ", fact_columns!(), " FROM facts WHERE seq = ?1");
    let mut statement = connection.prepare_cached(sql)?;
    while let Some(seq) = next {
        let Some(fact) = statement.query_row([seq], rows::fact).optional()? else {
            break;
        };
        // Only an earlier fact, so that even a damaged chain ends.
        next = fact
            .previous
            .filter(|previous| *previous < fact.seq)
            .map(|seq| signed(seq.0));
        if !more(fact) {
            break;
        }
    }
    Ok(())
}

/// The fact ranges of an owner, and in each of them its own facts; both in order, so that nothing is sorted.
pub(super) const EVENTS: &str = "SELECT f.seq, f.intent, f.at, f.verb, f.from_state, f.to_state, f.cause, f.attempt, \
     f.actor, f.detail, f.owner, f.face, f.previous, f.wall_offset_us, f.worker, i.id, i.namespace, i.goal, i.parent FROM news n \
     CROSS JOIN facts f ON f.seq BETWEEN max(n.first, ?2 + 1) AND n.last AND f.owner = ?1 \
     LEFT JOIN intents i ON i.seq = f.intent WHERE n.owner = ?1 AND n.last > ?2 ORDER BY n.last, f.seq LIMIT ?3";

fn events(connection: &Connection, filter: &EventFilter) -> Result<EventPage, Error> {
    // With one writer, numbers become visible in order, so the stream may reach the last one.
    let mut statement = connection.prepare_cached(EVENTS)?;
    let found = statement.query(params![filter.owner, signed(filter.after.0), filter.limit])?;
    event_page(found, Some(filter.face), filter.after, filter.limit)
}

const ALL_EVENTS: &str = "SELECT f.seq, f.intent, f.at, f.verb, f.from_state, f.to_state, f.cause, f.attempt, \
     f.actor, f.detail, f.owner, f.face, f.previous, f.wall_offset_us, f.worker, i.id, i.namespace, i.goal, i.parent FROM facts f \
     LEFT JOIN intents i ON i.seq = f.intent WHERE f.seq > ?1 ORDER BY f.seq LIMIT ?2";

fn all_events(
    connection: &Connection,
    face: Option<Face>,
    after: FactSeq,
    limit: u32,
) -> Result<EventPage, Error> {
    let mut statement = connection.prepare_cached(ALL_EVENTS)?;
    let found = statement.query(params![signed(after.0), limit])?;
    event_page(found, face, after, limit)
}

fn event_page(
    mut found: rusqlite::Rows<'_>,
    face: Option<Face>,
    after: FactSeq,
    limit: u32,
) -> Result<EventPage, Error> {
    let mut page = EventPage {
        events: Vec::new(),
        seen: after,
        more: false,
    };
    let mut looked = 0;
    while let Some(row) = found.next()? {
        let fact = rows::fact(row)?;
        looked += 1;
        page.seen = fact.seq;
        // The intent may be gone; its facts are kept longer.
        let id: Option<[u8; 16]> = row.get(15)?;
        if let Some(id) = id.filter(|_| face.is_none_or(|face| fact.face == face)) {
            page.events.push(Event {
                fact,
                id: IntentId(id),
                namespace: row.get(16)?,
                goal: row.get(17)?,
                parent: row.get::<_, Option<[u8; 16]>>(18)?.map(IntentId),
            });
        }
    }
    page.more = looked == limit;
    Ok(page)
}

fn count(row: &Row<'_>) -> rusqlite::Result<Count> {
    Ok(Count {
        namespace: row.get(0)?,
        state: rows::coded(row, 1, State::from_code)?,
        count: rows::unsigned(row, 2)?,
    })
}

fn lease_counts(connection: &Connection) -> Result<Vec<LeaseCount>, Error> {
    let leases = connection
        .prepare_cached(LEASES)?
        .query_row([Shelf::Leased.code()], |row| rows::unsigned(row, 0))?;
    let held = (leases > 0).then_some(LeaseCount { node: None, leases });
    Ok(held.into_iter().collect())
}

/// The index of deadlines names the rows; the profile is compared afterwards, so that the scan stays bounded.
const OLDEST_CLAIMABLE: &str = "SELECT profile, min(run_at) FROM (SELECT profile, run_at FROM intents WHERE shelf = ?1 \
     ORDER BY wake_at LIMIT ?2) GROUP BY profile";

fn oldest_claimable(
    connection: &Connection,
    face: Face,
    scan_max: u32,
) -> Result<Option<Micros>, Error> {
    let mut since = Vec::new();
    for shelf in [Shelf::Ready, Shelf::Lapsed] {
        let of_profile = |row: &Row<'_>| {
            let profile = rows::coded(row, 0, ProfileId::from_code)?;
            Ok((profile, Micros(row.get(1)?)))
        };
        let given = params![shelf.code(), scan_max];
        since.extend(list(connection, OLDEST_CLAIMABLE, given, of_profile)?);
    }
    let since = since.into_iter();
    let own = since.filter(|(profile, _)| profile.profile().face == face);
    Ok(own.map(|(_, since)| since).min())
}

fn next_due(connection: &Connection) -> Result<Option<Micros>, Error> {
    let mut due = Vec::new();
    for shelf in [Shelf::Delayed, Shelf::Leased] {
        let earliest = |row: &Row<'_>| row.get::<_, Option<i64>>(0);
        due.extend(list(connection, DUE, [shelf.code()], earliest)?);
    }
    Ok(due.into_iter().flatten().min().map(Micros))
}

pub(super) fn dump(connection: &Connection) -> Result<Dump, Error> {
    let mut dump = Dump::default();
    let mut statement = connection.prepare(concat!(
        "SELECT ",
        intent_columns!(),
        " FROM intents ORDER BY seq"
    ))?;
    dump.intents = statement
        .query_map([], rows::intent)?
        .collect::<Result<_, _>>()?;
    let mut statement = connection.prepare(
        "SELECT seq, own_lane, own_goal_lane, public_lane, public_goal_lane FROM intents WHERE own_lane IS NOT NULL ORDER BY seq",
    )?;
    let lanes = statement.query_map([], |row| {
        let columns = [
            Column::Own,
            Column::OwnGoal,
            Column::Public,
            Column::PublicGoal,
        ];
        let mut probes = Vec::new();
        for (index, column) in columns.into_iter().enumerate() {
            let lane: Option<i64> = row.get(index + 1)?;
            probes.extend(lane.map(|lane| Probe { column, lane }));
        }
        Ok((Seq(rows::unsigned(row, 0)?), probes))
    })?;
    dump.lanes = lanes.collect::<Result<_, _>>()?;
    let mut statement = connection.prepare(concat!(
        "SELECT ",
        fact_columns!(),
        " FROM facts ORDER BY seq"
    ))?;
    dump.facts = statement
        .query_map([], rows::fact)?
        .collect::<Result<_, _>>()?;
    let mut statement = connection.prepare(
        "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once ORDER BY scope, owner, key",
    )?;
    dump.once = statement
        .query_map([], rows::once)?
        .collect::<Result<_, _>>()?;
    let mut statement = connection.prepare(concat!(rows::nonces!(), " ORDER BY seq"))?;
    let mut nonces = BTreeMap::new();
    for row in statement.query_map([], rows::nonce)? {
        // A nonce that was used again after its expiry is stored twice; the later use counts.
        let row = row?;
        nonces.insert(row.key.clone(), row);
    }
    dump.once.extend(nonces.into_values());
    dump.once
        .extend(dedupe::page(connection, ("", ""), u32::MAX)?);
    let mut statement = connection.prepare(
        "SELECT kind, owner, name, version, value, expires_at FROM records ORDER BY kind, owner, name",
    )?;
    dump.records = statement
        .query_map([], rows::record)?
        .collect::<Result<_, _>>()?;
    dump.counts = counters(connection)?
        .into_iter()
        .map(|(counter, count)| (format!("{counter:?}"), count))
        .collect();
    Ok(dump)
}

pub(super) fn counters(connection: &Connection) -> Result<Vec<(Counter, i64)>, Error> {
    let mut statement =
        connection.prepare("SELECT kind, face, name, state, count FROM counts WHERE count != 0 ORDER BY kind, face, name, state")?;
    let found = statement.query_map([], counter)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Reads kind, face, name, state and count.
pub(super) fn counter(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Counter, i64)> {
    let face = rows::coded(row, 1, Face::from_code)?;
    let counter = match row.get::<_, u8>(0)? {
        0 => Counter::State {
            face,
            namespace: row.get(2)?,
            state: rows::coded(row, 3, State::from_code)?,
        },
        kind => Counter::named(kind, face, row.get(2)?),
    };
    Ok((counter, row.get(4)?))
}

/// The last visible fact, for the check.
pub(super) fn last_fact(connection: &Connection) -> Result<FactSeq, Error> {
    let last: i64 = connection.query_row("SELECT coalesce(max(seq), 0) FROM facts", [], |row| {
        row.get(0)
    })?;
    Ok(FactSeq(u64::try_from(last).unwrap_or(0)))
}
