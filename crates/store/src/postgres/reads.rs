//! Reads, on separate connections. What PostgreSQL shows is committed and durable.

use std::time::{Duration, Instant};

use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Column, Probe};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;
use tokio_postgres::Row;

use super::fact_watermark::{FactWatermark, WatermarkWait, end_of};
use super::readers::{PooledReader, PostgresReadPool};
use super::rows::{
    self, FACT_COLUMNS, fact_columns, intent_columns, outline_columns, signed, stored,
};
use crate::ledger::{Counter, UNDER_WAY, profiles_of};
use crate::{
    Count, Dump, Error, EventFilter, EventPage, IntentFilter, IntentPage, JobCount, Outline,
    OutlinePage,
};

/// Rows that one listing may examine; with a sparse filter the page is short and names its successor.
const SCAN_ROWS_MAX: u32 = 5_000;

pub(super) async fn intent(
    readers: &PostgresReadPool,
    id: IntentId,
) -> Result<Option<Intent>, Error> {
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        " FROM intents i WHERE i.id = $1"
    );
    let found = readers.query(sql, &[&&id.0[..]]).await?;
    found.first().map(rows::intent).transpose()
}

/// The newest rows that match a condition, at most so many.
macro_rules! newest {
    ($condition:literal) => {
        concat!(
            "(SELECT * FROM intents WHERE seq < $1 AND ",
            $condition,
            " ORDER BY seq DESC LIMIT $3) i"
        )
    };
}

/// The rows of them that match the filter, and how many were examined.
macro_rules! listing {
    ($columns:ident, $condition:literal) => {
        (
            concat!(
                "SELECT ",
                $columns!(),
                " FROM ",
                newest!($condition),
                " WHERE i.profile = ANY($4) AND ($5::text IS NULL OR i.namespace = $5) AND ($6::text IS NULL OR i.goal = $6) \
                 AND ($7::smallint IS NULL OR i.state = $7) ORDER BY i.seq DESC LIMIT $8"
            ),
            concat!("SELECT count(*), min(i.seq) FROM ", newest!($condition)),
        )
    };
}

pub(super) async fn intents(
    readers: &PostgresReadPool,
    filter: &IntentFilter,
) -> Result<IntentPage, Error> {
    // Two statements, so that each uses its own index: the rows of the owner, or all.
    let statements = match filter.owner {
        Some(_) => listing!(intent_columns, "owner = $2"),
        None => listing!(intent_columns, "$2::text IS NULL"),
    };
    let (found, next) = page(readers, filter, statements).await?;
    let intents = found.iter().map(rows::intent).collect::<Result<_, _>>()?;
    Ok(IntentPage { intents, next })
}

pub(super) async fn outlines(
    readers: &PostgresReadPool,
    filter: &IntentFilter,
) -> Result<OutlinePage, Error> {
    let statements = match filter.owner {
        Some(_) => listing!(outline_columns, "owner = $2"),
        None => listing!(outline_columns, "$2::text IS NULL"),
    };
    let (found, next) = page(readers, filter, statements).await?;
    let outlines = found.iter().map(rows::outline).collect::<Result<_, _>>()?;
    Ok(OutlinePage { outlines, next })
}

/// The rows of a page, each with its sequence number first, and where the next page starts.
async fn page(
    readers: &PostgresReadPool,
    filter: &IntentFilter,
    (wanted, looked): (&'static str, &'static str),
) -> Result<(Vec<Row>, Option<Seq>), Error> {
    let mut reader = readers.acquire().await?;
    let before = filter.before.map_or(i64::MAX, |seq| signed(seq.0));
    let scan = i64::from(SCAN_ROWS_MAX);
    let owner = filter.owner.as_deref().map(stored);
    let profiles: Vec<i16> = profiles_of(filter.face)
        .map(|id| id.code().into())
        .collect();
    let namespace = filter.namespace.as_deref().map(stored);
    let goal = filter.goal.as_deref().map(stored);
    let state = filter.state.map(|state| i16::from(state.code()));
    let limit = i64::from(filter.limit);
    let found = reader
        .query(
            wanted,
            &[
                &before, &owner, &scan, &profiles, &namespace, &goal, &state, &limit,
            ],
        )
        .await?;
    if found.len() == filter.limit as usize {
        let next = found.last().map(|row| rows::unsigned(row, 0)).transpose()?;
        return Ok((found, next.map(Seq)));
    }
    // The page is short: because all rows were examined, or because the limit was reached.
    let seen = reader.query(looked, &[&before, &owner, &scan]).await?;
    let seen = seen.first().ok_or(Error::Closed)?;
    let (count, last): (i64, Option<i64>) = (rows::get(seen, 0)?, rows::get(seen, 1)?);
    let more = last.filter(|_| count == scan);
    let next = more.and_then(|seq| u64::try_from(seq).ok()).map(Seq);
    Ok((found, next))
}

pub(super) async fn children(
    readers: &PostgresReadPool,
    parent: IntentId,
    limit: u32,
) -> Result<Vec<Intent>, Error> {
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        " FROM intents i WHERE i.parent = $1 ORDER BY i.seq LIMIT $2"
    );
    let found = readers
        .query(sql, &[&&parent.0[..], &i64::from(limit)])
        .await?;
    found.iter().map(rows::intent).collect()
}

pub(super) async fn child_jobs(
    readers: &PostgresReadPool,
    parent: IntentId,
    limit: u32,
) -> Result<Vec<Outline>, Error> {
    let sql = concat!(
        "SELECT ",
        outline_columns!(),
        " FROM intents i WHERE i.parent = $1 AND i.profile = 1 ORDER BY i.seq LIMIT $2"
    );
    let found = readers
        .query(sql, &[&&parent.0[..], &i64::from(limit)])
        .await?;
    found.iter().map(rows::outline).collect()
}

/// Payloads are not sent; nothing is sorted, so that the scan ends at the first match.
pub(super) async fn find_job_by_payload(
    readers: &PostgresReadPool,
    text: &str,
    after: IntentId,
    scan_max: u32,
) -> Result<Option<Outline>, Error> {
    let sql = concat!(
        "SELECT ",
        outline_columns!(),
        " FROM (SELECT * FROM intents WHERE id > $1 AND profile = 1 ORDER BY id LIMIT $2) i \
         WHERE strpos(i.payload, $3) > 0 LIMIT 1"
    );
    let found = readers
        .query(sql, &[&&after.0[..], &i64::from(scan_max), &stored(text)])
        .await?;
    found.first().map(rows::outline).transpose()
}

pub(super) async fn open_jobs(
    readers: &PostgresReadPool,
    capability: &str,
    goal: Option<&str>,
    limit: u32,
) -> Result<Vec<Outline>, Error> {
    let sql = concat!(
        "SELECT ",
        outline_columns!(),
        " FROM intents i WHERE i.profile = 1 AND i.state IN (2, 3) AND i.capability = $1 \
         AND ($2::text IS NULL OR i.goal = $2) ORDER BY i.goal, i.seq LIMIT $3"
    );
    let (capability, goal) = (stored(capability), goal.map(stored));
    let found = readers
        .query(sql, &[&capability, &goal, &i64::from(limit)])
        .await?;
    found.iter().map(rows::outline).collect()
}

/// Uses the index of open jobs: the sum keeps the planner from scanning all rows in their order instead.
pub(super) async fn jobs_by_state(
    readers: &PostgresReadPool,
    state: Option<State>,
    limit: u32,
) -> Result<Vec<Outline>, Error> {
    let sql = concat!(
        "SELECT ",
        outline_columns!(),
        " FROM intents i WHERE i.profile = 1 AND i.state IN (2, 3) AND ($1::smallint IS NULL OR i.state = $1) \
         ORDER BY i.seq + 0 LIMIT $2"
    );
    let state = state.map(|state| i16::from(state.code()));
    let found = readers.query(sql, &[&state, &i64::from(limit)]).await?;
    found.iter().map(rows::outline).collect()
}

pub(super) async fn job_counts(
    readers: &PostgresReadPool,
    now: Micros,
) -> Result<Vec<JobCount>, Error> {
    let sql = "SELECT capability, count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 2 AND run_at > $1), \
               count(*) FILTER (WHERE state = 3) FROM intents WHERE profile = 1 AND state IN (2, 3) \
               GROUP BY capability ORDER BY capability NULLS FIRST";
    let found = readers.query(sql, &[&now.0]).await?;
    let work = |row: &Row| {
        Ok(JobCount {
            capability: rows::optional_text(row, 0)?,
            queued: rows::unsigned(row, 1)?,
            delayed: rows::unsigned(row, 2)?,
            running: rows::unsigned(row, 3)?,
        })
    };
    found.iter().map(work).collect()
}

/// Uses the index of deadlines: the sum keeps the planner from scanning all rows in their order instead.
pub(super) async fn active_rows(
    readers: &PostgresReadPool,
    profile: ProfileId,
    state: State,
    after: Seq,
    limit: u32,
) -> Result<Vec<Intent>, Error> {
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        " FROM intents i WHERE i.shelf = ANY($1) AND i.profile = $2 AND i.state = $3 AND i.seq + 0 > $4 \
         ORDER BY i.seq + 0 LIMIT $5"
    );
    let shelves: Vec<i16> = UNDER_WAY.map(|shelf| shelf.code().into()).to_vec();
    let (profile, state) = (i16::from(profile.code()), i16::from(state.code()));
    let (after, limit) = (signed(after.0), i64::from(limit));
    let found = readers
        .query(sql, &[&shelves, &profile, &state, &after, &limit])
        .await?;
    found.iter().map(rows::intent).collect()
}

pub(super) async fn dead(
    readers: &PostgresReadPool,
    face: Face,
    limit: u32,
) -> Result<Vec<Intent>, Error> {
    // A range and an order that only the index by profile provides. With `profile = p` the planner would choose the older
    // index without the profile while all rows have the same profile.
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        " FROM unnest($1::smallint[]) p CROSS JOIN LATERAL (SELECT * FROM intents WHERE state = 7 AND profile BETWEEN p AND p \
         ORDER BY profile DESC, settled_at DESC, seq DESC LIMIT $2) i ORDER BY i.settled_at DESC, i.seq DESC LIMIT $2"
    );
    let profiles: Vec<i16> = profiles_of(face).map(|id| id.code().into()).collect();
    let found = readers.query(sql, &[&profiles, &i64::from(limit)]).await?;
    found.iter().map(rows::intent).collect()
}

/// The facts of an intent, newest first, as long as the condition holds. Each is earlier than the one before, so that even
/// a damaged chain ends.
macro_rules! chain {
    ($condition:literal, $rest:literal) => {
        chain!("i.last_fact", $condition, $rest)
    };
    ($first:literal, $condition:literal, $rest:literal) => {
        concat!(
            "WITH RECURSIVE chain AS (SELECT f.*, 1::bigint AS depth FROM intents i JOIN facts f ON f.seq = ",
            $first,
            " WHERE i.seq = $1 UNION ALL SELECT f.*, c.depth + 1 FROM chain c JOIN facts f ON f.seq = c.previous \
             AND f.seq < c.seq WHERE ",
            $condition,
            ") SELECT ",
            fact_columns!(),
            " FROM chain f ",
            $rest
        )
    };
}

pub(super) async fn facts(
    readers: &PostgresReadPool,
    intent: Seq,
    limit: u32,
) -> Result<Vec<Fact>, Error> {
    let sql = chain!("c.depth < $2", "ORDER BY f.depth DESC");
    let found = readers
        .query(sql, &[&signed(intent.0), &i64::from(limit)])
        .await?;
    found.iter().map(rows::fact).collect()
}

pub(super) async fn last_fact_to(
    readers: &PostgresReadPool,
    intent: Seq,
    states: &[State],
    before: Option<FactSeq>,
    scan_max: u32,
) -> Result<Option<Fact>, Error> {
    let sql = chain!(
        "CASE WHEN $3::bigint IS NULL THEN i.last_fact \
         ELSE (SELECT b.previous FROM facts b WHERE b.seq = $3 AND b.intent = $1) END",
        "c.to_state != ALL($2) AND c.depth < $4",
        "WHERE f.to_state = ANY($2) AND f.depth <= $4 ORDER BY f.depth LIMIT 1"
    );
    let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
    let before = before.map(|seq| signed(seq.0));
    let found = readers
        .query(
            sql,
            &[&signed(intent.0), &codes, &before, &i64::from(scan_max)],
        )
        .await?;
    found.first().map(rows::fact).transpose()
}

const EVENTS: &str = concat!(
    "SELECT ",
    fact_columns!(),
    ", i.id, i.namespace, i.goal, i.parent FROM facts f LEFT JOIN intents i ON i.seq = f.intent \
     WHERE f.owner = $1 AND f.seq > $2 AND f.seq < $3 ORDER BY f.seq LIMIT $4"
);

/// How long a page waits for open transactions. They rarely take longer than a moment, but the process of one may be
/// stopped.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Numbers become visible out of order, so the stream ends before those of the oldest open transaction. The fact that woke
/// the reader may be one of them, so it waits for the transactions that are open when it starts.
pub(super) async fn events(
    readers: &PostgresReadPool,
    watermark: &FactWatermark,
    filter: &EventFilter,
) -> Result<EventPage, Error> {
    let came = Instant::now();
    let mut blocks = watermark.now(readers).await?;
    let goal = blocks.last;
    let mut watch = WatermarkWait::new(watermark);
    let mut read_to = None;
    loop {
        if read_to.replace(blocks.settled) != Some(blocks.settled) {
            let mut reader = readers.acquire().await?;
            let page = events_before(&mut reader, filter, end_of(blocks.settled)).await?;
            let all = blocks.settled >= goal;
            if all || page.seen > filter.after {
                return Ok(EventPage {
                    more: page.more || !all,
                    ..page
                });
            }
        }
        if came.elapsed() >= OPEN_WAIT_MAX {
            return Ok(EventPage {
                events: Vec::new(),
                seen: filter.after,
                more: true,
            });
        }
        blocks = watch.next(readers).await?;
    }
}

async fn events_before(
    reader: &mut PooledReader<'_>,
    filter: &EventFilter,
    end: i64,
) -> Result<EventPage, Error> {
    let (after, limit) = (signed(filter.after.0), i64::from(filter.limit));
    let found = reader
        .query(EVENTS, &[&stored(&filter.owner), &after, &end, &limit])
        .await?;
    let mut page = EventPage {
        events: Vec::new(),
        seen: filter.after,
        more: found.len() == filter.limit as usize,
    };
    for row in &found {
        let fact = rows::fact(row)?;
        page.seen = fact.seq;
        // The intent may be removed; its facts are kept longer.
        let id: Option<&[u8]> = rows::get(row, FACT_COLUMNS)?;
        let id = id.and_then(|id| id.try_into().ok()).map(IntentId);
        if let Some(id) = id.filter(|_| fact.face == filter.face) {
            page.events.push(Event {
                fact,
                id,
                namespace: rows::text(row, FACT_COLUMNS + 1)?,
                goal: rows::text(row, FACT_COLUMNS + 2)?,
                parent: rows::get::<Option<&[u8]>>(row, FACT_COLUMNS + 3)?
                    .and_then(|id| id.try_into().ok())
                    .map(IntentId),
            });
        }
    }
    Ok(page)
}

/// Later facts have higher numbers.
pub(super) async fn last_fact(
    readers: &PostgresReadPool,
    watermark: &FactWatermark,
) -> Result<FactSeq, Error> {
    let blocks = watermark.now(readers).await?;
    Ok(last_of(blocks.settled))
}

/// Numbers are assigned in blocks, so some below this one may be unused.
pub(super) async fn highest_fact(
    readers: &PostgresReadPool,
    watermark: &FactWatermark,
) -> Result<FactSeq, Error> {
    let blocks = watermark.now(readers).await?;
    Ok(last_of(blocks.last))
}

fn last_of(block: i64) -> FactSeq {
    FactSeq(u64::try_from(end_of(block) - 1).unwrap_or(0))
}

pub(super) async fn record(
    readers: &PostgresReadPool,
    key: &record::Key,
    now: Micros,
) -> Result<Option<Record>, Error> {
    let sql = "SELECT kind, owner, name, version, value, expires_at FROM records \
               WHERE kind = $1 AND owner = $2 AND name = $3 AND (expires_at IS NULL OR expires_at > $4)";
    let kind = i16::from(key.kind.code());
    let (owner, name) = (stored(&key.owner), stored(&key.name));
    let found = readers.query(sql, &[&kind, &owner, &name, &now.0]).await?;
    found.first().map(rows::record).transpose()
}

pub(super) async fn records(
    readers: &PostgresReadPool,
    kind: record::Kind,
    owner: &str,
    after: &str,
    now: Micros,
    limit: u32,
) -> Result<Vec<Record>, Error> {
    let sql = "SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = $1 AND owner = $2 \
               AND name > $3 AND (expires_at IS NULL OR expires_at > $4) ORDER BY name LIMIT $5";
    let (kind, limit) = (i16::from(kind.code()), i64::from(limit));
    let (owner, after) = (stored(owner), stored(after));
    let found = readers
        .query(sql, &[&kind, &owner, &after, &now.0, &limit])
        .await?;
    found.iter().map(rows::record).collect()
}

pub(super) async fn last_records(
    readers: &PostgresReadPool,
    kind: record::Kind,
    owner: &str,
    before: &str,
    now: Micros,
    limit: u32,
) -> Result<Vec<Record>, Error> {
    let sql = "SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = $1 AND owner = $2 \
               AND ($3 = '' OR name < $3) AND (expires_at IS NULL OR expires_at > $4) ORDER BY name DESC LIMIT $5";
    let (kind, limit) = (i16::from(kind.code()), i64::from(limit));
    let (owner, before) = (stored(owner), stored(before));
    let found = readers
        .query(sql, &[&kind, &owner, &before, &now.0, &limit])
        .await?;
    found.iter().map(rows::record).collect()
}

pub(super) async fn counts(readers: &PostgresReadPool, face: Face) -> Result<Vec<Count>, Error> {
    let sql = "SELECT name, state, sum(count)::bigint FROM counts WHERE kind = 0 AND face = $1 GROUP BY name, state \
               HAVING sum(count) > 0 ORDER BY name, state";
    let found = readers.query(sql, &[&i16::from(face.code())]).await?;
    let count = |row: &Row| {
        Ok(Count {
            namespace: rows::text(row, 0)?,
            state: rows::coded(row, 1, State::from_code)?,
            count: rows::unsigned(row, 2)?,
        })
    };
    found.iter().map(count).collect()
}

pub(super) async fn next_due(readers: &PostgresReadPool) -> Result<Option<Micros>, Error> {
    let sql = "SELECT min(due) FROM (SELECT (SELECT min(wake_at) FROM intents WHERE shelf = s) AS due \
               FROM unnest($1::smallint[]) AS s) AS each";
    let shelves = [Shelf::Delayed, Shelf::Leased].map(|shelf| i16::from(shelf.code()));
    let found = readers.query(sql, &[&&shelves[..]]).await?;
    let due: Option<i64> = found.first().map_or(Ok(None), |row| rows::get(row, 0))?;
    Ok(due.map(Micros))
}

/// The only statement that reads the database's time: clocks are compared with it, and it is not stored.
pub(super) async fn time(readers: &PostgresReadPool) -> Result<Micros, Error> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let found = readers.query(sql, &[]).await?;
    let row = found.first().ok_or(Error::Closed)?;
    Ok(Micros(rows::get(row, 0)?))
}

/// The whole content, in one snapshot.
pub(super) async fn dump(readers: &PostgresReadPool) -> Result<Dump, Error> {
    let mut reader = readers.acquire().await?;
    reader.open().await?;
    let dump = dump_in(&mut reader).await?;
    reader.close().await?;
    Ok(dump)
}

async fn dump_in(reader: &mut PooledReader<'_>) -> Result<Dump, Error> {
    let mut dump = Dump::default();
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        " FROM intents i ORDER BY i.seq"
    );
    for row in &reader.query(sql, &[]).await? {
        dump.intents.push(rows::intent(row)?);
    }
    let sql = "SELECT seq, own_lane, own_goal_lane, public_lane, public_goal_lane FROM intents \
               WHERE own_lane IS NOT NULL ORDER BY seq";
    for row in &reader.query(sql, &[]).await? {
        let columns = [
            Column::Own,
            Column::OwnGoal,
            Column::Public,
            Column::PublicGoal,
        ];
        let mut probes = Vec::new();
        for (index, column) in columns.into_iter().enumerate() {
            let lane: Option<i64> = rows::get(row, index + 1)?;
            probes.extend(lane.map(|lane| Probe { column, lane }));
        }
        dump.lanes.push((Seq(rows::unsigned(row, 0)?), probes));
    }
    let sql = concat!("SELECT ", fact_columns!(), " FROM facts f ORDER BY f.seq");
    for row in &reader.query(sql, &[]).await? {
        dump.facts.push(rows::fact(row)?);
    }
    let sql = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once ORDER BY scope, owner, key";
    for row in &reader.query(sql, &[]).await? {
        dump.once.push(rows::once(row)?);
    }
    let sql = "SELECT kind, owner, name, version, value, expires_at FROM records ORDER BY kind, owner, name";
    for row in &reader.query(sql, &[]).await? {
        dump.records.push(rows::record(row)?);
    }
    for (counter, count) in counters(reader).await? {
        dump.counts.push((format!("{counter:?}"), count));
    }
    Ok(dump)
}

pub(super) async fn counters(reader: &mut PooledReader<'_>) -> Result<Vec<(Counter, i64)>, Error> {
    let sql = "SELECT kind, face, name, state, sum(count)::bigint FROM counts GROUP BY kind, face, name, state \
               HAVING sum(count) != 0 ORDER BY kind, face, name, state";
    let counter = |row: &Row| {
        let face = rows::coded(row, 1, Face::from_code)?;
        let counter = match rows::get::<i16>(row, 0)? {
            0 => Counter::State {
                face,
                namespace: rows::text(row, 2)?,
                state: rows::coded(row, 3, State::from_code)?,
            },
            2 => Counter::Unconsented {
                face,
                of: rows::text(row, 2)?,
            },
            _ => Counter::Unsettled {
                face,
                owner: rows::text(row, 2)?,
            },
        };
        Ok((counter, rows::get(row, 4)?))
    };
    reader.query(sql, &[]).await?.iter().map(counter).collect()
}
