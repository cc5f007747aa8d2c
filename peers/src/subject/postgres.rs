//! PostgreSQL: a cluster of our own for the queues that store their jobs in it, and the plain SKIP LOCKED loop of pgbench.
//!
//! pgbench shows the rate of SQL alone with one statement per step: insert, claim, delete, each its own transaction.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use consign_testkit::postgres;

use super::{Environment, Subject};
use crate::connections::Connections;
use crate::error::Error;
use crate::load::{self, Load, RoundResult, Step};
use crate::server::output;

pub(super) const SETTINGS: &str =
    "postgres with fsync on, synchronous_commit on, shared_buffers 512MB, max_wal_size 4GB";

const SETTINGS_SET: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_connections=200",
];

const DATABASE: &str = "postgres";

/// A running cluster; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    server: postgres::Cluster,
    postmaster: u32,
}

impl Cluster {
    pub(super) fn id(&self) -> u32 {
        self.postmaster
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port
    }

    pub(super) fn version(&self) -> Result<String, Error> {
        let number = self.sql("SHOW server_version")?;
        Ok(format!("PostgreSQL {}", number.trim()))
    }

    pub(super) fn url(&self) -> String {
        self.server.url(DATABASE)
    }

    /// A new empty database, for a server with its own tables; the previous one is dropped.
    pub(super) fn new_database(&self) -> Result<String, Error> {
        self.sql("DROP DATABASE IF EXISTS fresh WITH (FORCE)")?;
        self.sql("CREATE DATABASE fresh")?;
        Ok(self.server.url("fresh"))
    }

    /// Returns the rows of the last statement as plain text.
    fn sql(&self, text: &str) -> Result<String, Error> {
        self.server.sql(DATABASE, text).map_err(Error::io("psql"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // There is no way to report an error from here.
        let _ = self.server.kill9();
    }
}

pub(super) fn serve(environment: &Environment) -> Result<Cluster, Error> {
    let folder = environment.path.join("postgres");
    let started = postgres::Cluster::make(&folder, SETTINGS_SET).and_then(|server| {
        let ended = || io::Error::other("it ended at once");
        let postmaster = server.postmaster().ok_or_else(ended)?;
        Ok(Cluster { server, postmaster })
    });
    let cluster = started.map_err(Error::io("starting PostgreSQL"))?;
    // The new files are not synced yet, and that must not happen during a measurement.
    let mut sync = std::process::Command::new("sync");
    output(sync.arg("--file-system").arg(&folder))?;
    Ok(cluster)
}

pub(super) fn start_pgbench(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let cluster = environment.postgres()?;
    let folder = environment.folder("pgbench")?;
    Ok(Box::new(Pgbench { cluster, folder }))
}

#[derive(Debug)]
struct Pgbench {
    cluster: Rc<Cluster>,
    folder: PathBuf,
}

impl Subject for Pgbench {
    fn version(&self) -> Result<String, Error> {
        self.cluster.version()
    }

    fn connections(&self) -> Connections {
        Connections::To(self.cluster.port())
    }

    fn settings(&self) -> String {
        format!(
            "pgbench -M prepared on {SETTINGS}; each client inserts, claims with SKIP LOCKED, deletes"
        )
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.cluster.sql(
            "DROP TABLE IF EXISTS jobs; \
             CREATE TABLE jobs (id bigserial PRIMARY KEY, state int NOT NULL DEFAULT 0, body jsonb NOT NULL); \
             CREATE INDEX ready ON jobs (id) WHERE state = 0",
        )?;
        Ok(())
    }

    fn server(&self) -> Option<u32> {
        Some(self.cluster.id())
    }

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        // A claim that finds every visible row locked gets none and deletes nothing; that job is left and does not count.
        let script = self.folder.join("cycle.sql");
        let body = load::body();
        let text = format!(
            "INSERT INTO jobs (body) VALUES ('{body}');\n\
             WITH claimed AS (UPDATE jobs SET state = 1 WHERE id = (SELECT id FROM jobs WHERE state = 0 ORDER BY id \
             FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id) SELECT coalesce((SELECT id FROM claimed), 0) AS id \\gset\n\
             DELETE FROM jobs WHERE id = :id;\n"
        );
        fs::write(&script, text).map_err(Error::io(script.display().to_string()))?;
        let mut pgbench = self.cluster.server.command("pgbench");
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--jobs=1"]);
        pgbench.arg(format!("--client={}", load.clients));
        pgbench.arg(format!("--time={}", load.seconds));
        pgbench.arg("--file").arg(&script).arg(self.cluster.url());
        let report = output(&mut pgbench)?;
        let figures = Figures::read(&report)?;
        let left = self.cluster.sql("SELECT count(*) FROM jobs")?;
        let left: u64 = left
            .trim()
            .parse()
            .map_err(|_| Error::unexpected("a count", left.as_bytes()))?;
        let mut problems = Vec::new();
        if figures.failed > 0 {
            problems.push(format!("{} transactions failed", figures.failed));
        }
        if report.contains("aborted") {
            problems.push("a client gave up".to_owned());
        }
        Ok(RoundResult {
            jobs: figures.cycles.saturating_sub(left),
            published: figures.cycles,
            seconds: load.duration().as_secs_f64(),
            steps: vec![Step {
                name: "cycle".to_owned(),
                // pgbench reports the mean only.
                p50_ms: figures.mean_ms,
                p99_ms: None,
            }],
            problems,
            busy: None,
        })
    }
}

#[derive(Debug, PartialEq)]
struct Figures {
    cycles: u64,
    failed: u64,
    mean_ms: f64,
}

impl Figures {
    fn read(report: &str) -> Result<Self, Error> {
        let after = |label: &str| {
            let line = report.lines().find_map(|line| line.strip_prefix(label));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            word.ok_or_else(|| Error::unexpected(label, report.as_bytes()))
        };
        let wrong = |word: &str| Error::unexpected("a number", word.as_bytes());
        let number = |word: &str| word.parse::<u64>().map_err(|_| wrong(word));
        let mean = after("latency average = ")?;
        Ok(Self {
            cycles: number(after("number of transactions actually processed: ")?)?,
            failed: number(after("number of failed transactions: ")?)?,
            mean_ms: mean.parse().map_err(|_| wrong(mean))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_pgbench_is_read() {
        let report = "transaction type: x\nnumber of transactions actually processed: 4065\n\
                      number of failed transactions: 2 (0.049%)\nlatency average = 15.721 ms\ntps = 4065.1\n";
        let figures = Figures::read(report).unwrap();
        assert_eq!((figures.cycles, figures.failed), (4065, 2));
        assert!((figures.mean_ms - 15.721).abs() < 1e-9);
        assert!(Figures::read("pgbench: error").is_err());
    }
}
