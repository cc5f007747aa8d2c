//! Checks the whole file: whether SQLite finds it intact, and whether its tables are consistent.

use std::collections::BTreeMap;

use consign_kernel::ids::Seq;
use consign_kernel::lane::Lanes;
use rusqlite::Connection;

use super::reads;
use super::rows::{self, intent_columns};
use crate::Error;
use crate::check;
use crate::ledger::Counter;

/// The maximum number of findings to report.
const FINDINGS_MAX: usize = 100;

pub(super) fn check(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    let mut statement = connection.prepare("PRAGMA integrity_check(100)")?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        let line = line?;
        if line != "ok" {
            findings.push(format!("file: {line}"));
        }
    }
    if findings.is_empty() {
        let counted = check_rows(connection, &mut findings)?;
        check::counters(reads::counters(connection)?, counted, &mut findings);
        check_position(connection, &mut findings)?;
        check_facts(connection, &mut findings)?;
    }
    findings.truncate(FINDINGS_MAX);
    Ok(findings)
}

pub(super) fn check_rows(
    connection: &Connection,
    findings: &mut Vec<String>,
) -> Result<BTreeMap<Counter, i64>, Error> {
    let sql = concat!(
        "SELECT ",
        intent_columns!(),
        ", own_lane, own_goal_lane, public_lane, public_goal_lane FROM intents ORDER BY seq"
    );
    let mut statement = connection.prepare(sql)?;
    let mut found = statement.query([])?;
    let mut counted = BTreeMap::new();
    while let Some(row) = found.next()? {
        let intent = match rows::intent(row) {
            Ok(intent) => intent,
            Err(error) => {
                let seq: i64 = row.get(0)?;
                findings.push(format!("intent at {seq}: cannot be read: {error}"));
                continue;
            }
        };
        let stored = rows::lanes(row)?;
        let lanes = intent.shelf.claimable().then(|| Lanes::of(&intent));
        check::lanes(&intent, lanes.as_ref(), stored, findings);
        check::row(&intent, findings);
        check::count(&intent, &mut counted);
    }
    Ok(counted)
}

/// Checks that the chains of facts are complete, and that every fact is reachable by the streams of its owner.
fn check_facts(connection: &Connection, findings: &mut Vec<String>) -> Result<(), Error> {
    for (wrong, sql) in [
        (
            "rows whose last fact belongs to another row",
            "SELECT count(*) FROM intents i JOIN facts f ON f.seq = i.last_fact WHERE f.intent != i.seq",
        ),
        (
            "facts whose predecessor belongs to another row, or is later",
            "SELECT count(*) FROM facts f JOIN facts p ON p.seq = f.previous WHERE p.intent != f.intent OR p.seq >= f.seq",
        ),
        (
            "facts that no stream can reach",
            "SELECT count(*) FROM facts f WHERE NOT EXISTS (SELECT 1 FROM news n WHERE n.owner = f.owner AND n.last = \
             (SELECT min(last) FROM news m WHERE m.owner = f.owner AND m.last >= f.seq) AND n.first <= f.seq)",
        ),
    ] {
        let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        if count != 0 {
            findings.push(format!("facts: {count} {wrong}"));
        }
    }
    Ok(())
}

/// The findings start with `position:`, which a repair corrects.
fn check_position(connection: &Connection, findings: &mut Vec<String>) -> Result<(), Error> {
    let (last_seq, last_fact): (u64, u64) = connection.query_row(
        "SELECT last_seq, last_fact FROM position WHERE id = 1",
        [],
        |row| Ok((rows::unsigned(row, 0)?, rows::unsigned(row, 1)?)),
    )?;
    let seq: i64 =
        connection.query_row("SELECT coalesce(max(seq), 0) FROM intents", [], |row| {
            row.get(0)
        })?;
    if Seq(u64::try_from(seq).unwrap_or(0)) > Seq(last_seq) {
        findings.push(format!(
            "position: sequence {last_seq} is behind the last intent {seq}"
        ));
    }
    if reads::last_fact(connection)?.0 > last_fact {
        findings.push(format!(
            "position: fact {last_fact} is behind the last one stored"
        ));
    }
    Ok(())
}
