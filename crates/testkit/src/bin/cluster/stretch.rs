//! A stretch: a pair of databases, three nodes, one fault, some rounds of work, fault, healing and check.
//!
//! Invariant: a round ends with all nodes at work on a whole pair, and what its clients were told is held against what
//! the ledger holds then. At the end everything is held against it once more.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consign_kernel::ids::Micros;
use consign_store::postgres::{DatabaseAddress, Options, Postgres, QUEUE_REQUESTS_MAX};
use consign_store::{Clock, Store as _};
use consign_testkit::campaign::clients::CLIENTS;
use consign_testkit::campaign::course::{self, Course};
use consign_testkit::campaign::crowd::Crowd;
use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::turns::Task;
use consign_testkit::campaign::verify;
use consign_testkit::history::now_us;
use consign_testkit::process::{self, Server};
use consign_testkit::space::Space;

use crate::database::Pair;
use crate::disturb::{AFTER_MS, APART_US, restarts_with_another_clock};
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
    // Ordering: nodes go before their databases, and those before the disk below them, which is in the course.
    pub(crate) nodes: Vec<Node>,
    pub(crate) pair: Pair,
    schemas: Option<Schemas>,
    /// By how much a clock is moved first.
    pub(crate) apart_us: i64,
    pub(crate) clocks_moved: u64,
    pub(crate) course: Course<'a, Fault>,
}

impl<'a> course::Stretch<'a> for Stretch<'a> {
    type Fault = Fault;

    fn course(&self) -> &Course<'a, Fault> {
        &self.course
    }

    fn run(&mut self, rounds: u64) -> io::Result<()> {
        for round in 1..=rounds {
            let end: Arc<AtomicBool> = Arc::default();
            let nodes = &self.nodes;
            let at_work = self
                .course
                .crowd
                .send(round, 0..CLIENTS, |index| nodes::reach(nodes, index, &end))?;
            let disturbed = self.disturb(round);
            if disturbed.is_ok() {
                self.alive(round);
                self.course.pause(AFTER_MS);
            }
            end.store(true, Ordering::Relaxed);
            self.course.crowd.gather(at_work)?;
            disturbed?;
            self.course.kills += 1;
            self.pair.until_whole()?;
            self.check_round(round)?;
            self.course.rounds = round;
            if !self.course.findings.is_clean() {
                return Ok(());
            }
        }
        let never: Arc<AtomicBool> = Arc::default();
        let nodes = &self.nodes;
        let reach = || nodes::reach(nodes, 0, &never);
        let shim = &self.ground.base.shim;
        self.course
            .crowd
            .drain(rounds + 1, DRAIN_LOOKS, shim, reach)?;
        let mut http = nodes::asker(&self.nodes, self.course.chance.index(NODES))?;
        self.course
            .crowd
            .check_all(&mut http, self.course.findings)?;
        self.check_store()
    }

    fn also(&self) -> Option<(&'static str, u64)> {
        (self.clocks_moved > 0).then_some(("moved_clocks", self.clocks_moved))
    }

    fn about(&self) -> String {
        match &self.schemas {
            Some(schemas) => schemas.about(),
            None => self.course.space.about().to_owned(),
        }
    }
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
        // The ledger's time is that of its database, and so are leases.
        let leases_apart_us = if task.fault == Fault::PromoteClock {
            APART_US
        } else {
            0
        };
        let crowd = Crowd::new(folder, task.seed)
            .slow(task.fault == Fault::StopNode)
            .clocks_apart(leases_apart_us);
        let mut course = Course::new(task, findings, space, crowd);
        let begins_ahead = course.chance.percent(50);
        Ok(Self {
            ground,
            nodes,
            pair,
            schemas,
            apart_us: if begins_ahead { APART_US } else { -APART_US },
            clocks_moved: 0,
            course,
        })
    }

    /// Each node publishes, claims, fulfils and reads again, and is given a while for it.
    pub(crate) fn alive(&mut self, round: u64) {
        let deadline = Instant::now() + ALIVE_LIMIT;
        for (index, node) in self.nodes.iter().enumerate() {
            let works = node.works(&format!("alive-{round}-{index}"), deadline);
            self.course
                .findings
                .check(Promise::Alive, works.is_ok(), || {
                    let why = works.as_ref().err();
                    format!("round {round}: after {ALIVE_LIMIT:?} node {index} answers {why:?}")
                });
        }
    }

    /// What must hold as soon as the fault is over, for the acts of its round.
    fn check_round(&mut self, round: u64) -> io::Result<()> {
        let never: Arc<AtomicBool> = Arc::default();
        let course = &mut self.course;
        let first = course.chance.index(NODES);
        let reach = nodes::reach(&self.nodes, first, &never)?;
        let mut http = nodes::asker(&self.nodes, first)?;
        let recent = course.check_round(round, reach, &mut http)?;
        if course.fault.is_felt() {
            let felt = recent.iter().any(|entry| entry.heard.is_unknown());
            let findings = &mut *course.findings;
            findings.check(Promise::Felt, felt, || {
                format!("round {round}: nobody noticed the fault")
            });
        }
        if course.fault == Fault::NodeClock && !restarts_with_another_clock(round) {
            verify::no_trouble(&recent, course.findings);
        }
        Ok(())
    }

    /// Reads everything once: do the parts of the ledger agree?
    fn check_store(&mut self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let url = self.pair.url();
        let found = runtime.block_on(async {
            let store = Postgres::open(Options {
                address: DatabaseAddress::parse(&url, None)?,
                clock: Arc::new(Now),
                queue_max: QUEUE_REQUESTS_MAX,
                writers: 1,
                node: 0,
                hold: None,
            });
            store.await?.check().await
        });
        let found = found.map_err(|error| io::Error::other(error.to_string()))?;
        self.course
            .findings
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
