//! A stretch: one data directory, one fault, some rounds of start, work, fault, and check.
//!
//! Invariant: whatever the fault, a round ends with a dead server and a restart, and what its clients were told is
//! held against what the restarted server knows. At the end everything is held against it once more.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_testkit::campaign::clients::CLIENTS;
use consign_testkit::campaign::crowd::{AtWork, Crowd};
use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::reach::Reach;
use consign_testkit::campaign::turns::Task;
use consign_testkit::campaign::{leases, verify};
use consign_testkit::chance::Chance;
use consign_testkit::disk::Disk;
use consign_testkit::process::{Options, Server, cleaned, run};
use consign_testkit::space::Space;

use crate::fault::{Fault, Point};
use crate::ground::Ground;
use crate::workers::Workers;

/// Checking the store takes its lock, so it is done between two servers, now and then.
const CHECK_EVERY_ROUNDS: u64 = 10;
/// Room for a stretch, and quickly filled.
const FULL_BYTES: u64 = 96 << 20;
const CHECK_LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) fault: Fault,
    pub(crate) folder: PathBuf,
    pub(crate) options: Options,
    pub(crate) chance: Chance,
    pub(crate) findings: &'a mut Findings,
    pub(crate) space: Space,
    pub(crate) workers: Option<Workers>,
    pub(crate) crowd: Crowd,
    /// The disk as it was when the running server started, if its power is to be cut.
    disk: Option<Disk>,
    pub(crate) rounds: u64,
    pub(crate) kills: u64,
    /// Changes that did not reach the disk whole.
    pub(crate) lost_writes: u64,
}

impl<'a> Stretch<'a> {
    pub(crate) fn prepare(
        ground: &'a Ground,
        task: &Task<'_, Fault>,
        findings: &'a mut Findings,
    ) -> io::Result<Self> {
        let (fault, folder) = (task.fault, task.folder);
        let data = folder.join("data");
        DirBuilder::new().mode(0o700).create(&data)?;
        let space = if fault == Fault::Full {
            Space::limited(&data, FULL_BYTES)
        } else {
            Space::Unlimited
        };
        let mut options = ground.options(&data);
        if fault.loses_power() {
            options = ground.shim.logging(options, &log_file(folder));
        }
        Ok(Self {
            ground,
            fault,
            folder: folder.to_owned(),
            options,
            chance: Chance::new(task.seed),
            findings,
            space,
            workers: None,
            crowd: Crowd::new(folder, task.seed),
            disk: None,
            rounds: 0,
            kills: 0,
            lost_writes: 0,
        })
    }

    /// Runs until a promise is broken or all is checked.
    pub(crate) fn run(&mut self, rounds: u64) -> io::Result<()> {
        let mut server = self.start(None)?;
        for round in 1..=rounds {
            if self.fault == Fault::Failpoint
                && let Some(point) = Point::of_round(round).in_server()
            {
                server.kill9()?;
                server = self.start(Some(point))?;
            }
            let threads = self.send_clients(round, &server)?;
            self.disturb(round, &mut server)?;
            self.kills += 1;
            self.gather(threads)?;
            self.lose_power()?;
            if round % CHECK_EVERY_ROUNDS == 0 || round == rounds {
                self.check_store()?;
            }
            server = self.start(None)?;
            self.check_round(round, &server)?;
            self.rounds = round;
            if !self.findings.is_clean() {
                return Ok(());
            }
        }
        let reach = || server.main_client().map(Reach::one);
        self.crowd.drain(rounds + 1, 1, &self.ground.shim, reach)?;
        self.crowd
            .check_all(&mut server.main_client()?, self.findings)
    }

    /// Starts the server, to end itself at this point if one is given.
    fn start(&mut self, point: Option<&str>) -> io::Result<Server> {
        if self.fault.loses_power() {
            File::create(log_file(&self.folder))?;
            self.disk = Some(Disk::read(&self.options.data)?);
        }
        let mut options = self.options.clone();
        if let Some(point) = point {
            let nth = 1 + self.chance.below(200);
            options = options.env("CONSIGN_FAILPOINT", &format!("{point}:{nth}"));
        }
        Server::start(&options)
    }

    fn send_clients(&mut self, round: u64, server: &Server) -> io::Result<AtWork> {
        let elsewhere = if self.fault == Fault::Stop && !round.is_multiple_of(2) {
            self.workers = Some(Workers::start(self, round, server)?);
            Workers::INDEXES
        } else {
            0..0
        };
        let here = (0..CLIENTS).filter(|index| !elsewhere.contains(index));
        self.crowd
            .send(round, here, |_| server.main_client().map(Reach::one))
    }

    /// Waits for the clients, who notice that the server is gone.
    fn gather(&mut self, at_work: AtWork) -> io::Result<()> {
        if let Some(workers) = self.workers.take() {
            workers.wait()?;
        }
        self.crowd.gather(at_work)
    }

    /// Puts the data directory into the state in which a disk would be that lost its power.
    fn lose_power(&mut self) -> io::Result<()> {
        let Some(mut disk) = self.disk.take() else {
            return Ok(());
        };
        disk.replay(&fs::read(log_file(&self.folder))?, &mut self.chance);
        let loss = disk.cut_power(&mut self.chance);
        self.lost_writes += loss.dropped + loss.torn;
        disk.write(&self.options.data)
    }

    /// What must hold at once after a restart, for the acts of the round that ended with the fault.
    fn check_round(&mut self, round: u64, server: &Server) -> io::Result<()> {
        self.crowd
            .repeat(round, Reach::one(server.main_client()?))?;
        let recent = self.crowd.of_round(round);
        leases::judge(&recent, self.findings);
        if self.fault.hurts_the_disk() {
            let troubles = recent.iter().any(|entry| entry.heard.is_trouble());
            self.findings.check(Promise::TroubleAnswered, troubles, || {
                format!("round {round}: nobody heard of the trouble of the disk")
            });
        } else {
            verify::no_trouble(&recent, self.findings);
        }
        verify::acknowledged(&recent, &mut server.main_client()?, self.findings)
    }

    fn check_store(&mut self) -> io::Result<()> {
        let mut command = cleaned(&self.ground.consign);
        command.args(["store", "check", "--json", "--data"]);
        command.arg(&self.options.data);
        let output = run(command, CHECK_LIMIT)?;
        self.findings
            .check(Promise::StoreSound, output.status.success(), || {
                let said = [output.stdout.as_slice(), &output.stderr].concat();
                String::from_utf8_lossy(&said).into_owned()
            });
        Ok(())
    }

    /// Makes sure that what is needed to understand a finding stays.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.space.keep(&self.folder.join("data-of-the-full-disk"))
    }
}

/// Where the shim writes down what happens to the data directory.
fn log_file(folder: &Path) -> PathBuf {
    folder.join("changes.log")
}
