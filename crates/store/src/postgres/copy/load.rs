//! Writes rows into a database, one COPY stream for each batch.

use std::pin::pin;

use consign_kernel::fact::Fact;
use consign_kernel::once;
use consign_kernel::record::Record;
use consign_kernel::state::State;
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use crate::Error;
use crate::columns::{self, Cell};
use crate::copy::TableRows;
use crate::ledger::Counter;
use crate::postgres::dedupe;
use crate::postgres::rows::{signed, stored};

/// A value of a row.
type CellValue<'r> = Box<dyn ToSql + Sync + Send + 'r>;

pub(super) async fn write(client: &Client, rows: &TableRows) -> Result<(), Error> {
    match rows {
        TableRows::Intents(rows) => {
            let types = rows.first().map(|(row, lanes)| {
                let cells = columns::without_node(row, lanes.as_ref());
                cells.map(kind).collect::<Vec<Type>>()
            });
            let cells = rows.iter().map(|(row, lanes)| {
                let cells = columns::without_node(row, lanes.as_ref());
                cells.map(value).collect()
            });
            stream(
                client,
                "intents",
                INTENTS,
                &types.unwrap_or_default(),
                cells,
            )
            .await
        }
        TableRows::Facts(rows) => table(client, FACTS, rows.iter().map(fact)).await,
        // A batch has the rows of one table.
        TableRows::Once(rows) if is_of_messages(rows) => messages(client, rows).await,
        TableRows::Once(rows) => table(client, ONCE, rows.iter().map(once_row)).await,
        TableRows::Records(rows) => table(client, RECORDS, rows.iter().map(record)).await,
        TableRows::Counts(rows) => {
            let cells = rows.iter().map(|(counter, number)| count(counter, *number));
            table(client, COUNTS, cells).await
        }
    }
}

fn is_of_messages(rows: &[once::FirstUse]) -> bool {
    let first = rows.first();
    first.is_some_and(|row| row.key.scope == once::Scope::MeshMessage)
}

/// Times and ids of the mesh protocol have types that only the database writes.
async fn messages(client: &Client, rows: &[once::FirstUse]) -> Result<(), Error> {
    let encoded = rows.iter().map(dedupe::encoded);
    let encoded = encoded.collect::<Result<Vec<_>, Error>>()?;
    client.execute(dedupe::PUT, &[&encoded]).await?;
    Ok(())
}

/// A table, and its columns in the order of the cells.
type TableColumns = (&'static str, &'static [(&'static str, Type)]);

async fn table<'r>(
    client: &Client,
    (table, columns): TableColumns,
    rows: impl ExactSizeIterator<Item = Vec<CellValue<'r>>>,
) -> Result<(), Error> {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let types: Vec<Type> = columns.iter().map(|(_, kind)| kind.clone()).collect();
    stream(client, table, &names.join(", "), &types, rows).await
}

async fn stream<'r>(
    client: &Client,
    table: &str,
    names: &str,
    types: &[Type],
    rows: impl ExactSizeIterator<Item = Vec<CellValue<'r>>>,
) -> Result<(), Error> {
    if rows.len() == 0 {
        return Ok(());
    }
    let sql = format!("COPY {table} ({names}) FROM STDIN BINARY");
    let sink = client.copy_in(&sql).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, types));
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
const INTENTS: &str = column_list!(write name "");

fn kind(cell: Cell<'_>) -> Type {
    match cell {
        Cell::Code(_) => Type::INT2,
        Cell::Int(_) => Type::INT4,
        Cell::Number(_) | Cell::Node(_) => Type::INT8,
        Cell::Bool(_) => Type::BOOL,
        Cell::Bytes(_) => Type::BYTEA,
        Cell::Text(_) => Type::TEXT,
    }
}

fn value(cell: Cell<'_>) -> CellValue<'_> {
    match cell {
        Cell::Code(code) => Box::new(code.map(i16::from)),
        Cell::Int(int) => Box::new(int),
        Cell::Number(number) | Cell::Node(number) => Box::new(number),
        Cell::Bool(value) => Box::new(value),
        Cell::Bytes(bytes) => Box::new(bytes),
        Cell::Text(text) => Box::new(text.map(stored)),
    }
}

const FACTS: TableColumns = (
    "facts",
    columns![
        "seq" INT8, "intent" INT8, "previous" INT8, "at" INT8, "attempt" INT8, "face" INT2, "verb" INT2,
        "from_state" INT2, "to_state" INT2, "cause" INT2, "owner" TEXT, "actor" TEXT, "detail" TEXT,
        "wall_offset_us" INT8, "worker" TEXT,
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
        maybe(row.worker.as_ref()),
    ]
}

const ONCE: TableColumns = (
    "once",
    columns![
        "scope" INT2, "owner" TEXT, "key" TEXT, "fingerprint" BYTEA, "intent" BYTEA, "answer" TEXT, "until" INT8,
    ],
);

fn once_row(row: &once::FirstUse) -> Vec<CellValue<'_>> {
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
