//! Bare SQLite in this process: the upper limit of a queue on SQLite.
//!
//! WAL with synchronous=FULL. A job is inserted, claimed and deleted in three commits, each of which does the same step
//! for `group` jobs. The number of clients has no effect.

use std::path::PathBuf;
use std::time::Instant;

use rusqlite::{Connection, params};

use super::{Environment, Subject};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{histogram, micros, step};
use crate::load::{self, Load, RoundResult};

pub(super) fn start_1(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, 1)
}

pub(super) fn start_64(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, 64)
}

pub(super) fn start_100(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, 100)
}

fn start(environment: &Environment, group: u32) -> Result<Box<dyn Subject>, Error> {
    let folder = environment.folder(&format!("sqlite-{group}"))?;
    Ok(Box::new(Sqlite { folder, group }))
}

#[derive(Debug)]
struct Sqlite {
    folder: PathBuf,
    group: u32,
}

const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0, body TEXT NOT NULL);
CREATE INDEX ready ON jobs (id) WHERE state = 0;
";
const INSERT: &str = "INSERT INTO jobs (body) VALUES (?1)";
const CLAIM: &str = "UPDATE jobs SET state = 1 WHERE id = (SELECT id FROM jobs WHERE state = 0 ORDER BY id LIMIT 1) RETURNING id, body";
const DELETE: &str = "DELETE FROM jobs WHERE id = ?1 AND state = 1";

impl Subject for Sqlite {
    fn version(&self) -> Result<String, Error> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn connections(&self) -> Connections {
        Connections::None
    }

    fn settings(&self) -> String {
        let group = self.group;
        format!("WAL, synchronous=FULL, in process, commits of {group}")
    }

    fn server(&self) -> Option<u32> {
        None
    }

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        let file = self.folder.join(load.queue());
        let mut database = Connection::open(file)?;
        database.execute_batch(SCHEMA)?;
        let body = load::body();
        let mut times = [histogram()?, histogram()?, histogram()?];
        let mut problems = Vec::new();
        let mut jobs = 0;
        let opened_at = Instant::now();
        while opened_at.elapsed() < load.duration() {
            let asked_at = Instant::now();
            let commit = database.transaction()?;
            for _ in 0..self.group {
                commit.prepare_cached(INSERT)?.execute(params![body])?;
            }
            commit.commit()?;
            times[0].saturating_record(micros(asked_at));

            let asked_at = Instant::now();
            let commit = database.transaction()?;
            let mut claimed = Vec::new();
            for _ in 0..self.group {
                let mut claim = commit.prepare_cached(CLAIM)?;
                let id: i64 = claim.query_row([], |row| {
                    row.get::<_, String>(1)?;
                    row.get(0)
                })?;
                claimed.push(id);
            }
            commit.commit()?;
            times[1].saturating_record(micros(asked_at));

            let asked_at = Instant::now();
            let commit = database.transaction()?;
            for id in claimed {
                jobs += commit.prepare_cached(DELETE)?.execute(params![id])? as u64;
            }
            commit.commit()?;
            times[2].saturating_record(micros(asked_at));
        }
        let seconds = opened_at.elapsed().as_secs_f64();
        let left: i64 = database.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))?;
        if left != 0 {
            problems.push(format!("{left} jobs are left"));
        }
        let names = ["publish", "claim", "ack"];
        let steps = names
            .iter()
            .zip(&times)
            .map(|(name, times)| step(name, times));
        Ok(RoundResult {
            jobs,
            published: jobs,
            seconds,
            steps: steps.collect(),
            problems,
            busy: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Work;

    #[test]
    fn every_job_of_a_group_goes_all_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let mut sqlite = Sqlite {
            folder: folder.path().to_owned(),
            group: 3,
        };
        let load = Load {
            work: Work::Cycle,
            clients: 1,
            seconds: 1,
            serial: 1,
        };
        let done = sqlite.round(&load).unwrap();
        assert_eq!(done.problems, [""; 0]);
        assert!(
            done.jobs > 0 && done.jobs.is_multiple_of(3),
            "{}",
            done.jobs
        );
    }
}
