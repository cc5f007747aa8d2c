//! A trial: one data directory, one fault, rounds of start, work, fault and check.
//!
//! Invariant: a round ends with a dead server and a restart, and the responses of its clients are compared with the
//! state of the restarted server. At the end everything is compared once more.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_testkit::campaign::beam::BeamPool;
use consign_testkit::campaign::client_pool::{ClientPool, RunningClients};
use consign_testkit::campaign::clients::CLIENTS;
use consign_testkit::campaign::endpoints::Endpoints;
use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::mesh::MeshPool;
use consign_testkit::campaign::runner::TrialTask;
use consign_testkit::campaign::trial::{self, TrialState};
use consign_testkit::campaign::verify;
use consign_testkit::disk::Disk;
use consign_testkit::process::{self, Options, Server, cleaned, run};
use consign_testkit::space::Space;

use crate::campaign::CrashCampaign;
use crate::fault::{CrashFault, FailPoint};
use crate::workers::Workers;

/// Checking the store needs its lock, so it is done between two servers, now and then.
const CHECK_EVERY_ROUNDS: u64 = 10;
/// Enough for a trial, and quickly filled.
const FULL_BYTES: u64 = 96 << 20;
/// Starts per round: about one in a hundred reaches its failpoint too early.
const STARTS_MAX: u32 = 5;
const CHECK_LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct CrashTrial<'a> {
    pub(crate) campaign: &'a CrashCampaign,
    pub(crate) options: Options,
    pub(crate) workers: Option<Workers>,
    beam: BeamPool,
    mesh: MeshPool,
    /// The disk at the start of the running server, if its power is cut.
    disk: Option<Disk>,
    /// Writes that did not reach the disk completely.
    lost_writes: u64,
    pub(crate) state: TrialState<'a, CrashFault>,
}

impl<'a> trial::Trial<'a> for CrashTrial<'a> {
    type Fault = CrashFault;

    fn state(&self) -> &TrialState<'a, CrashFault> {
        &self.state
    }

    fn run(&mut self, rounds: u64) -> io::Result<()> {
        let mut server = self.start()?;
        self.beam.register(&mut server.http())?;
        let mut operator = server.admin_client()?;
        self.mesh.register(&mut operator, &mut server.http())?;
        for round in 1..=rounds {
            if self.state.fault == CrashFault::Failpoint
                && let Some(point) = FailPoint::of_round(round).in_server()
            {
                server.kill9()?;
                server = self.start_to_end_at(point)?;
            }
            let threads = self.send_clients(round, &server)?;
            let beam_clients = self.beam.send(round, || server.http())?;
            let members = self
                .mesh
                .send(round, |_| Ok(Endpoints::one(server.http())))?;
            self.disturb(round, &mut server)?;
            self.state.kills += 1;
            self.gather(threads)?;
            self.beam.gather(beam_clients)?;
            self.mesh.gather(members)?;
            self.lose_power()?;
            if round % CHECK_EVERY_ROUNDS == 0 || round == rounds {
                self.check_store()?;
            }
            server = self.start()?;
            self.check_round(round, &server)?;
            self.state.rounds = round;
            if !self.state.findings.is_clean() {
                return Ok(());
            }
        }
        let endpoints = || server.main_client().map(Endpoints::one);
        let TrialState {
            clients, findings, ..
        } = &mut self.state;
        clients.drain(rounds + 1, 1, &self.campaign.base.shim, endpoints)?;
        clients.check_all(&mut server.main_client()?, findings)?;
        self.beam.check_all(|| server.http(), findings)?;
        self.mesh.check_all(&server.http(), findings)
    }

    fn also(&self) -> Option<(&'static str, u64)> {
        Some(("lost_writes", self.lost_writes))
    }

    fn about(&self) -> String {
        self.state.space.about().to_owned()
    }
}

impl<'a> CrashTrial<'a> {
    pub(crate) fn prepare(
        campaign: &'a CrashCampaign,
        task: &TrialTask<'_, CrashFault>,
        findings: &'a mut Findings,
    ) -> io::Result<Self> {
        let (fault, folder) = (task.fault, task.folder);
        let data = folder.join("data");
        DirBuilder::new().mode(0o700).create(&data)?;
        let space = if fault == CrashFault::Full {
            Space::limited(&data, FULL_BYTES)
        } else {
            Space::Unlimited
        };
        let beam = BeamPool::new(folder, task.seed);
        let options = beam.configure(campaign.options(&data))?;
        let mut options = MeshPool::configure(options);
        if fault.loses_power() {
            options = campaign.base.shim.logging(options, &log_file(folder));
        }
        Ok(Self {
            campaign,
            options,
            workers: None,
            beam,
            mesh: MeshPool::new(folder, task.seed),
            disk: None,
            lost_writes: 0,
            state: TrialState::new(task, findings, space, ClientPool::new(folder, task.seed)),
        })
    }

    fn start(&mut self) -> io::Result<Server> {
        if self.state.fault.loses_power() {
            File::create(log_file(&self.state.folder))?;
            self.disk = Some(Disk::read(&self.options.data)?);
        }
        Server::start(&self.options)
    }

    /// Starts a server that kills itself at this point. A start writes too, so it may reach the point before it
    /// responds; then no client has worked, and another server is started on the same data.
    fn start_to_end_at(&mut self, point: &str) -> io::Result<Server> {
        let mut starts = 1;
        loop {
            let nth = 1 + self.state.random.below(200);
            let options = self.options.clone();
            let options = options.env("CONSIGN_FAILPOINT", &format!("{point}:{nth}"));
            match Server::start(&options) {
                Err(error) if process::killed_at_start(&error) && starts < STARTS_MAX => {
                    starts += 1;
                }
                started => return started,
            }
        }
    }

    fn send_clients(&mut self, round: u64, server: &Server) -> io::Result<RunningClients> {
        let elsewhere = if self.state.fault == CrashFault::Stop && !round.is_multiple_of(2) {
            self.workers = Some(Workers::start(self, round, server)?);
            Workers::INDEXES
        } else {
            0..0
        };
        let here = (0..CLIENTS).filter(|index| !elsewhere.contains(index));
        self.state
            .clients
            .send(round, here, |_| server.main_client().map(Endpoints::one))
    }

    /// Waits for the clients, which notice that the server is gone.
    fn gather(&mut self, running: RunningClients) -> io::Result<()> {
        if let Some(workers) = self.workers.take() {
            workers.wait()?;
        }
        self.state.clients.gather(running)
    }

    /// Puts the data directory into the state after a power cut.
    fn lose_power(&mut self) -> io::Result<()> {
        let Some(mut disk) = self.disk.take() else {
            return Ok(());
        };
        disk.replay(
            &fs::read(log_file(&self.state.folder))?,
            &mut self.state.random,
        );
        let loss = disk.cut_power(&mut self.state.random);
        self.lost_writes += loss.dropped + loss.torn;
        disk.write(&self.options.data)
    }

    /// Checks after a restart the actions of the round that ended with the fault.
    fn check_round(&mut self, round: u64, server: &Server) -> io::Result<()> {
        let state = &mut self.state;
        let endpoints = Endpoints::one(server.main_client()?);
        let recent = state.check_round(round, endpoints, &mut server.main_client()?)?;
        if state.fault.hurts_the_disk() {
            // A server whose sync failed answers one group and ends; that group may contain requests of Beam alone.
            let troubles = recent.iter().any(|entry| entry.outcome.is_trouble())
                || self.beam.heard_of_trouble(round);
            let findings = &mut *state.findings;
            findings.check(Promise::TroubleAnswered, troubles, || {
                format!("round {round}: nobody heard of the trouble of the disk")
            });
        } else {
            verify::no_trouble(&recent, state.findings);
            self.beam.no_trouble(round, state.findings);
            self.mesh.no_trouble(round, state.findings);
        }
        self.beam
            .check_round(round, &mut server.http(), state.findings)?;
        self.mesh.check_round(round, &server.http(), state.findings)
    }

    fn check_store(&mut self) -> io::Result<()> {
        let mut command = cleaned(&self.campaign.base.consign);
        command.args(["store", "check", "--json", "--data"]);
        command.arg(&self.options.data);
        let output = run(command, CHECK_LIMIT)?;
        let is_sound = output.status.success() || only_the_clock(&output.stdout);
        self.state
            .findings
            .check(Promise::StoreSound, is_sound, || {
                let said = [output.stdout.as_slice(), &output.stderr].concat();
                String::from_utf8_lossy(&said).into_owned()
            });
        Ok(())
    }
}

/// Whether the only finding is that the ledger is ahead of the clock: the campaign moves the servers' clocks, not
/// that of the check.
fn only_the_clock(printed: &[u8]) -> bool {
    let report: serde_json::Value = serde_json::from_slice(printed).unwrap_or_default();
    let findings = report["findings"].as_array();
    findings.is_some_and(|findings| {
        let mut findings = findings
            .iter()
            .map(|finding| finding.as_str().unwrap_or_default());
        findings.all(|finding| finding.starts_with("time: "))
    })
}

/// The log of the shim with all changes of the data directory.
fn log_file(folder: &Path) -> PathBuf {
    folder.join("changes.log")
}
