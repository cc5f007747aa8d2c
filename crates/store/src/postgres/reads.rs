//! Reads, on separate connections. What PostgreSQL shows is committed and durable.

use std::time::{Duration, Instant};

use consign_kernel::fact::Event;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Shelf;
use consign_kernel::lane::{Column, Probe};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use tokio_postgres::Row;

use super::dedupe;
use super::fact_watermark::{FactWatermark, WatermarkWait, end_of};
use super::readers::{PooledReader, PostgresReadPool};
use super::rows::{
    self, FACT_COLUMNS, fact_columns, intent_columns, outline_columns, signed, stored,
};
use super::search;
use super::wire::Parameters;
use crate::ledger::{Counter, UNDER_WAY, profiles_of};
use crate::{
    Count, Dump, EndingCount, Error, EventPage, IntentColumns, IntentFilter, IntentPage, JobCount,
    LeaseCount, LostMessagePage, MessageCount, MessagesOf, NamePage, OutlinePage, Query, Rows,
    SeqPage,
};

/// Rows that one listing may examine; with a sparse filter the page is short and names its successor.
const SCAN_ROWS_MAX: u32 = 5_000;

macro_rules! select {
    ($columns:ident $(, $rest:literal)+) => {
        concat!("SELECT ", $columns!() $(, $rest)+)
    };
}

const INTENT: &str = select!(intent_columns, " FROM intents i WHERE i.id = $1");

const INTENTS_BY_ID: &str = select!(
    intent_columns,
    " FROM intents i WHERE i.id = ANY($1::bytea[])"
);

const CHILDREN: &str = select!(
    intent_columns,
    " FROM intents i WHERE i.parent = $1 ORDER BY i.seq LIMIT $2"
);

const CHILD_JOBS: &str = select!(
    outline_columns,
    " FROM intents i WHERE i.parent = $1 AND i.profile = 1 ORDER BY i.seq LIMIT $2"
);

/// Payloads are not sent; nothing is sorted, so that the scan ends at the first match.
const JOB_BY_PAYLOAD: &str = select!(
    outline_columns,
    " FROM (SELECT * FROM intents WHERE id > $1 AND profile = 1 ORDER BY id LIMIT $2) i \
     WHERE strpos(i.payload, $3) > 0 LIMIT 1"
);

const OPEN_JOBS: &str = select!(
    outline_columns,
    " FROM intents i WHERE i.profile = 1 AND i.state IN (2, 3) AND i.capability = $1 \
     AND ($2::text IS NULL OR i.goal = $2) ORDER BY i.goal, i.seq LIMIT $3"
);

/// Uses the index of open jobs: the sum keeps the planner from scanning all rows in their order instead.
const JOBS_BY_STATE: &str = select!(
    outline_columns,
    " FROM intents i WHERE i.profile = 1 AND i.state IN (2, 3) AND ($1::smallint IS NULL OR i.state = $1) \
     ORDER BY i.seq + 0 LIMIT $2"
);

const JOB_COUNTS: &str = "SELECT capability, count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 2 AND run_at > $1), \
     count(*) FILTER (WHERE state = 3) FROM intents WHERE profile = 1 AND state IN (2, 3) \
     GROUP BY capability ORDER BY capability NULLS FIRST";

/// Uses the index of deadlines: the sum keeps the planner from scanning all rows in their order instead.
const ACTIVE_ROWS: &str = select!(
    intent_columns,
    " FROM intents i WHERE i.shelf = ANY($1) AND i.profile = $2 AND i.state = $3 AND i.seq + 0 > $4 \
     ORDER BY i.seq + 0 LIMIT $5"
);

/// Messages of a profile that match a condition. The constant list of profiles is the condition of the index.
macro_rules! messages {
    ($condition:literal) => {
        (
            select!(
                intent_columns,
                " FROM intents i WHERE i.profile = $1 AND i.profile IN (3, 4) AND ",
                $condition,
                " AND i.seq > $2 ORDER BY i.seq LIMIT $3"
            ),
            select!(
                intent_columns,
                " FROM intents i WHERE i.profile = $1 AND i.profile IN (3, 4) AND ",
                $condition,
                " AND i.seq < $2 ORDER BY i.seq DESC LIMIT $3"
            ),
        )
    };
}

const MESSAGE_COUNTS: &str = "SELECT name, sum(count)::bigint FROM counts WHERE kind = $1 AND face = $2 AND name >= $3 \
     GROUP BY name HAVING sum(count) > 0 ORDER BY name LIMIT $4";

const FIRST_USE: &str = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once \
     WHERE scope = $1 AND owner = $2 AND key = $3 AND until > $4";

/// A range and an order that only the index by profile provides. With `profile = p` the planner would choose the older
/// index without the profile while all rows have the same profile.
const DEAD: &str = select!(
    intent_columns,
    " FROM unnest($1::smallint[]) p CROSS JOIN LATERAL (SELECT * FROM intents WHERE state = 7 AND profile BETWEEN p AND p \
     ORDER BY profile DESC, settled_at DESC, seq DESC LIMIT $2) i ORDER BY i.settled_at DESC, i.seq DESC LIMIT $2"
);

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

const FACTS: &str = chain!("c.depth < $2", "ORDER BY f.depth DESC");

const LAST_FACT_TO: &str = chain!(
    "CASE WHEN $3::bigint IS NULL THEN i.last_fact \
     ELSE (SELECT b.previous FROM facts b WHERE b.seq = $3 AND b.intent = $1) END",
    "c.to_state != ALL($2) AND c.depth < $4",
    "WHERE f.to_state = ANY($2) AND f.depth <= $4 ORDER BY f.depth LIMIT 1"
);

const RECORD: &str = "SELECT kind, owner, name, version, value, expires_at FROM records \
     WHERE kind = $1 AND owner = $2 AND name = $3 AND (expires_at IS NULL OR expires_at > $4)";

/// A lookup for each key, and no join, as in `load.rs`.
const RECORDS_BY_KEY: &str = "SELECT r.* FROM unnest($1::smallint[], $2::text[], $3::text[]) AS k (kind, owner, name), \
     LATERAL (SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = k.kind AND owner = k.owner \
     AND name = k.name AND (expires_at IS NULL OR expires_at > $4)) r";

const RECORDS_AFTER: &str = "SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = $1 AND owner = $2 \
     AND name > $3 AND (expires_at IS NULL OR expires_at > $4) ORDER BY name LIMIT $5";

const RECORDS_BEFORE: &str = "SELECT kind, owner, name, version, value, expires_at FROM records WHERE kind = $1 AND owner = $2 \
     AND ($3 = '' OR name < $3) AND (expires_at IS NULL OR expires_at > $4) ORDER BY name DESC LIMIT $5";

const COUNTS: &str = "SELECT name, state, sum(count)::bigint FROM counts WHERE kind = 0 AND face = $1 GROUP BY name, state \
     HAVING sum(count) > 0 ORDER BY name, state";

/// Reads only leased rows, which are adjacent in the index of deadlines. A row has the number of its node exactly as long
/// as it is leased.
const LEASES: &str = "SELECT node, count(*) FROM intents WHERE shelf = $1 AND node IS NOT NULL GROUP BY node ORDER BY node";

/// The index of deadlines names the rows; the profile is compared afterwards, so that the scan stays bounded.
const OLDEST_CLAIMABLE: &str = "SELECT profile, min(run_at) FROM (SELECT profile, run_at FROM intents WHERE shelf = $1 \
     ORDER BY wake_at LIMIT $2) first GROUP BY profile";

const DUE: &str = "SELECT min(due) FROM (SELECT (SELECT min(wake_at) FROM intents WHERE shelf = s) AS due \
     FROM unnest($1::smallint[]) AS s) AS each";

/// Answers a question; records that ended before `now` are left out.
pub(super) async fn read(
    readers: &PostgresReadPool,
    watermark: &FactWatermark,
    query: Query,
    now: Micros,
) -> Result<Rows, Error> {
    Ok(match query {
        Query::Intent(id) => {
            let given: Parameters<'_> = &[&&id.0[..]];
            Rows::Intents(list(readers, INTENT, given, rows::intent).await?)
        }
        Query::IntentsById(ids) => {
            let ids: Vec<&[u8]> = ids.iter().map(|id| &id.0[..]).collect();
            Rows::Intents(list(readers, INTENTS_BY_ID, &[&ids], rows::intent).await?)
        }
        Query::Intents { filter, view } => page(readers, &filter, view).await?,
        Query::Search(wanted) => Rows::SearchPage(search::search(readers, &wanted).await?),
        Query::Children { parent, limit } => {
            let given: Parameters<'_> = &[&&parent.0[..], &i64::from(limit)];
            Rows::Intents(list(readers, CHILDREN, given, rows::intent).await?)
        }
        Query::ChildJobs { parent, limit } => {
            let given: Parameters<'_> = &[&&parent.0[..], &i64::from(limit)];
            Rows::Outlines(list(readers, CHILD_JOBS, given, rows::outline).await?)
        }
        Query::JobByPayload {
            text,
            after,
            scan_max,
        } => {
            let given: Parameters<'_> = &[&&after.0[..], &i64::from(scan_max), &stored(&text)];
            Rows::Outlines(list(readers, JOB_BY_PAYLOAD, given, rows::outline).await?)
        }
        Query::OpenJobs {
            capability,
            goal,
            limit,
        } => {
            let (capability, goal) = (stored(&capability), goal.as_deref().map(stored));
            let given: Parameters<'_> = &[&capability, &goal, &i64::from(limit)];
            Rows::Outlines(list(readers, OPEN_JOBS, given, rows::outline).await?)
        }
        Query::JobsByState { state, limit } => {
            let state = state.map(|state| i16::from(state.code()));
            let given: Parameters<'_> = &[&state, &i64::from(limit)];
            Rows::Outlines(list(readers, JOBS_BY_STATE, given, rows::outline).await?)
        }
        Query::JobCounts { now } => {
            Rows::JobCounts(list(readers, JOB_COUNTS, &[&now.0], job_count).await?)
        }
        Query::ActiveRows {
            profile,
            state,
            after,
            limit,
        } => {
            let shelves = UNDER_WAY.map(|shelf| i16::from(shelf.code()));
            let (profile, state) = (i16::from(profile.code()), i16::from(state.code()));
            let (after, limit) = (signed(after.0), i64::from(limit));
            let given: Parameters<'_> = &[&&shelves[..], &profile, &state, &after, &limit];
            Rows::Intents(list(readers, ACTIVE_ROWS, given, rows::intent).await?)
        }
        Query::Messages(filter) => {
            let (ascending, descending) = match filter.of {
                MessagesOf::All => messages!("$4::text IS NULL"),
                MessagesOf::Sender(_) => messages!("i.sender = $4"),
                MessagesOf::Recipient(_) => messages!("i.owner = $4"),
                MessagesOf::AwaitingAck(_) => {
                    messages!("i.owner = $4 AND i.profile = 4 AND i.state = 4")
                }
            };
            let (sql, seq) = match filter.page {
                SeqPage::After(seq) => (ascending, seq),
                SeqPage::Before(seq) => (descending, seq),
            };
            let (profile, limit) = (i16::from(filter.profile.code()), i64::from(filter.limit));
            let party = filter.of.party().map(stored);
            let given: Parameters<'_> = &[&profile, &signed(seq.0), &limit, &party];
            Rows::Intents(list(readers, sql, given, rows::intent).await?)
        }
        Query::MessageCounts {
            face,
            tally,
            from,
            limit,
        } => {
            let (kind, face) = (i16::from(tally.kind()), i16::from(face.code()));
            let given: Parameters<'_> = &[&kind, &face, &stored(&from), &i64::from(limit)];
            Rows::MessageCounts(list(readers, MESSAGE_COUNTS, given, message_count).await?)
        }
        Query::FirstUse(key) if key.scope == Scope::MeshMessage => {
            let given: Parameters<'_> = &[&stored(&key.owner), &stored(&key.key)];
            let mut found = list(readers, dedupe::GET, given, dedupe::row).await?;
            found.retain(|row| row.until > now);
            Rows::FirstUses(found)
        }
        Query::FirstUse(key) => {
            let scope = i16::from(key.scope.code());
            let (owner, name) = (stored(&key.owner), stored(&key.key));
            let given: Parameters<'_> = &[&scope, &owner, &name, &now.0];
            Rows::FirstUses(list(readers, FIRST_USE, given, rows::once).await?)
        }
        Query::LostMessages { after, limit } => {
            Rows::LostMessages(lost_messages(readers, after, limit).await?)
        }
        Query::MeshEnding { until } => {
            let ending = |row: &Row| {
                Ok(EndingCount {
                    messages: rows::unsigned(row, 0)?,
                    keys: rows::unsigned(row, 1)?,
                })
            };
            let found = list(readers, dedupe::ENDING, &[&until.0], ending).await?;
            Rows::Ending(found.first().copied().unwrap_or_default())
        }
        Query::Dead { face, limit } => {
            let given: Parameters<'_> = &[&profile_codes(face), &i64::from(limit)];
            Rows::Intents(list(readers, DEAD, given, rows::intent).await?)
        }
        Query::Facts { intent, limit } => {
            let given: Parameters<'_> = &[&signed(intent.0), &i64::from(limit)];
            Rows::Facts(list(readers, FACTS, given, rows::fact).await?)
        }
        Query::LastFactTo {
            intent,
            states,
            before,
            scan_max,
        } => {
            let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
            let before = before.map(|seq| signed(seq.0));
            let given: Parameters<'_> = &[&signed(intent.0), &codes, &before, &i64::from(scan_max)];
            Rows::Facts(list(readers, LAST_FACT_TO, given, rows::fact).await?)
        }
        Query::Events(filter) => {
            let wanted = WantedFacts {
                face: Some(filter.face),
                owner: Some(&filter.owner),
                after: filter.after,
                limit: filter.limit,
            };
            Rows::Events(events(readers, watermark, &wanted).await?)
        }
        Query::AllEvents { face, after, limit } => {
            let wanted = WantedFacts {
                face,
                owner: None,
                after,
                limit,
            };
            Rows::Events(events(readers, watermark, &wanted).await?)
        }
        Query::LastFact => Rows::FactSeq(last_fact(readers, watermark).await?),
        // Numbers are assigned in blocks, so some below this one may be unused.
        Query::HighestFact => Rows::FactSeq(last_of(watermark.now(readers).await?.last)),
        Query::Record(key) => {
            let kind = i16::from(key.kind.code());
            let (owner, name) = (stored(&key.owner), stored(&key.name));
            let given: Parameters<'_> = &[&kind, &owner, &name, &now.0];
            Rows::Records(list(readers, RECORD, given, rows::record).await?)
        }
        Query::RecordsByKey(keys) => {
            let kinds: Vec<i16> = keys.iter().map(|key| key.kind.code().into()).collect();
            let owners: Vec<_> = keys.iter().map(|key| stored(&key.owner)).collect();
            let names: Vec<_> = keys.iter().map(|key| stored(&key.name)).collect();
            let given: Parameters<'_> = &[&kinds, &owners, &names, &now.0];
            Rows::Records(list(readers, RECORDS_BY_KEY, given, rows::record).await?)
        }
        Query::Records {
            kind,
            owner,
            page,
            limit,
        } => {
            let (sql, name) = match &page {
                NamePage::After(name) => (RECORDS_AFTER, name),
                NamePage::Before(name) => (RECORDS_BEFORE, name),
            };
            let (kind, owner, name) = (i16::from(kind.code()), stored(&owner), stored(name));
            let given: Parameters<'_> = &[&kind, &owner, &name, &now.0, &i64::from(limit)];
            Rows::Records(list(readers, sql, given, rows::record).await?)
        }
        Query::Counts { face } => {
            let face = i16::from(face.code());
            Rows::Counts(list(readers, COUNTS, &[&face], count).await?)
        }
        Query::LeaseCounts => {
            let leased = i16::from(Shelf::Leased.code());
            Rows::LeaseCounts(list(readers, LEASES, &[&leased], lease_count).await?)
        }
        Query::OldestClaimable { face, scan_max } => {
            let mut since = Vec::new();
            for shelf in [Shelf::Ready, Shelf::Lapsed] {
                let of_profile = |row: &Row| {
                    let code: i16 = rows::get(row, 0)?;
                    Ok((code, Micros(rows::get(row, 1)?)))
                };
                let given: Parameters<'_> = &[&i16::from(shelf.code()), &i64::from(scan_max)];
                since.extend(list(readers, OLDEST_CLAIMABLE, given, of_profile).await?);
            }
            let codes = profile_codes(face);
            let own = since.into_iter().filter(|(code, _)| codes.contains(code));
            Rows::Due(own.map(|(_, since)| since).min())
        }
        Query::NextDue => {
            let shelves = [Shelf::Delayed, Shelf::Leased].map(|shelf| i16::from(shelf.code()));
            let due = |row: &Row| rows::get::<Option<i64>>(row, 0);
            let found = list(readers, DUE, &[&&shelves[..]], due).await?;
            Rows::Due(found.into_iter().flatten().next().map(Micros))
        }
    })
}

fn message_count(row: &Row) -> Result<MessageCount, Error> {
    Ok(MessageCount {
        name: rows::text(row, 0)?,
        count: rows::get::<i64>(row, 1)?.unsigned_abs(),
    })
}

async fn list<T>(
    readers: &PostgresReadPool,
    sql: &'static str,
    parameters: Parameters<'_>,
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let found = readers.query(sql, parameters).await?;
    found.iter().map(read).collect()
}

fn profile_codes(face: Face) -> Vec<i16> {
    profiles_of(face).map(|id| id.code().into()).collect()
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

/// Two statements, so that each uses its own index: the rows of the owner, or all.
macro_rules! by_owner {
    ($filter:ident, $columns:ident) => {
        match $filter.owner {
            Some(_) => listing!($columns, "owner = $2"),
            None => listing!($columns, "$2::text IS NULL"),
        }
    };
}

async fn page(
    readers: &PostgresReadPool,
    filter: &IntentFilter,
    view: IntentColumns,
) -> Result<Rows, Error> {
    let statements = match view {
        IntentColumns::Full => by_owner!(filter, intent_columns),
        IntentColumns::Outline => by_owner!(filter, outline_columns),
    };
    let (found, next) = scan(readers, filter, statements).await?;
    Ok(match view {
        IntentColumns::Full => {
            let intents = found.iter().map(rows::intent).collect::<Result<_, _>>()?;
            Rows::IntentPage(IntentPage { intents, next })
        }
        IntentColumns::Outline => {
            let outlines = found.iter().map(rows::outline).collect::<Result<_, _>>()?;
            Rows::OutlinePage(OutlinePage { outlines, next })
        }
    })
}

/// The rows of a page, each with its sequence number first, and where the next page starts.
async fn scan(
    readers: &PostgresReadPool,
    filter: &IntentFilter,
    (wanted, looked): (&'static str, &'static str),
) -> Result<(Vec<Row>, Option<Seq>), Error> {
    let mut reader = readers.acquire().await?;
    let before = filter.before.map_or(i64::MAX, |seq| signed(seq.0));
    let scan = i64::from(SCAN_ROWS_MAX);
    let owner = filter.owner.as_deref().map(stored);
    let profiles = profile_codes(filter.face);
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

fn job_count(row: &Row) -> Result<JobCount, Error> {
    Ok(JobCount {
        capability: rows::optional_text(row, 0)?,
        queued: rows::unsigned(row, 1)?,
        delayed: rows::unsigned(row, 2)?,
        running: rows::unsigned(row, 3)?,
    })
}

fn count(row: &Row) -> Result<Count, Error> {
    Ok(Count {
        namespace: rows::text(row, 0)?,
        state: rows::coded(row, 1, State::from_code)?,
        count: rows::unsigned(row, 2)?,
    })
}

fn lease_count(row: &Row) -> Result<LeaseCount, Error> {
    Ok(LeaseCount {
        node: rows::get(row, 0)?,
        leases: rows::unsigned(row, 1)?,
    })
}

const EVENTS: &str = concat!(
    "SELECT ",
    fact_columns!(),
    ", i.id, i.namespace, i.goal, i.parent FROM facts f LEFT JOIN intents i ON i.seq = f.intent \
     WHERE f.owner = $1 AND f.seq > $2 AND f.seq < $3 ORDER BY f.seq LIMIT $4"
);

const ALL_EVENTS: &str = concat!(
    "SELECT ",
    fact_columns!(),
    ", i.id, i.namespace, i.goal, i.parent FROM facts f LEFT JOIN intents i ON i.seq = f.intent \
     WHERE f.seq > $1 AND f.seq < $2 ORDER BY f.seq LIMIT $3"
);

/// Which facts a page has.
struct WantedFacts<'a> {
    face: Option<Face>,
    /// `None`: of all owners.
    owner: Option<&'a str>,
    after: FactSeq,
    limit: u32,
}

/// How long a page waits for open transactions. They rarely take longer than a moment, but the process of one may be
/// stopped.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Numbers become visible out of order, so the stream ends before those of the oldest open transaction. The fact that woke
/// the reader may be one of them, so it waits for the transactions that are open when it starts.
async fn events(
    readers: &PostgresReadPool,
    watermark: &FactWatermark,
    filter: &WantedFacts<'_>,
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
    filter: &WantedFacts<'_>,
    end: i64,
) -> Result<EventPage, Error> {
    let (after, limit) = (signed(filter.after.0), i64::from(filter.limit));
    let found = match filter.owner {
        Some(owner) => {
            let given: Parameters<'_> = &[&stored(owner), &after, &end, &limit];
            reader.query(EVENTS, given).await?
        }
        None => reader.query(ALL_EVENTS, &[&after, &end, &limit]).await?,
    };
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
        if let Some(id) = id.filter(|_| filter.face.is_none_or(|face| fact.face == face)) {
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

fn last_of(block: i64) -> FactSeq {
    FactSeq(u64::try_from(end_of(block) - 1).unwrap_or(0))
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
    let given: Parameters<'_> = &[&"", &"", &i64::MAX];
    for row in &reader.query(dedupe::PAGE, given).await? {
        dump.once.push(dedupe::row(row)?);
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

async fn lost_messages(
    readers: &PostgresReadPool,
    (mesh, key): (String, String),
    limit: u32,
) -> Result<LostMessagePage, Error> {
    let looked = |row: &Row| {
        let key = OnceKey {
            scope: Scope::MeshMessage,
            owner: rows::text(row, 0)?,
            key: rows::text(row, 1)?,
        };
        Ok((key, rows::get::<bool>(row, 2)?))
    };
    let given: Parameters<'_> = &[&stored(&mesh), &stored(&key), &i64::from(limit)];
    let found = list(readers, dedupe::LOST, given, looked).await?;
    let full = found.len() == limit as usize;
    Ok(LostMessagePage {
        checked: found.len() as u64,
        next: (found.last().filter(|_| full)).map(|(key, _)| (key.owner.clone(), key.key.clone())),
        lost: (found.into_iter())
            .filter_map(|(key, lost)| lost.then_some(key))
            .collect(),
    })
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
            kind => Counter::named(u8::try_from(kind).unwrap_or(0), face, rows::text(row, 2)?),
        };
        Ok((counter, rows::get(row, 4)?))
    };
    reader.query(sql, &[]).await?.iter().map(counter).collect()
}
