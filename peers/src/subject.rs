//! The subjects of the measurements: ours, the peers, and the baselines, which show the upper limit of the machine.
//!
//! Each file starts one subject, describes its settings in a line, and runs a round on it. The durability is the same
//! everywhere: a successful answer means that the data is synced to disk.

mod beanstalkd;
mod consign;
mod nats;
mod node;
mod postgres;
mod rabbitmq;
mod redis;
mod sqlite;
mod sync;

use std::path::PathBuf;
use std::rc::Rc;

use crate::connections::Connections;
use crate::error::Error;
use crate::load::{Load, RoundResult};
use crate::server::Server;

/// A started subject.
pub(crate) trait Subject {
    /// The versions of everything that is measured: server, client, runtime.
    fn version(&self) -> Result<String, Error>;

    /// One line: program, durability, requests.
    fn settings(&self) -> String;

    /// Where its work differs from ours.
    fn caveat(&self) -> Option<&'static str> {
        None
    }

    /// Valid after [`Subject::reset`].
    fn connections(&self) -> Connections;

    /// Called before each round, outside of the measurement.
    fn reset(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The process that is the server, with its descendants; `None` if there is none, or none that we started.
    fn server(&self) -> Option<u32>;

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error>;
}

/// An entry of the list of subjects.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) is_baseline: bool,
    pub(crate) start: Start,
}

/// The subject that the others are compared with.
pub(crate) const OURS: &str = "consign";

pub(crate) const ENTRIES: &[Entry] = &[
    peer(
        OURS,
        "ours, by `consign bench` on a server of its own",
        consign::start,
    ),
    peer(
        "beanstalkd",
        "beanstalkd with a sync per write",
        beanstalkd::start,
    ),
    peer(
        "redis",
        "Redis streams, synced before each answer",
        redis::start,
    ),
    peer("bullmq", "BullMQ on the same Redis", node::start_bullmq),
    peer(
        "nats",
        "NATS JetStream, synced before each answer",
        nats::start,
    ),
    peer(
        "rabbitmq-quorum",
        "RabbitMQ, quorum queue of one node",
        rabbitmq::start_quorum,
    ),
    peer(
        "rabbitmq-classic",
        "RabbitMQ, classic durable queue",
        rabbitmq::start_classic,
    ),
    peer(
        "pgbench",
        "PostgreSQL, SKIP LOCKED in plain SQL",
        postgres::start_pgbench,
    ),
    peer(
        "ours-postgres",
        "ours on a new database of the same PostgreSQL",
        consign::start_on_postgres,
    ),
    peer(
        "ours-postgres-next",
        "the same, each worker settles and claims the next in one request",
        consign::start_next_on_postgres,
    ),
    peer(
        "graphile-worker",
        "graphile-worker on the same PostgreSQL",
        node::start_graphile_worker,
    ),
    peer(
        "pg-boss",
        "pg-boss on the same PostgreSQL",
        node::start_pg_boss,
    ),
    baseline(
        "sqlite-1",
        "bare SQLite, commits of 1 step",
        sqlite::start_1,
    ),
    baseline(
        "sqlite-64",
        "bare SQLite, commits of 64 steps",
        sqlite::start_64,
    ),
    baseline(
        "sqlite-100",
        "bare SQLite, commits of 100 steps",
        sqlite::start_100,
    ),
    baseline("sync-300", "append 300 bytes and sync", sync::start_300),
    baseline("sync-4096", "append 4 KiB and sync", sync::start_4096),
];

type Start = fn(&mut Environment) -> Result<Box<dyn Subject>, Error>;

const fn peer(name: &'static str, about: &'static str, start: Start) -> Entry {
    Entry {
        name,
        about,
        is_baseline: false,
        start,
    }
}

const fn baseline(name: &'static str, about: &'static str, start: Start) -> Entry {
    Entry {
        name,
        about,
        is_baseline: true,
        start,
    }
}

impl Entry {
    /// By its name, or by the first word of it: `rabbitmq` stands for both kinds of queue.
    pub(crate) fn has_name(&self, word: &str) -> bool {
        has_name(self.name, word)
    }
}

pub(crate) fn has_name(name: &str, word: &str) -> bool {
    let rest = name.strip_prefix(word);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A client crate with its version, as it was built into this program.
fn client_version(name: &str) -> Result<String, Error> {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let locked = include_str!("../Cargo.lock").split_once(&entry);
    let version = locked.and_then(|(_, rest)| rest.split('"').next());
    let version =
        version.ok_or_else(|| Error::Program(format!("Cargo.lock has no version of {name}")))?;
    Ok(format!("{name} {version}"))
}

/// The paths of programs.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    pub(crate) consign: PathBuf,
    pub(crate) nats: PathBuf,
    /// The folder with the scripts and the libraries they use.
    pub(crate) node: PathBuf,
}

/// The folder and programs for starting subjects, and the servers that several subjects share.
pub(crate) struct Environment {
    pub(crate) path: PathBuf,
    pub(crate) tools: Tools,
    redis: Option<Rc<Server>>,
    rabbitmq: Option<Rc<rabbitmq::Broker>>,
    postgres: Option<Rc<postgres::Cluster>>,
}

impl Environment {
    pub(crate) fn new(path: PathBuf, tools: Tools) -> Self {
        Self {
            path,
            tools,
            redis: None,
            rabbitmq: None,
            postgres: None,
        }
    }

    fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.path.join(name);
        std::fs::create_dir_all(&folder).map_err(Error::io(folder.display().to_string()))?;
        Ok(folder)
    }

    fn redis(&mut self) -> Result<Rc<Server>, Error> {
        if let Some(running) = &self.redis {
            return Ok(Rc::clone(running));
        }
        let started = Rc::new(redis::serve(self)?);
        self.redis = Some(Rc::clone(&started));
        Ok(started)
    }

    fn rabbitmq(&mut self) -> Result<Rc<rabbitmq::Broker>, Error> {
        if let Some(running) = &self.rabbitmq {
            return Ok(Rc::clone(running));
        }
        let started = Rc::new(rabbitmq::serve(self)?);
        self.rabbitmq = Some(Rc::clone(&started));
        Ok(started)
    }

    fn postgres(&mut self) -> Result<Rc<postgres::Cluster>, Error> {
        if let Some(running) = &self.postgres {
            return Ok(Rc::clone(running));
        }
        let started = Rc::new(postgres::serve(self)?);
        self.postgres = Some(Rc::clone(&started));
        Ok(started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_the_clients_are_known() {
        for client in ["async-nats", "beanstalkd-rs", "lapin", "redis"] {
            let shown = client_version(client).unwrap();
            let version = shown.strip_prefix(client).unwrap().trim();
            assert!(
                version.starts_with(|first: char| first.is_ascii_digit()),
                "{shown}"
            );
        }
        assert!(client_version("no-such-crate").is_err());
    }

    #[test]
    fn a_first_word_stands_for_all_of_its_kind_and_for_nothing_else() {
        let called = |word: &str| -> Vec<&str> {
            let entries = ENTRIES.iter().filter(|entry| entry.has_name(word));
            entries.map(|entry| entry.name).collect()
        };
        assert_eq!(called("rabbitmq"), ["rabbitmq-quorum", "rabbitmq-classic"]);
        assert_eq!(called("pg"), ["pg-boss"]);
        assert_eq!(called("redis"), ["redis"]);
        assert_eq!(called("red"), [""; 0]);
    }
}
