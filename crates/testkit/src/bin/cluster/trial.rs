//! A trial: a pair of databases, three nodes, one fault, rounds of work, fault, recovery and check.
//!
//! Invariant: a round ends with all nodes running on a complete pair, and the responses of its clients are compared
//! with the ledger. At the end everything is compared once more.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consign_kernel::ids::Micros;
use consign_store::postgres::{DatabaseAddress, Options, Postgres, QUEUE_REQUESTS_MAX};
use consign_store::{Clock, Store as _};
use consign_testkit::campaign::client_pool::ClientPool;
use consign_testkit::campaign::clients::CLIENTS;
use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::mesh::MeshPool;
use consign_testkit::campaign::runner::TrialTask;
use consign_testkit::campaign::trial::{self, TrialState};
use consign_testkit::campaign::verify;
use consign_testkit::history::now_us;
use consign_testkit::process::{self, Server};
use consign_testkit::space::Space;

use crate::campaign::ClusterCampaign;
use crate::database::ReplicatedPair;
use crate::fault::{ClusterFault, ClusterPlant};
use crate::inject::{AFTER_MS, APART_US, restarts_with_another_clock};
use crate::nodes::{self, ClusterNode, NODES, NodeSetup};

/// The disk size of the first primary when its disk is filled.
const FULL_BYTES: u64 = 320 << 20;
/// Every node must work again within this time after a fault.
const ALIVE_LIMIT: Duration = Duration::from_secs(20);
/// Rows may be locked by a node whose commit is delayed because time was advanced.
const DRAIN_LOOKS: u32 = 10;

#[derive(Debug)]
pub(crate) struct ClusterTrial<'a> {
    pub(crate) campaign: &'a ClusterCampaign,
    // Ordering: nodes are dropped before their databases, and those before the disk, which is in the state.
    pub(crate) nodes: Vec<ClusterNode>,
    pub(crate) pair: ReplicatedPair,
    schemas: Option<SchemaVersions>,
    /// The first movement of a clock.
    pub(crate) apart_us: i64,
    pub(crate) clocks_moved: u64,
    mesh: MeshPool,
    pub(crate) state: TrialState<'a, ClusterFault>,
}

impl<'a> trial::Trial<'a> for ClusterTrial<'a> {
    type Fault = ClusterFault;

    fn state(&self) -> &TrialState<'a, ClusterFault> {
        &self.state
    }

    fn run(&mut self, rounds: u64) -> io::Result<()> {
        for round in 1..=rounds {
            let end: Arc<AtomicBool> = Arc::default();
            let nodes = &self.nodes;
            let running = self.state.clients.send(round, 0..CLIENTS, |index| {
                nodes::endpoints(nodes, index, &end)
            })?;
            // Each begins at another node.
            let members = self
                .mesh
                .send(round, |index| nodes::endpoints(nodes, index, &end))?;
            let disturbed = self.disturb(round);
            if disturbed.is_ok() {
                self.alive(round);
                self.state.pause(AFTER_MS);
            }
            end.store(true, Ordering::Relaxed);
            self.state.clients.gather(running)?;
            self.mesh.gather(members)?;
            disturbed?;
            self.state.kills += 1;
            self.pair.until_whole()?;
            self.check_round(round)?;
            self.state.rounds = round;
            if !self.state.findings.is_clean() {
                return Ok(());
            }
        }
        let never: Arc<AtomicBool> = Arc::default();
        let nodes = &self.nodes;
        let endpoints = || nodes::endpoints(nodes, 0, &never);
        let shim = &self.campaign.base.shim;
        self.state
            .clients
            .drain(rounds + 1, DRAIN_LOOKS, shim, endpoints)?;
        let mut http = nodes::asker(&self.nodes, self.state.random.index(NODES))?;
        self.state
            .clients
            .check_all(&mut http, self.state.findings)?;
        self.mesh.check_all(&http, self.state.findings)?;
        self.check_store()
    }

    fn also(&self) -> Option<(&'static str, u64)> {
        (self.clocks_moved > 0).then_some(("moved_clocks", self.clocks_moved))
    }

    fn about(&self) -> String {
        match &self.schemas {
            Some(schemas) => schemas.about(),
            None => self.state.space.about().to_owned(),
        }
    }
}

impl<'a> ClusterTrial<'a> {
    pub(crate) fn prepare(
        campaign: &'a ClusterCampaign,
        task: &TrialTask<'_, ClusterFault>,
        findings: &'a mut Findings,
    ) -> io::Result<Self> {
        let folder = task.folder;
        let space = if task.fault == ClusterFault::FullDisk {
            let first = folder.join("a");
            std::fs::create_dir(&first)?;
            Space::limited(&first, FULL_BYTES)
        } else {
            Space::Unlimited
        };
        let pair = ReplicatedPair::make(folder, campaign)?;
        let newest = if task.fault == ClusterFault::Upgrade {
            Some(newest_schema(campaign, folder, &pair)?)
        } else {
            None
        };
        let hold = newest.map(|newest| newest - 1).filter(|hold| *hold > 0);
        let setup = NodeSetup {
            campaign,
            folder,
            hold,
        };
        let nodes = nodes::start(&setup, &pair)?;
        let mut mesh = MeshPool::new(folder, task.seed);
        mesh.register(&mut nodes[0].operator()?, &mut nodes::asker(&nodes, 0)?)?;
        if campaign.plant == Some(ClusterPlant::OnceWithoutIndex) {
            pair.sql("ALTER TABLE consign.once DROP CONSTRAINT once_pkey")?;
        }
        let schemas = match newest {
            None => None,
            Some(newest) => Some(SchemaVersions {
                first: schema(&pair)?,
                newest,
            }),
        };
        // Leases use the time of the database.
        let leases_apart_us = if task.fault == ClusterFault::PromoteClock {
            APART_US
        } else {
            0
        };
        let clients = ClientPool::new(folder, task.seed)
            .slow(task.fault == ClusterFault::StopNode)
            .clocks_apart(leases_apart_us);
        let mut state = TrialState::new(task, findings, space, clients);
        let begins_ahead = state.random.percent(50);
        Ok(Self {
            campaign,
            nodes,
            pair,
            schemas,
            apart_us: if begins_ahead { APART_US } else { -APART_US },
            clocks_moved: 0,
            mesh,
            state,
        })
    }

    /// Each node publishes, claims, fulfils and reads, within a time limit.
    pub(crate) fn alive(&mut self, round: u64) {
        let deadline = Instant::now() + ALIVE_LIMIT;
        for (index, node) in self.nodes.iter().enumerate() {
            let works = node.works(&format!("alive-{round}-{index}"), deadline);
            self.state
                .findings
                .check(Promise::Alive, works.is_ok(), || {
                    let why = works.as_ref().err();
                    format!("round {round}: after {ALIVE_LIMIT:?} node {index} answers {why:?}")
                });
        }
    }

    /// Checks the actions of a round as soon as its fault is over.
    fn check_round(&mut self, round: u64) -> io::Result<()> {
        let never: Arc<AtomicBool> = Arc::default();
        let state = &mut self.state;
        let first = state.random.index(NODES);
        let endpoints = nodes::endpoints(&self.nodes, first, &never)?;
        let mut http = nodes::asker(&self.nodes, first)?;
        let recent = state.check_round(round, endpoints, &mut http)?;
        if state.fault.is_felt() {
            let felt = recent.iter().any(|entry| entry.outcome.is_unknown());
            let findings = &mut *state.findings;
            findings.check(Promise::Felt, felt, || {
                format!("round {round}: nobody noticed the fault")
            });
        }
        if state.fault == ClusterFault::NodeClock && !restarts_with_another_clock(round) {
            verify::no_trouble(&recent, state.findings);
            self.mesh.no_trouble(round, state.findings);
        }
        self.mesh.check_round(round, &http, state.findings)
    }

    /// Checks the consistency of the whole ledger.
    fn check_store(&mut self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let url = self.pair.url();
        let found = runtime.block_on(async {
            let store = Postgres::open(Options {
                address: DatabaseAddress::parse(&url, None)?,
                clock: Arc::new(CampaignClock),
                queue_max: QUEUE_REQUESTS_MAX,
                writers: 1,
                node: 0,
                hold: None,
            });
            store.await?.check().await
        });
        let found = found.map_err(|error| io::Error::other(error.to_string()))?;
        self.state
            .findings
            .check(Promise::StoreSound, found.is_empty(), || found.join("; "));
        Ok(())
    }

    /// After an upgrade the schema must be the newest.
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
struct SchemaVersions {
    first: i32,
    newest: i32,
}

impl SchemaVersions {
    fn about(&self) -> String {
        let Self { first, newest } = self;
        if first < newest {
            return format!(" (from schema {first} to {newest})");
        }
        format!(" (all on schema {newest}: there is no older one, or this binary holds none back)")
    }
}

fn schema(pair: &ReplicatedPair) -> io::Result<i32> {
    let version = pair.sql("SELECT max(version) FROM consign.migrations")?;
    version.trim().parse().map_err(io::Error::other)
}

/// The newest schema of this binary, determined on a separate database.
fn newest_schema(
    campaign: &ClusterCampaign,
    folder: &Path,
    pair: &ReplicatedPair,
) -> io::Result<i32> {
    pair.sql("CREATE DATABASE newest")?;
    let url = pair.url_of("newest");
    let options: process::Options = campaign.options(&folder.join("newest"));
    let mut server = Server::start(&options.arg("--store").arg(&url))?;
    server.kill9()?;
    let version = pair.sql_in("newest", "SELECT max(version) FROM consign.migrations")?;
    version.trim().parse().map_err(io::Error::other)
}

/// The time of nodes and clients.
#[derive(Debug)]
struct CampaignClock;

impl Clock for CampaignClock {
    fn now(&self) -> Micros {
        Micros(now_us())
    }
}
