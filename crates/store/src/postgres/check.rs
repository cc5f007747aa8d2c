//! Checks the whole database: whether its tables are consistent.

use std::collections::BTreeMap;

use consign_kernel::lane::Lanes;

use super::load::BLOCK;
use super::readers::{PooledReader, PostgresReadPool};
use super::reads;
use super::rows::{self, INTENT_COLUMNS, intent_columns};
use crate::Error;
use crate::check;
use crate::ledger::Counter;

/// The maximum number of findings to report.
const FINDINGS_MAX: usize = 100;
/// Rows in one page.
const PAGE_ROWS: i64 = 2_000;

pub(super) async fn check(readers: &PostgresReadPool) -> Result<Vec<String>, Error> {
    let mut reader = readers.acquire().await?;
    reader.open().await?;
    let findings = check_in(&mut reader).await?;
    reader.close().await?;
    Ok(findings)
}

async fn check_in(reader: &mut PooledReader<'_>) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    let counted = check_rows(reader, &mut findings).await?;
    check_counters(reader, counted, &mut findings).await?;
    for (wrong, sql) in WRONG {
        let found = reader.query(sql, &[]).await?;
        let count: i64 = found.first().map_or(Ok(0), |row| rows::get(row, 0))?;
        if count != 0 {
            findings.push(format!("{count} {wrong}"));
        }
    }
    findings.truncate(FINDINGS_MAX);
    Ok(findings)
}

/// Each statement counts inconsistent rows.
const WRONG: [(&str, &str); 4] = [
    (
        "rows whose last fact belongs to another row",
        "SELECT count(*) FROM intents i JOIN facts f ON f.seq = i.last_fact WHERE f.intent != i.seq",
    ),
    (
        "facts whose predecessor belongs to another row, or is later",
        "SELECT count(*) FROM facts f JOIN facts p ON p.seq = f.previous WHERE p.intent != f.intent OR p.seq >= f.seq",
    ),
    (
        "rows or facts beyond the assigned numbers",
        "SELECT (SELECT count(*) FROM intents, intent_blocks WHERE seq >= (last_value + 1) * 4096) \
         + (SELECT count(*) FROM facts, fact_blocks WHERE seq >= (last_value + 1) * 4096)",
    ),
    (
        "rows whose lanes and shelf disagree",
        "SELECT count(*) FROM intents WHERE (shelf IN (1, 3)) != (own_lane IS NOT NULL)",
    ),
];
const _: () = assert!(BLOCK == 4_096, "the statement above says so");

async fn check_rows(
    reader: &mut PooledReader<'_>,
    findings: &mut Vec<String>,
) -> Result<BTreeMap<Counter, i64>, Error> {
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        ", i.own_lane, i.own_goal_lane, i.public_lane, i.public_goal_lane FROM intents i WHERE i.seq > $1 \
         ORDER BY i.seq LIMIT $2"
    );
    let (mut counted, mut after) = (BTreeMap::new(), 0_i64);
    loop {
        let page = reader.query(sql, &[&after, &PAGE_ROWS]).await?;
        let Some(last) = page.last() else {
            return Ok(counted);
        };
        after = rows::get(last, 0)?;
        for row in &page {
            let intent = match rows::intent(row) {
                Ok(intent) => intent,
                Err(error) => {
                    let seq: i64 = rows::get(row, 0)?;
                    findings.push(format!("intent at {seq}: cannot be read: {error}"));
                    continue;
                }
            };
            let mut stored = [None; 4];
            for (index, lane) in stored.iter_mut().enumerate() {
                *lane = rows::get(row, INTENT_COLUMNS + index)?;
            }
            let lanes = intent.shelf.claimable().then(|| Lanes::of(&intent));
            check::lanes(&intent, lanes.as_ref(), stored, findings);
            check::row(&intent, findings);
            check::count(&intent, &mut counted);
        }
    }
}

async fn check_counters(
    reader: &mut PooledReader<'_>,
    counted: BTreeMap<Counter, i64>,
    findings: &mut Vec<String>,
) -> Result<(), Error> {
    let stored = reads::counters(reader).await?;
    check::counters(stored, counted, findings);
    Ok(())
}
