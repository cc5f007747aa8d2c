//! The positions of the sequences. A number that is assigned twice makes every later commit fail, so a stored position is
//! valid only while the tables hold nothing beyond it.

use std::collections::BTreeMap;
use std::path::Path;

use consign_kernel::ids::Micros;
use rusqlite::{Connection, TransactionBehavior, params};

use super::rows::{signed, unsigned};
use super::{check, copy, reads, schema, writer};
use crate::Error;
use crate::ledger::{Counter, Position};

/// What a repair found wrong, one sentence each; it is corrected, except in a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    pub repaired: Vec<String>,
    /// What could not be corrected, and why.
    pub left: Vec<String>,
}

/// The position to continue from. Reads the ends of two indexes, and all tables only if one of them is beyond the stored
/// position.
pub(super) fn recover(connection: &Connection) -> Result<Position, Error> {
    let stored = writer::read_position(connection)?;
    let [seq, fact] = ends(connection)?;
    if stored.seq >= seq && stored.fact >= fact {
        return Ok(stored);
    }
    let found = highest(connection)?;
    let position = Position {
        seq: stored.seq.max(found.seq),
        fact: stored.fact.max(found.fact),
        ..stored
    };
    tracing::warn!(
        stored_seq = stored.seq,
        stored_fact = stored.fact,
        seq = position.seq,
        fact = position.fact,
        "the stored positions were behind the tables, as after two writers; they were set to what the tables hold"
    );
    write(connection, position)?;
    number_plugin_facts(connection, plugin_facts(connection)?)?;
    Ok(position)
}

/// The highest numbers of the stored intents and facts.
fn ends(connection: &Connection) -> Result<[u64; 2], Error> {
    let sql = "SELECT (SELECT coalesce(max(seq), 0) FROM intents), (SELECT coalesce(max(seq), 0) FROM facts)";
    Ok(connection.query_row(sql, [], |row| Ok([unsigned(row, 0)?, unsigned(row, 1)?]))?)
}

/// The highest numbers that occur in any table: a deleted row may still be referenced.
fn highest(connection: &Connection) -> Result<Position, Error> {
    let sql = "SELECT max((SELECT coalesce(max(seq), 0) FROM intents), (SELECT coalesce(max(intent), 0) FROM facts)), \
               max((SELECT coalesce(max(seq), 0) FROM facts), (SELECT coalesce(max(last), 0) FROM news), \
                   (SELECT coalesce(max(last_fact), 0) FROM intents))";
    Ok(connection.query_row(sql, [], |row| {
        Ok(Position {
            time: Micros(0),
            seq: unsigned(row, 0)?,
            fact: unsigned(row, 1)?,
        })
    })?)
}

fn write(connection: &Connection, position: Position) -> Result<(), Error> {
    let sql = "UPDATE position SET last_seq = ?1, last_fact = ?2 WHERE id = 1";
    connection.execute(sql, params![signed(position.seq), signed(position.fact)])?;
    Ok(())
}

/// The highest number of a plugin's fact.
fn plugin_facts(connection: &Connection) -> Result<i64, Error> {
    let sql = "SELECT coalesce(max(json_extract(value, '$.id')), 0) FROM records WHERE kind = 8";
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

fn number_plugin_facts(connection: &Connection, last: i64) -> Result<(), Error> {
    let sql = "UPDATE plugin_fact_ids SET last = max(last, ?1) WHERE id = 1";
    connection.execute(sql, [last])?;
    Ok(())
}

/// Repairs the positions and counters of a file that no process has open, and its time, if that is ahead of `now` by more
/// than `ahead_us_max` and nothing depends on it. With `dry_run` it only reports what it would do.
pub fn repair(path: &Path, now: Micros, ahead_us_max: i64, dry_run: bool) -> Result<Repair, Error> {
    if dry_run && !schema::pending(path)?.is_empty() {
        return Err(Error::TooOld {
            place: path.display().to_string(),
        });
    }
    let (mut connection, _hold) = schema::writer(path, now.0)?;
    copy::refuse_part(&connection, path)?;
    let mut repair = Repair::default();
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    repair_positions(&tx, &mut repair)?;
    repair_counters(&tx, &mut repair)?;
    repair_time(&tx, now, ahead_us_max, &mut repair)?;
    if dry_run {
        tx.rollback()?;
    } else {
        tx.commit()?;
    }
    connection.close().map_err(|(_, error)| error)?;
    Ok(repair)
}

fn repair_positions(connection: &Connection, repair: &mut Repair) -> Result<(), Error> {
    let (stored, found) = (writer::read_position(connection)?, highest(connection)?);
    for (what, stored, found) in [
        ("sequence", stored.seq, found.seq),
        ("fact", stored.fact, found.fact),
    ] {
        if stored < found {
            let line = format!("position: {what} {stored} set to {found}");
            repair.repaired.push(line);
        }
    }
    let position = Position {
        seq: stored.seq.max(found.seq),
        fact: stored.fact.max(found.fact),
        ..stored
    };
    write(connection, position)?;
    let last = plugin_facts(connection)?;
    let sql = "SELECT last FROM plugin_fact_ids WHERE id = 1";
    let stored: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if stored < last {
        let line = format!("position: fact of a plugin {stored} set to {last}");
        repair.repaired.push(line);
        number_plugin_facts(connection, last)?;
    }
    Ok(())
}

fn repair_counters(connection: &Connection, repair: &mut Repair) -> Result<(), Error> {
    let mut unreadable = Vec::new();
    let counted = check::check_rows(connection, &mut unreadable)?;
    if unreadable
        .iter()
        .any(|line| line.contains("cannot be read"))
    {
        let line = "counters: some rows cannot be read, so they cannot be counted".to_owned();
        repair.left.push(line);
        return Ok(());
    }
    let mut stored: BTreeMap<Counter, i64> = reads::counters(connection)?.into_iter().collect();
    for counter in counted.keys() {
        stored.entry(counter.clone()).or_default();
    }
    for (counter, stored) in stored {
        let real = counted.get(&counter).copied().unwrap_or(0);
        if real != stored {
            let (kind, face, name, state) = counter.key();
            let sql = "INSERT OR REPLACE INTO counts (kind, face, name, state, count) VALUES (?1, ?2, ?3, ?4, ?5)";
            connection.execute(sql, params![kind, face, name, state, real])?;
            let line = format!("counter {counter:?}: {stored} set to {real}");
            repair.repaired.push(line);
        }
    }
    Ok(())
}

/// A time that is ahead is set back only if no open row was created or leased after it: such a row would wait until then.
fn repair_time(
    connection: &Connection,
    now: Micros,
    ahead_us_max: i64,
    repair: &mut Repair,
) -> Result<(), Error> {
    let stored = writer::read_position(connection)?.time;
    let ahead_us = stored.0.saturating_sub(now.0);
    if ahead_us <= ahead_us_max {
        return Ok(());
    }
    let seconds = ahead_us / consign_kernel::ids::SECOND_US;
    let sql = "SELECT count(*) FROM intents WHERE settled_at IS NULL AND (created_at > ?1 OR claimed_at > ?1)";
    let open: i64 = connection.query_row(sql, [now.0], |row| row.get(0))?;
    if open > 0 {
        repair.left.push(format!(
            "time: the last commit is {seconds} s ahead of this machine's clock, and {open} open intents were made or leased \
             since; start with --clock-ahead, settle or cancel them, and repair again"
        ));
        return Ok(());
    }
    connection.execute("UPDATE position SET last_time = ?1 WHERE id = 1", [now.0])?;
    repair.repaired.push(format!(
        "time: the last commit was {seconds} s ahead of this machine's clock, and is set back to it"
    ));
    Ok(())
}
