//! A stretch: a pair of databases, three nodes, one fault, some rounds of work, fault, healing and check.
//!
//! Invariant: a round ends with all nodes at work on a whole pair, and what its clients were told is held against what
//! the ledger holds then. At the end everything is held against it once more.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consign_kernel::ids::Micros;
use consign_store::postgres::{Address, Options, Postgres, QUEUE_REQUESTS_MAX};
use consign_store::{Clock, Store as _};
use consign_testkit::campaign::clients::CLIENTS;
use consign_testkit::campaign::crowd::Crowd;
use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::turns::Task;
use consign_testkit::campaign::{leases, verify};
use consign_testkit::chance::Chance;
use consign_testkit::history::now_us;
use consign_testkit::process::{self, Server};
use consign_testkit::space::Space;

use crate::database::Pair;
use crate::disturb::AFTER_MS;
use crate::fault::{Fault, Plant};
use crate::ground::Ground;
use crate::nodes::{self, NODES, Node, Recipe};

/// The first primary has this much when its disk is to be full.
const FULL_BYTES: u64 = 320 << 20;
/// Every node must work again so soon after a fault is over.
const ALIVE_LIMIT: Duration = Duration::from_secs(20);
/// Rows may be in the hands of a node whose commit does not come to its end because time was let pass.
const DRAIN_LOOKS: u32 = 10;

#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) fault: Fault,
    folder: PathBuf,
    pub(crate) chance: Chance,
    pub(crate) findings: &'a mut Findings,
    pub(crate) crowd: Crowd,
    // Ordering: nodes go before their databases, and those before the disk below them.
    pub(crate) nodes: Vec<Node>,
    pub(crate) pair: Pair,
    pub(crate) space: Space,
    schemas: Option<Schemas>,
    pub(crate) rounds: u64,
    pub(crate) kills: u64,
}

impl<'a> Stretch<'a> {
    pub(crate) fn prepare(
        ground: &'a Ground,
        task: &Task<'_, Fault>,
        findings: &'a mut Findings,
    ) -> io::Result<Self> {
        let folder = task.folder;
        let space = if task.fault == Fault::FullDisk {
            let first = folder.join("a");
            std::fs::create_dir(&first)?;
            Space::limited(&first, FULL_BYTES)
        } else {
            Space::Unlimited
        };
        let pair = Pair::make(folder, ground)?;
        let newest = if task.fault == Fault::Upgrade {
            Some(newest_schema(ground, folder, &pair)?)
        } else {
            None
        };
        let hold = newest.map(|newest| newest - 1).filter(|hold| *hold > 0);
        let recipe = Recipe {
            ground,
            folder,
            hold,
        };
        let nodes = nodes::start(&recipe, &pair)?;
        if ground.plant == Some(Plant::OnceWithoutIndex) {
            pair.sql("ALTER TABLE consign.once DROP CONSTRAINT once_pkey")?;
        }
        let schemas = match newest {
            None => None,
            Some(newest) => Some(Schemas {
                first: schema(&pair)?,
                newest,
            }),
        };
        Ok(Self {
            ground,
            fault: task.fault,
            folder: folder.to_owned(),
            chance: Chance::new(task.seed),
            findings,
            crowd: Crowd::new(folder, task.seed).slow(task.fault == Fault::StopNode),
            nodes,
            pair,
            space,
            schemas,
            rounds: 0,
            kills: 0,
        })
    }

    /// Runs until a promise is broken or all is checked.
    pub(crate) fn run(&mut self, rounds: u64) -> io::Result<()> {
        for round in 1..=rounds {
            let end: Arc<AtomicBool> = Arc::default();
            let nodes = &self.nodes;
            let at_work = self
                .crowd
                .send(round, 0..CLIENTS, |index| nodes::reach(nodes, index, &end))?;
            let disturbed = self.disturb(round);
            if disturbed.is_ok() {
                self.alive(round);
                self.pause(AFTER_MS);
            }
            end.store(true, Ordering::Relaxed);
            self.crowd.gather(at_work)?;
            disturbed?;
            self.kills += 1;
            self.pair.until_whole()?;
            self.check_round(round)?;
            self.rounds = round;
            if !self.findings.is_clean() {
                return Ok(());
            }
        }
        let never: Arc<AtomicBool> = Arc::default();
        let nodes = &self.nodes;
        let reach = || nodes::reach(nodes, 0, &never);
        let shim = &self.ground.shim;
        self.crowd.drain(rounds + 1, DRAIN_LOOKS, shim, reach)?;
        let mut http = nodes::asker(&self.nodes, self.chance.index(NODES))?;
        self.crowd.check_all(&mut http, self.findings)?;
        self.check_store()
    }

    /// Each node publishes, claims, fulfils and reads again, and is given a while for it.
    fn alive(&mut self, round: u64) {
        let deadline = Instant::now() + ALIVE_LIMIT;
        for (index, node) in self.nodes.iter().enumerate() {
            let works = node.works(&format!("alive-{round}-{index}"), deadline);
            self.findings.check(Promise::Alive, works.is_ok(), || {
                let why = works.as_ref().err();
                format!("round {round}: after {ALIVE_LIMIT:?} node {index} answers {why:?}")
            });
        }
    }

    /// What must hold as soon as the fault is over, for the acts of its round.
    fn check_round(&mut self, round: u64) -> io::Result<()> {
        let never: Arc<AtomicBool> = Arc::default();
        let first = self.chance.index(NODES);
        let reach = nodes::reach(&self.nodes, first, &never)?;
        self.crowd.repeat(round, reach)?;
        let recent = self.crowd.of_round(round);
        leases::judge(&recent, self.findings);
        if self.fault.is_felt() {
            let felt = recent.iter().any(|entry| entry.heard.is_unknown());
            self.findings.check(Promise::Felt, felt, || {
                format!("round {round}: nobody noticed the fault")
            });
        }
        let mut http = nodes::asker(&self.nodes, first)?;
        verify::acknowledged(&recent, &mut http, self.findings)
    }

    /// Reads everything once: do the parts of the ledger agree?
    fn check_store(&mut self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let url = self.pair.url();
        let found = runtime.block_on(async {
            let store = Postgres::open(Options {
                address: Address::parse(&url, None)?,
                clock: Arc::new(Now),
                queue_max: QUEUE_REQUESTS_MAX,
                writers: 1,
                node: 0,
                hold: None,
            });
            store.await?.check().await
        });
        let found = found.map_err(|error| io::Error::other(error.to_string()))?;
        self.findings
            .check(Promise::StoreSound, found.is_empty(), || found.join("; "));
        Ok(())
    }

    /// The nodes are upgraded, or were so before; then the schema must be the newest.
    pub(crate) fn demand_newest_schema(&self) -> io::Result<()> {
        let Some(schemas) = &self.schemas else {
            return Ok(());
        };
        let now = schema(&self.pair)?;
        if now == schemas.newest {
            return Ok(());
        }
        let newest = schemas.newest;
        Err(io::Error::other(format!(
            "upgraded nodes left schema {now}, and {newest} is the newest"
        )))
    }

    /// For the report: how the fault was made.
    pub(crate) fn about(&self) -> String {
        match &self.schemas {
            Some(schemas) => schemas.about(),
            None => self.space.about().to_owned(),
        }
    }

    /// Makes sure that what is needed to understand a finding stays.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.space.keep(&self.folder.join("data-of-the-full-disk"))
    }
}

/// The versions of the schema before and after an upgrade.
#[derive(Debug)]
struct Schemas {
    first: i32,
    newest: i32,
}

impl Schemas {
    fn about(&self) -> String {
        let Self { first, newest } = self;
        if first < newest {
            return format!(" (from schema {first} to {newest})");
        }
        format!(" (all on schema {newest}: there is no older one, or this binary holds none back)")
    }
}

fn schema(pair: &Pair) -> io::Result<i32> {
    let version = pair.sql("SELECT max(version) FROM consign.migrations")?;
    version.trim().parse().map_err(io::Error::other)
}

/// Which schema this binary makes, found out on a database of its own.
fn newest_schema(ground: &Ground, folder: &Path, pair: &Pair) -> io::Result<i32> {
    pair.sql("CREATE DATABASE newest")?;
    let url = pair.url_of("newest");
    let options: process::Options = ground.options(&folder.join("newest"));
    let mut server = Server::start(&options.arg("--store").arg(&url))?;
    server.kill9()?;
    let version = pair.sql_in("newest", "SELECT max(version) FROM consign.migrations")?;
    version.trim().parse().map_err(io::Error::other)
}

/// The time of nodes and clients.
#[derive(Debug)]
struct Now;

impl Clock for Now {
    fn now(&self) -> Micros {
        Micros(now_us())
    }
}
