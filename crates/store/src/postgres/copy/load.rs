//! Writes rows into a database, one COPY stream for each batch.

use std::pin::pin;

use consign_kernel::fact::Fact;
use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;
use consign_kernel::once;
use consign_kernel::record::Record;
use consign_kernel::state::State;
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use crate::Error;
use crate::copy::Rows;
use crate::ledger::Counter;
use crate::postgres::rows::{result_code, signed, stored};

/// A value of a row.
type CellValue<'r> = Box<dyn ToSql + Sync + Send + 'r>;

pub(super) async fn write(client: &Client, rows: &Rows) -> Result<(), Error> {
    match rows {
        Rows::Intents(rows) => {
            let cells = rows.iter().map(|(row, lanes)| intent(row, lanes.as_ref()));
            stream(client, INTENTS, cells).await
        }
        Rows::Facts(rows) => stream(client, FACTS, rows.iter().map(fact)).await,
        Rows::Once(rows) => stream(client, ONCE, rows.iter().map(once_row)).await,
        Rows::Records(rows) => stream(client, RECORDS, rows.iter().map(record)).await,
        Rows::Counts(rows) => {
            let cells = rows.iter().map(|(counter, number)| count(counter, *number));
            stream(client, COUNTS, cells).await
        }
    }
}

/// A table, and its columns in the order of the cells.
type TableColumns = (&'static str, &'static [(&'static str, Type)]);

async fn stream<'r>(
    client: &Client,
    (table, columns): TableColumns,
    rows: impl ExactSizeIterator<Item = Vec<CellValue<'r>>>,
) -> Result<(), Error> {
    if rows.len() == 0 {
        return Ok(());
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let types: Vec<Type> = columns.iter().map(|(_, kind)| kind.clone()).collect();
    let sql = format!("COPY {table} ({}) FROM STDIN BINARY", names.join(", "));
    let sink = client.copy_in(&sql).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    for cells in rows {
        let cells: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| &**cell as _).collect();
        writer.as_mut().write(&cells).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// One list for names, types and order.
macro_rules! columns {
    ($($name:literal $kind:ident),* $(,)?) => {
        &[$(($name, Type::$kind)),*]
    };
}

/// Without `node`: no node of the target granted these leases.
const INTENTS: TableColumns = (
    "intents",
    columns![
        "seq" INT8, "id" BYTEA, "profile" INT2, "state" INT2, "cause" INT2, "shelf" INT2, "wake_at" INT8,
        "own_lane" INT8, "own_goal_lane" INT8, "public_lane" INT8, "public_goal_lane" INT8, "priority" INT4,
        "run_at" INT8, "attempts" INT8, "attempts_max" INT8, "backoff_us" INT8, "created_at" INT8,
        "expires_at" INT8, "claimed_at" INT8, "lease_until" INT8, "settled_at" INT8, "last_fact" INT8,
        "namespace" TEXT, "goal" TEXT, "owner" TEXT, "public" BOOL, "target" TEXT, "capability" TEXT,
        "holder" TEXT, "token" BYTEA, "traceparent" TEXT, "last_error" TEXT, "result_kind" INT2, "result" TEXT,
        "payload" TEXT, "parent" BYTEA, "series" TEXT,
    ],
);

fn intent<'r>(row: &'r Intent, lanes: Option<&Lanes>) -> Vec<CellValue<'r>> {
    let result = row.result.as_ref();
    vec![
        Box::new(signed(row.seq.0)),
        Box::new(&row.id.0[..]),
        code(row.profile.code()),
        code(row.state.code()),
        code(row.cause.code()),
        code(row.shelf.code()),
        Box::new(row.wake_at.0),
        Box::new(lanes.map(|lanes| lanes.own)),
        Box::new(lanes.map(|lanes| lanes.own_goal)),
        Box::new(lanes.and_then(|lanes| lanes.public)),
        Box::new(lanes.and_then(|lanes| lanes.public_goal)),
        Box::new(row.priority),
        Box::new(row.run_at.0),
        Box::new(i64::from(row.attempts)),
        Box::new(i64::from(row.attempts_max)),
        Box::new(row.backoff_us),
        Box::new(row.created_at.0),
        Box::new(row.expires_at.0),
        Box::new(row.claimed_at.map(|at| at.0)),
        Box::new(row.lease_until.map(|at| at.0)),
        Box::new(row.settled_at.map(|at| at.0)),
        Box::new(row.last_fact.map(|fact| signed(fact.0))),
        text(&row.namespace),
        text(&row.goal),
        text(&row.owner),
        Box::new(row.public),
        maybe(row.target.as_ref()),
        maybe(row.capability.as_ref()),
        maybe(row.holder.as_ref()),
        Box::new(row.token.as_ref().map(|token| &token.0[..])),
        maybe(row.traceparent.as_ref()),
        maybe(row.last_error.as_ref()),
        Box::new(result.map(|result| result_code(result.kind))),
        maybe(result.map(|result| &result.body)),
        text(&row.payload),
        Box::new(row.ties.parent.as_ref().map(|id| &id.0[..])),
        maybe(row.ties.series.as_ref()),
    ]
}

const FACTS: TableColumns = (
    "facts",
    columns![
        "seq" INT8, "intent" INT8, "previous" INT8, "at" INT8, "attempt" INT8, "face" INT2, "verb" INT2,
        "from_state" INT2, "to_state" INT2, "cause" INT2, "owner" TEXT, "actor" TEXT, "detail" TEXT,
        "wall_offset_us" INT8,
    ],
);

fn fact(row: &Fact) -> Vec<CellValue<'_>> {
    vec![
        Box::new(signed(row.seq.0)),
        Box::new(signed(row.intent.0)),
        Box::new(row.previous.map(|seq| signed(seq.0))),
        Box::new(row.at.0),
        Box::new(i64::from(row.attempt)),
        code(row.face.code()),
        code(row.verb.code()),
        Box::new(row.from.map(State::code).map(i16::from)),
        code(row.to.code()),
        code(row.cause.code()),
        text(&row.owner),
        maybe(row.actor.as_ref()),
        maybe(row.detail.as_ref()),
        Box::new((row.wall_offset_us != 0).then_some(row.wall_offset_us)),
    ]
}

const ONCE: TableColumns = (
    "once",
    columns![
        "scope" INT2, "owner" TEXT, "key" TEXT, "fingerprint" BYTEA, "intent" BYTEA, "answer" TEXT, "until" INT8,
    ],
);

fn once_row(row: &once::Row) -> Vec<CellValue<'_>> {
    vec![
        code(row.key.scope.code()),
        text(&row.key.owner),
        text(&row.key.key),
        Box::new(&row.fingerprint[..]),
        Box::new(row.intent.as_ref().map(|id| &id.0[..])),
        text(&row.answer),
        Box::new(row.until.0),
    ]
}

const RECORDS: TableColumns = (
    "records",
    columns!["kind" INT2, "owner" TEXT, "name" TEXT, "version" INT8, "value" TEXT, "expires_at" INT8],
);

fn record(row: &Record) -> Vec<CellValue<'_>> {
    vec![
        code(row.key.kind.code()),
        text(&row.key.owner),
        text(&row.key.name),
        Box::new(signed(row.version)),
        text(&row.value),
        Box::new(row.expires_at.map(|at| at.0)),
    ]
}

/// All counts go to the first shard; the writers add to theirs.
const COUNTS: TableColumns = (
    "counts",
    columns!["kind" INT2, "face" INT2, "name" TEXT, "state" INT2, "shard" INT2, "count" INT8],
);

fn count(counter: &Counter, count: i64) -> Vec<CellValue<'_>> {
    let (kind, face, name, state) = counter.key();
    vec![
        code(kind),
        code(face),
        text(name),
        code(state),
        code(0),
        Box::new(count),
    ]
}

fn code<'r>(code: u8) -> CellValue<'r> {
    Box::new(i16::from(code))
}

fn text(text: &str) -> CellValue<'_> {
    Box::new(stored(text))
}

fn maybe(text: Option<&String>) -> CellValue<'_> {
    Box::new(text.map(|text| stored(text)))
}
